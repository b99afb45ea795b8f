"""A program of ours running as a child process.

Rules:
- The child's standard input is a pipe that only this process holds: when this process ends, however it ends, the pipe
  closes and the child stops.
- If this process has no standard output or error, the child's is discarded.
- The child has a session of its own, so that Ctrl-C reaches only this program, which may have more to do.
- Stopping takes a bounded time: SIGTERM, a grace period, SIGKILL. A worker that is to stop without finishing its tasks
  learns so from its pipe, which is closed before.
- A child does not notify the service manager of this process.
- A fork of this process leaves the child to it.
- A child that ends without having been asked to is restarted if `scaler.restarts` says so. If not, and it has failed,
  that is an error in the log: a notebook may not show what it said itself.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import threading
import time
import weakref
from math import inf
from types import TracebackType
from typing import Dict, List, Optional, Sequence, Type, TypeVar

from scaler.arguments import Duration, seconds, size_in_bytes
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.exceptions import AlreadyStartedError, ProgramStartError
from scaler.restarts import Restarts
from scaler.supported_systems import check_system
from scaler_protocol.programs.service_manager import without_service_manager

STOP_TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = 2.0  # while the system has no room for another process

logger = logging.getLogger("scaler")

Started = TypeVar("Started", bound="ChildProgram")


class ChildProgram:
    """A child process; a context manager that stops it.

    Parameters:
        command: the program and its arguments.
        environment: variables that differ from this process's.
        is_replaced: whether another process is started when this one is killed.
        stops_at_once: `shutdown` closes the pipe first, and then sends SIGTERM.
        stop_timeout_seconds: the grace period.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Optional[Dict[str, str]] = None,
        is_replaced: bool = False,
        stops_at_once: bool = False,
        stop_timeout_seconds: float = STOP_TIMEOUT_SECONDS,
    ) -> None:
        self._command: List[str] = list(command)
        self._environment = environment
        self._is_replaced = is_replaced
        self._stops_at_once = stops_at_once
        self._stop_timeout_seconds = stop_timeout_seconds
        self._child: Optional[_Child] = None

    def start(self) -> None:
        """Start the process. Raises ProgramStartError if the program cannot be run."""
        check_system()
        self._launch(())

    def _launch(self, pass_fds: Sequence[int]) -> None:
        if self._child is not None:
            raise AlreadyStartedError(f"this {type(self).__name__} was started before; make another one")
        try:
            child = _Child(
                self._command,
                {**without_service_manager(os.environ), **(self._environment or {})},
                pass_fds,
                self._stops_at_once,
                self._stop_timeout_seconds,
            )
        except OSError as error:
            raise ProgramStartError(
                f"`{shlex.join(self._command)}` cannot be run ({error.strerror or error}): is the program installed?"
            ) from error
        self._child = child
        self._finalizer = weakref.finalize(self, child.stop)
        if self._is_replaced:  # by a thread that refers to the child only, so that deleting this object ends the child
            child.start_watching()

    @property
    def _process(self) -> Optional[subprocess.Popen[bytes]]:
        return None if self._child is None else self._child.process

    @property
    def pid(self) -> Optional[int]:
        """The process id, once started; another one when the process was replaced."""
        return None if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        return self._child is not None and self._child.is_alive()

    @property
    def state(self) -> str:
        """The state in a word, for display."""
        if self._child is None:
            return "not started"
        return f"process {self.pid}" if self.is_alive() else "stopped"

    def terminate(self) -> None:
        """Ask the process to stop; returns at once."""
        if self._child is not None:
            self._child.terminate()

    def kill(self) -> None:
        """Kill the process, as a crash would; returns at once. If it is one that is replaced, it is replaced."""
        if self._process is not None:
            self._process.kill()

    @accepts_earlier("Program.join")
    def join(self, timeout_seconds: Optional[Duration] = None) -> Optional[int]:
        """Wait for the process to end; returns its exit code, or None if it still runs."""
        longest = None if timeout_seconds is None else seconds("timeout_seconds", timeout_seconds, -inf)
        return None if self._child is None else self._child.join(longest)

    def shutdown(self) -> None:
        """Stop the process and wait for its end. Idempotent."""
        if self._child is not None:
            self._finalizer()

    def __enter__(self: Started) -> Started:
        if self._child is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.shutdown()


class _Child:
    """The process itself, and those that replace it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Dict[str, str],
        pass_fds: Sequence[int],
        stops_at_once: bool = False,
        stop_timeout_seconds: float = STOP_TIMEOUT_SECONDS,
    ) -> None:
        self._stops_at_once = stops_at_once
        self._stop_timeout_seconds = stop_timeout_seconds
        self._command = command
        self._environment = environment
        self._parent = os.getpid()
        self._is_watched = False
        self._only_code: Optional[int] = None
        self._lock = threading.Lock()  # protects which process it is, and whether it is to end
        self._is_ending = threading.Event()
        self._has_ended = threading.Event()
        self.process = self._start(pass_fds)

    def _start(self, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=None if _is_inherited(1) else subprocess.DEVNULL,
            stderr=None if _is_inherited(2) else subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=pass_fds,
            env=self._environment,
        )

    def start_watching(self, command: Optional[Sequence[str]] = None, code: Optional[int] = None) -> None:
        """From now on replace the process whenever it is killed, until it is asked to end.

        Parameters:
            command: of the processes that replace it, if it differs.
            code: the one exit code after which it is replaced; None: whatever `scaler.restarts` says.
        """
        self._command = self._command if command is None else command
        self._only_code = code
        self._is_watched = True
        threading.Thread(target=self._watch, name="scaler-program", daemon=True).start()

    def _watch(self) -> None:
        restarts = Restarts()
        try:
            while True:
                began = time.monotonic()
                code = self.process.wait()
                pause_seconds = restarts.pause_seconds(code, time.monotonic() - began)
                is_replaced = pause_seconds is not None and self._only_code in (None, code)
                if self._is_ending.is_set():
                    return
                if not is_replaced:
                    if code:
                        text = "Cluster: process %d ended with code %d and is not started again, see what it said: %s"
                        logger.error(text, self.process.pid, code, shlex.join(self._command))
                    return
                logger.warning("Cluster: process %d ended with code %d, starting a replacement", self.process.pid, code)
                if self._is_ending.wait(pause_seconds) or not self._replace_patiently():
                    return
        finally:
            self._has_ended.set()

    def _replace_patiently(self) -> bool:
        """Replace the process as soon as the system has room for another; False if it is to end."""
        while True:
            try:
                return self._replace()
            except (OSError, MemoryError) as error:
                logger.error("Cluster: no replacement can be started: %s; trying again", str(error) or "out of memory")
            if self._is_ending.wait(RETRY_SECONDS):
                return False

    def _replace(self) -> bool:
        with self._lock:
            if self._is_ending.is_set():
                return False
            _close_pipe(self.process)
            self.process = self._start()
            return True

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> None:
        """Ask the process to stop; it is no longer replaced."""
        with self._lock:
            self._is_ending.set()
            self.process.terminate()

    def join(self, timeout_seconds: Optional[float]) -> Optional[int]:
        """Wait until the process has ended for good; its exit code, or None."""
        try:
            if self._is_watched and not self._has_ended.wait(timeout_seconds):
                return None
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        if os.getpid() != self._parent:  # at the exit of a fork, for example
            return
        if self._stops_at_once:
            with self._lock:
                self._is_ending.set()
                _close_pipe(self.process)
        self.terminate()
        try:
            self.process.wait(self._stop_timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _close_pipe(self.process)


def _is_inherited(descriptor: int) -> bool:
    """Whether a standard stream is open: its number may belong to another file of this process."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def option_arguments(**options: object) -> List[str]:
    """Command line arguments for options that are not None; True is a bare flag, False its `--no-` form.

    Raises ArgumentTypeError and InvalidArgumentError if a duration or a size is invalid, by the end of its name.
    """
    arguments: List[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if name.endswith("_seconds"):
            value = f"{seconds(name, value, below=inf):.15g}"
        elif name.endswith(("_bytes", "_memory_limit")):
            value = size_in_bytes(name, value)
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, (list, tuple)):
            arguments += [f"--{flag}", *map(str, value)]
        else:
            arguments += [f"--{flag}", str(value)]
    return arguments
