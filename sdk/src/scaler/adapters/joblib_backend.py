"""joblib's backend "scaler": calls of `joblib.Parallel` run in a cluster.

    Parallel ──▶ ScalerBackend: which cluster, how many jobs ──▶ Workers: batches, callbacks ──▶ tasks: Calls

Rules:
- A backend of `parallel_config` may serve several Parallels, some at once, and joblib does not say which one it means.
  So a second one gets a backend of its own, for the same cluster.
- Without an address nothing is connected before the first calls.
- Only one job means no cluster: joblib then makes the calls itself.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Callable, Optional, Sequence, Tuple, Union

from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from scaler.adapters.default_clients import client_for, local_cluster_of
from scaler.adapters.joblib_calls import Initializer
from scaler.adapters.joblib_workers import Job, Workers
from scaler.adapters.shared_arrays import SharedArrays
from scaler.adapters.thread_limits import ThreadLimits
from scaler.arguments import Duration, seconds
from scaler.client import Client
from scaler.client.client_options import DEFAULTS, Options
from scaler.client.submitter import Submitter, SubmitterWithOptions
from scaler.cpus import usable_cpus
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError, NoWorkerError
from scaler.values.payload import dump, join

NEVER_BYTES = 1 << 62
SLOTS_TIMEOUT_SECONDS = 1.0
FOR_OTHER_ENGINES = frozenset({"temp_folder", "prefer", "require", "verbose", "context", "idle_worker_timeout"})
"""Arguments that joblib passes to each of its engines, and that mean nothing here."""
OF_THE_BACKEND = frozenset({"address", "client", "wait_for_workers"})
"""Arguments of the backend, which `Parallel` cannot pass to it."""


class ScalerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of `joblib.Parallel` in a cluster.

    Parameters:
        address: of the scheduler. By default a scheduler is found as by `Client()`; if there is none, a local cluster
            with a slot for each CPU is started, which lasts until the program ends.
        client: a Client to use, or one with options, `client.options(priority=1)`.
        wait_for_workers: how long calls wait for the first worker to join, such as 30 or "5min".
        nesting_level, inner_max_num_threads: as of joblib's other backends.
        options: of the tasks.
        initializer, initargs: a function and its arguments, called once in each process before its first call.

    Raises what `Client` raises; ArgumentTypeError and InvalidArgumentError if an argument is invalid.
    """

    supports_inner_max_num_threads = True
    supports_retrieve_callback = True
    supports_sharedmem = False
    uses_threads = False

    def __init__(
        self,
        address: Optional[str] = None,
        client: Optional[Submitter] = None,
        wait_for_workers: Duration = 10.0,
        nesting_level: Optional[int] = None,
        inner_max_num_threads: Optional[int] = None,
        options: Options = DEFAULTS,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Sequence[Any] = (),
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        if client is not None and not isinstance(client, Submitter):
            raise ArgumentTypeError(f"client must be a Client, or one with options, got {type(client).__name__}")
        if client is not None and address is not None:
            raise InvalidArgumentError("address and client contradict each other: give one of them")
        self._address = address
        self._client = client if client is not None else client_for(address) if address is not None else None
        self._options = options
        self._wait_seconds = seconds("wait_for_workers", wait_for_workers)
        self._initializer = (initializer, tuple(initargs))
        self._workers: Optional[Workers] = None
        self._lock = threading.Lock()
        self.parallel: Any = None
        # Inside calls, joblib is sequential unless it is asked for more, as under its other backends.
        self.default_n_jobs = 1 if nesting_level else -1

    def __reduce__(self) -> Tuple[Any, ...]:
        return (ScalerBackend, self._arguments())

    def _arguments(self) -> Tuple[Any, ...]:
        address = None if self._client is not None else self._address
        inner = (self.nesting_level, self.inner_max_num_threads, self._options)
        return (address, self._client, self._wait_seconds, *inner, *self._initializer)

    # Which cluster ---------------------------------------------------------------------------------------------------

    @property
    def submitter(self) -> Submitter:
        """The client that the tasks are submitted to, with options."""
        client = self._client if self._client is not None else client_for(self._address)
        return client if self._options == DEFAULTS else SubmitterWithOptions(client, self._options)

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        """How many calls run at once if joblib is asked for `n_jobs`.

        Raises ValueError for 0; NoWorkerError if no worker joins in time.
        """
        return self._jobs_and_slots(n_jobs)[0]

    def _jobs_and_slots(self, n_jobs: Optional[int]) -> Tuple[int, int]:
        """How many calls run at once, and how many could; raises as `effective_n_jobs` does."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs == 1:
            return 1, 1
        client = _client_of(self.submitter)
        local = local_cluster_of(client)
        if local is not None and local.is_own:
            n_jobs = n_jobs if n_jobs > 0 else max(usable_cpus() + 1 + n_jobs, 1)
            return n_jobs, max(local.slots, n_jobs)
        slots = client._shell.wait_for_slots(SLOTS_TIMEOUT_SECONDS) or self._slots_of(client)
        # joblib would run the only job in this process, and not in the cluster that the user has named.
        most = max(slots, 2)
        return min(n_jobs, most) if n_jobs > 0 else max(most + 1 + n_jobs, 1), slots

    def _slots_of(self, client: Client) -> int:
        slots = client.info(maximum_workers=0).slots
        if slots == 0 and self._wait_seconds > 0:
            arrived = client.submit(_nothing)
            try:
                arrived.result(self._wait_seconds)
            except FutureTimeoutError:
                arrived.cancel(0.0)
            slots = client.info(maximum_workers=0).slots
        if slots == 0:
            raise NoWorkerError(
                f"the scheduler at {client._address} has no worker after {self._wait_seconds:g} s: start one with"
                f" `scaler_cluster {client._address}`, or wait longer with parallel_config('scaler',"
                " wait_for_workers='5min')"
            )
        return slots

    def get_nested_backend(self) -> Tuple[Any, Optional[int]]:
        """The backend of calls inside calls: the same cluster."""
        return self._copy((self.nesting_level or 0) + 1), None

    def _nested(self, options: Options) -> ScalerBackend:
        """The same in a worker, where a client finds the scheduler that its task came from."""
        level = (self.nesting_level or 0) + 1
        return ScalerBackend(nesting_level=level, inner_max_num_threads=self.inner_max_num_threads, options=options)

    def _copy(self, nesting_level: Optional[int]) -> ScalerBackend:
        address, client, wait, _, *others = self._arguments()
        return ScalerBackend(address, client, wait, nesting_level, *others)

    # One Parallel ----------------------------------------------------------------------------------------------------

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        max_nbytes: Optional[int] = 1 << 20,
        mmap_mode: Optional[str] = "r",
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Sequence[Any] = (),
        **others: Any,
    ) -> int:
        """Get ready for the calls of one Parallel; returns how many run at once.

        Parameters:
            n_jobs, parallel: as joblib has them.
            max_nbytes: arrays of this size and larger are shared by tasks, which cannot write to them; None: none is.
            mmap_mode: "r": as `max_nbytes` says; "c", None: none is shared.
            initializer, initargs: instead of those of the backend.

        Raises FallbackToBackend for joblib to use another backend; TypeError, InvalidArgumentError if an argument is
        unknown or invalid; and what `effective_n_jobs` raises.
        """
        unknown = sorted(set(others) - FOR_OTHER_ENGINES)
        if unknown:
            misplaced = sorted(OF_THE_BACKEND.intersection(unknown))
            advice = f"; write parallel_config('scaler', {misplaced[0]}=...)" if misplaced else ""
            raise ArgumentTypeError(f"the joblib backend 'scaler' does not take {', '.join(unknown)} here{advice}")
        if mmap_mode not in ("r", "c", None):
            raise InvalidArgumentError(
                f"mmap_mode={mmap_mode!r} cannot be used with Scaler: tasks run in other processes, maybe on other"
                " hosts, and cannot write to arrays here; use 'r', 'c' or None, and return what they compute"
            )
        asked, (n_jobs, slots) = n_jobs, self._jobs_and_slots(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        most_jobs = None if asked == -1 else max(asked, n_jobs)  # more than there are slots now, if asked for
        with self._lock:
            if self._workers is not None and self.parallel is not parallel:
                raise FallbackToBackend(self._copy(self.nesting_level))
            if self._workers is None:
                first = (initializer, tuple(initargs)) if initializer is not None else self._initializer
                self._workers = self._make_workers(n_jobs, slots, most_jobs, max_nbytes, mmap_mode, first)
            self.parallel = parallel
        return n_jobs

    def _make_workers(
        self,
        n_jobs: int,
        slots: int,
        most_jobs: Optional[int],
        max_nbytes: Optional[int],
        mmap_mode: Optional[str],
        first: Tuple[Optional[Callable[..., Any]], Tuple[Any, ...]],
    ) -> Workers:
        """
        Parameters:
            slots: how many calls the cluster runs at once.
            most_jobs: how many batches may run at once, also if workers join later; None: as many as there are slots.
        """
        submitter = self.submitter
        client = _client_of(submitter)
        local = local_cluster_of(client)
        if local is not None:
            local.grow(n_jobs)
        initializer: Optional[Initializer] = None
        if first[0] is not None:
            token = hashlib.blake2b(join(dump(first)), digest_size=16).digest()
            initializer = Initializer(token, first)  # type: ignore[arg-type]  # it is not None
        large_bytes = max_nbytes if max_nbytes is not None and mmap_mode == "r" else NEVER_BYTES
        return Workers(
            submitter,
            most_jobs,
            slots,
            self._thread_limits(n_jobs),
            self._nested(submitter._options),
            initializer,
            SharedArrays(client, large_bytes),
        )

    def _thread_limits(self, n_jobs: int) -> ThreadLimits:
        names = self.MAX_NUM_THREADS_VARS
        given = {name: os.environ[name] for name in names if name in os.environ}
        if self.inner_max_num_threads is not None:
            given = dict.fromkeys(names, str(self.inner_max_num_threads))
        return ThreadLimits(names, given, n_jobs, {self.TBB_ENABLE_IPC_VAR: "1"})

    def submit(self, func: Any, callback: Optional[Callable[[Any], None]] = None) -> Optional[Job]:
        """Run one of joblib's batches, and pass its outcome to the callback."""
        workers = self._workers
        if workers is None:  # aborted meanwhile
            return None
        return workers.submit(func.items, callback or _ignore)

    apply_async = submit  # its name before joblib 1.5

    def retrieve_result_callback(self, out: Any) -> Any:
        """The results of a batch. Raises what the first of its calls that failed has raised."""
        return out.result()

    def stop_call(self) -> None:
        """Called at the end of the calls of a Parallel, which may go on to others."""
        workers = self._workers
        if workers is not None:
            workers.arrays.release()

    def terminate(self) -> None:
        """Called after the last calls of a Parallel. Idempotent."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop all calls, running ones included.

        Parameters:
            ensure_ready: more calls may follow.
        """
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs)


def _client_of(submitter: Submitter) -> Client:
    client: Union[Client, Any] = getattr(submitter, "_client", submitter)
    return client


def _nothing() -> None:
    """The task that waits for a worker."""


def _ignore(outcome: Any) -> None:
    """The callback of a batch without one."""
