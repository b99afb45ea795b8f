"""A scheduler that only keys open: at an address of this host beside which there is no local socket."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from sdk_tasks import wait_for

from scaler import Client
from scaler.cluster.appliance import scheduler_command
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.allow_list import Grant, usual_tenant
from scaler_protocol.keys.expiry import time_text
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import KeyFile, write_key_file

TESTS = str(Path(__file__).parents[1])
ADDRESS = "tcp://127.0.0.2:0"
TIMEOUT_SECONDS = 60.0
StartWorker = Callable[..., "subprocess.Popen[bytes]"]


class KeyedScheduler:
    """The process and its folder of keys.

    Parameters:
        folder: for its files.
        options: of the command line.
        address: where it listens.
        command: that starts it.
    """

    def __init__(self, folder: Path, *options: str, address: str = ADDRESS, command: Sequence[str] = ()) -> None:
        self.folder, self._options = folder, options
        self._command = command or scheduler_command()
        self.keys = KeyDirectory(str(folder / "keys"))
        self.log_file = folder / "scheduler.log"
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.address, self.monitor_address = address, ""
        self.start()

    def start(self) -> None:
        """Start it, again at the same address if it had one."""
        address_file = self.folder / "address"
        address_file.unlink(missing_ok=True)
        options = ["--keys", self.keys.path, "--address-file", str(address_file), "-lp", str(self.log_file)]
        self.process = subprocess.Popen([*self._command, self.address, *options, *self._options])
        wait_for(lambda: address_file.exists() and address_file.read_text().count("\n") == 2, "the scheduler to listen")
        self.address, self.monitor_address = address_file.read_text().splitlines()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for_log(self, text: str) -> None:
        wait_for(lambda: text in self.log, f"{text!r} in the log of the scheduler")

    def new_key(self, role: str, name: str = "", expires: Optional[float] = None, tenant: str = "") -> Path:
        """A file with a key that the scheduler admits once it loads its list again."""
        name, tenant = name or role, tenant or usual_tenant(role)
        server_keys = tuple(pair.public for pair in self.keys.server_key_pairs())
        key_file = KeyFile(role, tenant, name, load_sodium().new_keys(), server_keys, expires)
        self.keys.add(Grant(role, tenant, name, expires), key_file.keys.public)
        path = self.folder / f"{name}.key"
        write_key_file(str(path), key_file)
        return path

    def admitted_key(self, role: str, name: str = "", expires: Optional[float] = None, tenant: str = "") -> Path:
        """A file with a key that the scheduler admits."""
        path = self.new_key(role, name, expires, tenant)
        self.reload()
        return path

    def expire(self, at: float, *names: str) -> None:
        """Admitted keys of these names expire at a time: peers that use them had all the time to connect.

        Parameters:
            at: in Unix seconds, rounded down.
        """
        list_file = Path(self.keys.path, "authorized_keys")
        text = list_file.read_text()
        for name in names:
            text, count = re.subn(rf"(?<= name={re.escape(name)})$", f" expires={time_text(at)}", text, flags=re.M)
            assert count == 1, name
        list_file.write_text(text)
        self.reload()

    def reload(self) -> None:
        """The scheduler loads its list again."""
        assert self.process is not None
        count = self.log.count("the keys were loaded again")
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.log.count("the keys were loaded again") > count, "the keys to be loaded")

    def client(self, key_file: Path, **options: Any) -> Client:
        return Client(address=self.address, key_file=key_file, **options)

    def worker(
        self,
        *options: str,
        key_file: Optional[Path] = None,
        address: str = "",
        environment: Optional[Mapping[str, str]] = None,
        program: Sequence[str] = ("-m", "scaler.worker"),
    ) -> subprocess.Popen[bytes]:
        """A worker with one slot."""
        key = [] if key_file is None else ["--key-file", str(key_file)]
        command = [sys.executable, *program, address or self.address, "-n", "1", *key, *options]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": TESTS, **(environment or {})})
