"""ZMTP in Python: against libzmq in both roles, cut anywhere, and against peers that break the rules."""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path
from typing import Callable, Iterator, List, Sequence, Tuple

import pytest
import zmq

from scaler_protocol.wire.zmtp import (
    ForeignPeerError,
    LimitExceededError,
    MalformedFrameError,
    PeerGoneError,
    RefusedError,
    UnfinishedHandshakeError,
    Zmtp,
    ZmtpError,
    encode,
)

DEADLINE_SECONDS = 30.0
LIMIT_BYTES = 1 << 30
WHOLE = 1 << 18  # bytes read at once

MESSAGES = [
    [b"a", b""],
    [b""],
    [b"x" * 255],
    [b"y" * 256, b"z" * 300],
    [os.urandom(20_000)] * 3,
    [b"h" * 200, os.urandom(70_000)],
]

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL".ljust(23, b"\0") + bytes(32)


class Peer:
    """Our end of a connection, on a blocking socket; it reads `piece` bytes at a time."""

    def __init__(self, stream: socket.socket, socket_type: str, piece: int = WHOLE, identity: bytes = b"") -> None:
        self.stream = stream
        self.protocol = Zmtp(socket_type, LIMIT_BYTES, identity=identity)
        self._piece = piece
        self._inbox: List[List[bytes]] = []
        stream.settimeout(DEADLINE_SECONDS)

    def read_once(self) -> None:
        self.stream.sendall(self.protocol.take_output())
        self._inbox += self.protocol.feed(self.stream.recv(self._piece))
        self.stream.sendall(self.protocol.take_output())

    def shake_hands(self) -> None:
        while not self.protocol.is_ready:
            self.read_once()

    def send(self, frames: Sequence[bytes]) -> None:
        self.shake_hands()
        for buffer in encode(frames):
            self.stream.sendall(buffer)

    def receive(self) -> List[bytes]:
        while not self._inbox:
            self.read_once()
        return self._inbox.pop(0)


Connect = Callable[..., Tuple[Peer, "zmq.Socket[bytes]"]]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Makes our end of a type, and libzmq's of another, connected to each other."""
    context = zmq.Context()
    streams: List[socket.socket] = []

    def make(
        ours: str,
        transport: str = "tcp",
        piece: int = WHOLE,
        theirs: int = -1,
        identity: bytes = b"",
        prepare: Callable[[zmq.Socket[bytes]], None] = lambda other: None,
    ) -> Tuple[Peer, zmq.Socket[bytes]]:
        if theirs < 0:
            theirs = zmq.ROUTER if ours == "DEALER" else zmq.DEALER
        other = context.socket(theirs)
        other.setsockopt(zmq.RCVTIMEO, int(1000 * DEADLINE_SECONDS))
        other.setsockopt(zmq.SNDTIMEO, int(1000 * DEADLINE_SECONDS))
        prepare(other)
        family = socket.AF_INET if transport == "tcp" else socket.AF_UNIX
        stream = socket.socket(family, socket.SOCK_STREAM)
        path = str(tmp_path / "socket")
        if ours == "DEALER":
            if transport == "tcp":
                stream.connect(("127.0.0.1", other.bind_to_random_port("tcp://127.0.0.1")))
            else:
                other.bind(f"ipc://{path}")
                stream.connect(path)
        else:
            stream.bind(("127.0.0.1", 0) if transport == "tcp" else path)
            stream.listen()
            other.connect(f"tcp://127.0.0.1:{stream.getsockname()[1]}" if transport == "tcp" else f"ipc://{path}")
            listener = stream
            stream, _ = listener.accept()
            listener.close()
        streams.append(stream)
        return Peer(stream, ours, piece, identity), other

    yield make
    for stream in streams:
        stream.close()
    context.destroy(linger=0)


# With libzmq ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.parametrize("ours", ["DEALER", "ROUTER"])
@pytest.mark.parametrize("piece", [1, 7, WHOLE])
def test_messages_go_both_ways_however_they_are_cut(connect: Connect, ours: str, transport: str, piece: int) -> None:
    peer, other = connect(ours, transport, piece)
    for frames in MESSAGES if piece > 1 else MESSAGES[:4]:
        peer.send(frames)
        received = other.recv_multipart()
        name = [received.pop(0)] if ours == "DEALER" else []
        assert received == frames
        other.send_multipart(name + frames)
        assert peer.receive() == frames


@pytest.mark.parametrize("ours", ["DEALER", "ROUTER"])
def test_a_hundred_megabytes(connect: Connect, ours: str) -> None:
    peer, other = connect(ours, "ipc")
    frames = [b"head", os.urandom(1 << 20) * 100, b"tail"]
    echo = threading.Thread(target=lambda: other.send_multipart(other.recv_multipart()))
    echo.start()
    peer.send(frames)
    assert peer.receive() == frames
    echo.join()


def test_many_small_messages_keep_their_order(connect: Connect) -> None:
    peer, other = connect("DEALER", prepare=lambda other: other.set_hwm(0))  # a ROUTER drops otherwise
    peer.send([b""])
    name = other.recv_multipart()[0]
    count = 5_000

    def push() -> None:
        for number in range(count):
            other.send_multipart([name, b"%d" % number, b"p" * (number % 300)])

    pushing = threading.Thread(target=push)
    pushing.start()
    for number in range(count):
        assert peer.receive() == [b"%d" % number, b"p" * (number % 300)]
    pushing.join()


def test_a_ping_is_answered_before_libzmq_loses_patience(connect: Connect) -> None:
    def prepare(other: zmq.Socket[bytes]) -> None:
        other.setsockopt(zmq.HEARTBEAT_IVL, 20)
        other.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5_000)
        other.setsockopt(zmq.ROUTER_MANDATORY, 1)

    peer, other = connect("DEALER", prepare=prepare)
    peer.send([b"hello"])
    name = other.recv_multipart()[0]
    answers = 0
    while answers < 3:
        peer.stream.settimeout(DEADLINE_SECONDS)
        assert peer.protocol.feed(peer.stream.recv(WHOLE)) == []
        answers += bool(peer.protocol.output)
        peer.stream.sendall(peer.protocol.take_output())
    other.send_multipart([name, b"still here"])
    assert peer.receive() == [b"still here"]


def test_a_router_names_us_by_our_identity(connect: Connect) -> None:
    peer, other = connect("DEALER", identity=b"me")
    peer.send([b"question"])
    assert other.recv_multipart() == [b"me", b"question"]


def test_a_socket_of_another_type_is_told_so(connect: Connect) -> None:
    peer, _ = connect("ROUTER", theirs=zmq.SUB)
    with pytest.raises(ForeignPeerError, match="SUB"):
        peer.shake_hands()
    assert b"ERROR" in peer.protocol.take_output()


def test_a_peer_that_wants_encryption_is_foreign(connect: Connect) -> None:
    def prepare(other: zmq.Socket[bytes]) -> None:
        other.curve_publickey, other.curve_secretkey = zmq.curve_keypair()
        other.curve_server = True

    peer, _ = connect("DEALER", prepare=prepare)
    with pytest.raises((ForeignPeerError, RefusedError)):
        peer.shake_hands()


# With peers that tests make up ----------------------------------------------------------------------------------------


def command(name: bytes, data: bytes = b"") -> bytes:
    body = bytes((len(name),)) + name + data
    if len(body) < 256:
        return bytes((4, len(body))) + body
    return b"\x06" + len(body).to_bytes(8, "big") + body


def long_header(flags: int, size: int) -> bytes:
    return bytes((2 | flags,)) + size.to_bytes(8, "big")


def ready_protocol(maximum_message_bytes: int = 1000, maximum_first_frame_bytes: int = 500) -> Zmtp:
    protocol = Zmtp("ROUTER", maximum_message_bytes, maximum_first_frame_bytes, maximum_frames=3)
    protocol.feed(GREETING)
    protocol.feed(command(b"READY", b"\x0bSOCKET-type" + (6).to_bytes(4, "big") + b"DEALER"))
    assert protocol.is_ready
    protocol.take_output()
    return protocol


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n", b"\xff" + bytes(9), b"\xff" + bytes(8) + b"\x7f\x01"])
def test_what_is_no_zmtp_is_foreign(junk: bytes) -> None:
    with pytest.raises(ForeignPeerError):
        Zmtp("ROUTER", 10).feed(junk)
    protocol = Zmtp("ROUTER", 10)
    with pytest.raises(ForeignPeerError):
        for position in range(len(junk)):
            protocol.feed(junk[position : position + 1])


def test_a_peer_of_zmtp_3_0_is_welcome() -> None:
    protocol = Zmtp("ROUTER", 10)
    protocol.feed(GREETING[:11] + b"\0" + GREETING[12:])
    protocol.feed(command(b"READY", b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"))
    assert protocol.is_ready
    assert protocol.peer_minor_version == 0


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x08\x00", MalformedFrameError),
        (b"\x05\x00", MalformedFrameError),
        (long_header(0, 501), LimitExceededError),
        (long_header(0, (1 << 64) - 1), LimitExceededError),
        (b"\x01\x00" * 3, LimitExceededError),
        (b"\x01\xff" + bytes(255) + long_header(0, 800), LimitExceededError),
        (command(b"PING", b"\0"), MalformedFrameError),
        (command(b"PING", bytes(19)), MalformedFrameError),
        (command(b"ERROR", b"\x02no"), RefusedError),
        (long_header(4, 70_000), LimitExceededError),
    ],
    ids=[
        "unknown flag",
        "command with more",
        "long first frame",
        "endless frame",
        "many frames",
        "long message",
        "short PING",
        "long PING",
        "ERROR",
        "long command",
    ],
)
def test_a_fault_is_named(data: bytes, error: type) -> None:
    with pytest.raises(error):
        ready_protocol().feed(data)
    protocol = ready_protocol()
    with pytest.raises(error):
        for position in range(len(data)):
            protocol.feed(data[position : position + 1])


def test_a_frame_after_the_first_may_be_larger() -> None:
    assert ready_protocol().feed(b"\x01\x01a" + long_header(0, 900) + bytes(900)) == [[b"a", bytes(900)]]


def test_a_message_before_the_handshake_is_a_fault() -> None:
    protocol = Zmtp("ROUTER", 10)
    with pytest.raises(MalformedFrameError, match="READY"):
        protocol.feed(GREETING + b"\x00\x01a")


def test_commands_may_stand_between_frames() -> None:
    protocol = ready_protocol()
    assert protocol.feed(b"\x01\x01a" + command(b"PING", b"\0\0why") + b"\x00\x01b") == [[b"a", b"b"]]
    assert protocol.take_output() == command(b"PONG", b"why")


def ready_publisher(minor_version: bytes) -> Zmtp:
    protocol = Zmtp("XPUB", 20)
    protocol.feed(GREETING[:11] + minor_version + GREETING[12:])
    protocol.feed(command(b"READY", b"\x0bSocket-Type" + (3).to_bytes(4, "big") + b"SUB"))
    protocol.take_output()
    return protocol


def test_subscriptions_are_messages_to_the_owner_whatever_they_are_on_the_wire() -> None:
    data = command(b"SUBSCRIBE", b"topic") + command(b"CANCEL", b"topic") + command(b"SUBSCRIBE")
    for piece in (1, 7, len(data)):
        publisher = ready_publisher(b"\1")
        received = [message for at in range(0, len(data), piece) for message in publisher.feed(data[at : at + piece])]
        assert received == [[b"\1topic"], [b"\0topic"], [b"\1"]]
    assert ready_publisher(b"\0").feed(b"\0\6\1topic\0\1\0") == [[b"\1topic"], [b"\0"]]
    assert ready_protocol().feed(data) == [], "to other sockets it is a command that they do not know"


def test_a_topic_is_as_long_as_a_message_may_be() -> None:
    assert ready_publisher(b"\1").feed(command(b"SUBSCRIBE", bytes(19))) == [[b"\1" + bytes(19)]]
    for name in (b"SUBSCRIBE", b"CANCEL"):
        with pytest.raises(LimitExceededError, match="a topic of more than 19 bytes"):
            ready_publisher(b"\1").feed(command(name, bytes(20)))


def test_the_end_of_the_stream_is_told_by_when_it_came() -> None:
    with pytest.raises(PeerGoneError):
        ready_protocol().feed(b"")
    with pytest.raises(UnfinishedHandshakeError, match="handshake"):
        Zmtp("DEALER", 10).feed(b"")


def test_random_bytes_raise_nothing_but_named_errors() -> None:
    chance = random.Random(1)
    for _ in range(3_000):
        protocol = ready_protocol() if chance.random() < 0.7 else Zmtp("DEALER", 1000)
        try:
            for _ in range(4):
                if chance.random() < 0.6:
                    choices = (0, 1, 2, 4, 5, 255, chance.randrange(256))
                    data = bytes(chance.choice(choices) for _ in range(1 + chance.randrange(40)))
                else:
                    data = command(chance.choice((b"READY", b"PING", b"ERROR")), os.urandom(chance.randrange(30)))
                protocol.feed(data)
        except ZmtpError:
            pass


def test_large_frames_are_sent_without_a_copy() -> None:
    large = bytes(1 << 20)
    header, content = encode([b"header", large])
    assert content is large
    assert bytes(header).startswith(b"\x01\x06header")


def test_a_socket_type_that_is_none_is_an_error_of_ours() -> None:
    with pytest.raises(ValueError, match="DEALER, ROUTER"):
        Zmtp("PUB", 10)
    with pytest.raises(ValueError, match="255"):
        Zmtp("DEALER", 10, identity=bytes(256))
