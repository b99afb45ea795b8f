"""Single workers that are to leave: a client asks for it, or the worker itself.

    WorkerShutdown ──▶ on_request ──▶ WorkerShutdownResponse, and a DisconnectRequest to the worker
    a worker's DisconnectRequest, draining ──▶ on_disconnect_request ──▶ the same to the worker

Rules:
- A protected scheduler refuses to stop a worker, as it refuses to be shut down. A worker that drains loses nothing, so
  a client that may ask for it can do so at any scheduler.
- A client can ask only workers of its tenant to leave, unless it sees all. Of those of other tenants it learns nothing.
- A worker that was asked to leave gets no more tasks. It remains until it says that it has left, or its connection
  ends. Tasks that it still holds then run elsewhere, which does not count as an attempt.
- A worker that drains hands over the results that it keeps and that tasks need.
- A worker that asks to be drained is answered even if it drains already: it waits for the answer, behind which it gets
  no more tasks.
"""

from __future__ import annotations

from typing import List

from scaler_appliance.core.objects.object_reactions import ObjectReactions
from scaler_appliance.core.peers.authority import may_drain, sees_all, why_not_stopped
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT
from scaler_protocol.session.features import DRAIN_REQUESTS


class WorkerShutdownReactions:
    def __init__(self, state: SchedulerState, placement: Placement, objects: ObjectReactions) -> None:
        self._state = state
        self._objects = objects
        self._placement = placement

    # SCL-SCH-036
    def on_request(self, client: ClientSession, message: m.WorkerShutdown) -> None:
        """A client asks that a worker leaves."""
        found = self._find(client, message)
        text = ""
        # SCL-SCH-037
        if not may_drain(client.grant, self._state.settings.protected, message.is_draining):
            text = why_not_stopped(client.grant, is_worker=True)
        elif not found:
            wanted = f"session {message.session}" if message.session else f"the name {message.name!r}"
            text = f"no worker with {wanted} is connected (any more)"
        elif len(found) > 1:
            sessions = ", ".join(str(worker.number) for worker in found[:20])
            text = f"{len(found)} workers have the name {message.name!r}: choose one by its session ({sessions})"
        elif not (found[0].tenant == client.tenant or sees_all(client.grant)):
            text = (
                f"{found[0].label} serves all tenants, and only a key for all of them can ask it to leave: scaler keys"
                f" new --role admin --tenant '{ANY_TENANT}'"
            )
        else:
            self._ask(found[0], message.is_draining, m.DrainCause.OPERATOR, f"{client.label} asked for it")
        response = m.WorkerShutdownResponse(request_id=message.request_id, accepted=not text, message=text)
        self._state.send(client.peer, response)

    def _find(self, client: ClientSession, message: m.WorkerShutdown) -> List[WorkerSession]:
        """The workers that are meant, of those of which the client may know."""
        if message.session:
            worker = self._state.workers.get(message.session)
            found = [] if worker is None else [worker]
        else:
            found = [each for each in self._state.workers.values() if each.hello.name == message.name != ""]
        # SCL-SEC-030
        return found if sees_all(client.grant) else [each for each in found if each.serves(client.tenant)]

    # SCL-SCH-047
    def on_disconnect_request(self, worker: WorkerSession, message: m.DisconnectRequest) -> bool:
        """A worker wants to leave; returns whether it is to finish its tasks before."""
        if message.reason != m.DisconnectReason.DRAINING or DRAIN_REQUESTS not in worker.hello.features:
            return False
        self._ask(worker, True, message.drain_cause, message.message or "it asked for it")
        return True

    def drain(self, worker: WorkerSession, cause: m.DrainCause, why: str) -> None:
        """A worker is to finish its tasks, and to leave."""
        self._ask(worker, True, cause, why)

    # SCL-SCH-038
    def _ask(self, worker: WorkerSession, is_draining: bool, cause: int, why: str) -> None:
        reason = m.DisconnectReason.DRAINING if is_draining else m.DisconnectReason.SHUTDOWN
        self._state.log("INFO", f"{worker.label} is asked to {'finish and leave' if is_draining else 'stop'}: {why}")
        worker.leaving = True
        if is_draining and worker.drain_cause == m.DrainCause.UNKNOWN:
            worker.drain_cause = known_cause(cause)
        self._placement.remove_worker(worker)
        self._state.touch_session(worker)
        self._state.send(worker.peer, m.DisconnectRequest(reason=reason, message=why, drain_cause=worker.drain_cause))
        if is_draining:
            self._objects.hand_over(worker)


def known_cause(cause: int) -> m.DrainCause:
    """UNKNOWN for a cause of a newer minor version."""
    try:
        return m.DrainCause(cause)
    except ValueError:
        return m.DrainCause.UNKNOWN
