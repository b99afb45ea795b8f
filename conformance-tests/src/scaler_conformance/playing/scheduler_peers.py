"""The peers of a scheduler that the suite plays: clients and workers, which know what they were sent.

Rules:
- All peers of a case are read together: a wait for one of them keeps the sessions of the others alive, too.
- Messages with columns are taken apart as they arrive: a Given for each task that a worker is sent, an Outcome and a
  Confirmation for each that a client is sent. Requirements on columns are checked for every message.
- A worker does nothing by itself: a case decides the outcome of each task.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import zmq

from scaler_conformance.codec.schema_codec import SCHEMA, Message, Struct, UnreadableMessageError
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.conversation import Conversation, Transport, check
from scaler_conformance.playing.curve_keys import Keys
from scaler_conformance.playing.transports import open_socket

STATUSES = SCHEMA.enum("TaskStatus")
CANCEL_OUTCOMES = SCHEMA.enum("CancelOutcome")
ECHO = "scaler.conformance/echo"
PEER_IMPLEMENTATION = {"name": "scaler-conformance", "version": "", "language": "Python"}


_ENDS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Group:
    """All connections of a case."""

    def __init__(self) -> None:
        self._transports: List[GroupTransport] = []

    def add(self, transport: GroupTransport) -> None:
        self._transports.append(transport)

    def remove(self, transport: GroupTransport) -> None:
        if transport in self._transports:
            self._transports.remove(transport)

    def pump(self, seconds: float) -> bool:
        now = time.monotonic()
        poller = zmq.Poller()
        for each in self._transports:
            each.beat(now)
            poller.register(each.socket, zmq.POLLIN)
        ready = dict(poller.poll(int(seconds * 1000) + (seconds > 0)))
        for each in list(self._transports):
            if each.socket in ready:
                each.read()
        return bool(ready)


class GroupTransport(Transport):
    """One connection of a case."""

    def __init__(
        self,
        group: Group,
        address: str,
        identity: bytes = b"",
        kind: int = zmq.DEALER,
        keys: Optional[Keys] = None,
        server_key: bytes = b"",
    ) -> None:
        self._group = group
        self.socket = open_socket(kind)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 10)
        if identity:
            self.socket.setsockopt(zmq.IDENTITY, identity)
        if keys is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
            self.socket.curve_serverkey = server_key
        self._ends = self.socket.get_monitor_socket(_ENDS) if keys is not None else None
        self.socket.connect(address)
        self.conversation: Optional[PlayedPeer] = None
        self._last_sent = time.monotonic()
        group.add(self)

    def pump(self, seconds: float) -> bool:
        return self._group.pump(seconds)

    def read(self) -> None:
        while not self.socket.closed and self.socket.poll(0):
            frames = self.socket.recv_multipart()
            if self.conversation is not None:
                self.conversation.arrived(frames)

    def beat(self, now: float) -> None:
        peer = self.conversation
        if peer is not None and peer.beats and now - self._last_sent > peer.interval_seconds:
            peer.send("Heartbeat", sequence=1)

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        self._last_sent = time.monotonic()
        self.socket.send_multipart(frames)

    @property
    def was_turned_away(self) -> bool:
        """Whether the scheduler has ended a connection that uses a key."""
        return self._ends is not None and bool(self._ends.poll(0))

    def close(self) -> None:
        self._group.remove(self)
        if self._ends is not None and not self.socket.closed:
            self.socket.disable_monitor()
            self._ends.close()
        self.socket.close()


class PlayedPeer(Conversation):
    """A connection of the suite to the scheduler, which has a session after `greet`."""

    role = "client"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.beats = False
        self.interval_seconds = 1.0
        self.raw: Any = None  # its connection, if that is made by hand
        self.welcome: Message = Message("Welcome", {})
        self.number = 0
        self._count = 0
        self._next_object = 0

    def hello(self, **fields: Any) -> None:
        """Send Hello; `fields` replace the default ones."""
        usual: Dict[str, Any] = {
            "major": 1,
            "minorMin": 0,
            "minorMax": 0,
            "role": self.role,
            "implementation": PEER_IMPLEMENTATION,
            "name": self.name,
            "host": "localhost",
        }
        self.send("Hello", **{**usual, **self.usual_hello(), **fields})

    def usual_hello(self) -> Dict[str, Any]:
        return {}

    def greet(self, requirement: Optional[str] = None, **fields: Any) -> Message:
        """Send Hello and wait for the Welcome."""
        self.hello(**fields)
        return self.welcomed(requirement)

    def welcomed(self, requirement: Optional[str] = None) -> Message:
        """Wait for the answer to a Hello that must be accepted."""
        self.welcome = self.expect("Welcome", requirement=requirement)
        self.number = self.welcome.session
        self._next_object = 0
        self.interval_seconds = (self.welcome.heartbeatIntervalMilliseconds or 1000) / 1000
        self.beats = True
        return self.welcome

    def leave(self) -> None:
        """Send a DisconnectRequest and wait for the answer, after which the session has ended."""
        self.beats = False
        self.send("DisconnectRequest", reason="leaving")
        self.expect("DisconnectResponse")

    def cut(self) -> None:
        """Close the connection without a DisconnectRequest."""
        self.beats = False
        self._transport.close()  # type: ignore[attr-defined]

    def expect_turned_away(self, what: str) -> None:
        """The scheduler must end the connection, and must not have sent a message on it."""
        self.beats = False
        transport = self._transport
        assert isinstance(transport, GroupTransport)
        self.wait_until(lambda: transport.was_turned_away or self._queue, f"the end of a connection with {what}")
        check(not self._queue, f"no message to a peer with {what}", self._queue)

    def expect_end(self, what: str) -> None:
        """The scheduler must end the connection; it may say why before."""
        self.beats = False
        transport = self._transport
        assert isinstance(transport, GroupTransport)
        self.wait_until(lambda: transport.was_turned_away, f"the end of a connection with {what}")

    def expect_refusal(self, reason: str, what: str, requirement: Optional[str] = None) -> Message:
        """Wait for the Refusal of a message, which ends the session."""
        self.beats = False
        expected = f"a Refusal with reason {reason} for {what}"
        refusal = self.expect("Refusal", expected=expected, requirement=requirement)
        check(refusal.reason == reason, expected, refusal, requirement)
        return refusal

    def expect_no_session(self, requirement: Optional[str] = None) -> None:
        """A Heartbeat must be refused, since there is no session."""
        self.beats = False
        self.send("Heartbeat", sequence=77)
        refusal = self.expect(
            "Refusal", expected="a Refusal for a Heartbeat without a session", requirement=requirement
        )
        check(refusal.reason == "notGreeted", "a Refusal with reason notGreeted", refusal, requirement)

    def expect_echo(self, sequence: int) -> None:
        """Wait for the HeartbeatEcho of a sequence."""
        self.wait_until(
            lambda: any(each.sequence == sequence for each in self.echoes), f"HeartbeatEcho(sequence={sequence})"
        )

    def new_object(self) -> int:
        """A new object id of this session."""
        self._next_object += 1
        return (self.number << 40) | self._next_object

    def create(self, content: bytes, kind: int = 0, **fields: Any) -> int:
        """Create an object inline, and return its id."""
        id_ = fields.pop("id", None) or self.new_object()
        usual: Dict[str, Any] = {"action": "create", "ids": [id_], "sizes": [len(content)], "storages": [0]}
        more = {"kinds": [kind], "codec": "raw"}
        self.send("ObjectInstruction", content, **{**usual, **more, **fields})
        return int(id_)

    def create_remote(self, size: int, **fields: Any) -> int:
        """Create an object of storage remote, and return its id."""
        return self.create(b"", **{"sizes": [size], "storages": [2], **fields})

    def delete(self, *ids: int) -> None:
        self.send("ObjectInstruction", action="delete", ids=list(ids))

    def serve(self, object_id: int, content: bytes, requirement: Optional[str] = None) -> None:
        """Answer all requests for a remote object until all of its bytes have been sent."""
        served = 0
        while served < len(content):
            request = self.expect("ObjectRequest", id=object_id, requirement=requirement)
            served += len(self.respond(request, content))

    def respond(self, request: Message, content: bytes) -> bytes:
        part = content[request.offset : request.offset + request.length]
        self.send("ObjectResponse", part, id=request.id, offset=request.offset, size=len(content))
        return part

    def fetch(self, object_id: int, requirement: Optional[str] = None) -> bytes:
        """Fetch the content of an object, chunk by chunk."""
        content, size = b"", 1
        while len(content) < size:
            self.send("ObjectRequest", id=object_id, offset=len(content), length=self.welcome.limits.chunkBytes)
            answer = self.expect("ObjectResponse", id=object_id, requirement=requirement)
            check(answer.status == "ok", f"ObjectResponse with status ok for object {object_id:x}", answer, requirement)
            size, content = answer.size, content + answer.payload
            check(
                answer.payload or not size,
                f"ObjectResponse with at least one byte of object {object_id:x}",
                answer,
                requirement,
            )
        return content

    def _position(self) -> int:
        self._count += 1
        return self._count


class Outcome(NamedTuple):
    """The outcome that a client was sent for one task."""

    id: int
    status: str
    payload: bytes
    object: int
    cause: int
    message: Message
    position: int

    @property
    def failure(self) -> Struct:
        """The Failure in the payload. Raises Violation if there is none."""
        try:
            return SCHEMA.decode_failure(self.payload)
        except UnreadableMessageError as error:
            raise Violation("a Failure as the payload", f"got one that cannot be read: {error}") from None

    def __repr__(self) -> str:
        text = f"outcome {self.status} of task {self.id}"
        return f"{text}: {self.failure!r}" if self.status in ("failed", "lost") else text


class Confirmation(NamedTuple):
    """The answer to the cancel of one task."""

    id: int
    outcome: str
    position: int

    def __repr__(self) -> str:
        return f"TaskCancelConfirm for task {self.id} with {self.outcome}"


class PlayedClient(PlayedPeer):
    """A client."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.outcomes: List[Outcome] = []
        self.confirmations: List[Confirmation] = []
        self.next_id = 1

    def submit(self, count: int = 1, payload: bytes = b"[1]", **fields: Any) -> List[int]:
        """Send a batch of equal tasks, and return their ids."""
        return self.submit_payloads([payload] * count, **fields)

    def submit_payloads(self, payloads: Sequence[bytes], **fields: Any) -> List[int]:
        """Send a batch, and return the ids of its tasks. `fields` are those of the Task message."""
        ids = list(range(self.next_id, self.next_id + len(payloads)))
        self.next_id += len(payloads)
        usual: Dict[str, Any] = {"ids": ids, "payloadSizes": list(map(len, payloads)), "codec": "json"}
        usual["functionName"] = "" if fields.get("function") else ECHO
        self.send("Task", b"".join(payloads), **{**usual, **fields})
        return ids

    def graph(self, predecessors: Sequence[Sequence[int]], targets: Sequence[int], **fields: Any) -> List[int]:
        """Send a graph, given the positions of each node's predecessors; the payloads are `0`, `1` and so on."""
        if "functions" not in fields:
            fields["functions"] = [self.create(b"function", kind=1)] * len(predecessors)
        ids = list(range(self.next_id, self.next_id + len(predecessors)))
        self.next_id += len(predecessors)
        offsets = [0]
        for each in predecessors:
            offsets.append(offsets[-1] + len(each))
        payload = b"".join(b"%d" % index for index in range(len(ids)))
        usual: Dict[str, Any] = {
            "ids": ids,
            "payloadSizes": [len(b"%d" % index) for index in range(len(ids))],
            "predecessorOffsets": offsets,
            "predecessors": [each for row in predecessors for each in row],
            "targets": list(targets),
            "codec": "raw",
        }
        self.send("GraphTask", payload, **{**usual, **fields})
        return ids

    def cancel(self, *ids: int, force: bool = False) -> None:
        self.send("TaskCancel", ids=list(ids), force=force)

    def expect_outcome(self, id_: int, status: str = "", requirement: Optional[str] = None) -> Outcome:
        """Wait for the outcome of a task and take it; it must have this status unless that is empty."""
        found: Outcome = self.wait_until(lambda: _find(self.outcomes, id_), f"the outcome of task {id_}", requirement)
        self.outcomes.remove(found)
        check(status in ("", found.status), f"task {id_} to have the outcome {status}", found, requirement)
        return found

    def expect_loss(self, id_: int, kind: str, requirement: Optional[str] = None) -> Outcome:
        """A task must end as lost, with a Failure of this kind."""
        found = self.expect_outcome(id_, "lost", requirement)
        check(found.failure.kind == kind, f"a Failure of kind {kind}", found.failure, requirement)
        return found

    def expect_confirmation(self, id_: int, outcome: str = "", requirement: Optional[str] = None) -> Confirmation:
        """Wait for the answer to a cancel and take it; it must be this one unless that is empty."""
        expected = f"TaskCancelConfirm for task {id_}"
        found: Confirmation = self.wait_until(lambda: _find(self.confirmations, id_), expected, requirement)
        self.confirmations.remove(found)
        check(outcome in ("", found.outcome), f"{expected} with {outcome}", found, requirement)
        return found

    def expect_any_outcome(self, expected: str) -> Outcome:
        """Wait for the next outcome and take it."""
        self.wait_until(lambda: self.outcomes, expected)
        return self.outcomes.pop(0)

    def expect_release(self, tasks: int = 0, size: int = 0) -> Message:
        """Wait for a TaskEcho that reports at least this much as released since the session began."""

        def fits(message: Message) -> bool:
            return bool(message.tasksReleased >= tasks and message.bytesReleased >= size)

        return self.expect(
            "TaskEcho", where=fits, expected=f"TaskEcho with tasksReleased >= {tasks} and bytesReleased >= {size}"
        )

    def expect_nothing_more(
        self, but: Sequence[str] = (), expected: str = "", requirement: Optional[str] = None
    ) -> None:
        self.fence()
        came: List[Any] = [each for each in self._queue if each.type not in (*but, "TaskEcho", "Explanation")]
        came += [*self.outcomes, *self.confirmations]
        check(not came, expected or "no further message", f"{came[:1]!r}", requirement)

    def _take_in(self, message: Message) -> None:
        if message.type == "TaskResult":
            for index, (id_, payload) in enumerate(_slices(message)):
                statuses, objects, causes = message.statuses, message.objects, message.causes
                status = statuses[index] if statuses else 0
                check(status < len(STATUSES), "a status of the schema", status)
                object_id, cause = objects[index] if objects else 0, causes[index] if causes else 0
                position = self._position()
                self.outcomes.append(Outcome(id_, STATUSES[status], payload, object_id, cause, message, position))
        elif message.type == "TaskCancelConfirm":
            for id_, outcome in zip(message.ids, message.outcomes):
                self.confirmations.append(Confirmation(id_, CANCEL_OUTCOMES[outcome], self._position()))
        else:
            super()._take_in(message)


class Given(NamedTuple):
    """A task that a worker was sent."""

    id: int  # of the instance
    payload: bytes
    dependencies: List[int]
    message: Message
    position: int

    def __repr__(self) -> str:
        return f"instance {self.id} in {self.message!r}"


class PlayedWorker(PlayedPeer):
    """A worker; the case decides what it does."""

    role = "worker"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.given: List[Given] = []  # not yet taken by the case
        self.announced: Dict[int, Tuple[int, Message, bytes]] = {}  # by object: position, message, content
        self.announcements: List[int] = []

    def usual_hello(self) -> Dict[str, Any]:
        return {"slots": 1, "queueSize": 1}

    def expect_task(self, payload: Optional[bytes] = None, requirement: Optional[str] = None) -> Given:
        """Wait for a task that the worker is sent, and take it: the next one, or the one with this payload."""

        def take() -> Optional[Given]:
            return next((each for each in self.given if payload in (None, each.payload)), None)

        expected = "a Task" if payload is None else f"a Task with the payload {payload[:40]!r}"
        found: Given = self.wait_until(take, expected, requirement)
        self.given.remove(found)
        return found

    def expect_tasks(self, count: int, requirement: Optional[str] = None) -> List[Given]:
        return [self.expect_task(None, requirement) for _ in range(count)]

    def expect_deletion(self, object_id: int, when: str) -> None:
        """Wait for the deletion of an object."""

        def fits(message: Message) -> bool:
            return message.action == "delete" and object_id in message.ids

        self.expect("ObjectInstruction", where=fits, expected=f"the deletion of object {object_id:x} {when}")

    def succeed(self, *tasks: Given, payload: bytes = b"1", **fields: Any) -> None:
        """Report tasks as succeeded, in one message."""
        self.report([each.id for each in tasks], [0] * len(tasks), [payload] * len(tasks), **fields)

    def fail(self, task: Given, status: int = 1, kind: str = "taskRaised", message: str = "no") -> None:
        """Report a task as failed, or with status 3 as lost."""
        self.report([task.id], [status], [SCHEMA.encode_failure(kind=kind, message=message, attempts=1)])

    def report(self, ids: Sequence[int], statuses: Sequence[int], payloads: Sequence[bytes], **fields: Any) -> None:
        usual = {"ids": ids, "statuses": statuses, "payloadSizes": list(map(len, payloads)), "codec": "json"}
        self.send("TaskResult", b"".join(payloads), **{**usual, "busyMicroseconds": len(ids), **fields})

    def succeed_large(self, task: Given, content: bytes, requirement: Optional[str] = None) -> int:
        """Report success with a result that is an object of the worker, and return the object's id."""
        made = self.create(content)
        self.succeed(task, payload=b"", objects=[made])
        return made

    def keep_large(self, task: Given, content: bytes) -> int:
        """Report success with a result that stays here, and return the object's id."""
        made = self.create(b"", sizes=[len(content)], storages=[3])
        self.succeed(task, payload=b"", objects=[made])
        return made

    def confirm(self, instance: int, outcome: int) -> None:
        """Answer a cancel: 0 cancelled, 1 running, 2 notFound."""
        self.send("TaskCancelConfirm", ids=[instance], outcomes=[outcome])

    def expect_cancel(self, instance: int, force: Optional[bool] = None, requirement: Optional[str] = None) -> None:
        """Wait for the cancel of an instance."""

        def fits(message: Message) -> bool:
            return instance in message.ids

        found = self.expect(
            "TaskCancel", where=fits, expected=f"TaskCancel for instance {instance}", requirement=requirement
        )
        check(force in (None, found.force), f"TaskCancel with force = {force}", found, requirement)

    def expect_nothing_more(
        self, but: Sequence[str] = (), expected: str = "", requirement: Optional[str] = None
    ) -> None:
        super().expect_nothing_more((*but, "BalanceRequest"), expected, requirement)
        check(not self.given, expected or "no further task", f"{self.given[:1]!r}", requirement)

    def _take_in(self, message: Message) -> None:
        if message.type == "Task":
            counts, first = message.dependencyCounts or [0] * len(message.ids), 0
            for (id_, payload), count in zip(_slices(message), counts):
                needed, first = message.dependencies[first : first + count], first + count
                self.given.append(Given(id_, payload, needed, message, self._position()))
        elif message.type == "ObjectInstruction" and message.action == "create":
            start = 0
            for id_, size, storage in zip(message.ids, message.sizes, message.storages):
                content = message.payload[start : start + size] if storage == 0 else b""
                start += len(content)
                self.announced[id_] = (self._position(), message, content)
                self.announcements.append(id_)
        elif message.type == "BalanceRequest" and not self._transport.is_ending and self.gives_nothing_back:
            self.send("BalanceResponse", requestId=message.requestId)
        else:
            super()._take_in(message)

    gives_nothing_back = True


def _slices(message: Message) -> List[Tuple[int, bytes]]:
    """The ids and payloads of a message with columns."""
    sizes = message.payloadSizes
    check(len(sizes) == len(message.ids), "an entry in payloadSizes for each id", message)
    check(sum(sizes) == len(message.payload), "a payload whose size is the sum of payloadSizes", message)
    found, start = [], 0
    for id_, size in zip(message.ids, sizes):
        found.append((id_, message.payload[start : start + size]))
        start += size
    return found


def _find(found: Sequence[Any], id_: int) -> Any:
    return next((each for each in found if each.id == id_), None)
