"""What an executor has submitted and has to wait for, and how it ends. It outlives the executor object.

    ScalerExecutor ──add──▶ ExecutorState: futures without an outcome ──▶ `close` when the last has one
          │                    ▲
          └── gone, shut down ─┘

Rules:
- Futures are referred to weakly: the client keeps those without an outcome, and their users keep the others.
- No lock is held while a task is submitted or waited for: Ctrl-C, a fork or the garbage collector may come at any
  moment. What changes together is changed by one call of a builtin.
- If client and cluster belong to the executor, a thread ends them when all tasks have ended and the executor was shut
  down or garbage-collected.
- As with the executors of the standard library, the end of the program waits for what was submitted.
- In a fork nothing is waited for or stopped: it belongs to the parent.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Any, Callable, List, Optional, Set

from scaler import blocking
from scaler.client.future import ScalerFuture
from scaler.client.progress_bar import NO_BAR, wait
from scaler.client.shell.future_internals import has_failed
from scaler.client.shell.waiting import Waiter
from scaler.client.submission import Submission
from scaler.exceptions import InitializerError

logger = logging.getLogger("concurrent.futures")  # where the standard library logs that an initializer has failed

_live: weakref.WeakSet[ExecutorState] = weakref.WeakSet()
_is_exiting = False


class ExecutorState:
    """The tasks of one executor.

    Parameters:
        submission: the client, or a view of it with options.
        submit: its method.
        close: called when all of them have ended and no more are accepted, if something ends with the executor.
    """

    def __init__(
        self,
        submission: Submission,
        submit: Callable[..., ScalerFuture[Any]],
        close: Optional[Callable[[], None]] = None,
    ) -> None:
        self.submission = submission
        self.submit = submit
        self.is_shut_down = False
        self.broken = ""  # why nothing more can be submitted
        self._process_id = os.getpid()
        self._futures: Set[weakref.ref[ScalerFuture[Any]]] = set()
        self._end = Waiter()
        self._closer: Optional[threading.Thread] = None
        if close is not None:
            self._closer = threading.Thread(target=self._run_end, args=(close,), name="scaler-executor", daemon=True)
            self._closer.start()
        _live.add(self)

    def check_usable(self) -> None:
        """Raise InitializerError or RuntimeError if nothing more can be submitted, the latter as CPython does."""
        if self.broken:
            raise InitializerError(self.broken)
        if _is_exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        if self.is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def add(self, future: ScalerFuture[Any], is_watched: bool) -> None:
        """A task was submitted.

        Parameters:
            is_watched: it may say that the initializer has failed.

        Raises as `check_usable` if the executor was shut down in the meantime; the task is cancelled then.
        """
        self._futures.add(weakref.ref(future, self._futures.discard))
        if is_watched:
            # The base class's: no one's wait ends with this callback, which therefore is not announced.
            super(ScalerFuture, future).add_done_callback(self._note_outcome)
        if self.is_shut_down:
            self.cancel([future])
            self.check_usable()

    def _note_outcome(self, future: Any) -> None:
        if future.cancelled() or self.broken or not has_failed(future):
            return
        error = future.exception()
        if isinstance(error, InitializerError):
            logger.critical("Exception in initializer:", exc_info=error)
            self.broken = str(error)

    def cancel(self, futures: List[ScalerFuture[Any]]) -> None:
        """Cancel tasks that have not started, without waiting."""
        unfinished = [future for future in futures if not future.done()]
        for future in unfinished:
            future._is_unwanted = True
        if unfinished:
            self.submission._shell.ask_to_cancel(unfinished)

    def shut_down(self, waits: bool, cancels: bool) -> None:
        """Accept no more tasks.

        Parameters:
            waits: return when all tasks have ended.
            cancels: cancel those that have not started.
        """
        self.is_shut_down = True
        if os.getpid() != self._process_id:
            return
        if cancels:
            self.cancel([future for future in (each() for each in self._futures.copy()) if future is not None])
        self._end.wake()
        if not waits:
            return
        with blocking.announced():
            if self._closer is None:
                self.await_all()
            elif self._closer is not threading.current_thread():
                self._closer.join()

    def await_all(self) -> None:
        """Return when all tasks have ended, and what was added to their futures with `add_done_callback` has run."""
        for reference in self._futures.copy():
            future = reference()
            if future is not None and not future.done():
                wait([future], NO_BAR)
        self.submission._shell.await_callbacks()

    def executor_is_gone(self) -> None:
        """The executor object was garbage-collected. At any moment, in any thread."""
        self.is_shut_down = True
        self._end.wake()

    def _run_end(self, close: Callable[[], None]) -> None:
        """The thread that ends what ends with the executor."""
        self._end.wait()
        self.await_all()
        close()


def _at_exit() -> None:
    """Wait for what was submitted, before the clients disconnect."""
    global _is_exiting
    _is_exiting = True
    for state in list(_live):
        state.shut_down(waits=True, cancels=False)


def _after_fork_in_child() -> None:
    _live.clear()


getattr(threading, "_register_atexit")(_at_exit)  # noqa: B009  # after the client's, which therefore runs later
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
