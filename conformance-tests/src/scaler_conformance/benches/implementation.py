"""Starting the implementation under test, once for each case, and making sure that no process of it stays.

Rules:
- It runs in its own session and process group. Each of its processes has a mark in its environment, so that processes
  that have left the group are found as well, where the system has /proc.
- The end of its standard error is kept, and shown if the case fails.
- However a case ends, all its processes are killed and reaped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, Dict, List, Mapping, Optional, Sequence

KEYS, NO_KEYS = "keys", "no-keys"
MARK = "SCALER_CONFORMANCE_RUN"
_MOST_OUTPUT_BYTES = 16 * 1024
_LOOK_SECONDS = 0.01


class NotStartedError(Exception):
    """The implementation's command cannot be started."""


class Running:
    """A started implementation, created by a Launcher."""

    process_id: int = 0
    stdin: Optional[IO[bytes]] = None
    stdout: Optional[IO[bytes]] = None

    def exit_code(self) -> Optional[int]:
        """None while it runs; the negative number of a signal that killed it."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask it to end: SIGTERM."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill it and everything that it started."""
        raise NotImplementedError

    def reload(self) -> None:
        """Ask it to read its list of keys again: SIGHUP."""
        raise NotImplementedError

    def left_behind(self) -> List[str]:
        """Descriptions of its processes that still run."""
        return []

    def output(self) -> str:
        """The end of its standard error."""
        return ""

    def wait(self, seconds: float) -> Optional[int]:
        """Its exit code, or None if it has not ended within this time."""
        deadline = time.monotonic() + seconds
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return self.exit_code()

    def wait_until_gone(self, seconds: float) -> List[str]:
        """Its processes that are still there after this time."""
        deadline = time.monotonic() + seconds
        left = self.left_behind()
        while left and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            left = self.left_behind()
        return left


class Launcher:
    """Starts implementations."""

    name = ""

    def start(self, values: Dict[str, str], pipes: bool = False) -> Running:
        """Start an implementation.

        Parameters:
            values: what replaces `{address}` and other names in the command.
            pipes: whether the suite writes to its standard input and reads its standard output.

        Raises NotStartedError.
        """
        raise NotImplementedError

    def has_variant(self, name: str) -> bool:
        """Whether it can be started in this variant, given as `variant` among the values; see features.py."""
        return False


class CommandLauncher(Launcher):
    """Starts a command.

    Parameters:
        command: program and arguments, with `{address}` in place of the address.
        variants: arguments that are appended for a variant, by its name.
    """

    def __init__(self, command: Sequence[str], variants: Optional[Mapping[str, List[str]]] = None) -> None:
        self.command = list(command)
        self.variants = variants or {}
        self.name = Path(command[0]).name if command else ""

    def start(self, values: Dict[str, str], pipes: bool = False) -> Running:
        variant = values.get("variant", "")
        more = [*self.variants.get(variant, []), *([] if variant == KEYS else self.variants.get(NO_KEYS, []))]
        command = [_filled(argument, values) for argument in [*self.command, *more]]
        try:
            return _RunningCommand(command, pipes)
        except OSError as error:
            raise NotStartedError(
                f"{command[0]} cannot be started: {error.strerror or error}; give the path of an executable program"
            ) from None

    def has_variant(self, name: str) -> bool:
        return name in self.variants


def _filled(argument: str, values: Dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


class _RunningCommand(Running):
    def __init__(self, command: List[str], pipes: bool) -> None:
        self._mark = uuid.uuid4().hex
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else self._errors,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, MARK: self._mark},
        )
        self.process_id = self._process.pid
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    def exit_code(self) -> Optional[int]:
        return self._process.poll()

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def reload(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process_id, signal.SIGKILL)
        for process_id in self._marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        self._process.wait()
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def left_behind(self) -> List[str]:
        if self._process.poll() is None:
            return [f"process {self.process_id}"]
        return [f"process {process_id} ({_command_of(process_id)})" for process_id in self._marked()]

    def output(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        start = max(0, size - _MOST_OUTPUT_BYTES)
        return os.pread(self._errors.fileno(), _MOST_OUTPUT_BYTES, start).decode("utf-8", "replace")

    def _marked(self) -> List[int]:
        """Processes with our mark, except zombies."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                if wanted in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found


def _command_of(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"
