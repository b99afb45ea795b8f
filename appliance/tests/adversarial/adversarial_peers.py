"""Peers that say whatever their role may say: each message is well-formed, and few of them are true.

Rules:
- A table defines the messages of each role, and how often they are sent; other messages of the schema are sent
  occasionally.
- An adversarial peer knows the truth (the instances it holds, the objects it made) and mostly refers to it; otherwise
  its session would end before it contradicts anything.
- All chance comes from `Values`.
"""

from __future__ import annotations

from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type

from adversarial.values import LARGEST, Values
from scheduler_harness import Harness, Peer, hello

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.tasks.batches import INSTANCE_BITS
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH, PROVISIONING
from scaler_protocol.session.ids import SESSION_SHIFT

Said = Tuple[m.Member, bytes]
"""A message, and the payload frame after it."""

STRAY_RATE = 0.004  # of messages that do not belong to this role
SPOIL_RATE = 0.004  # of messages whose columns disagree
FIRST_INSTANCE = 1 << INSTANCE_BITS  # of the first dispatch there ever was


class AdversarialPeer:
    """One peer on one connection, in one role after the other.

    Parameters:
        harness: the scheduler.
        values: shared by all adversarial peers.
    """

    def __init__(self, harness: Harness, values: Values) -> None:
        self.values = values
        self.random = values.random
        self.peer: Peer = harness.unregistered_peer()
        self.state = harness.state
        self.role = m.Role.CLIENT
        self.last_task_id = 0
        self.objects_made = 0

    @property
    def session(self) -> int:
        """Its number; 0: it has none (any more)."""
        session = self.state.sessions.get(self.peer.name)
        return 0 if session is None else int(session.number)

    def hello(self) -> Said:
        """Start again, in any role."""
        random, values = self.random, self.values
        self.role = random.choice((m.Role.WORKER, m.Role.CLIENT))
        self.last_task_id = self.objects_made = 0
        fetches = self.role == m.Role.WORKER and values.chance(0.95)
        message = hello(
            self.role,
            features=random.choice(([PEER_FETCH], [PEER_FETCH, KEPT_RESULTS])) if fetches else [PROVISIONING],
            unit=random.choice(("", "", "u", "v")),
            data_address=random.choice(("tcp://here:1", "tcp://here:1", "", "here")),
            data_key=random.choice((b"", b"k" * 32, b"k")),
            slots=random.choice((1, 1, 2, 3, 3, values.number_32())),
            queue_size=random.choice((0, 1, 3, 1000, values.number_32())),
            capabilities=values.capabilities() if self.role == m.Role.WORKER or values.chance(0.1) else [],
            codecs=random.choice(([], [], ["json"], [""])),
            functions=random.choice(([], [], ["f"], ["*"], ["g*", ""])),
            name=random.choice(("", "w", "w")),
            heartbeat_interval_milliseconds=random.choice((0, 1, 2000, values.number_32())),
        )
        return message, b""

    def say(self) -> Said:
        """Anything."""
        if self.values.chance(STRAY_RATE):
            return self.random.choice(m.MEMBERS)(), b""
        table = _TABLES[self.role]
        kind = self.random.choices(list(table), [saying.weight for saying in table.values()])[0]
        message, payload = table[kind].make(self)
        assert isinstance(message, kind)
        return self._spoilt(message, payload) if self.values.chance(SPOIL_RATE) else (message, payload)

    def _spoilt(self, message: m.Member, payload: bytes) -> Said:
        """With one column, or the payload, shorter or longer than the others say."""
        columns = [name for name in type(message).__slots__ if isinstance(getattr(message, name), (array, bytes))]
        name = self.random.choice([*columns, "payload"])
        before: Any = payload if name == "payload" else getattr(message, name)
        after = before[:-1] if self.values.chance(0.5) else before + before[-1:]
        if name == "payload":
            return message, after
        setattr(message, name, after)
        return message, payload

    # What both roles say --------------------------------------------------------------------------------------------

    def heartbeat(self) -> Said:
        values = self.values
        instances = self._instances_of_all() or [0]
        processors = [
            m.ProcessorStatus(
                process_id=values.number_32(),
                suspended=values.chance(0.5),
                has_task=values.chance(0.5),
                initialized=True,
                instance=self.random.choice(instances) if values.chance(0.7) else values.number(),
                task_microseconds=values.number(),
                queued=values.number_32(),
                cpu_permille=values.number_32(),
                resident_bytes=values.number(),
            )
            for _ in range(self.random.choice((0, 1, 2, 5)))
        ]
        message = m.Heartbeat(
            sequence=values.number(),
            queued=values.number_32(),
            latency_microseconds=values.number_32(),
            free_bytes=values.number(),
            processors=processors,
        )
        return message, b""

    def heartbeat_echo(self) -> Said:
        return m.HeartbeatEcho(sequence=self.values.number()), b""

    def object_instruction(self) -> Said:
        choice = self.random.random()
        if choice < 0.65:
            return self._creation()
        worker = self.state.workers.get(self.session)
        if choice < 0.8 and worker is not None and PEER_FETCH in worker.hello.features:
            return self._copies(worker)
        if choice < 0.96:
            ids = [self.values.object_id(self.session) for _ in range(self.random.choice((0, 1, 2, 3)))]
            return m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", ids)), b""
        return m.ObjectInstruction(action=self.random.choice((m.ObjectAction.CLEAR, m.ObjectAction.SPILL))), b""

    def _copies(self, worker: WorkerSession) -> Said:
        """It holds objects, or has lost them: mostly such as were announced to it."""
        known = list(worker.known_objects) or self.values.objects
        ids = [self.random.choice(known) for _ in range(self.random.choice((0, 1, 1, 2)))]
        if self.values.chance(0.05):
            ids.append(self.values.object_id(self.session))
        action = self.random.choice((m.ObjectAction.HOLD, m.ObjectAction.HOLD, m.ObjectAction.DROP))
        return m.ObjectInstruction(action=action, ids=array("Q", ids)), b""

    def _creation(self) -> Said:
        """Of objects whose ids are mostly free, in any storage; seldom one that most peers may not use."""
        random, values = self.random, self.values
        count = random.choice((0, 1, 1, 2, 3))
        weights = [{m.ObjectStorage.KEPT: 0.1, m.ObjectStorage.HELD: 0.02}.get(each, 1.0) for each in m.ObjectStorage]
        storages = bytes(random.choices(list(m.ObjectStorage), weights, k=count))
        ids, sizes = array("Q"), array("Q")
        for storage in storages:
            self.objects_made += 1
            is_free = values.chance(0.95)
            ids.append(self.session << SESSION_SHIFT | self.objects_made if is_free else values.object_id(self.session))
            large = 7 if storage == m.ObjectStorage.INLINE else 1 << 40
            sizes.append(random.choice((0, 1, 5, 10, 64, 100, 5000, large)))
        values.remember_objects(list(ids))
        inline_bytes = sum(size for size, storage in zip(sizes, storages) if storage == m.ObjectStorage.INLINE)
        message = m.ObjectInstruction(
            ids=ids,
            sizes=sizes,
            storages=storages,
            kinds=bytes(random.choices((0, 1, 2, 3, 3, 200), k=count)) if values.chance(0.7) else b"",
            names=["n"] * count if values.chance(0.5) else [],
            codec=random.choice(("", "json")),
        )
        return message, b"o" * inline_bytes

    def object_request(self) -> Said:
        values = self.values
        offset = self.random.choice((0, 0, 10, values.number()))
        length = self.random.choice((0, 10, 1000, values.number_32()))
        ticket = b"t" * 32 if values.chance(0.1) else b""  # which is meant for workers
        return m.ObjectRequest(id=values.object_id(self.session), offset=offset, length=length, ticket=ticket), b""

    def ticket_request(self) -> Said:
        failed = self.random.choice((0, 0, *self.state.workers, self.values.number_32()))
        return m.TicketRequest(id=self.values.object_id(self.session), failed_holder=failed), b""

    def units(self) -> Said:
        values, random = self.values, self.random
        units = [
            m.Unit(
                unit=random.choice(("", "u", "v")),
                pool="p",
                state=random.choice(list(m.UnitState)),
                lifetime_milliseconds=values.number(),
                slots=values.number_32(),
                capabilities=values.capabilities(),
            )
            for _ in range(random.randrange(4))
        ]
        return m.Units(units=units, notes=["n"] * random.randrange(3)), b""

    def release_request(self) -> Said:
        units = [self.random.choice(("", "u", "v")) for _ in range(self.random.randrange(4))]
        count, may_be_busy = self.values.number_32(), self.values.chance(0.5)
        return m.ReleaseRequest(request_id=1, units=units, count=count, may_be_busy=may_be_busy), b""

    def object_response(self) -> Said:
        """An answer to a query that may never have been sent."""
        values = self.values
        message = m.ObjectResponse(
            id=values.object_id(self.session),
            offset=self.random.choice((0, 10, values.number())),
            status=m.ObjectResponseStatus.MISSING if values.chance(0.3) else m.ObjectResponseStatus.OK,
            size=values.number(),
        )
        return message, b"x" * self.random.choice((0, 1, 10))

    def answer(self, request: m.ObjectRequest) -> Said:
        """Mostly the bytes that were asked for; `size` is anything."""
        length = request.length if self.values.chance(0.9) else self.random.choice((0, 1))
        size = self.random.choice((0, 100, LARGEST))
        return m.ObjectResponse(id=request.id, offset=request.offset, size=size), b"x" * min(length, 100_000)

    def disconnect_request(self) -> Said:
        return m.DisconnectRequest(message=self.random.choice(("", "so be it"))), b""

    def disconnect_response(self) -> Said:
        return m.DisconnectResponse(), b""

    # What clients say -----------------------------------------------------------------------------------------------

    def _new_task_ids(self) -> array[int]:
        """Ascending, with gaps, and seldom as far as ids go."""
        if self.values.chance(0.01):
            self.last_task_id = max(self.last_task_id, self.random.choice((1 << 63, LARGEST - 3)))
        ids = array("Q")
        for _ in range(self.random.choice((0, 1, 1, 2, 3, 5, 20))):
            following = self.last_task_id + self.random.choice((1, 1, 1, 1, 2, 50))
            if following > LARGEST:
                break
            self.last_task_id = following
            ids.append(following)
        return ids

    def _task_id(self) -> int:
        """One that it has used, or not."""
        return self.random.choice((self.random.randrange(self.last_task_id + 1), self.values.number()))

    def task(self) -> Said:
        values = self.values
        ids = self._new_task_ids()
        sizes = values.sizes(len(ids))
        counts, dependencies = values.dependencies(len(ids), self.session)
        predecessor_counts, predecessors = values.predecessors(ids)
        message = m.Task(
            ids=ids,
            payload_sizes=sizes,
            function=values.object_id(self.session) if values.chance(0.6) else 0,
            function_name=self.random.choice(("f", "f", "g1", "")),
            codec=self.random.choice(("", "", "json", "xx")),
            options=values.options(),
            dependency_counts=counts,
            dependencies=dependencies,
            parent_instance=values.number(),
            predecessor_counts=predecessor_counts,
            predecessors=predecessors,
        )
        return message, b"p" * sum(sizes)

    def graph_task(self) -> Said:
        random, values = self.random, self.values
        ids = self._new_task_ids()
        count = len(ids)
        sizes = values.sizes(count)
        counts, dependencies = values.dependencies(count, self.session)
        offsets, predecessors = array("I", [0]), array("I")
        for node in range(count):
            predecessors.extend(random.randrange(node) for _ in range(random.choice((0, 1, 2, 3)) if node else 0))
            offsets.append(len(predecessors))
        if values.chance(0.2):
            offsets, predecessors = array("I"), array("I")
        function = random.choice(values.objects)
        functions = [function if values.chance(0.9) else values.object_id(self.session) for _ in ids]
        message = m.GraphTask(
            ids=ids,
            payload_sizes=sizes,
            functions=array("Q", functions),
            predecessor_offsets=offsets,
            predecessors=predecessors,
            targets=array("I", random.sample(range(count), min(count, random.choice((0, 1, 2, count))))),
            options=values.options(),
            dependency_counts=counts,
            dependencies=dependencies,
        )
        return message, b"g" * sum(sizes)

    def task_cancel(self) -> Said:
        ids = array("Q", [self._task_id() for _ in range(self.random.choice((0, 1, 3, 10)))])
        return m.TaskCancel(ids=ids, force=self.values.chance(0.4)), b""

    def explanation_request(self) -> Said:
        return m.ExplanationRequest(request_id=self.values.number(), task_id=self._task_id()), b""

    def info_request(self) -> Said:
        return m.InfoRequest(request_id=self.values.number(), maximum_workers=self.values.number_32()), b""

    def worker_shutdown(self) -> Said:
        session = self.random.choice((0, 1, 2, 3, 4, self.values.number_32()))
        is_draining, name = self.values.chance(0.5), self.random.choice(("", "w"))
        return m.WorkerShutdown(request_id=1, session=session, is_draining=is_draining, name=name), b""

    def client_shutdown(self) -> Said:
        return m.ClientShutdown(), b""

    # What workers say -----------------------------------------------------------------------------------------------

    def _instances_of_all(self, worker: Optional[int] = None) -> List[int]:
        """Ids of instances that workers hold, or that one of them holds."""
        dispatches = self.state.dispatches.values()
        return [each for found in dispatches if worker in (None, found.worker) for each in found.ids[:50]]

    def _instances(self) -> array[int]:
        """Mostly its own, in order or not, some ended, some twice; rarely those of others, or unknown ones."""
        random, values = self.random, self.values
        mine = self._instances_of_all(self.session)
        count = min(len(mine), random.choice((0, 1, 1, 2, 5, 50)))
        ids = array("Q", random.sample(mine, count) if values.chance(0.5) else mine[:count])
        if ids and values.chance(0.1):
            ids.append(random.choice(ids))
        if values.chance(0.05):
            ids.append(random.choice((values.number(), *self._instances_of_all())))
        if values.chance(0.05):
            ids.append(FIRST_INSTANCE | random.choice((0, 1, 5)))
        return ids

    def task_result(self) -> Said:
        random, values = self.random, self.values
        ids = self._instances()
        count = len(ids)
        sizes = values.sizes(count)
        columns: Dict[str, Any] = {}
        if values.chance(0.3):
            columns["objects"] = self._result_objects(count)
        if values.chance(0.2):
            columns["durations_microseconds"] = array("Q", [values.number() for _ in ids])
            columns["peak_memory_bytes"] = array("Q", [values.number() for _ in ids])
        if values.chance(0.3):
            columns["statuses"] = bytes(random.choices((0, 0, 1, 3), k=count))
        if count and values.chance(0.4):
            cut = random.randrange(count + 1)
            runs = random.choice(((count,), (cut, count - cut)))
            columns["runs"] = array("Q", [n for run in runs for n in (run, values.number(), values.number())])
        codec = random.choice(("", "json"))
        message = m.TaskResult(ids=ids, payload_sizes=sizes, codec=codec, busy_microseconds=values.number(), **columns)
        return message, b"r" * sum(sizes)

    def _result_objects(self, count: int) -> array[int]:
        """Its own objects for some of the tasks, each once or, seldom, for several."""
        worker = self.state.workers.get(self.session)
        own = sorted(worker.objects) if worker is not None else []
        if not own:
            return array("Q")
        named = [self.random.choice(own) if self.values.chance(0.4) else 0 for _ in range(count)]
        if self.values.chance(0.8):
            named = [each if each not in named[:position] else 0 for position, each in enumerate(named)]
        return array("Q", named)

    def task_cancel_confirm(self) -> Said:
        ids = self._instances()
        outcomes = (0, 0, 1, 1, 2, 9) if self.values.chance(0.05) else (0, 1)
        return m.TaskCancelConfirm(ids=ids, outcomes=bytes(self.random.choices(outcomes, k=len(ids)))), b""

    def balance_response(self) -> Said:
        request_id = self.random.choice(self.values.balance_requests)
        return m.BalanceResponse(request_id=request_id, ids=self._instances()), b""

    def task_log(self) -> Said:
        instance = (*self._instances(), self.values.number())[0]
        return m.TaskLog(id=instance, stream=self.random.choice((1, 255)), text="x"), b""


class Saying(NamedTuple):
    weight: float
    make: Callable[[AdversarialPeer], Said]


_BOTH: Dict[Type[m.Member], Saying] = {
    m.Heartbeat: Saying(3, AdversarialPeer.heartbeat),
    m.HeartbeatEcho: Saying(2, AdversarialPeer.heartbeat_echo),
    m.ObjectInstruction: Saying(12, AdversarialPeer.object_instruction),
    m.ObjectRequest: Saying(3, AdversarialPeer.object_request),
    m.ObjectResponse: Saying(3, AdversarialPeer.object_response),
    m.DisconnectRequest: Saying(0.2, AdversarialPeer.disconnect_request),
    m.DisconnectResponse: Saying(0.2, AdversarialPeer.disconnect_response),
}
CLIENT_SAYS: Dict[Type[m.Member], Saying] = {
    **_BOTH,
    m.Task: Saying(36, AdversarialPeer.task),
    m.GraphTask: Saying(16, AdversarialPeer.graph_task),
    m.TaskCancel: Saying(12, AdversarialPeer.task_cancel),
    m.ExplanationRequest: Saying(4, AdversarialPeer.explanation_request),
    m.InfoRequest: Saying(4, AdversarialPeer.info_request),
    m.WorkerShutdown: Saying(0.8, AdversarialPeer.worker_shutdown),
    m.Units: Saying(2, AdversarialPeer.units),
    m.ReleaseRequest: Saying(0.8, AdversarialPeer.release_request),
    m.ClientShutdown: Saying(0.3, AdversarialPeer.client_shutdown),
}
WORKER_SAYS: Dict[Type[m.Member], Saying] = {
    **_BOTH,
    m.TaskResult: Saying(48, AdversarialPeer.task_result),
    m.TaskCancelConfirm: Saying(12, AdversarialPeer.task_cancel_confirm),
    m.BalanceResponse: Saying(10, AdversarialPeer.balance_response),
    m.TaskLog: Saying(4, AdversarialPeer.task_log),
    m.TicketRequest: Saying(8, AdversarialPeer.ticket_request),
}
_TABLES = {m.Role.CLIENT: CLIENT_SAYS, m.Role.WORKER: WORKER_SAYS}
