"""Reactions to messages about objects: created, deleted, requested, delivered.

Rules:
- An object's id contains its creator's session, so that no peer can use another's ids.
- Deleting is idempotent: a second delete, or one that crosses ours, has no effect.
- A worker that drains hands over the results that it keeps and tasks need, a few at a time. What is lost with a
  worker is made again if its tasks may run again (see `node_reruns`).
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import Sequence

from scaler_appliance.core.effects import Buffer, PeerError, RemoveObject
from scaler_appliance.core.graphs.graph_reactions import GraphReactions
from scaler_appliance.core.large_tables import drained, keys_in_parts
from scaler_appliance.core.objects.object_records import ChunkRequest, ObjectPlace, ObjectRecord
from scaler_appliance.core.objects.object_transfers import fetches_from_workers, serves_workers
from scaler_appliance.core.peers.flow_control import FlowControl
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.task_placement import Placement
from scaler_appliance.core.state import SchedulerState
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps, parts
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes
from scaler_appliance.core.tasks.worker_reports import WorkerReports
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER, object_id_of, session_of

UNITS_OF_AN_OBJECT = 4
UNITS_OF_A_FILE = 7  # in addition
UNITS_OF_A_REFUSAL = 60
HANDED_OVER_AT_ONCE = 8  # objects of a worker that leaves


class ObjectReactions:
    def __init__(
        self,
        state: SchedulerState,
        outcomes: TaskOutcomes,
        flow: FlowControl,
        graphs: GraphReactions,
        reports: WorkerReports,
        placement: Placement,
    ) -> None:
        self._state = state
        self._placement = placement
        self._graphs = graphs
        self._reports = reports
        self._flow = flow
        self._outcomes = outcomes
        state.objects.on_sent = self._on_sent

    def on_instruction(self, session: Session, message: m.ObjectInstruction, payload: bytes) -> Steps:
        """A peer creates or deletes objects of its own."""
        if message.action == m.ObjectAction.CREATE:
            return self._create(session, message, payload)
        if message.action == m.ObjectAction.DELETE:
            return self._delete(session, message)
        if message.action == m.ObjectAction.CLEAR:
            return self.drop_all(session)
        # SCL-OBJ-033
        if isinstance(session, WorkerSession) and fetches_from_workers(session):
            if message.action == m.ObjectAction.HOLD:
                return self._add_copies(session, message)
            if message.action == m.ObjectAction.DROP:
                return self._drop_copies(session, message)
        raise PeerError(m.RefusalReason.MALFORMED, f"ObjectInstruction: unknown action {message.action}")

    def _create(self, session: Session, message: m.ObjectInstruction, payload: bytes) -> Steps:
        if isinstance(session, ClientSession):
            keeps = serves_workers(session)
        else:
            keeps = KEPT_RESULTS in session.hello.features
        most = m.ObjectStorage.KEPT if keeps else m.ObjectStorage.REMOTE
        yield from _check_columns(message, payload, self._state.part, most)
        objects, has_quotas = self._state.objects, self._state.shares.has_quotas
        offset = 0
        for start, stop in parts(len(message.ids), max(1, self._state.part // UNITS_OF_AN_OBJECT)):
            files = 0
            for position in range(start, stop):
                object_id = message.ids[position]
                size, storage = message.sizes[position], message.storages[position]
                self._check_new(session, object_id, size)
                name = message.names[position] if message.names else ""
                kind = message.kinds[position] if message.kinds else m.ObjectKind.VALUE
                record = ObjectRecord(object_id, session.number, size, kind, name, message.codec, session.tenant)
                record.is_over_quota = has_quotas and self._exceeds_quota(session, size)
                is_kept = storage == m.ObjectStorage.KEPT
                record.is_kept_by_client = is_kept and isinstance(session, ClientSession)
                objects.add(record)
                session.hold_object(record)
                if record.is_over_quota:
                    record.arrived = 0  # so its bytes are missing, as tasks and peers learn that need it
                    offset += size if storage == m.ObjectStorage.INLINE else 0
                    if storage == m.ObjectStorage.SHARED:
                        self._state.effects.append(RemoveObject(object_id))
                elif storage == m.ObjectStorage.INLINE or size == 0:
                    objects.keep_content(record, payload[offset : offset + size])
                    offset += size
                else:
                    files += 1
                    if storage == m.ObjectStorage.SHARED:
                        objects.memory.enter(record)
                    elif is_kept and isinstance(session, WorkerSession):
                        self._leave_with(session, record)
                    elif is_kept and self._is_fetched_by_workers(session):
                        objects.leave_with(record, session.peer, session.number)
                    else:
                        objects.start_transfer(record, session.peer, session.number)
            self._state.touch_session(session)
            yield (stop - start) * UNITS_OF_AN_OBJECT + files * UNITS_OF_A_FILE

    # SCL-OBJ-039
    def _is_fetched_by_workers(self, client: Session) -> bool:
        """Whether workers can get a client's objects from it, as far as is known; else the scheduler fetches them."""
        workers = self._state.workers
        is_possible = not workers or any(map(fetches_from_workers, workers.values()))
        return is_possible and not self._state.transfers.reach.is_closed(client.number)

    # SCL-OBJ-021
    def _leave_with(self, worker: WorkerSession, record: ObjectRecord) -> None:
        """A worker keeps a result: it knows the object, and learns of its end."""
        self._state.objects.leave_with(record, worker.peer, worker.number)
        worker.know_object(record.object_id)
        record.announced_to.add(worker.number)
        if worker.leaving:
            self.hand_over(worker)

    # SCL-OBJ-023
    def hand_over(self, worker: WorkerSession) -> None:
        """Fetch the next objects that only a worker has which is about to leave; it need not keep the others."""
        objects = self._state.objects
        room = HANDED_OVER_AT_ONCE - len(objects.arriving_from(worker.number))
        needless: array[int] = array("Q")
        for record in list(objects.kept_by(worker.number).values()) if room > 0 else ():
            if fetches_from_workers(worker) and self._has_another_copy(worker, record):
                objects.forget_holder(record, worker.number)
                needless.append(record.object_id)
            elif record.source is None and record.is_elsewhere:
                objects.fetch(record, worker.number)
                room -= 1
                if not room:
                    break
        if needless:
            self._state.send(worker.peer, m.ObjectInstruction(action=m.ObjectAction.DROP, ids=needless))

    def _has_another_copy(self, worker: WorkerSession, record: ObjectRecord) -> bool:
        """Whether the scheduler, its client, or a worker that stays, has an object that a worker has, too."""
        if record.sender == worker.number and record.source is not None:
            return False  # it is sending it
        if record.arrived >= record.size:
            return True
        others = record.copies.holders if record.copies is not None else ()
        workers = self._state.workers
        return any(each != worker.number and not (each in workers and workers[each].leaving) for each in others)

    # Transfers to workers -----------------------------------------------------------------------------------------

    # SCL-OBJ-025
    def on_ticket_request(self, worker: WorkerSession, message: m.TicketRequest) -> None:
        """A worker asks where it can fetch an object."""
        # SCL-OBJ-033
        if not fetches_from_workers(worker):
            text = f"a TicketRequest of a worker that did not list the feature {PEER_FETCH}"
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
        record = self._state.objects.find(message.id)
        # SCL-SEC-030
        if record is not None and not worker.may_read_of(record.tenant):
            record = None
        if record is None:
            self._state.count_useless(worker, UNITS_OF_A_REFUSAL)
        self._state.transfers.request(worker, message.id, record, message.failed_holder)

    # SCL-OBJ-046
    def _add_copies(self, worker: WorkerSession, message: m.ObjectInstruction) -> Steps:
        """A worker has fetched objects, and keeps them."""
        for start, stop in parts(len(message.ids), max(1, self._state.part // UNITS_OF_AN_OBJECT)):
            for object_id in message.ids[start:stop]:
                self._await_no_more(worker, object_id, is_there=True)
                record = self._state.objects.find(object_id)
                if record is None:
                    continue  # it has been deleted meanwhile, of which the worker learns
                if object_id not in worker.known_objects:
                    text = f"object {object_id:016x} is held by a worker to which it was not announced"
                    raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
                if not record.is_maker_lost:  # else it is made again, under another id
                    self._state.objects.add_copy(record, worker.peer, worker.number)
            if worker.leaving:
                self.hand_over(worker)
            yield (stop - start) * UNITS_OF_AN_OBJECT

    def _await_no_more(self, worker: WorkerSession, object_id: int, is_there: bool) -> None:
        if worker.await_no_more(object_id, is_there):
            self._placement.on_load_changed(worker)

    def _on_sent(self, session: int, object_id: int) -> None:
        """A peer has all bytes of an object, or nearly so: it may not say when it has, if it got them from here."""
        worker, record = self._state.workers.get(session), self._state.objects.find(object_id)
        if worker is not None and record is not None and object_id in worker.to_fetch:
            self._state.transfers.on_sent(session, record)
            self._await_no_more(worker, object_id, is_there=True)

    def _drop_copies(self, worker: WorkerSession, message: m.ObjectInstruction) -> Steps:
        """A worker does not go on to fetch objects, or has lost their bytes."""
        for start, stop in parts(len(message.ids), max(1, self._state.part // UNITS_OF_AN_OBJECT)):
            for object_id in message.ids[start:stop]:
                self._await_no_more(worker, object_id, is_there=False)
                record = self._state.objects.find(object_id)
                if record is not None:
                    if object_id in worker.known_objects:
                        worker.to_fetch.add(object_id)
                    self._state.transfers.cancel(worker.number, record)
                    if record.copies is not None and worker.number in record.copies.holders:
                        self._on_bytes_lost(worker, record)
            yield (stop - start) * UNITS_OF_AN_OBJECT

    def _on_bytes_lost(self, session: Session, record: ObjectRecord) -> None:
        """A peer that was to send an object, or had it, has lost its bytes."""
        objects = self._state.objects
        if record.has_holders:
            objects.forget_holder(record, session.number)
            is_arriving = record.source is not None and record.sender != session.number
            if record.arrived >= record.size or is_arriving or objects.go_on(record):
                return
            record.is_maker_lost = True
        objects.give_up(record)  # no new task can need it from now on
        self._reports.on_result_missing(record)
        # Arguments are charged when their client lets go of them itself: to release them before would grant more
        # than the client has counted as submitted.
        if record.kind != m.ObjectKind.ARGUMENTS:
            self._let_go(session, record.object_id)

    def _exceeds_quota(self, session: Session, size: int) -> bool:
        """Whether a client's tenant may not have another object of this size; results of tasks are always taken."""
        limits = self._state.shares.limits.get(session.tenant)
        if limits is None or limits.maximum_object_bytes < 0 or not isinstance(session, ClientSession) or not size:
            return False
        return self._state.objects.usage_of(session.tenant).size_bytes + size > limits.maximum_object_bytes

    def _delete(self, session: Session, message: m.ObjectInstruction) -> Steps:
        for start, stop in parts(len(message.ids), max(1, self._state.part // UNITS_OF_AN_OBJECT)):
            yield self._let_go_all(session, message.ids[start:stop])

    def on_instruction_of_unregistered_peer(self, message: m.ObjectInstruction) -> None:
        """Objects of a session that has ended are announced: the files that came with them have no owner."""
        state = self._state
        for object_id in message.ids if message.action == m.ObjectAction.CREATE else ():
            session = session_of(object_id)
            has_ended = session <= state.last_session and session not in state.clients and session not in state.workers
            if has_ended and state.objects.find(object_id) is None:
                state.effects.append(RemoveObject(object_id))

    def _check_new(self, session: Session, object_id: int, size: int) -> None:
        # SCL-OBJ-002
        number = object_id - object_id_of(session.number, 0)
        if not 0 < number < FIRST_SCHEDULER_NUMBER or self._state.objects.find(object_id) is not None:
            text = f"object id {object_id:016x} is not free, or not this session's"
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
        limit = self._state.settings.maximum_object_bytes
        # SCL-OBJ-003
        if size > limit:
            text = f"an object of {size} bytes is larger than this scheduler allows ({limit})"
            raise PeerError(m.RefusalReason.LIMIT_EXCEEDED, text)

    def _let_go_all(self, session: Session, object_ids: Sequence[int]) -> int:
        """The session does not hold these objects any more, if it did; returns the amount of work."""
        files = len(self._state.objects.memory)
        for object_id in object_ids:
            self._let_go(session, object_id)
        removed = max(0, files - len(self._state.objects.memory))
        return len(object_ids) * UNITS_OF_AN_OBJECT + removed * UNITS_OF_A_FILE

    def _let_go(self, session: Session, object_id: int) -> None:
        # SCL-OBJ-006
        if object_id in session.objects:
            record = self._state.objects.find(object_id)
            assert record is not None
            session.drop_object(record)
            self._state.touch_session(session)
            if record.kind == m.ObjectKind.ARGUMENTS and isinstance(session, ClientSession):
                record.charged_to = session.number  # from now on only its task holds it
                session.flow.submit(0, record.size)
            self._outcomes.forget_object(record, self._state.objects.let_go(record))
            if isinstance(session, ClientSession) and session.large_results.discard(object_id):
                self._flow.hold_or_resume(session)
        else:
            self._state.count_useless(session, 1)

    def drop_all(self, session: Session) -> Steps:
        """The session clears its objects, or is gone."""
        # SCL-OBJ-004
        for held in keys_in_parts(session.objects):
            yield len(held) // COLUMN_ENTRIES_PER_UNIT
            for start, stop in parts(len(held), max(1, self._state.part // UNITS_OF_AN_OBJECT)):
                yield self._let_go_all(session, held[start:stop])

    def on_holder_gone(self, worker: WorkerSession) -> Steps:
        """A worker is gone, and with it what only it had. Peers that asked for it wait until its tasks are settled."""
        state = self._state
        yield from state.transfers.forget_worker(worker.number)
        for record in drained(state.objects.kept_by(worker.number)):
            held = state.held_results.find(record.object_id)
            if held is not None and held.worker == worker.number:
                state.held_results.take(record.object_id)
            if state.objects.find(record.object_id) is record:
                state.objects.lose_holder(record, worker.number)
                if record.awaits_rerun:
                    worker.lost_results.append(record)
            yield UNITS_OF_AN_OBJECT

    def _lose_client(self, client: Session) -> Steps:
        """A client is gone, and with it what only it had. Its own tasks have ended."""
        objects = self._state.objects
        self._state.transfers.forget_client(client.number)
        for record in drained(objects.kept_by(client.number)):
            if objects.find(record.object_id) is record:
                objects.lose_holder(record, client.number)
                if record.awaits_rerun:  # nothing makes it again
                    record.awaits_rerun = False
                    objects.give_up(record)
            yield UNITS_OF_AN_OBJECT

    def _settle_lost(self, worker: WorkerSession) -> Steps:
        """The tasks of a worker that is gone wait for others: those run again whose results were lost with it."""
        state, lost = self._state, worker.lost_results
        while lost:
            record = lost.popleft()
            if state.objects.find(record.object_id) is record and not (
                record.references and self._graphs.on_result_lost(record)
            ):
                record.awaits_rerun = False
                state.objects.give_up(record)
            yield UNITS_OF_AN_OBJECT

    def on_session_gone(self, session: Session) -> Steps:
        """Forget what the session holds, is sending, or knows; the tasks of a worker wait for others by now."""
        if isinstance(session, WorkerSession):
            yield from self._settle_lost(session)
        else:
            yield from self._lose_client(session)
        for record in drained(self._state.objects.arriving_from(session.number)):
            if self._state.objects.find(record.object_id) is record and record.source == session.peer:
                self._state.objects.give_up(record)
                yield UNITS_OF_AN_OBJECT
        yield from self._state.objects.forget_requests(session.number)
        yield from self.drop_all(session)
        while isinstance(session, WorkerSession) and session.known_objects:
            for _ in range(min(len(session.known_objects), self._state.part)):
                known = self._state.objects.find(session.known_objects.popitem()[0])
                if known is not None:
                    known.announced_to.discard(session.number)
            yield self._state.part // 4

    def on_unreadable(self, now: float, object_id: int, why: str, lacks_room: bool) -> None:
        """The bytes of an object are lost, or could not be stored: requests for them are answered as missing.

        Parameters:
            why: for the log; empty if it is there already.
            lacks_room: memory and disk are full.
        """
        state = self._state
        record = state.objects.find(object_id)
        if record is None or record.is_broken or record.place == ObjectPlace.NOWHERE:
            return  # of its later parts, which have come already, the first reason is the true one
        record.lacks_room = lacks_room
        if why:
            state.objects.memory.on_not_stored(now, record, why)
        source = None if record.source is None else state.sessions.get(record.source)
        if isinstance(source, WorkerSession) or (source is not None and record.is_kept_by_client):
            state.objects.discard(record)
        else:
            state.objects.give_up(record)

    def on_spilled(self, object_id: int) -> None:
        """The file of an object is on disk; its creator may still keep it in memory under another name."""
        record = self._state.objects.find(object_id)
        if record is not None:
            self._state.objects.memory.on_spilled(record)
            maker = self._state.clients.get(session_of(object_id))
            if maker is not None:
                maker.spilled_objects.append(object_id)
                maker.touch()

    def on_spill_failed(self, now: float, object_id: int, why: str) -> None:
        """The file of an object could not be spilled, and is still in memory."""
        self._state.objects.memory.on_spill_failed(now, self._state.objects.find(object_id), why)

    def on_request(self, session: Session, message: m.ObjectRequest, payload: bytes) -> None:
        """A peer requests bytes of an object."""
        record = self._state.objects.find(message.id)
        # SCL-SEC-030
        if record is None or not session.may_read_of(record.tenant):
            self._state.count_useless(session, UNITS_OF_A_REFUSAL)
            self._state.objects.refuse(session.peer, message.id, message.offset)
        else:
            request = ChunkRequest(session.peer, session.number, message.offset, message.length)
            self._state.objects.serve(record, request)

    def on_response(self, session: Session, message: m.ObjectResponse, payload: bytes) -> None:
        """A peer sends requested bytes of an object."""
        record = self._state.objects.find(message.id)
        if record is None or record.source != session.peer:
            return  # deleted in the meantime
        if message.status != m.ObjectResponseStatus.OK:
            self._on_bytes_lost(session, record)
        # SCL-OBJ-009
        elif message.offset != record.arrived or len(payload) != self._state.objects.length_asked_for(record):
            text = f"ObjectResponse: not the requested bytes of object {message.id:016x}"
            raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
        else:
            self._state.objects.on_chunk(record, payload)
            if not record.is_arriving and isinstance(session, WorkerSession):
                self._on_fetched(session, record)

    def _on_fetched(self, worker: WorkerSession, record: ObjectRecord) -> None:
        """All bytes of an object of a worker have arrived."""
        self._reports.on_result_fetched(record)
        if worker.leaving and record.copies is not None:
            if not record.is_elsewhere:
                self._state.objects.forget_holder(record, worker.number)
            self.hand_over(worker)


# SCL-SCH-002
def _check_columns(message: m.ObjectInstruction, payload: Buffer, part: int, most: int) -> Steps:
    message.check_columns()
    inline_bytes = 0
    for start, stop in parts(len(message.ids), part * COLUMN_ENTRIES_PER_UNIT):
        storages = message.storages[start:stop]
        if max(storages) > most:
            raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: unknown storage")
        inline_bytes += sum(compress(message.sizes[start:stop], storages.translate(_IS_INLINE)))
        yield (stop - start) // COLUMN_ENTRIES_PER_UNIT
    if inline_bytes != len(payload):
        raise PeerError(m.RefusalReason.MALFORMED, "ObjectInstruction: sizes do not fit the payload frame")


_IS_INLINE = bytes(storage == m.ObjectStorage.INLINE for storage in range(256))
