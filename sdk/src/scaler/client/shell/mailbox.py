"""How user threads hand commands over to the I/O thread.

    user threads: hand_over ──▶ commands ──▶ I/O thread: take
                     │
                     └── is the I/O thread asleep? ──▶ a byte into its pipe

Rules:
- Ctrl-C may come between any two bytecodes of a user thread. So each step here is one call of C: a command is handed
  over whole or not at all, and a sleeper that was taken out of `sleeping` has been woken.
- `room` is how many commands may wait before who submits a task has to ask first (`core.credit`); below 0, the client
  is closed. Only the I/O thread raises it.
- After `close` nothing is taken any more by the I/O thread: who hands over a command then takes it itself, and `refuse`
  ends it.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import islice, repeat
from typing import Any, Callable, Deque, List

CLOSED = -1


class Mailbox:
    """Parameters:
    refuse: called with commands that the I/O thread will not take.
    """

    def __init__(self, refuse: Callable[[List[Any]], None]) -> None:
        self.commands: Deque[Any] = deque()  # each a Command, or a LoneTask
        self.room = 0
        self.sleeping: Deque[bytes] = deque()  # one byte while the I/O thread sleeps: what wakes it
        self._refuse = refuse
        self._has_ended = False
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        self._written: Deque[int] = deque(maxlen=0)

    def hand_over(self, command: Any) -> None:
        """Any thread."""
        self.commands.append(command)
        if self.sleeping:
            self.wake()

    def wake(self) -> None:
        """Any thread: end the I/O thread's sleep."""
        if self._has_ended:
            self._refuse(self.take())
            return
        try:
            # In one step: who takes the byte writes it. The pipe of a thread that is awake is left alone.
            self._written.extend(map(os.write, repeat(self._writer), iter(self.sleeping.pop, None)))
        except (IndexError, OSError):
            pass  # that was the only one; another thread was faster; or it is closed

    def take(self) -> List[Any]:
        """All commands that are there."""
        count = len(self.commands)
        if not count:
            return []
        if self.room > 0:
            self.room = max(0, self.room - count)  # before they leave: those were submitted, and are not counted yet
        return list(islice(iter(self.commands.popleft, None), count))

    # The I/O thread -------------------------------------------------------------------------------------------------

    def sleep(self) -> bool:
        """From now on the I/O thread has to be woken; False if there is something to do already."""
        if not self.sleeping:
            self.sleeping.append(b"\0")
        return not self.commands

    def awake(self) -> None:
        """The I/O thread looks for itself from now on."""
        self.sleeping.clear()

    def close(self) -> None:
        """The I/O thread takes nothing more."""
        self.room = CLOSED
        self._has_ended = True
        self.sleeping.append(b"\0")  # for ever
        self._refuse(self.take())

    def close_pipe(self) -> None:
        """Nobody is to be woken any more."""
        descriptors = self.reader, self._writer
        self.reader = self._writer = -1  # before others may have these numbers
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: there is no I/O thread."""
        self.commands.clear()
        self.room = CLOSED
        self._has_ended = True
        self.sleeping.append(b"\0")
        self.close_pipe()
