"""Requests of a client to its scheduler: where a task is, the state of the cluster, and that a worker or all leave.

Rules:
- A query waits for its own answer, so that threads may ask at the same time. All queries go through the shell.
- The scheduler counts and explains; the client adds only what it knows itself: how a future ended.
"""

from __future__ import annotations

from typing import Any, Optional

from scaler.arguments import whole
from scaler.client.core.commands import NOT_CONNECTED
from scaler.client.core.deferring import DeferredTask
from scaler.client.future import ScalerFuture
from scaler.client.info import ActorInfo, ClusterInfo, WorkerInfo
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.future_internals import exception_if_loaded
from scaler.exceptions import ArgumentTypeError, DisconnectedError, InvalidArgumentError, ShutdownRefusedError
from scaler_protocol.programs.terminal_texts import escaped_in_line
from scaler_protocol.wire import messages as m

_SESSIONS_LIMIT = 1 << 32


def explain(shell: ClientShell, future: ScalerFuture[Any], timeout_seconds: float) -> str:
    """Why a future of this client is not done, or how it ended, in one sentence."""
    if not future.done() and shell.closed_because is None:
        text = text_of_answer(shell.ask_where(future, timeout_seconds), timeout_seconds)
        if text is not None and not future.done():
            return text
    return outcome_of(future)


def text_of_answer(answer: object, timeout_seconds: float) -> Optional[str]:
    """What the answer to `core.commands.Explain` says; None if the task has ended.

    Parameters:
        answer: a TimeoutError if there was none for `timeout_seconds`.
    """
    if isinstance(answer, DeferredTask):
        return _text_of_deferred(answer)
    if answer == NOT_CONNECTED:
        return "the client has lost its scheduler and is reconnecting; the task will be sent again"
    if isinstance(answer, TimeoutError):
        return f"the scheduler has not said within {timeout_seconds:g} s where the task is"
    return escaped_in_line(answer.text) if isinstance(answer, m.Explanation) else None  # it names workers


def _text_of_deferred(task: DeferredTask) -> str:
    predecessors: Any = task.predecessors
    missing = [each for each in predecessors if not each.done()]
    if not missing:
        return "the task is about to be sent, with the results that it needs"
    name = missing[0]._function.name if missing[0]._function is not None else ""
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"the task waits in this client for task {missing[0].task_id}{f' of {name}' if name else ''}{others}"


def outcome_of(future: Any) -> str:
    """How a finished future ended; does not load its result, because that would run user code."""
    if not future.done():
        return "the task will have no outcome: its client is disconnected"
    if future.cancelled():
        return "the task was cancelled"
    error = exception_if_loaded(future)
    if error is not None:
        return f"the task has failed: {type(error).__name__}: {error}"
    return "the task has failed: see exception()" if future._has_failed else "the task has a result"


def info(shell: ClientShell, address: str, query: m.InfoRequest, timeout_seconds: float) -> ClusterInfo:
    """Ask the scheduler about its cluster. Raises DisconnectedError if it does not answer."""
    answer = shell.ask(query, timeout_seconds)
    if answer is None:
        shell.check_open()
    return info_of(answer, address, timeout_seconds)


def info_of(answer: Optional[m.Info], address: str, timeout_seconds: float) -> ClusterInfo:
    """What the answer to an InfoRequest says. Raises DisconnectedError if there was none."""
    if answer is None:
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
        answer.actor_count,
        tuple(map(_actor_info, answer.actors)),
    )


def info_request(maximum_workers: object, maximum_actors: object) -> m.InfoRequest:
    """Raises ArgumentTypeError or InvalidArgumentError unless both are whole numbers, not below 0."""
    most = (1 << 32) - 1
    return m.InfoRequest(
        maximum_workers=min(whole("maximum_workers", maximum_workers), most),
        maximum_actors=min(whole("maximum_actors", maximum_actors), most),
    )


def _actor_info(actor: m.ActorInfo) -> ActorInfo:
    state = actor.state.name.lower() if isinstance(actor.state, m.ActorState) else f"state {actor.state}"
    return ActorInfo(
        actor.name,
        actor.client,
        actor.worker_name,
        actor.worker,
        state,
        actor.why_lost,
        actor.calls_waiting,
        actor.calls_running,
        actor.calls_finished,
        actor.calls_failed,
    )


def shut_down_worker(shell: ClientShell, worker: object, drain: bool, timeout_seconds: float) -> None:
    """Ask that a worker leaves; raises what `Client.shutdown_worker` says."""
    check_worker_leaves(shell.ask(request_of_worker(worker, drain), timeout_seconds))


def request_of_worker(worker: object, drain: bool) -> m.WorkerShutdown:
    """The request that a worker leaves."""
    if isinstance(worker, bool) or not isinstance(worker, (int, str)) or not worker:
        raise ArgumentTypeError(f"worker must be a session number or a name, got {worker!r}")
    if isinstance(worker, int) and not 0 < worker < _SESSIONS_LIMIT:
        raise InvalidArgumentError(f"no worker has the session number {worker}: see Client.info()")
    session, name = (worker, "") if isinstance(worker, int) else (0, worker)
    return m.WorkerShutdown(session=session, name=name, is_draining=drain)


def check_worker_leaves(answer: Optional[m.WorkerShutdownResponse]) -> None:
    """Raise what `Client.shutdown_worker` says if the scheduler refuses, or has not answered."""
    if answer is None:
        raise DisconnectedError("the scheduler did not answer the request to let a worker leave")
    if not answer.accepted:
        raise ShutdownRefusedError(answer.message)


def shut_down_cluster(shell: ClientShell, timeout_seconds: float) -> None:
    """Ask the scheduler to stop the cluster; raises what `Client.shutdown` says."""
    check_cluster_stops(shell.ask(m.ClientShutdown(), timeout_seconds))


def check_cluster_stops(answer: Optional[m.ClientShutdownResponse]) -> None:
    """Raise what `Client.shutdown` says if the scheduler refuses, or has not answered."""
    if answer is None:
        raise DisconnectedError("the scheduler did not answer the request to shut down")
    # SCL-CLT-014
    if not answer.accepted:
        raise ShutdownRefusedError(f"Scheduler is in protected mode. Can't shutdown: {answer.message}")
