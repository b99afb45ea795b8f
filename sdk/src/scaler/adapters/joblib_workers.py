"""The part of a cluster that one `joblib.Parallel` uses: it submits batches of calls, and runs joblib's callbacks.

    joblib's thread ─submit──▶ waiting ──up to `limit` at once──▶ tasks ──▶ client's callback thread
        callback ◀── this Parallel's own thread ◀── done, as (job, outcome) ◀──────────┘

Rules:
- joblib's callbacks load results, take the next calls from the user's generator and submit them. This is user code: it
  runs in a thread for each Parallel, so that one which waits for another, such as a generator of results that feeds a
  second Parallel, holds up that one only.
- Each batch gets one callback, also if it could not be submitted: joblib would wait for it for ever.
- After `stop` there are no callbacks: joblib ignores the outcome of what it has aborted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import lru_cache, partial
from pickle import PicklingError
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

from scaler.adapters.joblib_calls import Call, Calls, Initializer
from scaler.adapters.shared_arrays import SharedArrays
from scaler.adapters.thread_limits import ThreadLimits
from scaler.client.functions import FunctionRecord, function_name
from scaler.client.future import ScalerFuture
from scaler.client.submitter import Submitter
from scaler.exceptions import SerializeObjectError

logger = logging.getLogger("scaler")

Callback = Callable[[Any], None]

_calls_named = lru_cache(maxsize=1000)(Calls)
"""Kept, so that the next Parallel finds the function of its tasks where it is, with all workers."""


class FailedBatch:
    """The outcome of a batch that could not be submitted."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def result(self) -> Any:
        """Raises the error."""
        raise self._error


class Job:
    """A batch from joblib's `submit` to its callback."""

    __slots__ = ("calls", "callback", "future")

    def __init__(self, calls: Sequence[Call], callback: Callback) -> None:
        self.calls = calls
        self.callback = callback
        self.future: Optional[ScalerFuture[Any]] = None


class Workers:
    """What one Parallel uses of a cluster.

    Parameters:
        submitter: the client, or a view of it.
        limit: how many batches may run at once; None: as many as the cluster runs.
        slots: how many calls the cluster ran at once a moment ago. If neither these nor its present slots are more than
            the limit, it is the limit by itself, and has the next batches before the first are done.
        limits: of the threads inside calls.
        nested: the backend of joblib's calls inside the calls.
        initializer: to run in each process first, if any.
        arrays: large arrays in arguments.
    """

    def __init__(
        self,
        submitter: Submitter,
        limit: Optional[int],
        slots: int,
        limits: ThreadLimits,
        nested: object,
        initializer: Optional[Initializer],
        arrays: SharedArrays,
    ) -> None:
        self.arrays = arrays
        self._submitter = submitter
        self._limit = limit
        self._slots = slots
        self._before_calls = (limits, nested, initializer)
        self._functions: Dict[str, Tuple[Calls, FunctionRecord]] = {}
        self._waiting: Deque[Job] = deque()
        self._running: Set[Job] = set()
        self._done: SimpleQueue[Optional[Tuple[Job, Any]]] = SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def submit(self, calls: Sequence[Call], callback: Callback) -> Job:
        """Run a batch as soon as the limit permits, and pass its outcome to the callback, in another thread."""
        job = Job(calls, callback)
        with self._lock:
            if self._is_stopped:
                return job
            if self._thread is None:
                self._thread = threading.Thread(target=_run_callbacks, args=(self,), name="scaler-joblib", daemon=True)
                self._thread.start()
            if self._is_at_limit():
                self._waiting.append(job)
                return job
            self._running.add(job)
        self._start(job)
        return job

    def _is_at_limit(self) -> bool:
        if self._limit is None or len(self._running) < self._limit:
            return False
        return max(self._slots, self._submitter._shell.slots) > self._limit

    def _start(self, job: Job) -> None:
        try:
            job.future = self._submitted(job.calls)
        except SerializeObjectError as error:
            reason = PicklingError(f"the task to send to the workers cannot be pickled: {error}")
            reason.__cause__ = error
            self._done.put((job, FailedBatch(reason)))
        except Exception as error:
            self._done.put((job, FailedBatch(error)))
        else:
            job.future.add_done_callback(partial(_note_done, self._done, job))
            if self._is_stopped:  # since it was submitted
                self._submitter._shell.stop([job.future])
        job.calls = ()

    def _submitted(self, calls: Sequence[Call]) -> ScalerFuture[Any]:
        name = function_name(calls[0][0])
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = self._registered(name)
        function, record = known
        with self.arrays:
            return self._submitter._submit_held(record, function, (*self._before_calls, calls), {})

    def _registered(self, name: str) -> Tuple[Calls, FunctionRecord]:
        function = _calls_named(name)
        record = self._submitter._register(function)
        while not self._submitter._shell.functions.hold(record):
            record = self._submitter._register(function)
        return function, record

    def run_callbacks(self) -> None:
        """Run joblib's callbacks until `stop`, in the order in which batches were done."""
        while True:
            done = self._done.get()
            if done is None:
                return
            job, outcome = done
            following = self._following(job)
            if following is not None:
                self._start(following)
            try:
                job.callback(outcome)
            except BaseException:
                logger.exception("joblib's callback for a batch of calls raised an exception")
            del done, job, outcome, following  # these may be the last references

    def _following(self, job: Job) -> Optional[Job]:
        """The batch that may run now that another is done."""
        with self._lock:
            self._running.discard(job)
            if self._is_stopped or not self._waiting:
                return None
            following = self._waiting.popleft()
            self._running.add(following)
            return following

    def stop(self) -> None:
        """Cancel what is unfinished, running calls included, and delete in the cluster what was sent. Idempotent."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self._waiting.clear()
            running: List[Any] = [job.future for job in self._running if job.future is not None]
            functions, self._functions = self._functions, {}
        self._done.put(None)
        if running:
            self._submitter._shell.stop(running)
        for _, record in functions.values():
            self._submitter._shell.functions.let_go(record)
        self.arrays.release()


def _run_callbacks(workers: Workers) -> None:
    workers.run_callbacks()


def _note_done(done: SimpleQueue[Optional[Tuple[Job, Any]]], job: Job, future: ScalerFuture[Any]) -> None:
    done.put((job, future))
