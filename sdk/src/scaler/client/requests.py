"""Requests of a client to its scheduler: where a task is, the state of the cluster, and that a worker or all leave.

Rules:
- A query waits for its own answer, so that threads may ask at the same time. All queries go through the shell.
- The scheduler counts and explains; the client adds only what it knows itself: how a future ended.
"""

from __future__ import annotations

from typing import Any, Optional

from scaler.client.core.commands import NOT_CONNECTED
from scaler.client.core.deferring import DeferredTask
from scaler.client.future import ScalerFuture
from scaler.client.info import ClusterInfo, WorkerInfo
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.future_internals import exception_if_loaded
from scaler.exceptions import ArgumentTypeError, DisconnectedError, InvalidArgumentError, ShutdownRefusedError
from scaler_protocol.wire import messages as m

_SESSIONS_LIMIT = 1 << 32


def explain(shell: ClientShell, future: ScalerFuture[Any], timeout_seconds: float) -> str:
    """Why a future of this client is not done, or how it ended, in one sentence."""
    if not future.done() and shell.closed_because is None:
        answer = shell.ask_where(future, timeout_seconds)
        if isinstance(answer, DeferredTask):
            return _text_of_deferred(answer)
        if answer == NOT_CONNECTED:
            return "the client has lost its scheduler and is reconnecting; the task will be sent again"
        text: Optional[str] = answer.text if isinstance(answer, m.Explanation) else None
        if isinstance(answer, TimeoutError):
            text = f"the scheduler has not said within {timeout_seconds:g} s where the task is"
        if text is not None and not future.done():
            return text
    return _outcome_of(future)


def _text_of_deferred(task: DeferredTask) -> str:
    predecessors: Any = task.predecessors
    missing = [each for each in predecessors if not each.done()]
    if not missing:
        return "the task is about to be sent, with the results that it needs"
    name = missing[0]._function.name if missing[0]._function is not None else ""
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"the task waits in this client for task {missing[0].task_id}{f' of {name}' if name else ''}{others}"


def _outcome_of(future: ScalerFuture[Any]) -> str:
    """How a finished future ended; does not load its result, because that would run user code."""
    if not future.done():
        return "the task will have no outcome: its client is disconnected"
    if future.cancelled():
        return "the task was cancelled"
    error = exception_if_loaded(future)
    if error is not None:
        return f"the task has failed: {type(error).__name__}: {error}"
    return "the task has failed: see exception()" if future._has_failed else "the task has a result"


def info(shell: ClientShell, address: str, maximum_workers: int, timeout_seconds: float) -> ClusterInfo:
    """Ask the scheduler about its cluster. Raises DisconnectedError if it does not answer."""
    answer = shell.ask(m.InfoRequest(maximum_workers=maximum_workers), timeout_seconds)
    if answer is None:
        shell.check_open()
        raise DisconnectedError(
            f"the scheduler at {address} has not answered for {timeout_seconds:g} s: it is down, busy, or too old to"
            " support this request"
        )
    workers = tuple(
        WorkerInfo(each.session, each.name, each.host, each.process_id, each.slots, each.tasks)
        for each in answer.workers
    )
    return ClusterInfo(
        address,
        answer.implementation.name,
        answer.implementation.version,
        answer.implementation.language,
        answer.uptime_milliseconds / 1000,
        answer.clients,
        answer.worker_count,
        answer.slots,
        answer.slots_free,
        answer.tasks_waiting,
        answer.tasks_running,
        workers,
    )


def shut_down_worker(shell: ClientShell, worker: object, drain: bool, timeout_seconds: float) -> None:
    """Ask that a worker leaves; raises what `Client.shutdown_worker` says."""
    if isinstance(worker, bool) or not isinstance(worker, (int, str)) or not worker:
        raise ArgumentTypeError(f"worker must be a session number or a name, got {worker!r}")
    if isinstance(worker, int) and not 0 < worker < _SESSIONS_LIMIT:
        raise InvalidArgumentError(f"no worker has the session number {worker}: see Client.info()")
    session, name = (worker, "") if isinstance(worker, int) else (0, worker)
    answer = shell.ask(m.WorkerShutdown(session=session, name=name, is_draining=drain), timeout_seconds)
    if answer is None:
        raise DisconnectedError("the scheduler did not answer the request to let a worker leave")
    if not answer.accepted:
        raise ShutdownRefusedError(answer.message)


def shut_down_cluster(shell: ClientShell, timeout_seconds: float) -> None:
    """Ask the scheduler to stop the cluster; raises what `Client.shutdown` says."""
    answer = shell.ask(m.ClientShutdown(), timeout_seconds)
    if answer is None:
        raise DisconnectedError("the scheduler did not answer the request to shut down")
    # SCL-CLT-014
    if not answer.accepted:
        raise ShutdownRefusedError(f"Scheduler is in protected mode. Can't shutdown: {answer.message}")
