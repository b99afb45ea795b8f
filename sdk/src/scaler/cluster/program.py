"""A program of ours running as a child process.

Rules:
- The child's standard input is a pipe that only this process holds: when this process ends, however it ends, the pipe
  closes and the child stops.
- The child has a session of its own, so that Ctrl-C reaches this program alone, which may have more to do.
- Stopping takes a bounded time: SIGTERM, a grace period, SIGKILL.
"""

from __future__ import annotations

import os
import subprocess
import weakref
from types import TracebackType
from typing import Dict, List, Optional, Sequence, Type

STOP_TIMEOUT_SECONDS = 10.0


class Program:
    """A child process; a context manager that stops it.

    Parameters:
        command: the program and its arguments.
        environment: variables that differ from this process's.
    """

    def __init__(self, command: Sequence[str], environment: Optional[Dict[str, str]] = None) -> None:
        self._command: List[str] = list(command)
        self._environment = environment
        self._process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        """Start the process. Raises OSError when the program cannot be run."""
        self._launch(())

    def _launch(self, pass_fds: Sequence[int]) -> None:
        if self._process is not None:
            raise RuntimeError(f"{type(self).__name__} was started before")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=pass_fds,
            env={**os.environ, **(self._environment or {})},
        )
        self._finalizer = weakref.finalize(self, _stop, self._process)

    @property
    def pid(self) -> Optional[int]:
        """The process id, once started."""
        return None if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def terminate(self) -> None:
        """Ask the process to stop; returns at once."""
        if self.is_alive():
            assert self._process is not None
            self._process.terminate()

    def join(self, timeout_seconds: Optional[float] = None) -> Optional[int]:
        """Wait for the process to end; returns its exit code, or None when it still runs."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def shutdown(self) -> None:
        """Stop the process and wait for its end. Idempotent."""
        if self._process is not None:
            self._finalizer()

    def __enter__(self) -> Program:
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.shutdown()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def option_arguments(**options: object) -> List[str]:
    """Command line arguments for options that are not None; True is a bare flag, False its `--no-` form."""
    arguments: List[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, (list, tuple)):
            arguments += [f"--{flag}", *map(str, value)]
        else:
            arguments += [f"--{flag}", str(value)]
    return arguments
