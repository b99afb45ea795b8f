"""Information about the cluster for clients: its workers and actors, and how busy it is.

Rules:
- One answer costs one pass over the workers, and lists at most MAXIMUM_WORKERS of them and MAXIMUM_ACTORS actors,
  whatever the request says, with as much of a name as anyone is told; nothing is kept between requests.
- Who does not see all gets the figures of its tenant, and the workers that serve it. An answer then costs one pass over
  all clients and functions, too.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Iterable, List, TypeVar

from scaler_appliance.core.actor_calls.actor_table import ActorRecord
from scaler_appliance.core.peers.authority import sees_all
from scaler_appliance.core.peers.sessions import MAXIMUM_LABEL_CHARACTERS, ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.state import SchedulerState
from scaler_protocol import messages as m

MAXIMUM_WORKERS = MAXIMUM_ACTORS = 1000
_Peer = TypeVar("_Peer", bound=Session)
LARGEST_COUNT = (1 << 32) - 1  # the largest number of slots that fits in a message; workers may claim more together


class InfoRequests:
    """Answers an InfoRequest.

    Parameters:
        state: of the scheduler.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def on_request(self, client: ClientSession, message: m.InfoRequest, uptime_seconds: float) -> None:
        """A client asks about the cluster; `uptime_seconds` is how long the scheduler has been running."""
        state, tenant = self._state, client.tenant
        listed = min(message.maximum_workers, MAXIMUM_WORKERS)  # SCL-SCH-035
        # SCL-SEC-030
        workers, clients = _connected(state.workers.values()), _connected(state.clients.values())
        if sees_all(client.grant):
            actor_count = len(state.actors)
            slots, waiting, running = state.total_slots, state.waiting(), state.running
        else:
            workers = [worker for worker in workers if worker.serves(tenant)]
            clients = [each for each in clients if each.tenant == tenant]
            actor_count = sum([state.actors.count_of(each.number) for each in clients])
            slots, running = state.slots_for(tenant), state.running_of(tenant)
            waiting = state.unfinished_of(tenant) - running
        # A processor whose task waits for others frees its slot, so there may be more tasks than slots.
        slots_free = sum(max(0, worker.slots - worker.assigned) for worker in workers)
        # SCL-SCH-056
        actors = chain.from_iterable(state.actors.of(each.number) for each in clients)
        # SCL-SCH-034
        info = m.Info(
            request_id=message.request_id,
            implementation=state.settings.implementation,
            uptime_milliseconds=int(uptime_seconds * 1000),
            clients=len(clients),
            worker_count=len(workers),
            slots=min(slots, LARGEST_COUNT),
            slots_free=min(slots_free, LARGEST_COUNT),
            tasks_waiting=waiting,
            tasks_running=running,
            workers=[_about(worker) for worker in islice(workers, listed)],
            actor_count=actor_count,
            actors=[self._about_actor(actor) for actor in islice(actors, min(message.maximum_actors, MAXIMUM_ACTORS))],
        )
        state.send(client.peer, info)

    def _about_actor(self, actor: ActorRecord) -> m.ActorInfo:
        worker = self._state.workers.get(actor.worker)
        return m.ActorInfo(
            id=actor.number,
            name=actor.name,
            client=actor.owner,
            worker=actor.worker,
            worker_name=worker.hello.name[:MAXIMUM_LABEL_CHARACTERS] if worker is not None else "",
            calls_waiting=actor.unfinished - actor.open_calls,
            calls_running=actor.open_calls,
            calls_finished=actor.finished,
            calls_failed=actor.failed,
            state=actor.state,
            why_lost=actor.known_loss,
        )


def _connected(sessions: Iterable[_Peer]) -> List[_Peer]:
    """Those of peers that are not gone: what these have left may take the scheduler a while."""
    return [each for each in sessions if not each.is_gone]


def _about(worker: WorkerSession) -> m.WorkerInfo:
    return m.WorkerInfo(
        session=worker.number,
        name=worker.hello.name[:MAXIMUM_LABEL_CHARACTERS],
        host=worker.hello.host[:MAXIMUM_LABEL_CHARACTERS],
        process_id=worker.hello.process_id,
        slots=worker.hello.slots,
        tasks=worker.tasks,
    )
