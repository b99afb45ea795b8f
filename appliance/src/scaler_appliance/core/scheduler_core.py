"""The scheduler: messages in, effects out.

    on_message(now, peer, message, payload)     on_peer_gone(now, peer)      tick(now)
            │                                          │                        │
            ▼                                          ▼                        ▼
      sessions ──▶ tasks, graphs, objects: one reaction a message ──▶ placement ──▶ take_effects()

Rules:
- This module handles peers: how they join, stay, leave and misbehave. The reaction modules decide what happens to
  tasks, and `placement` decides where they go.
- `tick` runs after each burst of messages: it places tasks, and sends the gathered messages of each peer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Type

from scaler_appliance.core.actor_calls.actor_placement import ActorPlacement
from scaler_appliance.core.demand.provisioning import Provisioning
from scaler_appliance.core.demand.task_demand import TaskDemand
from scaler_appliance.core.effects import Effect, Forget, PeerError
from scaler_appliance.core.graphs.dependant_reactions import DependantReactions
from scaler_appliance.core.graphs.graph_reactions import GraphReactions
from scaler_appliance.core.monitoring.explanations import Explanations
from scaler_appliance.core.monitoring.info_requests import LARGEST_COUNT, InfoRequests
from scaler_appliance.core.monitoring.running_tasks import reported_tasks, tenants_of_blocked
from scaler_appliance.core.monitoring.status_columns import StatusColumns
from scaler_appliance.core.objects.object_reactions import ObjectReactions
from scaler_appliance.core.option_changes import OptionChanges
from scaler_appliance.core.peers.authority import OWNER_GRANT, check_message, in_log, may_stop, why_not_stopped
from scaler_appliance.core.peers.client_flow import ClientFlow
from scaler_appliance.core.peers.flow_control import FlowControl
from scaler_appliance.core.peers.handshake import (
    CONNECTION_LOST,
    NOT_GREETED,
    check_hello,
    heartbeat_interval_seconds,
    refusal,
    timeout_seconds,
    welcome,
)
from scaler_appliance.core.peers.scheduler_shutdown import SchedulerShutdown
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.silent_peers import SilentPeers
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.peers.worker_shutdown_reactions import WorkerShutdownReactions
from scaler_appliance.core.pending_work import NO_LATE_WORK, ConnectionLost, PendingWork
from scaler_appliance.core.placement.rebalance import Rebalance
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState, Settings
from scaler_appliance.core.steps import Steps
from scaler_appliance.core.tasks.acceptance import Acceptance
from scaler_appliance.core.tasks.cancellation import Cancellation
from scaler_appliance.core.tasks.client_messages import flush_client
from scaler_appliance.core.tasks.requeue import Requeue
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.worker_reports import WorkerReports
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import Grant

WATCH_INTERVAL_SECONDS = 1.0
BALANCE_INTERVAL_SECONDS = 0.01  # at least, while messages come
_ANSWERS = (m.HeartbeatEcho, m.DisconnectResponse, m.BalanceResponse, m.TaskCancelConfirm, m.ObjectResponse)
"""Messages that a peer may still send just after it left on request."""

_AT_ONCE = frozenset((m.Heartbeat, m.HeartbeatEcho))
"""Messages that do not wait for earlier ones of their session."""

_ORDERS = (m.ClientShutdown, m.WorkerShutdown)  # messages of a client that still hold when it is gone


class SchedulerCore:
    """All decisions of one scheduler.

    Parameters:
        settings: options; other input comes as arguments. `now` is seconds, on a clock that never goes back.
    """

    def __init__(self, settings: Settings) -> None:
        self.state = SchedulerState(settings)
        self._placement = Placement(self.state)
        self._outcomes = outcomes = TaskOutcomes(self.state)
        self._dependants = DependantReactions(self.state, outcomes)
        self._actors = ActorPlacement(self.state, self._placement, outcomes)
        acceptance = Acceptance(self.state, self._placement, outcomes, self._dependants, self._actors)
        self._flow = FlowControl(self.state, self._placement)
        self._graphs = GraphReactions(self.state, self._placement, outcomes)
        reports = WorkerReports(self.state, self._placement, outcomes, self._graphs, self._flow)
        self._cancels = Cancellation(self.state, self._placement, outcomes, self._graphs, self._dependants)
        self._requeue = Requeue(self.state, outcomes)
        self._rebalance = Rebalance(self.state, self._placement, outcomes, self._requeue)
        self._explanations = Explanations(self.state, self._placement)
        self._objects = ObjectReactions(self.state, outcomes, self._flow, self._graphs, reports, self._placement)
        self._worker_shutdowns = WorkerShutdownReactions(self.state, self._placement, self._objects)
        self._options = OptionChanges(self.state, self._placement, self._flow)
        self._demand = TaskDemand(self.state)
        self._provisioning = Provisioning(self.state, self._demand, self._worker_shutdowns)
        self.status = StatusColumns(self.state, self._demand)
        self._next_watch = self._next_balance = self._now = 0.0
        self._has_news = False  # since the last tick
        self._started: Optional[float] = None  # when it was first called
        self._cluster_info = InfoRequests(self.state)
        self._work = PendingWork(settings.work_per_call, self._react, self._consequences, self._on_late_error)
        self._silent_peers = SilentPeers(self.state, self._work.is_awaited, self._remove_silent)
        self.shutdown = SchedulerShutdown(self.state, lambda session, why: self._remove(session, why, is_fault=False))
        self.late_work = NO_LATE_WORK  # of the last tick
        client_reactions: Dict[Type[object], Callable[..., Optional[Steps]]] = {
            m.Task: acceptance.on_task,
            m.GraphTask: self._graphs.on_graph_task,
            m.TaskCancel: lambda client, message, payload: self._cancels.on_task_cancel(client, message),
            m.ExplanationRequest: lambda client, message, payload: self._explanations.on_request(client, message),
            m.InfoRequest: lambda client, message, payload: self._on_info_request(client, message),
            m.ClientShutdown: lambda client, message, payload: self._on_client_shutdown(client),
            m.WorkerShutdown: lambda client, message, payload: self._worker_shutdowns.on_request(client, message),
            m.Units: lambda client, message, payload: self._provisioning.on_units(client, message),
            m.ReleaseRequest: lambda client, message, payload: self._provisioning.on_release_request(client, message),
        }
        worker_reactions: Dict[Type[object], Callable[..., Optional[Steps]]] = {
            m.TaskResult: reports.on_task_result,
            m.TaskLog: lambda worker, message, payload: reports.on_task_log(worker, message),
            m.TaskCancelConfirm: lambda worker, message, payload: self._cancels.on_task_cancel_confirm(worker, message),
            m.BalanceResponse: lambda worker, message, payload: self._rebalance.on_balance_response(worker, message),
            m.TicketRequest: lambda worker, message, payload: self._objects.on_ticket_request(worker, message),
        }
        shared_reactions: Dict[Type[object], Callable[..., Optional[Steps]]] = {
            m.Heartbeat: self._on_heartbeat,
            m.HeartbeatEcho: lambda session, message, payload: None,  # only its arrival matters
            m.ObjectInstruction: self._objects.on_instruction,
            m.ObjectRequest: self._objects.on_request,
            m.ObjectResponse: self._objects.on_response,
            m.DisconnectRequest: self._on_disconnect_request,
            m.DisconnectResponse: lambda session, message, payload: self._remove(session, "it left", is_fault=False),
        }
        self._reactions: Dict[Type[Session], Dict[Type[object], Callable[..., Optional[Steps]]]] = {
            ClientSession: {**shared_reactions, **client_reactions},
            WorkerSession: {**shared_reactions, **worker_reactions},
        }

    # Input ----------------------------------------------------------------------------------------------------------

    def on_message(self, now: float, peer: bytes, message: object, payload: bytes = b"") -> bool:
        """A well-formed message arrived from a peer; returns whether it has a session, and may send that message."""
        self._now = self.state.now = now
        self._has_news = True
        try:
            if isinstance(message, m.Hello):
                self._on_hello(peer, message)
                return True
            session = self.state.sessions.get(peer)
            if session is None:
                self._on_message_of_unregistered_peer(peer, message)
                return False
            session.last_heard = now
            if self._work and type(message) not in _AT_ONCE and self._work.is_awaited(session):
                self._work.add_message(session, message, payload)
            else:
                steps = self._react(session, message, payload)
                if steps is not None:
                    self._work.begin(session, steps)
            return True
        except PeerError as error:
            self.on_peer_error(now, peer, error)
        # SCL-SCH-002
        except MalformedMessageError as error:  # its columns do not agree: found before anything has changed
            self.on_peer_error(now, peer, PeerError(m.RefusalReason.MALFORMED, str(error)))
        return False

    def _react(self, session: Session, message: object, payload: bytes) -> Optional[Steps]:
        """React to a message; returns what is left to do."""
        if isinstance(message, ConnectionLost):
            self._remove(session, CONNECTION_LOST, message.is_fault)
            return None
        reaction = self._reactions[type(session)].get(type(message))
        if reaction is not None:
            if session.grant is not OWNER_GRANT and isinstance(session, ClientSession):
                check_message(session.grant, message)
            return reaction(session, message, payload)
        # SCL-SES-024, SCL-VER-001
        if not isinstance(message, m.UnknownMessage):  # which is of a newer minor version
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, f"{session.kind}s do not send {type(message).__name__}")
        return None

    def _on_late_error(self, session: Session, error: PeerError, units: int) -> None:
        """A message of a session was wrong that had to wait, or was found to be wrong late."""
        self.state.count_useless(session, units)
        if not session.is_gone:
            self.on_peer_error(self._now, session.peer, error)

    def _consequences(self, client: ClientSession) -> Steps:
        """What follows for a client's tasks from those that have ended."""
        while client.advancing or client.dependants.has_consequences or client.unneeded_objects:
            yield from self._graphs.advance(client)
            yield from self._dependants.advance(client)
            yield from self._outcomes.release_rest(client)

    @property
    def has_work(self) -> bool:
        """Whether `tick` has more to do at once, after other messages have been passed on."""
        state = self.state
        if self._work or state.advancing or self._placement.is_unfinished or self._explanations.is_unfinished:
            return True
        is_telling = self._silent_peers.is_unfinished or self.shutdown.is_unfinished or self._demand.is_unfinished
        is_answering = state.ready.has_dropped or bool(state.objects.to_answer)
        return is_telling or is_answering or (state.has_actors and self._actors.is_unfinished)

    def is_working_for(self, peer: bytes) -> bool:
        """Whether a message of a peer is being worked on, for which its next ones have to wait."""
        session = self.state.sessions.get(peer) if self._work else None
        return session is not None and self._work.is_awaited(session)

    def _on_message_of_unregistered_peer(self, peer: bytes, message: object) -> None:
        """A peer without a session sent a message: it never had one, or the session has ended."""
        # SCL-SES-012
        if isinstance(message, m.DisconnectRequest):
            self.state.send(peer, m.DisconnectResponse())
            return
        if isinstance(message, m.ObjectInstruction):
            self._objects.on_instruction_of_unregistered_peer(message)
        # SCL-SES-011
        if not isinstance(message, _ANSWERS):
            self._refuse(peer, m.RefusalReason.NOT_GREETED, NOT_GREETED)

    def on_peer_error(self, now: float, peer: bytes, error: PeerError) -> None:
        """A peer broke the protocol, for example with bytes that are not a message."""
        self._now = self.state.now = now
        self._has_news = True
        session = self.state.sessions.get(peer)
        if session is not None:
            # SCL-SEC-001
            self.state.log("ERROR", f"{session.label} broke the protocol: {error.text}")
            self._remove(session, f"it broke the protocol: {error.text}", is_fault=True)
        self._refuse(peer, error.reason, error.text)

    def on_authenticated(self, now: float, peer: bytes, role: str, tenant: str, name: str) -> None:
        """It is known who a peer is, before its first message: see `Grant`."""
        self._now = self.state.now = now
        grant = Grant(role, tenant, name)
        self.state.grants[peer] = OWNER_GRANT if grant == OWNER_GRANT else grant

    # SCL-SES-017
    def on_peer_gone(self, now: float, peer: bytes) -> None:
        """The connection to a peer has ended."""
        self._now = self.state.now = now
        self._has_news = True
        self.state.grants.pop(peer, None)
        session = self.state.sessions.get(peer)
        if session is not None:
            loses_nothing = isinstance(session, ClientSession) and not (
                any(session.batches()) or session.dependants.waiting
            )
            is_fault = not (session.leaving or loses_nothing)
            if isinstance(session, WorkerSession) and self._work.is_awaited(session):
                session.leaving = True  # it gets no more tasks, and what it has reported still counts
                self.state.touch_session(session)
                self._placement.remove_worker(session)
                self._work.add_message(session, ConnectionLost(is_fault), b"")
            else:
                self._remove(session, CONNECTION_LOST, is_fault)

    def on_congestion(self, now: float, peer: bytes, is_congested: bool) -> None:
        """A peer leaves many bytes unread, or has read most of them."""
        self._now = now
        self._has_news = True
        session = self.state.sessions.get(peer)
        if session is not None:
            self._flow.on_congestion(session, is_congested)

    def on_object_unreadable(self, now: float, object_id: int, why: str = "", lacks_room: bool = False) -> None:
        """The bytes of an object are lost, or could not be stored; see `ObjectReactions.on_unreadable`."""
        self._now = now
        self._has_news = True
        self._objects.on_unreadable(now, object_id, why, lacks_room)

    def on_object_spilled(self, now: float, object_id: int) -> None:
        """The file of an object is on disk: it was spilled, or memory had no room for it."""
        self._now = now
        self._objects.on_spilled(object_id)

    def on_object_spill_failed(self, now: float, object_id: int, why: str) -> None:
        """The file of an object could not be spilled, and is still in memory."""
        self._now = now
        self._objects.on_spill_failed(now, object_id, why)

    def on_memory_used(self, now: float, heap_bytes: int) -> None:
        """This process uses so much memory, besides the files of objects."""
        self._now = now
        client = self._flow.on_memory_used(now, heap_bytes)
        if client is not None:
            self._remove(client, text := f"it holds most, and {self.state.budget.text_of_full()}", is_fault=True)
            self._refuse(client.peer, m.RefusalReason.LIMIT_EXCEEDED, text)

    def on_options_changed(self, now: float, changes: Dict[str, Any]) -> None:
        """The user has changed options; see `OptionChanges.apply`."""
        self._now = now
        self._has_news = True
        self._options.apply(changes)

    def on_stood_still(self, now: float) -> None:
        """This process was stopped, and heard no peer meanwhile: they all get a fresh term."""
        for session in self.state.sessions.values():
            session.last_heard = now

    def tick(self, now: float) -> None:
        """Place tasks, send gathered messages, check for silent peers."""
        self._now = self.state.now = now
        is_watching = now >= self._next_watch
        if is_watching:
            self._started = now if self._started is None else self._started
            self._next_watch = now + WATCH_INTERVAL_SECONDS
            self._silent_peers.begin()
            self.shutdown.watch(now)
            for client in self._flow.short_of_credit():
                self._work.add(client, self._flow.compact(client))
            self.state.objects.memory.watch(now)
            self.state.transfers.watch(now)
        if self._silent_peers.is_unfinished:
            self._has_news = True  # tasks of a worker that is removed wait again
            self._silent_peers.go_on(now)
        if self.shutdown.is_unfinished:
            self.shutdown.go_on()
        is_changed = self._has_news or is_watching or bool(self._work or self.state.advancing)
        self._has_news = False
        left = self._do_work()
        if is_changed or self._placement.is_unfinished or self._actors.is_unfinished:
            self._placement.place(self._actors.place(left, is_changed) if self.state.has_actors else left, is_changed)
        if is_watching or now >= self._next_balance:
            self._next_balance = now + BALANCE_INTERVAL_SECONDS
            self._rebalance.rebalance(all_workers=is_watching)
        if is_watching:
            self._explanations.watch(now)
            self._demand.watch(now, self.state.changes.is_watched or self._provisioning.is_asked)
        if self._demand.go_on(now, self.state.part):
            self._provisioning.tell()
        self._explanations.go_on(now, self.state.part)
        for session in self.state.touched.values():
            if session.is_gone:
                continue
            if isinstance(session, ClientSession):
                flush_client(self.state, session)
            elif isinstance(session, WorkerSession):
                for message in session.take_messages():
                    self.state.send(session.peer, message)
        self.state.touched.clear()

    def _do_work(self) -> int:
        """Do a part of what is left to do; returns how many units of work this call may do besides."""
        state, self.late_work = self.state, NO_LATE_WORK
        left = state.settings.work_per_call
        if self._work or state.advancing:
            self.late_work = self._work.run(state.advancing)
            left = max(self._work.units_left, state.part)
            for session in state.touched.values():
                if isinstance(session, ClientSession) and session.dependants.endings:
                    self._dependants.hold_objects(session)
        state.free_and_answer()
        return left

    def take_effects(self) -> List[Effect]:
        """The effects since the last call, in order."""
        effects = self.state.effects[:]
        self.state.effects.clear()
        self.state.objects.on_effects_taken()
        return effects

    # Monitors -------------------------------------------------------------------------------------------------------

    def watch(self, has_status: bool, has_runs: bool) -> None:
        """Subscribers to the status or to the runs of tasks have come, or the last one has gone.

        A new subscriber gets a snapshot first: `take_status(now, is_snapshot=True)`.
        """
        state = self.state
        state.is_watched = has_status or has_runs
        if has_status != state.changes.is_watched:
            self.status.watch(has_status)
        if has_runs != state.runs.is_watched:
            state.runs.watch(has_runs)

    def take_status(self, now: float, is_snapshot: bool) -> Optional[m.SchedulerStatus]:
        """The changes since the previous publication, or a snapshot; None if it needs more calls (`StatusColumns`)."""
        return self.status.take(is_snapshot)

    def take_view(self, now: float, tenant: str) -> Optional[m.SchedulerStatus]:
        """What a tenant may see of the publication that `take_status` has made; None if it needs more calls."""
        return self.status.take_view(tenant)

    def take_runs(self, now: float, unix_microseconds: int) -> m.TaskRuns:
        """The runs of tasks that have ended since the last call."""
        return self.state.runs.take(now, self.state.settings.scheduler_id, unix_microseconds)

    def take_runs_view(self, now: float, tenant: str) -> m.TaskRuns:
        """What a tenant may see of the runs that were taken last."""
        return self.state.runs.view(tenant)

    def shut_down(self, now: float, why: str) -> None:
        """Ask all peers to leave; `Stop` follows when they have, or after a grace period."""
        if not self.shutdown.has_begun:
            self._has_news = True
            self.shutdown.begin(now, why)

    # Joining and leaving --------------------------------------------------------------------------------------------

    # SCL-SES-002
    def _on_hello(self, peer: bytes, hello: m.Hello) -> None:
        before, settings = self.state.sessions.get(peer), self.state.settings
        # SCL-SES-010
        if before is not None:
            self._remove(before, "it connected again", is_fault=False)
        grant = check_hello(
            hello,
            self.state.grants.get(peer, None if settings.requires_grants else OWNER_GRANT),
            self.state.last_session,
            is_stopping=self.shutdown.has_begun,
            peers=len(self.state.sessions),
            maximum_peers=settings.maximum_peers,
        )
        # SCL-SES-007
        number = self.state.last_session = self.state.last_session + 1
        session: Session
        if hello.role == m.Role.CLIENT:
            flow = ClientFlow(settings.client_tasks_in_flight, settings.client_bytes_in_flight)
            client = ClientSession(number, peer, hello, self._now, self.state.touched, flow, self.state.advancing)
            session = self.state.clients[number] = client
            client.admit(grant)
            self.state.changes.clients.add(number, client)
            self._flow.grant(client)
            self._provisioning.on_hello(client)
        else:
            self._provisioning.check_worker(hello, grant)
            limit = settings.per_worker_queue_size
            worker = WorkerSession(number, peer, hello, self._now, self.state.touched, limit)
            session = worker
            self.state.add_worker(worker)
            worker.admit(grant)
            self.state.changes.workers.add(number, worker)
            self.state.add_slots(worker, worker.slots)
            self._placement.add_worker(worker)
        silence_seconds = session.timeout_seconds = timeout_seconds(settings, hello, self.state.worker_hosts)
        others = len(self.state.sessions)
        session.heartbeat_interval_seconds = heartbeat_interval_seconds(settings, others, silence_seconds)
        self.state.sessions[peer] = session
        self.state.send(peer, welcome(settings, session, grant))
        self.state.log("INFO", f"{session.label} connected, session {number}{in_log(grant)}")

    def _refuse(self, peer: bytes, reason: m.RefusalReason, text: str) -> None:
        self.state.send(peer, refusal(self.state.settings, reason, text))

    # SCL-SES-012
    def _on_disconnect_request(self, session: Session, message: m.DisconnectRequest, payload: bytes) -> None:
        if not (isinstance(session, WorkerSession) and self._worker_shutdowns.on_disconnect_request(session, message)):
            self._remove(session, message.message or "it left", is_fault=False)
            self.state.send(session.peer, m.DisconnectResponse())

    def _on_info_request(self, client: ClientSession, message: m.InfoRequest) -> None:
        uptime_seconds = 0.0 if self._started is None else self._now - self._started
        self._cluster_info.on_request(client, message, uptime_seconds)

    def _on_client_shutdown(self, client: ClientSession) -> None:
        # SCL-SCH-024
        if not may_stop(client.grant, self.state.settings.protected):
            text = why_not_stopped(client.grant, is_worker=False)
            self.state.send(client.peer, m.ClientShutdownResponse(accepted=False, message=text))
            return
        # SCL-SCH-025
        self.state.send(client.peer, m.ClientShutdownResponse(accepted=True))
        self.shut_down(self._now, f"{client.label} asked for it")

    def _remove(self, session: Session, why: str, is_fault: bool) -> None:
        """End a session; what it held is released in parts, and until then it is invisible to all peers."""
        state = self.state
        del state.sessions[session.peer]
        session.is_gone = True
        state.departing[session.number] = session
        if isinstance(session, ClientSession):
            state.ready.hold(session.number)
            session.unasked_cancels.clear()
            session.advancing.clear()
            self._explanations.forget_client(session)
            state.effects.append(Forget(session.peer, session.number))
            orders = self._work.end(session, self._release_client(session))
        else:
            assert isinstance(session, WorkerSession)
            session.leaving = True
            state.touch_session(session)
            self._placement.remove_worker(session)
            self._actors.on_worker_gone(session, why)
            state.shares.set_blocked(session, ())
            state.over_committed.pop(session.number, None)
            state.add_slots(session, -session.hello.slots)
            state.effects.append(Forget(session.peer, session.number))
            orders = self._work.end(session, self._release_worker(session, why, is_fault))
        state.touched.pop(session.number, None)
        state.log("WARNING" if is_fault else "INFO", f"{session.label} is gone: {why}")
        self.shutdown.stop_if_alone()
        for message in orders:
            if isinstance(message, _ORDERS) and isinstance(session, ClientSession):
                self._react(session, message, b"")

    def _release_client(self, client: ClientSession) -> Steps:
        self._provisioning.on_client_gone(client)
        # SCL-SCH-022
        yield from self._cancels.cancel_all(client)
        yield from self._outcomes.release_rest(client)
        yield from self._objects.on_session_gone(client)
        state = self.state
        state.ready.remove_client(client.number)
        state.forget_figures(client)
        del state.clients[client.number], state.departing[client.number]
        state.touched.pop(client.number, None)
        state.changes.clients.remove(client.number, client)

    def _release_worker(self, worker: WorkerSession, why: str, is_fault: bool) -> Steps:
        yield from self._objects.on_holder_gone(worker)
        yield from self._requeue.requeue_all(worker, why, is_fault)
        self._actors.forget_worker(worker)
        yield from self._objects.on_session_gone(worker)
        state = self.state
        self._placement.remove_worker(worker)  # what workers can do has changed again
        state.shares.set_blocked(worker, ())
        state.remove_worker(worker)
        del state.departing[worker.number]
        state.over_committed.pop(worker.number, None)
        state.touched.pop(worker.number, None)
        state.changes.workers.remove(worker.number, worker)

    # Staying --------------------------------------------------------------------------------------------------------

    def _on_heartbeat(self, session: Session, message: m.Heartbeat, payload: bytes) -> None:
        state = self.state
        if isinstance(session, WorkerSession):
            self._placement.memory.on_heartbeat(session, message)
            if session.on_heartbeat(self._now, message, reported_tasks(session, message, state.dispatches)):
                self._placement.on_distance_changed(session)
            state.note_sharing(session)
            if state.shares.has_quotas:
                state.shares.set_blocked(session, tenants_of_blocked(session, state.clients))
            self._placement.on_load_changed(session)
            state.touch_session(session)
        # SCL-MON-008
        is_seen = isinstance(session, WorkerSession) and state.is_watched and not session.number & state.runs.mask
        # SCL-SES-014
        slots, waiting = min(state.slots_for(session.tenant), LARGEST_COUNT), state.waiting_for(session.tenant)
        echo = m.HeartbeatEcho(sequence=message.sequence, slots=slots, tasks_waiting=waiting, is_watched=is_seen)
        state.send(session.peer, echo)

    def _remove_silent(self, session: Session, why: str) -> None:
        self._remove(session, why, is_fault=True)
        self._refuse(session.peer, m.RefusalReason.NOT_GREETED, why)
