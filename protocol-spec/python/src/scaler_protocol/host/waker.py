"""How a thread is woken that waits for descriptors: a byte arrives at one of them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from functools import partial
from typing import Callable, Optional, Tuple

_MANY_BYTES = 4096


class Waker:
    """A pipe; where only sockets can be waited for, as on Windows, a pair of sockets. Neither end ever waits.

    Attributes:
        write: writes bytes; one call of a function in C, so that Ctrl-C comes before it or after it. Raises OSError if
            there is no room, or it is closed.

    Raises OSError or MemoryError if the system has no descriptors left.
    """

    write: Callable[[bytes], int]

    def __init__(self) -> None:
        self._pair: Optional[Tuple[socket.socket, socket.socket]] = None
        self._reader = self._writer = -1
        if hasattr(select, "poll"):
            self._reader, self._writer = os.pipe()
            self.write = partial(os.write, self._writer)
        else:
            self._pair = socket.socketpair()
            self._reader = self._pair[0].fileno()
            self.write = self._pair[1].send
        try:
            for end in self._pair or ():
                end.setblocking(False)
            for descriptor in (self._reader, self._writer) if self._pair is None else ():
                os.set_blocking(descriptor, False)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Of the end that becomes readable; -1 once it is closed."""
        return self._reader

    def writer_fileno(self) -> int:
        """Of the end to which bytes are written, for `signal.set_wakeup_fd`; -1 once it is closed."""
        return self._writer if self._pair is None else self._pair[1].fileno()

    def drain(self) -> None:
        """Read what has been written. Raises OSError if that was nothing."""
        if self._pair is None:
            os.read(self._reader, _MANY_BYTES)
        else:
            self._pair[0].recv(_MANY_BYTES)

    def close(self) -> None:
        """Idempotent."""
        descriptors, pair = (self._reader, self._writer), self._pair
        self.write = partial(os.write, -1)  # before the numbers may be reused
        self._reader = self._writer = -1
        self._pair = None
        for end in pair or ():
            end.close()
        for descriptor in descriptors if pair is None else ():
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # it is closed all the same
                    os.close(descriptor)
