"""A scheduler core without sockets, and peers that speak to it in the tests' words.

Rules:
- Every message goes through the codec, both ways: what cannot be encoded is found here.
- After each event the core's invariants are checked.
- Tests take each message they expect, and end with `harness.nothing_else_was_sent()`.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Sequence, Tuple, Type, TypeVar, Union

from scaler_appliance.core.effects import Effect, Forget, Log, Send
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, decode_struct, encode
from scaler_protocol import messages as m

MessageType = TypeVar("MessageType")
Status = m.TaskStatus
Cancelled = m.CancelOutcome

SMALL_WORK = 40
"""Units that a call may do, in tests of what is done in parts."""


class Harness:
    """The core, its clock and its peers."""

    def __init__(self, **settings: Any) -> None:
        self.core = SchedulerCore(Settings(**settings))
        self.now = 0.0
        self.peers: Dict[bytes, Peer] = {}
        self.logs: List[str] = []
        self.effects: List[Effect] = []
        """What the core asked for other than sending and logging."""

    @property
    def state(self) -> Any:
        return self.core.state

    def unregistered_peer(self) -> Peer:
        """A connection on which nothing was said yet."""
        peer = Peer(self, f"peer {len(self.peers)}".encode())
        self.peers[peer.name] = peer
        return peer

    def client(
        self,
        tenant: str = "",
        role: str = "client",
        name: str = "",
        features: Sequence[str] = (),
        places: Mapping[str, Any] = {},
    ) -> Client:
        """A client; with a tenant, it has a key of it."""
        client = Client(self, f"peer {len(self.peers)}".encode())
        self.peers[client.name] = client
        self._authenticate(client, tenant, role)
        client.greet(hello(m.Role.CLIENT, name=name, features=list(features), **places))
        return client

    def _authenticate(self, peer: Peer, tenant: str, role: str) -> None:
        if tenant:
            self.core.on_authenticated(self.now, peer.name, role, tenant, f"key of {tenant}")

    def worker(
        self,
        slots: int = 1,
        queue_size: int = 1000,
        *,
        tenant: str = "",
        name: str = "",
        features: Sequence[str] = (),
        places: Mapping[str, Any] = {},
        **capabilities: float,
    ) -> Worker:
        """A worker; with a tenant, it has a key of it."""
        worker = Worker(self, f"peer {len(self.peers)}".encode())
        self.peers[worker.name] = worker
        self._authenticate(worker, tenant, "worker")
        offered = [m.Capability(name=name, amount=amount) for name, amount in capabilities.items()]
        greeting = hello(m.Role.WORKER, slots=slots, queue_size=queue_size, capabilities=offered, name=name, **places)
        greeting.features = list(features)
        worker.greet(greeting)
        return worker

    def deliver(self, peer: bytes, message: m.Member, payload: bytes = b"") -> None:
        """A message arrives; nothing is decided on it before the next tick."""
        self.core.on_message(self.now, peer, decode(encode(message)), payload)
        self.core.state.check_invariants()

    def tick(self) -> None:
        """The scheduler decides, and goes on until no work is left."""
        self.step()
        while self.core.has_work:
            self.step()

    def steps(self, progress: Callable[[], int]) -> List[int]:
        """The scheduler decides, and goes on until no work is left; how much progress each call made."""
        made: List[int] = []
        while not made or self.core.has_work:
            before = progress()
            self.step()
            made.append(progress() - before)
        return made

    def step(self) -> None:
        """The scheduler decides, and does as much work as it may at once."""
        self.core.tick(self.now)
        self.core.state.check_invariants()
        for effect in self.core.take_effects():
            if isinstance(effect, Send):
                message = decode(encode(effect.message))
                self.peers[effect.peer].inbox.append((message, b"".join(effect.payload)))
            elif isinstance(effect, Log):
                self.logs.append(effect.text)
            elif not isinstance(effect, Forget):
                self.effects.append(effect)

    def wait(self, seconds: float) -> None:
        """Time passes, and the clock ticks once."""
        self.now += seconds
        self.tick()

    def take_effect(self) -> Effect:
        assert self.effects, "nothing was asked of the shell"
        return self.effects.pop(0)

    def nothing_else_was_sent(self) -> None:
        left = {peer.name: list(peer.inbox) for peer in self.peers.values() if peer.inbox}
        assert not left, left
        assert not self.effects, self.effects


def hello(role: m.Role, **fields: Any) -> m.Hello:
    fields.setdefault("major", PROTOCOL_MAJOR)
    fields.setdefault("minor_min", PROTOCOL_MINOR_MIN)
    fields.setdefault("minor_max", PROTOCOL_MINOR_MAX)
    fields.setdefault("host", "here")
    return m.Hello(role=role, process_id=7, **fields)


class Peer:
    """The other end of a connection."""

    def __init__(self, harness: Harness, name: bytes) -> None:
        self.harness = harness
        self.name = name
        self.session = 0
        self.inbox: Deque[Tuple[m.Message, bytes]] = deque()
        self.payload = b""
        """Of the message taken last."""

    def greet(self, message: m.Hello) -> m.Welcome:
        self.send(message)
        welcome = self.take(m.Welcome)
        self.session = welcome.session
        return welcome

    def post(self, message: m.Member, payload: bytes = b"") -> None:
        """Send a message within a burst."""
        self.harness.deliver(self.name, message, payload)

    def send(self, message: m.Member, payload: bytes = b"") -> None:
        """Send a message, and let the scheduler decide on it."""
        self.post(message, payload)
        self.harness.tick()

    def congest(self, is_congested: bool = True) -> None:
        """It leaves much unread, or has read it."""
        self.harness.core.on_congestion(self.harness.now, self.name, is_congested)
        self.harness.tick()

    def vanish(self) -> None:
        """The connection breaks."""
        self.harness.core.on_peer_gone(self.harness.now, self.name)
        self.harness.tick()

    def take(self, kind: Type[MessageType]) -> MessageType:
        """The next message, which must be of this kind."""
        assert self.inbox, f"{self.name!r} was sent nothing instead of {kind.__name__}"
        message, self.payload = self.inbox.popleft()
        assert isinstance(message, kind), f"{message} instead of {kind.__name__}"
        return message

    def take_refusal(self, reason: m.RefusalReason) -> str:
        refusal = self.take(m.Refusal)
        assert refusal.reason == reason, refusal
        return refusal.message

    def create(self, number: int, content: bytes, codec: str = "") -> int:
        """Make an object with its content inline; returns its id."""
        object_id = self.object_id(number)
        columns = {"ids": [object_id], "sizes": [len(content)], "storages": bytes([m.ObjectStorage.INLINE])}
        self.send(m.ObjectInstruction(codec=codec, **_columns(columns)), content)
        return object_id

    def announce(
        self, number: int, size: int, storage: m.ObjectStorage, kind: m.ObjectKind = m.ObjectKind.VALUE
    ) -> int:
        """Make an object whose content is elsewhere; returns its id."""
        object_id = self.object_id(number)
        columns = {"ids": [object_id], "sizes": [size], "storages": bytes([storage]), "kinds": bytes([kind])}
        self.send(m.ObjectInstruction(**_columns(columns)))
        return object_id

    def delete(self, *object_ids: int) -> None:
        self.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", object_ids)))

    def object_id(self, number: int) -> int:
        return self.session << 40 | number


def _columns(columns: Dict[str, Any]) -> Dict[str, Any]:
    return {name: column if isinstance(column, bytes) else array("Q", column) for name, column in columns.items()}


_TASK_COLUMNS = (
    ("dependency_counts", "H"),
    ("dependencies", "Q"),
    ("predecessor_counts", "H"),
    ("predecessors", "Q"),
)


def task(ids: Iterable[int], payloads: Sequence[bytes] = (), **fields: Any) -> Tuple[m.Task, bytes]:
    """A batch of tasks of the function named `f`, unless said otherwise."""
    ids = array("Q", ids)
    payloads = payloads or [b"%d" % task_id for task_id in ids]
    if "function" not in fields:
        fields.setdefault("function_name", "f")
    for name, typecode in _TASK_COLUMNS:
        fields[name] = array(typecode, fields.get(name, ()))
    return m.Task(ids=ids, payload_sizes=array("I", map(len, payloads)), **fields), b"".join(payloads)


def options(**fields: Any) -> m.TaskOptions:
    """Task options; `gpu=1` and the like are capabilities."""
    known = set(m.TaskOptions.__slots__)
    needs = [m.Capability(name=name, amount=amount) for name, amount in fields.items() if name not in known]
    return m.TaskOptions(capabilities=needs, **{name: value for name, value in fields.items() if name in known})


class Client(Peer):
    def submit(self, ids: Iterable[int], payloads: Sequence[bytes] = (), **fields: Any) -> None:
        self.send(*task(ids, payloads, **fields))

    def submit_after(self, task_id: int, *predecessors: int, **fields: Any) -> None:
        """Submit a task that needs the results of others."""
        self.submit([task_id], predecessor_counts=[len(predecessors)], predecessors=predecessors, **fields)

    def cancel(self, *ids: int, force: bool = False) -> None:
        self.send(m.TaskCancel(ids=array("Q", ids), force=force))

    def take_results(self) -> Dict[int, bytes]:
        """Of one TaskResult, all successes: payload by task id."""
        result = self.take(m.TaskResult)
        assert not any(result.statuses), result
        return dict(zip(result.ids, split(self.payload, result.payload_sizes)))

    def take_losses(self) -> Dict[int, m.Failure]:
        """Of one TaskResult, all lost: the failure by task id."""
        result = self.take(m.TaskResult)
        self.causes = dict(zip(result.ids, result.causes))
        assert set(result.statuses) == {Status.LOST}, result
        payloads = split(self.payload, result.payload_sizes)
        return {task_id: decode_struct(m.Failure, data) for task_id, data in zip(result.ids, payloads)}

    def take_confirms(self) -> Dict[int, m.CancelOutcome]:
        confirm = self.take(m.TaskCancelConfirm)
        return {task_id: m.CancelOutcome(outcome) for task_id, outcome in zip(confirm.ids, confirm.outcomes)}


class Worker(Peer):
    def take_tasks(self) -> List[int]:
        """Instance ids of one Task message."""
        self.task = self.take(m.Task)
        self.payloads = split(self.payload, self.task.payload_sizes)
        return list(self.task.ids)

    def take_all_tasks(self) -> List[int]:
        """Instance ids of all Task messages that came."""
        instances: List[int] = []
        while self.inbox and isinstance(self.inbox[0][0], m.Task):
            instances += self.take_tasks()
        return instances

    def result(
        self,
        instances: Iterable[int],
        payloads: Sequence[bytes] = (),
        statuses: Sequence[int] = (),
        busy_microseconds: int = 0,
        **optional: Sequence[int],
    ) -> Tuple[m.TaskResult, bytes]:
        ids = array("Q", instances)
        payloads = payloads or [b"done"] * len(ids)
        columns = {name: array("Q", column) for name, column in optional.items()}
        message = m.TaskResult(
            ids=ids,
            payload_sizes=array("I", map(len, payloads)),
            statuses=bytes(statuses),
            busy_microseconds=busy_microseconds,
            **columns,  # type: ignore[arg-type]  # named as the fields are
        )
        return message, b"".join(payloads)

    def finish(self, instances: Iterable[int], *arguments: Any, **fields: Any) -> None:
        self.send(*self.result(instances, *arguments, **fields))

    def confirm(self, instances: Union[int, Iterable[int]], outcome: m.CancelOutcome) -> None:
        ids = array("Q", [instances] if isinstance(instances, int) else instances)
        self.send(m.TaskCancelConfirm(ids=ids, outcomes=bytes([outcome]) * len(ids)))

    def give_back(self, instances: Iterable[int], request_id: int = 0) -> None:
        self.send(m.BalanceResponse(request_id=request_id, ids=array("Q", instances)))

    def suspend(self, processors: int) -> None:
        """Heartbeat: as many processors wait for nested tasks."""
        self.send(m.Heartbeat(processors=[m.ProcessorStatus(suspended=True)] * processors))
        self.take(m.HeartbeatEcho)


def split(payload: bytes, sizes: Iterable[int]) -> List[bytes]:
    parts, offset = [], 0
    for size in sizes:
        parts.append(payload[offset : offset + size])
        offset += size
    assert offset == len(payload)
    return parts


def given(worker: Worker) -> List[int]:
    """The instances that a worker was given since it was last asked; other messages are skipped."""
    instances: List[int] = []
    while worker.inbox:
        message, _ = worker.inbox.popleft()
        if isinstance(message, m.Task):
            instances += message.ids
    return instances
