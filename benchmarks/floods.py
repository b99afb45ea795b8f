"""Peers that misbehave, for `flood.py`: what each kind sends, and how.

Rules: a flooder is as cheap as it can be. It makes what it sends once where it may, copies nothing while it sends, and
sleeps while the scheduler does not read, so that what an honest client loses is what the scheduler allows.
"""

from __future__ import annotations

import os
import random
import select
import socket
import time
from array import array
from itertools import chain, repeat
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address, resolve
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_directory import KeyDirectory, default_key_directory
from scaler_protocol.session.ids import object_id_of
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError, as_command, greeting
from scaler_protocol.wire.zmtp import encode as encode_frames

MESSAGES_AT_ONCE = 50
PAUSE_SECONDS = 0.1
CONNECT_SECONDS = 1.0  # a full queue of connections lets a caller wait for minutes
ANSWER_SECONDS = 60.0
LARGE_FRAME_BYTES = 15 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024

_GREETING_OF_A_MONITOR = (
    b"\xff" + bytes(8) + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)  # ZMTP 3.0
    + b"\4\x19\5READY\x0bSocket-Type" + (3).to_bytes(4, "big") + b"SUB"
)  # fmt: skip

Batch = Tuple[int, bytes]
"""How many frames of a flood, and the bytes of ZMTP with them."""


def hello(role: m.Role = m.Role.CLIENT, functions: Sequence[str] = ()) -> m.Hello:
    return m.Hello(
        major=PROTOCOL_MAJOR,
        minor_min=PROTOCOL_MINOR_MIN,
        minor_max=PROTOCOL_MINOR_MAX,
        role=role,
        slots=int(role == m.Role.WORKER),
        host="flooder",
        functions=list(functions),
        capabilities=[m.Capability(name="flood", amount=1)],
    )


def encoded(*messages: m.Message, payload: bytes = b"") -> bytes:
    """Messages as bytes of ZMTP, all with this payload, or none."""
    frames = [[encode(message), payload] if payload else [encode(message)] for message in messages]
    return b"".join(bytes(piece) for each in frames for piece in encode_frames(each))


def _tasks(first: int, count: int = 100) -> m.Task:
    """Tasks that no worker can run."""
    ids, sizes = array("Q", range(first, first + count)), array("I", bytes(4 * count))
    return m.Task(ids=ids, payload_sizes=sizes, function_name=f"not-served/{first}")


def _missing_graph(first: int, count: int = 2000) -> m.GraphTask:
    """Nodes of a function that there is not: all of them are lost."""
    return m.GraphTask(
        ids=array("Q", range(first, first + count)),
        payload_sizes=array("I", bytes(4 * count)),
        functions=array("Q", [7]) * count,
        predecessor_offsets=array("I", bytes(4 * (count + 1))),
        targets=array("I", range(count)),
    )


# What they send ------------------------------------------------------------------------------------------------------


def _always(
    make: Callable[[random.Random], m.Message], count: int = MESSAGES_AT_ONCE
) -> Callable[..., Iterator[Batch]]:
    def batches(generator: random.Random) -> Iterator[Batch]:
        data = encoded(*(make(generator) for _ in range(count)))
        while True:
            yield count, data

    return batches


def _numbered(make: Callable[[int], m.Message], step: int) -> Callable[..., Iterator[Batch]]:
    def batches(generator: random.Random) -> Iterator[Batch]:
        first = 1
        while True:
            yield 1, encoded(make(first))
            first += step

    return batches


def _empty(generator: random.Random) -> Iterator[Batch]:
    while True:
        yield 30_000, bytes(60_000)


def _seeds() -> List[bytes]:
    """Well-formed messages of clients and workers, with some content each."""
    ids = array("Q", range(20))
    made: List[m.Message] = [
        hello(),
        hello(functions=["x"] * 20),
        m.Heartbeat(processors=[m.ProcessorStatus(suspended=True)] * 3),
        m.InfoRequest(request_id=1, maximum_workers=3),
        m.ExplanationRequest(request_id=1, task_id=1),
        _tasks(0, 20),
        _missing_graph(100, 20),
        m.TaskCancel(ids=ids),
        m.TaskResult(ids=ids, payload_sizes=array("I", bytes(80)), statuses=bytes(20)),
        m.TaskCancelConfirm(ids=ids, outcomes=bytes(20)),
        m.BalanceResponse(ids=ids),
        m.ObjectInstruction(ids=array("Q", [2 << 40]), sizes=array("Q", [3]), storages=bytes([2])),
        m.ObjectRequest(id=2 << 40, length=100),
        m.ObjectResponse(id=2 << 40),
    ]
    return [encode(message) for message in made]


def _mutated(generator: random.Random) -> Iterator[Batch]:
    """Each batch is for a session of its own, and ends with a question whose answer says that all has been read."""
    seeds = _seeds()
    begin = [encoded(hello(role)) for role in (m.Role.CLIENT, m.Role.WORKER)]
    end = encoded(m.DisconnectRequest())
    while True:
        pieces = [begin[generator.random() < 0.2]]
        for _ in range(MESSAGES_AT_ONCE):
            frame = bytearray(generator.choice(seeds))
            for _ in range(generator.choice((1, 2, 4))):
                frame[generator.randrange(len(frame))] = generator.getrandbits(8)
            if generator.random() < 0.2:
                del frame[generator.randrange(len(frame)) :]
            frames = [bytes(frame)] if generator.random() < 0.5 else [bytes(frame), generator.randbytes(30)]
            pieces += map(bytes, encode_frames(frames))
            if generator.random() < 0.3:
                pieces.append(begin[0])  # the session may have ended
        yield MESSAGES_AT_ONCE, b"".join([*pieces, end])


def _withdrawn(generator: random.Random) -> Iterator[Batch]:
    """Tasks that are submitted, and cancelled at once."""
    first = 1
    while True:
        tasks = _tasks(first)
        yield 2, encoded(tasks, m.TaskCancel(ids=tasks.ids))
        first += 100


def _downloads(session: int) -> Tuple[bytes, bytes]:
    """A large object that exists, again and again."""
    object_id, size = object_id_of(session, 1), 8 * CHUNK_BYTES
    create = m.ObjectInstruction(
        ids=array("Q", [object_id]), sizes=array("Q", [size]), storages=bytes([m.ObjectStorage.INLINE])
    )
    chunks = (m.ObjectRequest(id=object_id, offset=at, length=CHUNK_BYTES) for at in range(0, size, CHUNK_BYTES))
    return encoded(create, payload=bytes(size)), encoded(*chunks)


def _ended(session: int) -> Tuple[bytes, bytes]:
    """Cancels of own tasks, all of which but the last have ended."""
    count, missing = 2000, object_id_of(session, 1)
    tasks = _tasks(1, count)
    tasks.dependency_counts = array("I", [1]) * (count - 1) + array("I", [0])
    tasks.dependencies = array("Q", [missing]) * (count - 1)
    return encoded(tasks), encoded(*[m.TaskCancel(ids=tasks.ids[:-1])] * 10)


def _explained(session: int) -> Tuple[bytes, bytes]:
    """Questions why a task waits."""
    return encoded(_tasks(1)), encoded(*[m.ExplanationRequest(request_id=1, task_id=1)] * MESSAGES_AT_ONCE)


def _subscriptions(generator: random.Random) -> Iterator[Batch]:
    """To the status and to another topic, and back."""
    changes = [b"\0\7\1status", b"\0\6\1other", b"\0\6\0other", b"\0\7\0status"]
    while True:
        yield len(changes) * 100, b"".join(changes) * 100


def _garbage(generator: random.Random) -> Iterator[Batch]:
    while True:
        yield 1, generator.randbytes(10_000)


def _handshakes(generator: random.Random) -> Iterator[Batch]:
    """The dearest that a caller without an admitted key can ask for: that its HELLO is opened and answered."""
    sodium, server_key = load_sodium(), KeyDirectory(default_key_directory()).owner().server_keys[0]
    protocol = SecureZmtp(ClientSecurity(sodium, sodium.new_keys(), server_key), "DEALER", 1 << 20)
    data = protocol.take_output()
    protocol.feed(greeting(b"CURVE", True))
    data += protocol.take_output() + as_command(b"\x08INITIATE" + generator.randbytes(400))
    while True:
        yield 1, data


class Flood(NamedTuple):
    """A kind of flood.

    Parameters:
        batches: what a flooder sends, again and again; nothing: it only connects.
        greets: whether it says Hello.
        stays: whether it goes on on its connection until the scheduler closes it.
        awaits_end: whether it sends the next batch when the scheduler has answered the end of the one before.
        opening: given the session, what a flooder sends first, and then again and again instead of batches.
        monitors: whether it floods the address for monitors, as one of them.
        has_keys: whether the scheduler requires keys, which flooders do not have.
    """

    batches: Callable[[random.Random], Iterator[Batch]]
    greets: bool = True
    stays: bool = True
    awaits_end: bool = False
    opening: Optional[Callable[[int], Tuple[bytes, bytes]]] = None
    monitors: bool = False
    has_keys: bool = False


def _nothing(generator: random.Random) -> Iterator[Batch]:
    while True:
        yield 1, b""


def _unfinished(generator: random.Random) -> Iterator[Batch]:
    """A large frame whose end does not come."""
    data = b"\2" + LARGE_FRAME_BYTES.to_bytes(8, "big") + bytes(LARGE_FRAME_BYTES - 1)
    while True:
        yield 1, data


_UNKNOWN_IDS = array("Q", range(1 << 50, (1 << 50) + 4000))

FLOODS: Dict[str, Flood] = {
    "heartbeats": Flood(_always(lambda generator: m.Heartbeat(sequence=generator.getrandbits(64)))),
    "questions": Flood(_always(lambda generator: m.InfoRequest(request_id=generator.getrandbits(32)))),
    "explanations": Flood(_always(lambda generator: m.ExplanationRequest(request_id=generator.getrandbits(32)))),
    "hellos": Flood(_always(lambda generator: hello(functions=["x"] * 3000), 20)),
    "texts": Flood(_always(lambda generator: m.Heartbeat(processors=[m.ProcessorStatus()] * 20_000), 20)),
    "large": Flood(_always(lambda generator: m.TaskResult(ids=array("Q", bytes(1 << 20))), 5)),
    "empty": Flood(_empty),
    "unfinished": Flood(_unfinished, stays=False),
    "connections": Flood(_nothing, greets=False, stays=False),
    "handshakes": Flood(_handshakes, greets=False, stays=False, has_keys=True),
    "sessions": Flood(_nothing, stays=False),
    "tasks": Flood(_numbered(_tasks, 100)),
    "graphs": Flood(_numbered(_missing_graph, 2000)),
    "cancels": Flood(_always(lambda generator: m.TaskCancel(ids=_UNKNOWN_IDS), 10)),
    "requests": Flood(_always(lambda generator: m.ObjectRequest(id=1 << 50, length=1 << 20))),
    "deletions": Flood(
        _always(lambda generator: m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=_UNKNOWN_IDS), 10)
    ),
    "withdrawn": Flood(_withdrawn),
    "downloads": Flood(_nothing, opening=_downloads),
    "ended": Flood(_nothing, opening=_ended),
    "explained": Flood(_nothing, opening=_explained),
    "subscriptions": Flood(_subscriptions, monitors=True),
    "monitors": Flood(_nothing, stays=False, monitors=True),
    "garbage": Flood(_garbage, greets=False, monitors=True),
    "mutated": Flood(_mutated, awaits_end=True),
}

# How they send it ----------------------------------------------------------------------------------------------------


def flood(addresses: Sequence[str], kind: str, seed: int, sent: Any, is_on: Any, has_begun: Any) -> None:
    """Flood while `is_on` has the number of a round, and connect again when the scheduler has closed the connection.

    Ends when the process that started it has ended.

    Parameters:
        addresses: of the scheduler, and for monitors.
        has_begun: released when this is ready, and again in each round.
    """
    chosen = FLOODS[kind]
    family, target = resolve(parse_address(addresses[chosen.monitors]))
    batches = _begun(chosen.batches(random.Random(seed)))
    begun = 0  # the round; a flooder that waits for its connection may miss the pause between two
    parent = os.getppid()
    has_begun.release()
    while os.getppid() == parent:
        current = is_on.value
        if not current:
            time.sleep(PAUSE_SECONDS)
            continue
        try:
            with socket.socket(family, socket.SOCK_STREAM) as stream:
                stream.settimeout(CONNECT_SECONDS)
                stream.connect(target)
                if begun != current:
                    begun = current
                    has_begun.release()
                _flood_connection(stream, chosen, batches, sent, is_on)
        except (OSError, ZmtpError):
            continue


def _begun(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, the first of which is made now: what making it takes is not measured."""
    return chain([next(batches)], batches)


def _flood_connection(stream: socket.socket, chosen: Flood, batches: Iterator[Batch], sent: Any, is_on: Any) -> None:
    stream.settimeout(10.0)
    protocol = Zmtp("DEALER", 1 << 30)
    if chosen.monitors:
        if chosen.greets:
            stream.sendall(_GREETING_OF_A_MONITOR)
            stream.recv(64, socket.MSG_WAITALL)
    elif chosen.greets:
        stream.sendall(protocol.take_output())
        while not protocol.is_ready:
            protocol.feed(stream.recv(4096))
            stream.sendall(protocol.take_output())
        stream.sendall(encoded(hello()))
    if chosen.opening is not None:
        opening, again = chosen.opening(_session(stream, protocol))
        stream.sendall(opening)
        batches = repeat((1, again))
    stream.setblocking(False)
    answer = encode(m.DisconnectResponse()) if chosen.awaits_end else b""
    while is_on.value:
        count, data = next(batches)
        if not _send(stream, data, protocol, answer, is_on):
            return
        _count(sent, count)
        if not chosen.stays:
            return


def _session(stream: socket.socket, protocol: Zmtp) -> int:
    while True:
        for frames in protocol.feed(stream.recv(4096)):
            message = decode(frames[0])
            if isinstance(message, m.Welcome):
                return message.session


def _count(sent: Any, count: int) -> None:
    with sent.get_lock():
        sent.value += count


def _send(stream: socket.socket, data: bytes, protocol: Zmtp, answer: bytes, is_on: Any) -> bool:
    """Send, and read what comes; returns whether the connection goes on.

    Parameters:
        answer: to be waited for; if empty, nothing that comes is looked at.
    """
    view = memoryview(data)
    is_answered = not answer
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while view or not is_answered:
        readable, writable, _ = select.select([stream], [stream] if view else [], [], PAUSE_SECONDS)
        if writable:
            view = view[stream.send(view) :]
        if readable:
            received = stream.recv(1 << 20)
            if not received:
                return False
            if answer:
                is_answered |= any(frames[0] == answer for frames in protocol.feed(received))
        if not is_on.value:
            return False
        if not view and time.monotonic() > give_up_at:
            return False  # a mutated message has provoked this answer before
    return True
