"""The scheduler: messages in, effects out.

    on_message(now, peer, message, payload)     on_peer_gone(now, peer)      tick(now)
            │                                          │                        │
            ▼                                          ▼                        ▼
      sessions, objects ──▶ TaskReactions ──▶ Placement ──▶ effects ──▶ take_effects()

Rules:
- This module knows peers: how they join, stay, leave and misbehave. What happens to tasks is decided in `tasks`, where they
  go in `placement`.
- `tick` runs after each burst of messages: it places tasks, and sends what has gathered for each peer.
"""

from __future__ import annotations

from array import array
from typing import Callable, Dict, List, Optional, Type

from scaler_appliance.core.effects import Buffer, Effect, PeerError, Stop
from scaler_appliance.core.objects import SESSION_SHIFT, ChunkRequest, ObjectRecord
from scaler_appliance.core.placement import Placement
from scaler_appliance.core.sessions import ClientSession, Session, WorkerSession
from scaler_appliance.core.state import Settings, State
from scaler_appliance.core.tasks import TaskReactions
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m

WATCH_INTERVAL_SECONDS = 1.0
SHUTDOWN_GRACE_SECONDS = 5.0
MAXIMUM_SESSIONS = (1 << 24) - 1  # a session number is the upper part of object ids
_NOT_GREETED = "say Hello first: this connection has no session (any more)"


class Scheduler:
    """The whole decision making of one scheduler.

    Parameters:
        settings: options; all other input comes as arguments of the methods. `now` is always seconds on a clock that
            never goes back.
    """

    def __init__(self, settings: Settings) -> None:
        self.state = State(settings)
        self._placement = Placement(self.state)
        self._tasks = TaskReactions(self.state, self._placement)
        self._next_watch = 0.0
        self._stopping_at: Optional[float] = None
        client_reactions: Dict[Type[object], Callable[..., None]] = {
            m.Task: self._tasks.on_task,
            m.TaskCancel: lambda client, message, payload: self._tasks.on_task_cancel(client, message),
            m.ClientShutdown: lambda client, message, payload: self._on_client_shutdown(client),
        }
        worker_reactions: Dict[Type[object], Callable[..., None]] = {
            m.TaskResult: self._tasks.on_task_result,
            m.TaskCancelConfirm: lambda worker, message, payload: self._tasks.on_task_cancel_confirm(worker, message),
            m.BalanceResponse: lambda worker, message, payload: self._tasks.on_balance_response(worker, message),
        }
        shared_reactions: Dict[Type[object], Callable[..., None]] = {
            m.Heartbeat: self._on_heartbeat,
            m.HeartbeatEcho: lambda session, message, payload: None,  # having heard it is all
            m.ObjectInstruction: self._on_object_instruction,
            m.ObjectRequest: self._on_object_request,
            m.ObjectResponse: self._on_object_response,
            m.DisconnectRequest: self._on_disconnect_request,
            m.DisconnectResponse: lambda session, message, payload: self._remove(session, "it left", is_fault=False),
        }
        self._reactions = {
            m.Role.CLIENT: {**shared_reactions, **client_reactions},
            m.Role.WORKER: {**shared_reactions, **worker_reactions},
        }
        self._now = 0.0

    # Input ----------------------------------------------------------------------------------------------------------

    def on_message(self, now: float, peer: bytes, message: object, payload: bytes = b"") -> None:
        """A well-formed message arrived from a peer."""
        self._now = now
        try:
            if isinstance(message, m.Hello):
                self._on_hello(peer, message)
                return
            session = self.state.sessions.get(peer)
            if session is None:
                if not isinstance(message, (m.DisconnectResponse, m.HeartbeatEcho)):
                    self._refuse(peer, m.RefusalReason.NOT_GREETED, _NOT_GREETED)
                return
            session.last_heard = now
            reaction = self._reactions[session.hello.role].get(type(message))
            if reaction is None and isinstance(message, m.UnknownMessage):
                return  # of a newer minor version
            if reaction is None:
                raise PeerError(
                    m.RefusalReason.PROTOCOL_VIOLATION,
                    f"a {session.hello.role.name.lower()} does not send {type(message).__name__}",
                )
            reaction(session, message, payload)
        except PeerError as error:
            self.on_peer_error(now, peer, error)

    def on_peer_error(self, now: float, peer: bytes, error: PeerError) -> None:
        """A peer broke the protocol (also: it sent bytes that are no message)."""
        self._now = now
        self._refuse(peer, error.reason, error.text)
        session = self.state.sessions.get(peer)
        if session is not None:
            self.state.log("ERROR", f"{session.title} broke the protocol: {error.text}")
            self._remove(session, f"it broke the protocol: {error.text}", is_fault=True)

    def on_peer_gone(self, now: float, peer: bytes) -> None:
        """The connection to a peer does not exist any more."""
        self._now = now
        session = self.state.sessions.get(peer)
        if session is not None:
            self._remove(session, "its connection was lost", is_fault=not session.leaving)

    def tick(self, now: float) -> None:
        """Place tasks, flush what has gathered, look after silent peers."""
        self._now = now
        if now >= self._next_watch:
            self._next_watch = now + WATCH_INTERVAL_SECONDS
            self._watch()
        self._placement.place()
        for session in self.state.touched.values():
            if isinstance(session, ClientSession):
                self._flush_client(session)
            elif isinstance(session, WorkerSession):
                self._flush_worker(session)
        self.state.touched.clear()

    def take_effects(self) -> List[Effect]:
        """The effects since the last call, in order."""
        effects = self.state.effects[:]
        self.state.effects.clear()
        return effects

    def shut_down(self, now: float, why: str) -> None:
        """Tell all peers to leave; `Stop` follows when they have, or after a grace period."""
        if self._stopping_at is not None:
            return
        self._stopping_at = now + SHUTDOWN_GRACE_SECONDS
        self.state.log("INFO", f"Scheduler: shutting down: {why}")
        for session in list(self.state.sessions.values()):
            request = m.DisconnectRequest(reason=m.DisconnectReason.SHUTDOWN, message=why)
            self.state.send(session.peer, request)
            if isinstance(session, ClientSession):
                self._remove(session, "of the shutdown", is_fault=False)
            else:
                session.leaving = True
        self._stop_if_alone()

    # Joining and leaving --------------------------------------------------------------------------------------------

    def _on_hello(self, peer: bytes, hello: m.Hello) -> None:
        before = self.state.sessions.get(peer)
        if before is not None:
            self._remove(before, "it started anew", is_fault=False)
        self._check_hello(hello)
        number = self.state.last_session = self.state.last_session + 1
        session: Session
        if hello.role == m.Role.CLIENT:
            session = self.state.clients[number] = ClientSession(number, peer, hello, self._now, self.state.touched)
        else:
            worker = WorkerSession(number, peer, hello, self._now, self.state.touched)
            worker.capacity = min(worker.capacity, worker.slots * self.state.settings.per_worker_queue_size)
            session = self.state.workers[number] = worker
            self._placement.add_worker(worker)
        self.state.sessions[peer] = session
        self.state.send(peer, self._welcome(number, hello))
        self.state.log("INFO", f"{session.title} connected, session {number}")

    def _check_hello(self, hello: m.Hello) -> None:
        speaks = hello.implementation
        if hello.major != PROTOCOL_MAJOR or hello.minor_min > PROTOCOL_MINOR_MAX or hello.minor_max < PROTOCOL_MINOR_MIN:
            raise PeerError(
                m.RefusalReason.VERSION_MISMATCH,
                f"this scheduler speaks protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MIN} to"
                f" {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX}, {speaks.name or 'the peer'} {speaks.version} speaks"
                f" {hello.major}.{hello.minor_min} to {hello.major}.{hello.minor_max}: install versions that overlap",
            )
        if hello.role not in (m.Role.CLIENT, m.Role.WORKER):
            raise PeerError(m.RefusalReason.ROLE_NOT_SERVED, "a scheduler serves clients and workers only")
        if hello.role == m.Role.WORKER and hello.slots == 0:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "a worker needs at least one slot")
        if self._stopping_at is not None:
            raise PeerError(m.RefusalReason.SHUTTING_DOWN, "the scheduler is shutting down")
        if self.state.last_session >= MAXIMUM_SESSIONS:
            raise PeerError(m.RefusalReason.LIMIT_EXCEEDED, "the scheduler has granted all its sessions: restart it")

    def _welcome(self, number: int, hello: m.Hello) -> m.Welcome:
        settings = self.state.settings
        is_client = hello.role == m.Role.CLIENT
        timeout_seconds = settings.client_timeout_seconds if is_client else settings.worker_timeout_seconds
        return m.Welcome(
            major=PROTOCOL_MAJOR,
            minor=min(hello.minor_max, PROTOCOL_MINOR_MAX),
            implementation=settings.implementation,
            scheduler_id=settings.scheduler_id,
            session=number,
            limits=m.Limits(
                maximum_message_bytes=settings.maximum_message_bytes,
                maximum_object_bytes=settings.maximum_object_bytes,
                chunk_bytes=settings.chunk_bytes,
                inline_bytes=settings.inline_bytes,
            ),
            heartbeat_interval_milliseconds=int(settings.heartbeat_interval_seconds * 1000),
            timeout_milliseconds=int(timeout_seconds * 1000),
            object_directory=settings.object_directory,
            object_directory_token=settings.object_directory_token,
            protected=settings.protected,
            monitor_address=settings.monitor_address,
        )

    def _refuse(self, peer: bytes, reason: m.RefusalReason, text: str) -> None:
        refusal = m.Refusal(
            reason=reason,
            message=text,
            major=PROTOCOL_MAJOR,
            minor_min=PROTOCOL_MINOR_MIN,
            minor_max=PROTOCOL_MINOR_MAX,
            implementation=self.state.settings.implementation,
        )
        self.state.send(peer, refusal)

    def _on_disconnect_request(self, session: Session, message: m.DisconnectRequest, payload: bytes) -> None:
        self._remove(session, message.message or "it left", is_fault=False)
        self.state.send(session.peer, m.DisconnectResponse())

    def _on_client_shutdown(self, client: ClientSession) -> None:
        if self.state.settings.protected:
            text = "the scheduler is protected: stop it where it was started, or start it without --protected"
            self.state.send(client.peer, m.ClientShutdownResponse(accepted=False, message=text))
            return
        self.state.send(client.peer, m.ClientShutdownResponse(accepted=True))
        self.shut_down(self._now, f"{client.title} asked for it")

    def _remove(self, session: Session, why: str, is_fault: bool) -> None:
        """End a session, and everything that was held for it."""
        del self.state.sessions[session.peer]
        if isinstance(session, ClientSession):
            self._tasks.cancel_all(session)
            self._drop_objects(session)
            del self.state.clients[session.number]
        elif isinstance(session, WorkerSession):
            self._placement.remove_worker(session)
            self._tasks.return_all(session, why, is_fault)
            self._drop_objects(session)
            del self.state.workers[session.number]
            for object_id in session.known_objects:
                record = self.state.objects.find(object_id)
                if record is not None:
                    record.holders.discard(session.number)
        self.state.touched.pop(session.number, None)
        self.state.log("WARNING" if is_fault else "INFO", f"{session.title} is gone: {why}")
        self._stop_if_alone()

    def _stop_if_alone(self) -> None:
        if self._stopping_at is not None and not self.state.workers:
            self._stopping_at = None
            self.state.effects.append(Stop("all peers have left"))

    # Staying --------------------------------------------------------------------------------------------------------

    def _on_heartbeat(self, session: Session, message: m.Heartbeat, payload: bytes) -> None:
        if isinstance(session, WorkerSession):
            session.heartbeat = message
        echo = m.HeartbeatEcho(
            sequence=message.sequence, slots=self.state.total_slots(), tasks_waiting=len(self.state.ready)
        )
        self.state.send(session.peer, echo)

    def _watch(self) -> None:
        """Remove peers that were silent for too long; ask those that missed a heartbeat.

        The question finds a peer whose process died: its connection is gone, and the shell learns that by sending.
        """
        settings = self.state.settings
        for session in list(self.state.sessions.values()):
            is_client = isinstance(session, ClientSession)
            timeout_seconds = settings.client_timeout_seconds if is_client else settings.worker_timeout_seconds
            silence_seconds = self._now - session.last_heard
            interval_seconds = session.hello.heartbeat_interval_milliseconds / 1000 or settings.heartbeat_interval_seconds
            if silence_seconds > timeout_seconds:
                self._refuse(session.peer, m.RefusalReason.NOT_GREETED, f"nothing was heard for {silence_seconds:.0f} s")
                self._remove(session, f"nothing was heard of it for {silence_seconds:.0f} s", is_fault=True)
            elif silence_seconds > 1.5 * interval_seconds:
                self.state.send(session.peer, m.Heartbeat())
        if self._stopping_at is not None and self._now >= self._stopping_at:
            self._stopping_at = None
            self.state.effects.append(Stop("not all workers left in time"))

    # Objects --------------------------------------------------------------------------------------------------------

    def _on_object_instruction(self, session: Session, message: m.ObjectInstruction, payload: bytes) -> None:
        if message.action == m.ObjectAction.CREATE:
            self._create_objects(session, message, payload)
        elif message.action == m.ObjectAction.DELETE:
            for object_id in message.ids:
                self._let_go(session, object_id)
        elif message.action == m.ObjectAction.CLEAR:
            self._drop_objects(session)
        else:
            raise PeerError(m.RefusalReason.MALFORMED, f"ObjectInstruction: unknown action {message.action}")

    def _create_objects(self, session: Session, message: m.ObjectInstruction, payload: bytes) -> None:
        _check_object_columns(message, payload)
        offset = 0
        for position, object_id in enumerate(message.ids):
            size, storage = message.sizes[position], message.storages[position]
            if object_id >> SESSION_SHIFT != session.number or self.state.objects.find(object_id) is not None:
                raise PeerError(
                    m.RefusalReason.PROTOCOL_VIOLATION, f"object id {object_id:016x} is not free, or not this session's"
                )
            if size > self.state.settings.maximum_object_bytes:
                raise PeerError(m.RefusalReason.LIMIT_EXCEEDED, f"an object of {size} bytes is larger than allowed")
            name = message.names[position] if message.names else ""
            kind = message.kinds[position] if message.kinds else m.ObjectKind.VALUE
            record = ObjectRecord(object_id, session.number, size, kind, name, message.codec)
            self.state.objects.add(record)
            session.objects.add(object_id)
            if storage == m.ObjectStorage.INLINE or size == 0:
                record.content = payload[offset : offset + size]
                offset += size
            elif storage == m.ObjectStorage.SHARED:
                record.in_file = True
            else:
                self.state.objects.start_transfer(record, session.peer)

    def _let_go(self, session: Session, object_id: int) -> None:
        if object_id not in session.objects:
            return  # a second delete, or one that crossed ours: the wish is fulfilled
        session.objects.discard(object_id)
        record = self.state.objects.find(object_id)
        assert record is not None
        self._tasks.forget_object(object_id, self.state.objects.let_go(record))

    def _drop_objects(self, session: Session) -> None:
        for object_id in sorted(session.objects):
            self._let_go(session, object_id)

    def _on_object_request(self, session: Session, message: m.ObjectRequest, payload: bytes) -> None:
        record = self.state.objects.find(message.id)
        if record is None:
            self.state.objects.refuse(session.peer, message.id, message.offset)
        else:
            self.state.objects.serve(record, ChunkRequest(session.peer, message.offset, message.length))

    def _on_object_response(self, session: Session, message: m.ObjectResponse, payload: bytes) -> None:
        record = self.state.objects.find(message.id)
        if record is None or record.source != session.peer:
            return  # deleted meanwhile
        if message.status != m.ObjectResponseStatus.OK:
            self._let_go(session, message.id)
        elif message.offset != record.arrived or not payload or record.arrived + len(payload) > record.size:
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "ObjectResponse: not the bytes that were asked for")
        else:
            self.state.objects.on_chunk(record, payload)

    # Flushing -------------------------------------------------------------------------------------------------------

    def _flush_worker(self, worker: WorkerSession) -> None:
        if worker.cancelled_instances:
            self.state.send(worker.peer, m.TaskCancel(ids=worker.cancelled_instances))
            worker.cancelled_instances = array("Q")
        if worker.forced_instances:
            self.state.send(worker.peer, m.TaskCancel(ids=worker.forced_instances, force=True))
            worker.forced_instances = array("Q")
        if worker.forgotten_objects:
            deletion = m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=worker.forgotten_objects)
            self.state.send(worker.peer, deletion)
            worker.forgotten_objects = array("Q")

    def _flush_client(self, client: ClientSession) -> None:
        for message, payload in client.outbox.drain():
            self.state.send(client.peer, message, payload)
        if client.confirmed_ids:
            outcomes = bytes(client.confirmed_outcomes)
            self.state.send(client.peer, m.TaskCancelConfirm(ids=client.confirmed_ids, outcomes=outcomes))
            client.confirmed_ids = array("Q")
            client.confirmed_outcomes = bytearray()


def _check_object_columns(message: m.ObjectInstruction, payload: Buffer) -> None:
    count = len(message.ids)
    if len(message.sizes) != count or len(message.storages) != count:
        raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: columns of different lengths")
    if len(message.kinds) not in (0, count) or len(message.names) not in (0, count):
        raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: columns of different lengths")
    if any(storage > m.ObjectStorage.REMOTE for storage in message.storages):
        raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: unknown storage")
    inline = sum(
        size for size, storage in zip(message.sizes, message.storages) if storage == m.ObjectStorage.INLINE
    )
    if inline != len(payload):
        raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: sizes do not fit the payload frame")
