"""Runs a command of a user by /bin/sh, within a time limit, and leaves nothing of it that hangs.

Rules:
- It has ended when the shell has ended: nothing waits for what it has left in the background.
- It has a process group of its own. After its time limit, all of that is killed, and not the shell alone: else
  each command that hangs would stay for good. So Ctrl-C at the terminal does not end it in the middle, either.
- What it leaves in its group must not hold its output, which is read no more: it would be stopped when it writes next.
  What has left the group, as a shared connection of ssh has, may hold it, and is read until it ends.
- Of each output, LARGEST_BYTES are kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import IO, List, Mapping, NamedTuple

LARGEST_BYTES = 16 << 20
HELD_SECONDS = 1.0  # after the end of the shell, for what it printed to be read


_SHOWN_CHARACTERS = 60


def shown(command: str) -> str:
    """A command as texts name it: those who read them know it, and the reason that follows must not be lost in it."""
    first, _, rest = command.strip().partition("\n")
    is_whole = not rest and len(first) <= _SHOWN_CHARACTERS
    return repr(first) if is_whole else f"{first[:_SHOWN_CHARACTERS].rstrip()!r} ..."


class CommandError(Exception):
    """A command could not be started, has not ended in time, or its output cannot be used."""


class CommandOutput(NamedTuple):
    """
    Attributes:
        code: negative: the signal that ended the shell.
    """

    code: int
    output: bytes
    errors: bytes


class _Reader(threading.Thread):
    """Reads an output until it ends."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(name="scaler-command", daemon=True)
        self._pipe = pipe
        self._parts: List[bytes] = []
        self._size = 0
        self.start()

    def run(self) -> None:
        with self._pipe, contextlib.suppress(OSError):
            while part := os.read(self._pipe.fileno(), 1 << 16):
                if self._size <= LARGEST_BYTES:
                    self._parts.append(part)
                    self._size += len(part)

    @property
    def is_too_large(self) -> bool:
        return self._size > LARGEST_BYTES

    def text(self) -> bytes:
        return b"".join(self._parts)


def run_command(command: str, environment: Mapping[str, str], timeout_seconds: float) -> CommandOutput:
    """Run it, and wait until it has ended.

    Raises CommandError.
    """
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{shown(command)} cannot be started: {error}") from error
    assert process.stdout is not None and process.stderr is not None
    readers = [_Reader(process.stdout), _Reader(process.stderr)]
    try:
        code = process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        process.wait()
        text = f"{shown(command)} has not ended within {timeout_seconds:g} s (command_timeout_seconds)"
        raise CommandError(text) from None
    for reader in readers:
        reader.join(HELD_SECONDS)
    if any(reader.is_alive() for reader in readers) and _kill_group(process.pid):
        raise CommandError(
            f"{shown(command)} has left a process in the background that holds its output, and was stopped: let it"
            ' write to a file, as in `worker > "$UNIT_ID.log" 2>&1 &`'
        )
    if any(reader.is_too_large for reader in readers):
        raise CommandError(f"{shown(command)} printed more than {LARGEST_BYTES >> 20} MiB")
    return CommandOutput(code, *(reader.text() for reader in readers))


def _kill_group(process_id: int) -> bool:
    """Kill what is left of a process group; returns whether there was anything."""
    try:
        os.killpg(process_id, signal.SIGKILL)
    except OSError:
        return False
    return True
