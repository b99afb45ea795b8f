"""Peers that misbehave, for `flood.py`: what each kind sends, and how.

Rules: a flooder is as cheap as it can be. It makes what it sends once where it may, copies nothing while it sends, and
sleeps while the scheduler does not read, so that what an honest client loses is what the scheduler allows.
"""

from __future__ import annotations

import random
import select
import socket
import time
from array import array
from itertools import chain
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, encode
from scaler_protocol import messages as m
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError
from scaler_protocol.wire.zmtp import encode as encode_frames

MESSAGES_AT_ONCE = 50
PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 60.0
LARGE_FRAME_BYTES = 15 * 1024 * 1024

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


class Flood(NamedTuple):
    """A kind of flood.

    Parameters:
        batches: what a flooder sends, again and again; nothing: it only connects.
        greets: whether it says Hello.
        stays: whether it goes on on its connection until the scheduler closes it.
        awaits_end: whether it sends the next batch when the scheduler has answered the end of the one before.
    """

    batches: Callable[[random.Random], Iterator[Batch]]
    greets: bool = True
    stays: bool = True
    awaits_end: bool = False


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
    "sessions": Flood(_nothing, stays=False),
    "tasks": Flood(_numbered(_tasks, 100)),
    "graphs": Flood(_numbered(_missing_graph, 2000)),
    "cancels": Flood(_always(lambda generator: m.TaskCancel(ids=_UNKNOWN_IDS), 10)),
    "requests": Flood(_always(lambda generator: m.ObjectRequest(id=1 << 50, length=1 << 20))),
    "deletions": Flood(
        _always(lambda generator: m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=_UNKNOWN_IDS), 10)
    ),
    "mutated": Flood(_mutated, awaits_end=True),
}

# How they send it ----------------------------------------------------------------------------------------------------


def flood(address: str, kind: str, seed: int, sent: Any, is_on: Any, has_begun: Any) -> None:
    """Flood while `is_on` is 1, and connect again whenever the scheduler has closed the connection."""
    chosen = FLOODS[kind]
    batches = _begun(chosen.batches(random.Random(seed)))
    host, port = address[len("tcp://") :].rsplit(":", 1)
    is_begun = False
    while True:
        while not is_on.value:
            is_begun = False
            time.sleep(PAUSE_SECONDS)
        try:
            with socket.create_connection((host, int(port))) as stream:
                if not is_begun:
                    is_begun = True
                    has_begun.release()
                _flood_connection(stream, chosen, batches, sent, is_on)
        except (OSError, ZmtpError):
            continue


def _begun(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, the first of which is made now: what making it takes is not measured."""
    return chain([next(batches)], batches)


def _flood_connection(stream: socket.socket, chosen: Flood, batches: Iterator[Batch], sent: Any, is_on: Any) -> None:
    if not chosen.greets:
        next(batches)
        _count(sent, 1)
        return
    stream.settimeout(10.0)
    protocol = Zmtp("DEALER", 1 << 30)
    stream.sendall(protocol.take_output())
    while not protocol.is_ready:
        protocol.feed(stream.recv(4096))
        stream.sendall(protocol.take_output())
    stream.sendall(encoded(hello()))
    stream.setblocking(False)
    answer = encode(m.DisconnectResponse()) if chosen.awaits_end else b""
    while is_on.value:
        count, data = next(batches)
        if not _send(stream, data, protocol, answer, is_on):
            return
        _count(sent, count)
        if not chosen.stays:
            return


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
