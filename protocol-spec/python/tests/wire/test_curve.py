"""CURVE in Python: against libzmq in both roles, and against peers that lie."""

from __future__ import annotations

import random
import socket
from typing import Callable, Iterator, List, Optional, Tuple

import pytest
import zmq
import zmq.utils.z85 as z85
from zmq.auth.thread import ThreadAuthenticator

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.curve import (
    JOINED,
    LARGEST_JOINED_BYTES,
    SEALED_COMMAND,
    ForgedError,
    KeyPair,
    KeyRejectedError,
)
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import (
    GREETING_BYTES,
    MAXIMUM_COMMAND_BYTES,
    MORE,
    ForeignPeerError,
    LimitExceededError,
    MalformedFrameError,
    RefusedError,
    UnfinishedHandshakeError,
    Zmtp,
    ZmtpError,
)

DEADLINE_SECONDS = 30.0
LIMIT_BYTES = 1 << 30
MESSAGES = [
    [b"a", b""],
    [b""],
    [b"x" * 255],
    [b"y" * 256, b"z" * 300],
    [b"m" * 20_000] * 3,
    [b"h" * 200, b"l" * 70_000],
]

sodium = load_sodium()
SERVER, CLIENT, ANOTHER, OLD_SERVER = (sodium.new_keys() for _ in range(4))


def admit_all(key: bytes) -> Optional[str]:
    return None


def server(
    admit: Callable[[bytes], Optional[str]] = admit_all, keys: KeyPair = SERVER, limit: int = LIMIT_BYTES
) -> SecureZmtp:
    return SecureZmtp(ServerSecurity(sodium, [keys, OLD_SERVER], admit), "ROUTER", limit)


def client(keys: KeyPair = CLIENT, server_key: bytes = SERVER.public) -> SecureZmtp:
    return SecureZmtp(ClientSecurity(sodium, keys, server_key), "DEALER", LIMIT_BYTES)


def exchange(one: Zmtp, other: Zmtp, piece: int = LIMIT_BYTES) -> None:
    """Move bytes both ways until there are no more."""
    moved = True
    while moved:
        moved = False
        for sender, receiver in ((one, other), (other, one)):
            data = sender.take_output()
            for at in range(0, len(data), piece):
                assert receiver.feed(data[at : at + piece]) == []
                moved = True


def connected() -> Tuple[SecureZmtp, SecureZmtp]:
    ours, theirs = client(), server()
    exchange(ours, theirs)
    return ours, theirs


def sent(sender: Zmtp, frames: List[bytes]) -> bytes:
    return b"".join(map(bytes, sender.encode(frames)))


# Two of ours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_messages_go_both_ways_however_they_are_cut(piece: int) -> None:
    ours, theirs = client(), server()
    exchange(ours, theirs, piece)
    assert ours.is_ready and theirs.is_ready
    assert theirs.peer_key == CLIENT.public and ours.peer_properties[b"socket-type"] == b"ROUTER"
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        for frames in MESSAGES if piece > 1 else MESSAGES[:4]:
            data = sent(sender, frames)
            received = [
                message for at in range(0, len(data), piece) for message in receiver.feed(data[at : at + piece])
            ]
            assert received == [frames]


def test_a_client_that_knows_an_older_key_of_the_server_is_served_while_keys_are_rotated() -> None:
    ours, theirs = client(server_key=OLD_SERVER.public), server()
    exchange(ours, theirs)
    assert ours.is_ready and theirs.peer_key == CLIENT.public


def test_a_lone_message_is_sealed_apart_and_sent_before_the_others_or_not_at_all() -> None:
    ours, theirs = connected()
    encode, never_used = ours.lone_encoder(), ours.lone_encoder()
    first = sent(ours, [b"before", b""])  # made after the encoder, sent after what it encodes
    assert b"".join(map(bytes, never_used([b"lost in a race"])))
    lone = [b"".join(map(bytes, encode([b"lone", text]))) for text in (b"not sent", b"sent")][1]
    assert theirs.feed(lone + first) == [[b"lone", b"sent"], [b"before", b""]]
    with pytest.raises(KeyRejectedError, match="repeated"):
        theirs.feed(lone)


def test_nothing_on_the_wire_can_be_read() -> None:
    ours, _ = connected()
    data = sent(ours, [b"a secret", b"and more of it"])
    assert b"secret" not in data and b"more" not in data
    assert sent(ours, [b"the same"]) != sent(ours, [b"the same"])


def test_the_key_is_asked_for_once_it_is_proved_and_before_anything_else_is_read() -> None:
    asked = []

    def refuse(key: bytes) -> Optional[str]:
        asked.append((key, dict(theirs.peer_properties)))
        return "this key was revoked"

    ours, theirs = client(), server(refuse)
    with pytest.raises(KeyRejectedError, match="this key was revoked"):
        exchange(ours, theirs)
    assert asked == [(CLIENT.public, {})]
    assert theirs.peer_key == b"" and not theirs.is_ready
    with pytest.raises(RefusedError, match="this key was revoked"):
        ours.feed(theirs.take_output())


def test_limits_are_those_of_what_is_sealed() -> None:
    ours, theirs = client(), server(limit=1000)
    exchange(ours, theirs)
    assert theirs.feed(sent(ours, [b"x" * 1000])) == [[b"x" * 1000]]
    with pytest.raises(LimitExceededError):
        theirs.feed(sent(ours, [b"x" * 1001])[:9])  # before its bytes have come


def test_a_ping_is_answered_sealed() -> None:
    ours, theirs = connected()
    ours._send_command(b"\4PING\0\0context")
    theirs.feed(ours.take_output())
    answer = theirs.take_output()
    assert b"PONG" not in answer
    assert ours.feed(answer) == [] and ours.is_ready


def test_sockets_of_types_that_do_not_match_are_told_so() -> None:
    ours, theirs = client(), server()
    ours._curve._metadata = b"\x0bSocket-Type\0\0\0\3PUB"
    with pytest.raises(ForeignPeerError):
        exchange(ours, theirs)
    with pytest.raises(ZmtpError):
        ours.feed(theirs.take_output())


def test_a_command_is_no_longer_than_without_keys_once_it_is_opened() -> None:
    for size, is_allowed in ((MAXIMUM_COMMAND_BYTES, True), (MAXIMUM_COMMAND_BYTES + 1, False)):
        ours, theirs = connected()
        ours._send_command(b"\4NONE" + bytes(size - 5))
        if is_allowed:
            assert theirs.feed(ours.take_output()) == []
        else:
            with pytest.raises(LimitExceededError, match="a command of 65537 bytes"):
                theirs.feed(ours.take_output())


def test_a_command_is_no_piece_of_a_message() -> None:
    ours, theirs = connected()
    assert ours._sealed is not None
    with pytest.raises(MalformedFrameError, match="flags"):
        theirs.feed(bytes(ours._sealed.seal(SEALED_COMMAND | MORE, b"\4PING\0\0")))


# Joined messages ------------------------------------------------------------------------------------------------------


def frames_of(data: bytes) -> int:
    """How many frames there are, sealed or not."""
    count = at = 0
    while at < len(data):
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "big") if data[at] & 2 else 2 + data[at + 1]
        count += 1
    assert at == len(data)
    return count


@pytest.mark.parametrize("frames", [[b"a", b""], [b"", b"b"], [b"h" * 200, b"p" * 300], [b"h", b"p" * 30_000]])
def test_both_frames_of_a_short_message_are_sealed_as_one(frames: List[bytes]) -> None:
    ours, theirs = connected()
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        data = sent(sender, frames)
        assert frames_of(data) == 1 and receiver.feed(data) == [frames]
        data = sent(sender, frames) + sent(sender, [b"alone"]) + sent(sender, frames)
        assert receiver.feed(data[:50]) + receiver.feed(data[50:]) == [frames, [b"alone"], frames]


def test_long_messages_and_those_of_other_than_two_frames_are_sealed_frame_by_frame() -> None:
    ours, theirs = connected()
    for frames in ([b"h", b"p" * LARGEST_JOINED_BYTES], [b"1", b"2", b"3"], [b"alone"]):
        data = sent(ours, frames)
        assert frames_of(data) == len(frames) and theirs.feed(data) == [frames]


def test_a_peer_that_does_not_announce_to_read_joined_messages_gets_none() -> None:
    ours, theirs = client(), server()
    ours._curve._metadata = Zmtp._metadata(ours)
    exchange(ours, theirs)
    assert theirs.is_ready and frames_of(sent(theirs, [b"a", b"b"])) == 2
    assert frames_of(sent(ours, [b"a", b"b"])) == 1, "the other end has announced it"


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"\0\0\0\2a", b"\xff\xff\xff\xffabc"])
def test_a_joined_message_whose_first_frame_is_longer_than_itself_is_malformed(content: bytes) -> None:
    for pieces in (1, 2):
        ours, theirs = connected()
        assert ours._sealed is not None
        data = bytes(ours._sealed.seal(JOINED, content))
        with pytest.raises(MalformedFrameError, match="shorter than its first frame"):
            for at in range(pieces):
                theirs.feed(data[at * 20 : None if at == pieces - 1 else 20])


def test_a_joined_message_within_another_message_is_malformed() -> None:
    ours, theirs = connected()
    assert ours._sealed is not None
    with pytest.raises(MalformedFrameError, match="where none may be"):
        theirs.feed(bytes(ours._sealed.seal(MORE, b"first") + ours._sealed.seal(JOINED, b"\0\0\0\1ab")))


def test_a_joined_message_is_malformed_where_messages_have_one_frame() -> None:
    ours = client()
    theirs = SecureZmtp(ServerSecurity(sodium, [SERVER], admit_all), "ROUTER", LIMIT_BYTES, maximum_frames=1)
    exchange(ours, theirs)
    with pytest.raises(MalformedFrameError, match="where none may be"):
        theirs.feed(sent(ours, [b"a", b"b"]))


# Peers that lie -------------------------------------------------------------------------------------------------------


def test_a_server_without_the_key_gets_nothing() -> None:
    ours, theirs = client(server_key=ANOTHER.public), server()
    with pytest.raises(KeyRejectedError, match="expects another key"):
        exchange(ours, theirs)
    with pytest.raises(RefusedError, match="expects another key"):
        ours.feed(theirs.take_output())


def test_a_client_cannot_name_a_key_that_it_does_not_own() -> None:
    ours, theirs = client(KeyPair(ANOTHER.public, CLIENT.secret)), server()
    with pytest.raises(KeyRejectedError, match="does not own the key"):
        exchange(ours, theirs)


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN"])
@pytest.mark.parametrize("ours", [client, server])
def test_there_is_no_way_down(ours: Callable[[], SecureZmtp], mechanism: str) -> None:
    end = ours()
    end.take_output()
    with pytest.raises(ForeignPeerError, match="requires keys"):
        end.feed(b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.encode().ljust(20, b"\0") + bytes(32))
    assert b"keys are required here" in end.take_output()


def test_an_end_without_keys_is_told_that_they_are_required() -> None:
    ours, theirs = Zmtp("DEALER", LIMIT_BYTES), server()
    with pytest.raises(ForeignPeerError, match="requires keys"):
        ours.feed(theirs.take_output())


def test_two_servers_or_two_clients_do_not_connect() -> None:
    one, other = server(), server()
    exchange(one, other)
    assert not one.is_ready and not other.is_ready, "each waits for the other's HELLO, until its deadline"
    with pytest.raises(MalformedFrameError, match="instead of CURVE's WELCOME"):
        exchange(client(), client())


def recorded_handshake() -> List[Tuple[bool, bytes]]:
    """What both ends send, one piece after the other, and whether the client sends it."""
    ours, theirs = client(), server()
    pieces = []
    while not (ours.is_ready and theirs.is_ready):
        for sender, receiver in ((ours, theirs), (theirs, ours)):
            data = sender.take_output()
            if data:
                pieces.append((sender is ours, data))
                receiver.feed(data)
    return pieces


def test_a_recorded_handshake_does_not_connect() -> None:
    theirs = server()
    theirs.take_output()
    with pytest.raises(KeyRejectedError, match="cookie"):
        for is_clients, data in recorded_handshake():
            if is_clients:
                theirs.feed(data)
    assert not theirs.is_ready


def test_a_frame_is_accepted_once_and_in_order() -> None:
    ours, theirs = connected()
    first, second = sent(ours, [b"first"]), sent(ours, [b"second"])
    assert theirs.feed(first) == [[b"first"]]
    with pytest.raises(KeyRejectedError, match="repeated"):
        theirs.feed(first)
    ours, theirs = connected()
    first, second = sent(ours, [b"first"]), sent(ours, [b"second"])
    assert theirs.feed(second) == [[b"second"]]
    with pytest.raises(KeyRejectedError, match="out of order"):
        theirs.feed(first)


def test_a_frame_of_one_direction_is_none_of_the_other() -> None:
    ours, _ = connected()
    for _ in range(3):
        data = sent(ours, [b"reflected"])
    with pytest.raises(KeyRejectedError):
        ours.feed(data)


def test_a_frame_that_is_not_sealed_is_an_error() -> None:
    for data in (b"\0\5plain", b"\4\6\4PING\0", b"\1\1a\0\1b"):
        _, theirs = connected()
        with pytest.raises(ZmtpError):
            theirs.feed(data)


def test_a_change_of_any_byte_of_a_frame_is_noticed() -> None:
    length = len(sent(connected()[0], [b"of which no byte may differ"]))
    for at in range(length):
        ours, theirs = connected()
        data = bytearray(sent(ours, [b"of which no byte may differ"]))
        data[at] ^= 1
        try:
            received = theirs.feed(bytes(data))
        except ZmtpError:
            continue
        assert received == []  # its length: the frame is not complete


def test_a_handshake_does_not_connect_if_any_byte_changes() -> None:
    lengths = [len(data) for _, data in recorded_handshake()]
    for piece, length in enumerate(lengths):
        for at in range(piece % 3, length, 3):  # bytes of all kinds; libsodium is not what is tested
            ours, theirs = client(), server()
            is_of_greeting = piece < 2 and at < GREETING_BYTES  # in which only the mechanism has a meaning
            assert not completes(ours, theirs, piece, at) or is_of_greeting, f"byte {at} of piece {piece}"


def completes(ours: SecureZmtp, theirs: SecureZmtp, piece: int, at: int) -> bool:
    """Whether the ends connect, and understand each other, if a byte of one of the pieces is changed on its way."""
    count = 0
    try:
        while not (ours.is_ready and theirs.is_ready):
            silent = True
            for sender, receiver in ((ours, theirs), (theirs, ours)):
                data = bytearray(sender.take_output())
                if data:
                    silent = False
                    if count == piece:
                        data[at] ^= 0x40
                    count += 1
                    receiver.feed(bytes(data))
            if silent:
                return False
        return theirs.feed(sent(ours, [b"hello"])) == [[b"hello"]] and ours.feed(sent(theirs, [b"hi"])) == [[b"hi"]]
    except ZmtpError:
        return False


@pytest.mark.parametrize("seed", range(3))
def test_arbitrary_bytes_raise_nothing_but_errors_of_the_transport(seed: int) -> None:
    generator = random.Random(seed)
    pieces = recorded_handshake()
    for _ in range(300):
        end = generator.choice((client, server))()
        is_client = end._curve.__class__.__name__ == "CurveClient"
        try:
            for is_clients, data in pieces:
                if is_clients != is_client:
                    mutated = bytearray(data)
                    for _ in range(generator.choice((0, 1, 4))):
                        mutated[generator.randrange(len(mutated))] = generator.getrandbits(8)
                    if generator.random() < 0.2:
                        del mutated[generator.randrange(len(mutated)) :]
                    end.feed(bytes(mutated) or b"\0")
            assert not end.is_ready
        except ZmtpError:
            pass


def test_a_connection_that_ends_in_the_handshake_is_reported() -> None:
    ours = client()
    with pytest.raises(UnfinishedHandshakeError):
        ours.feed(b"")
    theirs = server()
    theirs.feed(client().take_output())
    with pytest.raises(MalformedFrameError):
        theirs.feed(b"\4\6\5READY")


def test_a_public_key_with_which_all_secret_keys_make_the_same_box_is_refused() -> None:
    with pytest.raises(ForgedError):
        sodium.box(bytes(32), CLIENT.secret)
    with pytest.raises(ValueError, match="not the public key of a server"):
        client(server_key=bytes(32))


def test_secrets_are_not_shown() -> None:
    assert CLIENT.secret.hex() not in repr(CLIENT) and repr(CLIENT.secret) not in repr(CLIENT)


# libzmq ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def prepared(context: zmq.Context[zmq.Socket[bytes]], socket_type: int) -> zmq.Socket[bytes]:
    other = context.socket(socket_type)
    other.setsockopt(zmq.RCVTIMEO, int(1000 * DEADLINE_SECONDS))
    other.setsockopt(zmq.SNDTIMEO, int(1000 * DEADLINE_SECONDS))
    return other


def run(stream: socket.socket, end: SecureZmtp, piece: int) -> Iterator[List[bytes]]:
    """The messages that arrive; answers of the transport are sent."""
    stream.settimeout(DEADLINE_SECONDS)
    while True:
        stream.sendall(end.take_output())
        was_ready = end.is_ready
        messages = end.feed(stream.recv(piece))
        stream.sendall(end.take_output())
        if end.is_ready and not was_ready:
            yield []
        yield from messages


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_libzmq_connects_to_us(context: zmq.Context[zmq.Socket[bytes]], piece: int) -> None:
    other = prepared(context, zmq.DEALER)
    other.curve_publickey, other.curve_secretkey = z85.encode(CLIENT.public), z85.encode(CLIENT.secret)
    other.curve_serverkey = z85.encode(SERVER.public)
    other.setsockopt(zmq.HEARTBEAT_IVL, 10)
    other.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1000 * DEADLINE_SECONDS))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        stream, _ = listener.accept()
        with stream:
            end = server()
            arriving = run(stream, end, piece)
            assert next(arriving) == [] and end.peer_key == CLIENT.public
            for frames in MESSAGES if piece > 100 else MESSAGES[:4]:
                other.send_multipart(frames)
                assert next(arriving) == frames
                for buffer in end.encode(frames):
                    stream.sendall(buffer)
                assert other.recv_multipart() == frames


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_we_connect_to_libzmq(context: zmq.Context[zmq.Socket[bytes]], piece: int) -> None:
    other = prepared(context, zmq.ROUTER)
    other.curve_server = True
    other.curve_secretkey = z85.encode(SERVER.secret)
    other.setsockopt(zmq.HEARTBEAT_IVL, 10)
    other.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1000 * DEADLINE_SECONDS))
    port = other.bind_to_random_port("tcp://127.0.0.1")
    with socket.create_connection(("127.0.0.1", port)) as stream:
        end = client()
        arriving = run(stream, end, piece)
        assert next(arriving) == []
        for frames in MESSAGES if piece > 100 else MESSAGES[:4]:
            for buffer in end.encode(frames):
                stream.sendall(buffer)
            name, *received = other.recv_multipart()
            assert received == frames
            other.send_multipart([name, *frames])
            assert next(arriving) == frames


def test_libzmq_admits_us_by_our_key(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    try:
        authenticator.configure_curve_callback("*", credentials_provider=OnlyClient())
        other = prepared(context, zmq.ROUTER)
        other.curve_server = True
        other.curve_secretkey = z85.encode(SERVER.secret)
        port = other.bind_to_random_port("tcp://127.0.0.1")
        with socket.create_connection(("127.0.0.1", port)) as stream:
            assert next(run(stream, client(), 1 << 18)) == []
        with socket.create_connection(("127.0.0.1", port)) as stream:
            with pytest.raises(RefusedError):
                next(run(stream, client(ANOTHER), 1 << 18))
    finally:
        authenticator.stop()


class OnlyClient:
    """Whom libzmq may admit."""

    def callback(self, domain: str, key: bytes) -> bool:
        return key == z85.encode(CLIENT.public)
