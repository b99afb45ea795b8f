"""How user threads post commands to the I/O thread.

    user threads: post ──▶ commands ──▶ I/O thread: take
                     │
                     └── is the I/O thread asleep? ──▶ a byte into its pipe

Rules:
- Ctrl-C may come between any two bytecodes of a user thread. So each step here is one C call: a command is posted whole
  or not at all, and taking the byte out of `sleeping` also wakes the I/O thread.
- `room` is how many commands may wait before a submitting thread has to ask first (`core.credit`); below 0, the client
  is closed. Only the I/O thread increases it.
- After `close` the I/O thread takes no more commands: a thread that posts one then takes it out itself, and `refuse`
  ends it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Callable, Deque, List

from scaler_protocol.host.waker import Waker

CLOSED = -1


class _Ended(Deque[bytes]):
    """What `sleeping` is in the end: nothing can be taken out of it, and each post looks whether the mailbox is closed.

    A thread that has just woken the I/O thread may take another byte out of the deque that it has in hand.
    """

    def __bool__(self) -> bool:
        return True


class Mailbox:
    """Parameters:
    refuse: called with commands that the I/O thread will not take.
    """

    def __init__(self, refuse: Callable[[List[Any]], None]) -> None:
        self.commands: Deque[Any] = deque()  # each a Command, or a LoneTask
        self.room = 0
        self.sleeping: Deque[bytes] = deque()  # one byte while the I/O thread sleeps: writing it wakes the thread
        self._refuse = refuse
        self._has_ended = False
        self.waker = Waker()
        self._written: Deque[int] = deque(maxlen=0)

    def post(self, command: Any) -> None:
        """Any thread."""
        self.commands.append(command)
        if self.sleeping:
            self.wake()

    def wake(self) -> None:
        """Wake the I/O thread. Any thread."""
        if self._has_ended:
            self._refuse(self.take())
            return
        try:
            # In one step: the thread that takes the byte writes it. Nothing is written while the I/O thread is awake.
            self._written.extend(map(self.waker.write, iter(self.sleeping.pop, None)))
        except (IndexError, OSError, MemoryError):
            pass  # there is no byte, another thread was faster, or the pipe is closed

    def take(self) -> List[Any]:
        """All waiting commands."""
        count = len(self.commands)
        if not count:
            return []
        if self.room > 0:
            self.room = max(0, self.room - count)  # before they are removed: they are submitted but not counted yet
        return list(islice(iter(self.commands.popleft, None), count))

    # The I/O thread -------------------------------------------------------------------------------------------------

    def sleep(self) -> bool:
        """From now on the I/O thread has to be woken; False if there is already something to do."""
        if not self.sleeping:
            self.sleeping.append(b"\0")
        return not self.commands

    def awake(self) -> None:
        """The I/O thread is awake: it does not have to be woken."""
        self.sleeping.clear()

    def close(self) -> None:
        """The I/O thread takes no more commands."""
        self.room = CLOSED
        self._has_ended = True
        self.sleeping = _Ended()
        self._refuse(self.take())

    def close_pipe(self) -> None:
        """Close the pipe: the I/O thread has ended."""
        self.waker.close()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process: there is no I/O thread."""
        self.commands.clear()
        self.room = CLOSED
        self._has_ended = True
        self.sleeping = _Ended()
        self.close_pipe()
