"""The Python stack of a task that was stopped, written by the processor as it dies.

    fork server ── STACK_SIGNAL ──▶ processor: faulthandler writes the stack to a file, then the signal ends the process
    fork server ◀── reads the file when it reaps ──┘

Rules:
- The stack is written by a C signal handler, which does not need the interpreter lock: this also works for a function
  that never releases the lock.
- The signal goes to the main thread, which runs the tasks. One that goes to the process may be taken by any thread, and
  in a process that was halted (Ctrl-Z, a debugger) often is.
- It is best effort. A processor that blocks or ignores the signal is killed GRACE_SECONDS later, without a stack. One
  that has not run since, because the machine is busy or swaps or it is halted, has GRACE_SECONDS from when it runs, and
  LONGEST_GRACE_SECONDS in all.
- The file is unlinked memory that the fork server also holds open, so it outlives the processor but nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import tempfile
from typing import List

STACK_SIGNAL = int(getattr(signal, "SIGRTMAX", signal.SIGUSR2 + 1)) - 1
"""A real-time signal, because user code may use SIGUSR1 and SIGUSR2 itself."""

GRACE_SECONDS = 0.3
LONGEST_GRACE_SECONDS = 3.0

_SAID = (b"State:", b"SigPnd:", b"ShdPnd:", b"SigBlk:")
_MAXIMUM_BYTES = 32 * 1024
_MAXIMUM_FRAMES = 100  # of faulthandler
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_OWN_FILE = os.path.join("worker", "processor", "chunk_runner.py")
"""Frames of this file and their callers belong to Scaler, not to the user."""


def make_stack_file() -> int:
    """A descriptor for a processor's stack. Raises OSError."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("scaler-stack")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write_stack_on_signal(descriptor: int) -> None:
    """From now on, STACK_SIGNAL writes this process's stack to the descriptor and ends the process."""
    with contextlib.suppress(Exception):  # then the signal ends the process without a stack
        faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=False, chain=True)


def ask_for_stack(process_id: int) -> None:
    """Let a processor write its stack and end. Raises OSError.

    Parameters:
        process_id: of a child that has not been waited for; else it may be another process's by now.
    """
    try:
        send_to_thread = ctypes.CDLL(None, use_errno=True).tgkill
    except (OSError, AttributeError):  # not on Linux, or with a C library of before 2020
        os.kill(process_id, STACK_SIGNAL)
        return
    if send_to_thread(process_id, process_id, STACK_SIGNAL) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def has_not_run(process_id: int) -> bool:
    """Whether a process could not act on STACK_SIGNAL so far: it has not run since, or is halted. False where the
    system does not say so."""
    try:
        with open(f"/proc/{process_id}/status", "rb") as file:
            said = dict(line.split(b":", 1) for line in file if line.startswith(_SAID))
        waiting = int(said[b"SigPnd"], 16) | int(said[b"ShdPnd"], 16)
        is_halted, blocked = said[b"State"].split()[0] == b"T", int(said[b"SigBlk"], 16)
    except (OSError, MemoryError, LookupError, ValueError):
        return False
    return is_halted or bool(waiting & ~blocked & 1 << STACK_SIGNAL - 1)


def read_stack_file(descriptor: int) -> str:
    """The text that was written to the descriptor, which may be empty."""
    with contextlib.suppress(OSError, MemoryError):
        return os.pread(descriptor, _MAXIMUM_BYTES, 0).decode("utf-8", "replace")
    return ""


def user_stack(written: str) -> str:
    """The user's part of a written stack, in the order of a Python traceback; may be empty."""
    frames: List[str] = []
    for line in written.splitlines():
        found = _FRAME.fullmatch(line)
        if found is None:
            if line.strip() == "..." and frames:
                frames.append("  ...\n")
            continue
        if found["file"].endswith(_OWN_FILE):
            break
        frames.append(f'  File "{found["file"]}", line {found["line"]}, in {found["name"]}\n')
    else:
        if len(frames) < _MAXIMUM_FRAMES:
            return ""  # the process was not running a task
    return "Stack when it was stopped (most recent call last):\n" + "".join(reversed(frames)) if frames else ""
