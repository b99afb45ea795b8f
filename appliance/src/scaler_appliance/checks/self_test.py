"""`scaler_scheduler --self-test`: whether this scheduler works on this machine, shown by tasks that run through it.

    this thread      the scheduler's program, at tcp://127.0.0.1:0 ◀────── end of standard input ───┐
                          │ READY=1                                                                 │
    another thread        └──▶ by the local socket: client, task, worker ─▶ by TCP: the same, with CURVE

Rules:
- The scheduler is the program itself: its options, event loop and keys. Its port is a free one of loopback.
- It ends when its standard input does, and not by a signal: that could come when it has ended already.
- Client and worker are the protocol package alone. A task is a list in JSON that the worker returns as it is.
- What the caller's environment says about schedulers and service managers does not apply.
- Everything is in one new folder, which is removed: keys, log, objects.
- Each check that holds is a line of the output; the first that does not is an error that says what to do. Every wait
  ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from typing import Iterator, List, Optional

import scaler_appliance
from scaler_appliance.checks.waiting_peer import (
    MAXIMUM_MESSAGE_BYTES,
    SOCKET_TYPE,
    RefusedPeerError,
    WaitingPeer,
    connect_stream,
)
from scaler_appliance.shell.scheduler_options import version
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import Address, AttemptsFailedError, parse_address
from scaler_protocol.host.connection import connect_to_local_socket
from scaler_protocol.host.sodium import MissingLibraryError, load_sodium
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.wire.errors import ProtocolError
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import Zmtp

TIMEOUT_SECONDS = 30.0  # of everything, on a machine that is busy with other things
ADDRESS = "tcp://127.0.0.1:0"
FUNCTION, CODEC = "scaler.self-test/echo", "json"
ARGUMENTS = json.dumps(["Scaler", 2.5, [None, True]]).encode()
MEMORY_FOLDER = "/dev/shm"  # often the only place to write to in a container

_ENDED = b"ENDED"


class SelfTestError(Exception):
    """What does not work, and what to do."""


def main() -> int:
    """Run the test; returns the exit code: 0 if everything works, else 1."""
    try:
        _check_all()
    except SelfTestError as error:
        sys.stdout.flush()
        print(f"scaler_scheduler: the self-test failed: {error}", file=sys.stderr)
        return 1
    print("ok")
    return 0


def _check_all() -> None:
    _forget_environment()
    try:
        print(version())
    except ImportError as error:
        raise SelfTestError(f"libzmq cannot be loaded ({error}); install this program again") from None
    print(f"program: {_shown(os.path.dirname(os.path.abspath(scaler_appliance.__file__)))}")
    try:
        sodium = load_sodium()
        keys = sodium.new_keys()
    except MissingLibraryError as error:
        raise SelfTestError(str(error)) from None
    if sodium.public_key(keys.secret) != keys.public:
        raise SelfTestError(f"libsodium of {sodium.source} computes wrong keys; install this program again")
    print(f"libsodium: {_shown(sodium.source)}")
    with _own_folder() as folder:
        _SchedulerTest(folder).run()


def _shown(path: str) -> str:
    """A path for people, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "replace")


def _forget_environment() -> None:
    for name in list(os.environ):
        if name.startswith(("SCALER_", "NOTIFY_", "WATCHDOG_", "LISTEN_")):
            del os.environ[name]


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """A new folder, for as long as the test takes."""
    try:
        parent = tempfile.gettempdir()
    except OSError as error:
        if not os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
            text = f"there is no folder for temporary files ({error}); name one that can be written to in TMPDIR"
            raise SelfTestError(text) from None
        parent = MEMORY_FOLDER
    try:
        folder = tempfile.mkdtemp(prefix="scaler-self-test-", dir=parent)
    except OSError as error:
        text = f"no folder can be made in {parent} ({error.strerror}); name another one in TMPDIR"
        raise SelfTestError(text) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _SchedulerTest:
    """A scheduler, and a thread with its peers.

    Parameters:
        folder: for everything that is written.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._keys, self._log, self._address_file = (os.path.join(folder, name) for name in ("keys", "log", "address"))
        self._deadline = time.monotonic() + TIMEOUT_SECONDS
        self._has_passed = False
        self._error: Optional[Exception] = None

    def run(self) -> None:
        """Raises SelfTestError."""
        # This process, as the service manager of its scheduler, learns when it listens.
        name = f"@scaler/self-test-{os.getpid()}-{os.urandom(8).hex()}"
        if not sys.platform.startswith("linux"):
            name = os.path.join(self._folder, "notifications")
        notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with notifications:
            notifications.bind("\0" + name[1:] if name.startswith("@") else name)
            os.environ["NOTIFY_SOCKET"] = name
            reader, writer = os.pipe()
            os.dup2(reader, 0)
            os.close(reader)
            if sys.stdin is None:  # it was closed
                sys.stdin = open(0, closefd=False)
            peers = threading.Thread(target=self._test_by_peers, args=(notifications, writer))
            peers.start()
            try:
                code = self._run_scheduler()
            finally:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                    end.sendto(_ENDED, notifications.getsockname())
                peers.join()
        if self._error is not None:
            raise SelfTestError(f"{self._error}{self._end_of_log()}") from None
        if code != 0 or not self._has_passed:
            text = f"the scheduler ended with exit code {code} before the tasks were done"
            raise SelfTestError(f"{text}{self._end_of_log()}")
        print("stopped when asked to")

    def _run_scheduler(self) -> int:
        from scaler_appliance.shell.scheduler_program import main as run_scheduler

        options = [ADDRESS, "--keys", self._keys, "--monitor-address", ADDRESS, "--address-file", self._address_file]
        options += ["--object-directory", self._folder, "--object-spill-directory", self._folder, "--no-announce"]
        try:
            return run_scheduler([*options, "--logging-paths", self._log, "--exit-when-stdin-closes"])
        except SystemExit as end:  # options that cannot be used: it has said why
            return end.code if isinstance(end.code, int) else 1

    def _test_by_peers(self, notifications: socket.socket, standard_input: int) -> None:
        """What happens in the other thread: when the scheduler listens, use it, and end its standard input."""
        try:
            if not self._listens(notifications):
                return  # the scheduler has said why
            with open(self._address_file, encoding="utf-8") as file:
                address = parse_address(file.readline().strip())
            self._test_local_socket(address)
            self._test_curve(address)
            self._has_passed = True
        except (OSError, ProtocolError, RefusedPeerError, KeyFileError, SelfTestError) as error:
            self._error = error
        finally:
            os.close(standard_input)

    def _listens(self, notifications: socket.socket) -> bool:
        while True:
            notifications.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                said = notifications.recv(1 << 16)
            except socket.timeout:
                raise SelfTestError(f"the scheduler does not listen after {TIMEOUT_SECONDS:.0f} s") from None
            if said == _ENDED:
                return False
            if b"READY=1" in said.split(b"\n"):
                return True

    def _test_local_socket(self, address: Address) -> None:
        def connect() -> Optional[WaitingPeer]:
            stream = connect_to_local_socket(address)
            if stream is None:
                return None
            return WaitingPeer(stream, Zmtp(SOCKET_TYPE, MAXIMUM_MESSAGE_BYTES), self._deadline)

        client = connect()
        worker = connect() if client is not None else None
        if client is None or worker is None:
            print("local socket: not available here; programs on this host use TCP")
            return
        print(f"local socket: a task took {_run_task(client, worker) * 1000:.1f} ms")

    def _test_curve(self, address: Address) -> None:
        owner = KeyDirectory(self._keys).owner()
        security = ClientSecurity(load_sodium(), owner.keys, owner.server_keys[0])

        def connect() -> WaitingPeer:
            try:
                stream = connect_stream([address], self._deadline)
            except OSError as error:
                cause = error.failures[0][2] if isinstance(error, AttemptsFailedError) else error
                text = f"{address} cannot be reached ({cause.strerror or cause}), and programs on other hosts use TCP"
                raise SelfTestError(
                    f"{text}; see whether the loopback interface is up, and what a firewall does"
                ) from None
            return WaitingPeer(stream, SecureZmtp(security, SOCKET_TYPE, MAXIMUM_MESSAGE_BYTES), self._deadline)

        print(f"{address}, encrypted by CURVE: a task took {_run_task(connect(), connect()) * 1000:.1f} ms")

    def _end_of_log(self) -> str:
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                lines: List[str] = file.read().splitlines()[-10:]
        except OSError:
            return ""
        return "\nthe end of the scheduler's log:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _run_task(client: WaitingPeer, worker: WaitingPeer) -> float:
    """Let a worker do a task of a client; the seconds from the task to its result.

    Raises OSError, ProtocolError, RefusedPeerError, or SelfTestError if what comes back is not what it should be.
    """
    with client, worker:
        for peer in (client, worker):
            peer.shake_hands()
        worker.join(m.Role.WORKER, [CODEC], [FUNCTION])
        client.join(m.Role.CLIENT, [CODEC], [])
        begin = time.monotonic()
        client.send(m.Task(ids=[1], payload_sizes=[len(ARGUMENTS)], function_name=FUNCTION, codec=CODEC), ARGUMENTS)
        task, arguments = worker.take(m.Task)
        answer = json.dumps(json.loads(arguments)).encode()
        worker.send(m.TaskResult(ids=task.ids, payload_sizes=[len(answer)], codec=CODEC), answer)
        result, content = client.take(m.TaskResult)
        seconds = time.monotonic() - begin
        if list(result.ids) != [1] or json.loads(content) != json.loads(ARGUMENTS):
            raise SelfTestError(f"the task returned {content!r} instead of {ARGUMENTS!r}; install this program again")
        client.leave()
        worker.leave()
    return seconds
