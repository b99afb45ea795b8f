"""Work on large buffers and files, in a thread beside that of the event loop, while small messages come.

    event loop ── run(work, then) ──▶ queue ──▶ thread: work() ──▶ done ──▶ a round of the event loop: then(error)

Rules:
- Work is to seal, to open or to write one part: its bytes belong to it until `then` is called, and nothing else of the
  program is touched by it. So there are no locks, and all decisions are made in the event loop.
- Work is done in the order in which it is given, and outcomes arrive in that order. So what may take long has a thread
  of its own: a slow disk does not keep parts from being opened.
- It is done where it is given if nothing waits for the event loop meanwhile: what one processor has read, the other one
  has not in its cache. Likewise for ever, once the system has had no thread or descriptor for it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import Callable, Deque, Optional, Tuple

from scaler.data_serving.rounds import ERROR_PAUSE_SECONDS, Rounds
from scaler_protocol.host.waker import Waker

SMALLEST_BYTES = 128 * 1024
"""Less is done sooner than another thread has woken."""

Work = Callable[[], object]
Then = Callable[[Optional[Exception]], None]


class SideWork:
    """Parameters:
    rounds: in which outcomes are passed on.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._queue: queue.SimpleQueue[Optional[Tuple[Work, Then]]] = queue.SimpleQueue()
        self._done: Deque[Tuple[Then, Optional[Exception]]] = deque()
        self._thread: Optional[threading.Thread] = None
        self._waker: Optional[Waker] = None
        self._undone = 0  # of which the outcomes were not passed on
        self._is_closed = self._has_no_thread = False

    def run(self, work: Work, then: Then, size_bytes: int) -> None:
        """Have `work` done, and `then` called with what it has raised: at once, or later if it is done aside.

        Parameters:
            size_bytes: that it works on.
        """
        if self.is_aside(size_bytes):
            self.put(work, then)
        else:
            then(error_of(work))

    def is_aside(self, size_bytes: int) -> bool:
        """Whether work on so many bytes is to be done aside, with `put`."""
        if not self._undone and not (size_bytes >= SMALLEST_BYTES and self._rounds.has_others):
            return False
        return self._thread is not None or self._start()

    def put(self, work: Work, then: Then) -> None:
        """Have `work` done aside, and `then` called later. Once this is closed, neither happens."""
        self._undone += 1
        self._queue.put((work, then))

    def _start(self) -> bool:
        if self._is_closed or self._has_no_thread:
            return False
        try:
            self._waker = Waker()
            self._rounds.add_reader(self._waker.fileno(), self._pass_on, is_bulk=True)
            thread = threading.Thread(target=self._work, args=(self._waker,), name="scaler-parts", daemon=True)
            thread.start()
        except (OSError, MemoryError, RuntimeError):  # the last one: no thread can be started
            self._close_waker()
            self._has_no_thread = True
            return False
        self._thread = thread
        return True

    def _work(self, waker: Waker) -> None:
        """The thread."""
        while True:
            given = self._queue.get()
            if given is None:
                return
            work, then = given
            self._tell(then, error_of(work))
            del given, work, then  # and with them the memory that they may hold
            with contextlib.suppress(OSError):  # it is full: the event loop is being woken
                waker.write(b"\0")

    def _tell(self, then: Then, error: Optional[Exception]) -> None:
        while True:
            try:
                self._done.append((then, error))
                return
            except MemoryError:
                time.sleep(ERROR_PAUSE_SECONDS)

    def _pass_on(self) -> None:
        if self._waker is not None:
            with contextlib.suppress(OSError):
                self._waker.drain()
        while self._done and not self._is_closed:
            then, error = self._done.popleft()
            self._undone -= 1
            then(error)

    def _close_waker(self) -> None:
        waker, self._waker = self._waker, None
        if waker is not None:
            self._rounds.remove_reader(waker.fileno())
            waker.close()

    def close(self) -> None:
        """Wait for the work that is being done; what was not begun is not done. Idempotent."""
        self._is_closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._queue.get_nowait()
            self._queue.put(None)
            thread.join()
        self._done.clear()
        self._close_waker()

    def after_fork_in_child(self) -> None:
        """In a fork of the process, which has no such thread: close our copies of the descriptors."""
        self._is_closed, self._thread = True, None
        waker, self._waker = self._waker, None
        if waker is not None:
            waker.close()


def error_of(work: Work) -> Optional[Exception]:
    """What it raises when it is done, here and now."""
    try:
        work()
    except Exception as error:
        return error
    return None
