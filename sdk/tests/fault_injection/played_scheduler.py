"""A scheduler that answers at once, at the other end of simulated sockets. It never gives a peer up."""

from __future__ import annotations

import os
import pickle
from array import array
from typing import Any, Dict, List, Optional, Tuple

from fault_injection.simulated_sockets import FakeSocket
from fault_injection.simulated_system import SimulatedSystem

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.segments import TOKEN_NAME, object_name
from scaler_protocol.session.ids import FIRST_SCHEDULER_NUMBER, object_id_of
from scaler_protocol.wire.zmtp import Zmtp
from scaler_protocol.wire.zmtp import encode as encode_frames

CHUNK_BYTES = 64 * 1024
LARGE_BYTES = 150_000
LARGE = "a large result"
TOKEN = b"0123456789abcdef"
ADDRESS = ("10.0.0.1", 2345)
URL = "tcp://10.0.0.1:2345"


class PeerOfScheduler:
    """One connection, seen from the scheduler.

    Parameters:
        stream: the peer's end.
    """

    def __init__(self, scheduler: PlayedScheduler, stream: FakeSocket) -> None:
        self._scheduler = scheduler
        self._stream = stream
        self._protocol = Zmtp("ROUTER", 1 << 30)
        self.session = 0
        self.is_gone = False
        stream.on_bytes = self._on_bytes
        stream.on_end = self._on_end
        self._stream.deliver(self._protocol.take_output())

    def _on_bytes(self, data: bytes) -> None:
        messages = self._protocol.feed(data)
        if self._protocol.output:
            self._stream.deliver(self._protocol.take_output())
        for header, *payload in messages:
            self._scheduler.on_message(self, decode(header), payload[0] if payload else b"")

    def _on_end(self) -> None:
        self.is_gone = True
        self._stream.end()

    def lose(self) -> None:
        """The connection is lost."""
        self._on_end()

    def send(self, message: m.Member, payload: bytes = b"") -> None:
        if not self.is_gone:
            frames = [encode(message), payload] if payload else [encode(message)]
            for part in encode_frames(frames):
                self._stream.deliver(bytes(part))


class PlayedScheduler:
    """
    Parameters:
        directory: for objects, which peers share; None: they do not.
    """

    def __init__(self, system: SimulatedSystem, directory: Optional[str]) -> None:
        self.sessions = 0
        self.peer: Optional[PeerOfScheduler] = None
        self.farewells = 0
        self._directory = directory or ""
        if directory is not None:
            with open(os.path.join(directory, TOKEN_NAME), "wb") as file:
                file.write(TOKEN)
        system.listeners[ADDRESS] = self._accept

    def _accept(self, stream: FakeSocket) -> None:
        PeerOfScheduler(self, stream)

    def on_message(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Hello):
            self.peer = peer
            self.sessions += 1
            peer.session = self.sessions
            peer.send(self.welcome())
            self.on_opened()
        elif not peer.session:
            peer.send(m.Refusal(reason=m.RefusalReason.NOT_GREETED))
        elif isinstance(message, m.Heartbeat):
            peer.send(m.HeartbeatEcho(sequence=message.sequence, slots=1))
        elif isinstance(message, m.DisconnectRequest):
            self.farewells += 1
            peer.send(m.DisconnectResponse())
        else:
            self.on_other(peer, message, payload)

    def welcome(self) -> m.Welcome:
        return m.Welcome(
            major=1,
            session=self.sessions,
            scheduler_id=bytes(16),
            limits=m.Limits(chunk_bytes=CHUNK_BYTES, inline_bytes=1 << 16),
            heartbeat_interval_milliseconds=2000,
            timeout_milliseconds=60_000,
            object_directory=self._directory,
            object_directory_token=TOKEN if self._directory else b"",
        )

    def on_opened(self) -> None:
        """A session has begun."""

    def on_other(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        raise NotImplementedError


class SchedulerOfClient(PlayedScheduler):
    """Runs a client's tasks at once: each returns its arguments, and the sizes of its objects."""

    def __init__(self, system: SimulatedSystem, directory: Optional[str]) -> None:
        super().__init__(system, directory)
        self._objects: Dict[int, Any] = {}  # contents; bytearrays while they are fetched; None: missing
        self._waiting: List[Tuple[PeerOfScheduler, m.Task, bytes]] = []
        self._results: Dict[int, bytes] = {}
        self._next_number = FIRST_SCHEDULER_NUMBER

    def on_opened(self) -> None:
        self._objects.clear()
        self._waiting.clear()

    def on_other(self, peer: PeerOfScheduler, message: Any, payload: bytes) -> None:
        if isinstance(message, m.ObjectInstruction):
            self._on_instruction(peer, message, payload)
        elif isinstance(message, m.ObjectResponse):
            self._on_response(peer, message, payload)
        elif isinstance(message, m.ObjectRequest):
            content = self._results[message.id]
            part = content[message.offset : message.offset + message.length]
            peer.send(m.ObjectResponse(id=message.id, offset=message.offset, size=len(content)), part)
        elif isinstance(message, m.Task):
            self._waiting.append((peer, message, payload))
        else:
            assert isinstance(message, m.TaskCancel), message
        self._run_tasks()

    def _on_instruction(self, peer: PeerOfScheduler, message: m.ObjectInstruction, payload: bytes) -> None:
        if message.action != m.ObjectAction.CREATE:
            return
        for object_id, size, storage in zip(message.ids, message.sizes, message.storages):
            if storage == m.ObjectStorage.INLINE:
                self._objects[object_id], payload = payload[:size], payload[size:]
            elif storage == m.ObjectStorage.SHARED:
                with open(os.path.join(self._directory, object_name(object_id)), "rb") as file:
                    self._objects[object_id] = file.read()
            else:
                self._objects[object_id] = bytearray()
                peer.send(m.ObjectRequest(id=object_id, offset=0, length=CHUNK_BYTES))

    def _on_response(self, peer: PeerOfScheduler, message: m.ObjectResponse, payload: bytes) -> None:
        if message.status != m.ObjectResponseStatus.OK:
            self._objects[message.id] = None
            return
        content = self._objects[message.id]
        assert len(content) == message.offset
        content += payload
        if len(content) == message.size:
            self._objects[message.id] = bytes(content)
        else:
            peer.send(m.ObjectRequest(id=message.id, offset=len(content), length=CHUNK_BYTES))

    def _run_tasks(self) -> None:
        waiting, self._waiting = self._waiting, []
        for peer, message, payload in waiting:
            needed = [message.function, *message.dependencies]
            if any(isinstance(self._objects[each], bytearray) for each in needed):
                self._waiting.append((peer, message, payload))
            else:
                self._run_batch(peer, message, payload)

    def _run_batch(self, peer: PeerOfScheduler, message: m.Task, payload: bytes) -> None:
        statuses = bytearray()
        results: List[bytes] = []
        objects = array("Q")
        dependencies = list(message.dependencies)
        for position, size in enumerate(message.payload_sizes):
            arguments, payload = payload[:size], payload[size:]
            count = message.dependency_counts[position] if message.dependency_counts else 0
            needed, dependencies = dependencies[:count], dependencies[count:]
            contents = [self._objects[each] for each in (message.function, *needed)]
            is_lost = any(each is None for each in contents)
            result = b""
            statuses.append(m.TaskStatus.LOST if is_lost else m.TaskStatus.SUCCESS)
            objects.append(0)
            if is_lost:
                result = _failure(m.FailureKind.OBJECT_MISSING, "an object is missing")
            elif count:
                result = pickle.dumps([len(each) for each in contents[1:]])
            elif pickle.loads(arguments) == (LARGE,):
                objects[-1] = self._make_large_result(peer)
            else:
                result = pickle.dumps(pickle.loads(arguments)[0])
            results.append(result)
        peer.send(
            m.TaskResult(
                ids=message.ids,
                payload_sizes=array("I", map(len, results)),
                statuses=bytes(statuses),
                objects=objects if any(objects) else array("Q"),
                codec="cloudpickle",
            ),
            b"".join(results),
        )

    def _make_large_result(self, peer: PeerOfScheduler) -> int:
        object_id = object_id_of(peer.session, self._next_number)
        self._next_number += 1
        content = self._results[object_id] = pickle.dumps(b"L" * LARGE_BYTES)
        if self._directory:
            with open(os.path.join(self._directory, object_name(object_id)), "wb") as file:
                file.write(content)
        return object_id


def _failure(kind: m.FailureKind, text: str) -> bytes:
    from scaler.values.failures import failure_payload

    return failure_payload(kind, message=text, worker="played", attempts=1)
