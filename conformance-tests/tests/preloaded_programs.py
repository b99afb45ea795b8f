"""Programs in Python that start without importing: each is a copy of a process that has imported what they need.

    a test ──command, environment, standard streams, a pipe──▶ a process that has imported ──fork──▶ the program
           ◀──its process id; later, through the pipe, its exit code──┘

Rules:
- `start` is called as `subprocess.Popen` is by the suite. The program is the leader of a session, and has in /proc the
  mark that the suite gave it. `run` is like `subprocess.run`.
- The program ends as any Python does: its threads are joined, its exit functions called and its output flushed. But it
  does not free its modules, for which the system would copy all that has been imported.
- The process that has imported has one thread, and ends when its other end is closed.
- How a program starts by itself is not tried so: others do that.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

MARK = "SCALER_CONFORMANCE_RUN"
MARK_LENGTH = 32
MOST_BYTES = 1 << 16
RUN_SECONDS = 60.0
_LENGTH = struct.Struct("!I")
_PROCESS_ID = struct.Struct("!i")


class PreloadedProcess:
    """One of the programs: what the suite uses of a Popen.

    Parameters:
        pid: of the process.
        end: the pipe from which its exit code can be read.
    """

    def __init__(self, pid: int, end: int, stdin: Optional[IO[bytes]], stdout: Optional[IO[bytes]]) -> None:
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout
        self.returncode: Optional[int] = None
        self._end = os.fdopen(end, "rb")

    def poll(self) -> Optional[int]:
        return self.wait() if self.returncode is None and select.select([self._end], [], [], 0)[0] else self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        if self.returncode is None:
            if timeout is not None and not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._end.read())
            self._end.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since: another process waits for it
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class PreloadedPrograms:
    """Starts programs.

    Parameters:
        modules: to be imported once.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._channel, far = socket.socketpair()
        self._lock = threading.Lock()
        with far:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(far.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[far.fileno()],
                env={**os.environ, MARK: "0" * MARK_LENGTH},
            )

    def __enter__(self) -> PreloadedPrograms:
        return self

    def __exit__(self, *details: object) -> None:
        self._channel.close()
        self._process.wait()

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: Any,
        stderr: IO[bytes],
        start_new_session: bool,
        env: Mapping[str, str],
        cwd: Optional[Path] = None,
    ) -> PreloadedProcess:
        """Start a command of this interpreter: `python -m MODULE ...`, `python FILE ...` or `FILE ...`."""
        assert start_new_session and len(env.get(MARK, "0" * MARK_LENGTH)) == MARK_LENGTH
        words = list(command[1:]) if Path(command[0]).name == "python" else list(command)
        request = json.dumps({"words": words, "environment": dict(env), "folder": str(cwd or Path.cwd())}).encode()
        end, far_end = os.pipe()
        theirs = [far_end]
        ours: List[Optional[IO[bytes]]] = [None, None]
        streams: List[int] = []
        for place, given in enumerate((stdin, stdout)):
            if given == subprocess.DEVNULL:
                streams.append(os.open(os.devnull, os.O_RDWR))
                theirs.append(streams[-1])
            elif given == subprocess.PIPE:
                reader, writer = os.pipe()
                ours[place] = os.fdopen(reader, "rb", buffering=0) if place else os.fdopen(writer, "wb", buffering=0)
                streams.append(writer if place else reader)
                theirs.append(streams[-1])
            else:
                streams.append(given.fileno())
        with self._lock:
            socket.send_fds(self._channel, [_LENGTH.pack(len(request))], [*streams, stderr.fileno(), far_end])
            self._channel.sendall(request)
            (process_id,) = _PROCESS_ID.unpack(self._channel.recv(_PROCESS_ID.size))
        for descriptor in theirs:
            os.close(descriptor)
        return PreloadedProcess(process_id, end, ours[0], ours[1])

    def run(
        self, command: Sequence[str], env: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = self.start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env=os.environ if env is None else env,
                cwd=cwd,
            )
            try:
                code = process.wait(RUN_SECONDS)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            for file in (output, errors):
                file.seek(0)
            return subprocess.CompletedProcess(command, code, output.read().decode(), errors.read().decode())


# The process that has imported ----------------------------------------------------------------------------------------


class _Request(NamedTuple):
    words: List[str]
    environment: Dict[str, str]
    folder: str
    streams: List[int]


def _serve(channel: socket.socket) -> Optional[_Request]:
    """Start what is asked for; returns that in each copy, and None in this process when it is to end."""
    woken, wakes = os.pipe()
    for descriptor in (woken, wakes):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    ends: Dict[int, int] = {}
    while True:
        ready = select.select([channel.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, MOST_BYTES)
            _reap(ends)
        if channel.fileno() not in ready:
            continue
        length, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, 4)
        if not length:
            return None
        text = channel.recv(_LENGTH.unpack(length)[0], socket.MSG_WAITALL)
        *streams, end = descriptors
        process_id = os.fork()
        if not process_id:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            for descriptor in (woken, wakes, end, *ends.values()):
                os.close(descriptor)
            return _Request(**json.loads(text), streams=streams)
        ends[process_id] = end
        for descriptor in streams:
            os.close(descriptor)
        channel.sendall(_PROCESS_ID.pack(process_id))


def _reap(ends: Dict[int, int]) -> None:
    while ends:
        process_id, status = os.waitpid(-1, os.WNOHANG)
        if not process_id:
            return
        end = ends.pop(process_id)
        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


def _become(request: _Request) -> None:
    """Be the program, to its end."""
    code = 0
    try:
        _run(request)
    except SystemExit as leave:
        if not isinstance(leave.code, (int, type(None))):
            raise  # Python says why
        code = leave.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # as Python itself does
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python says what it can
    os._exit(code & 0xFF)


def _run(request: _Request) -> None:
    os.setsid()
    for number, descriptor in enumerate(request.streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if MARK in request.environment:
        _mark(request.environment[MARK])
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    words = request.words
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


def _mark(value: str) -> None:
    """Put a mark where /proc looks for a process's environment: what it began with, in place."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    ctypes.memmove(library.getenv(MARK.encode()), value.encode(), MARK_LENGTH)


def main(channel: str, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(channel)))
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main(*sys.argv[1:])
