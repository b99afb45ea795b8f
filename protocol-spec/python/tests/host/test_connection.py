"""A connection over a socket pair: nothing blocks, nothing is lost or mixed, and its end is an error."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import sys
import threading
from typing import Any, Callable, Iterator, List, Tuple

import pytest
from quiet_addresses import quiet_address

from scaler_protocol.host.addresses import local_socket_name, parse_address
from scaler_protocol.host.connection import (
    COLLECTED_BYTES,
    KEEPALIVE_IDLE_SECONDS,
    LARGEST_WRITE_BYTES,
    SMALLEST_READ_BYTES,
    Connection,
    connect_to_local_socket,
    first_words,
)
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import PeerGoneError, Zmtp, ZmtpError

LIMIT_BYTES = 1 << 30
LARGE = os.urandom(1 << 20) * 3


sodium = load_sodium()
SERVER_KEYS, CLIENT_KEYS = sodium.new_keys(), sodium.new_keys()


def plain_ends() -> Tuple[Zmtp, Zmtp]:
    return Zmtp("DEALER", LIMIT_BYTES), Zmtp("ROUTER", LIMIT_BYTES)


def secure_ends() -> Tuple[Zmtp, Zmtp]:
    knows = ClientSecurity(sodium, CLIENT_KEYS, SERVER_KEYS.public)
    admits = ServerSecurity(sodium, [SERVER_KEYS], lambda key: None)
    return SecureZmtp(knows, "DEALER", LIMIT_BYTES), SecureZmtp(admits, "ROUTER", LIMIT_BYTES)


@contextlib.contextmanager
def connected(make_ends: Callable[[], Tuple[Zmtp, Zmtp]]) -> Iterator[Tuple[Connection, Connection]]:
    """Two connected connections, which have not shaken hands yet."""
    (first, second), (dealer, router) = socket.socketpair(), make_ends()
    ends = Connection(first, dealer), Connection(second, router)
    for end in ends:
        end.start()
    yield ends
    for end in ends:
        end.close()


@pytest.fixture(params=[plain_ends, secure_ends], ids=["plain", "secure"])
def pair(request: pytest.FixtureRequest) -> Iterator[Tuple[Connection, Connection]]:
    with connected(request.param) as ends:
        yield ends


def run_in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def opening_of(receiver: Connection, sender: Connection) -> Callable[[], None]:
    """What opens the large frame that arrives."""
    while receiver.protocol.opening is None:
        sender.flush()
        assert receiver.receive() == []
    return receiver.protocol.opening


def shake_hands(*ends: Connection) -> None:
    while not all(end.is_ready for end in ends):
        for end in ends:
            assert end.receive() == []


def receive(end: Connection, other: Connection, count: int) -> List[List[bytes]]:
    """`count` messages, which the other end sends as far as there is room."""
    messages: List[List[bytes]] = []
    while len(messages) < count:
        other.flush()
        messages += end.receive()
    return messages


def test_an_idle_connection_is_kept_alive_and_its_loss_noticed() -> None:
    """Routers forget connections on which nothing is said, and then only the next message would tell."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = socket.create_connection(server.getsockname())
        connection = Connection(stream, Zmtp("DEALER", LIMIT_BYTES))
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_SECONDS
        connection.close()


def test_what_is_sent_before_the_handshake_arrives_after_it(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    dealer.send([b"early", b""])
    dealer.send([LARGE])
    assert not dealer.is_ready
    messages: List[List[bytes]] = []
    while len(messages) < 2:
        assert dealer.receive() == []
        dealer.flush()
        messages += router.receive()
    assert messages == [[b"early", b""], [LARGE]]


def test_what_finds_no_room_waits_in_order(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    sent = [[b"%d" % number, LARGE if number % 3 == 0 else b"x" * number] for number in range(10)]
    for frames in sent:
        dealer.send(frames)
    assert dealer.has_unsent
    assert 0 < dealer.unsent_bytes <= 4 * len(LARGE) + 1000

    assert receive(router, dealer, len(sent)) == sent
    assert (dealer.has_unsent, dealer.unsent_bytes) == (False, 0)


class EagerStream:
    """A socket whose peer reads as fast as we write, so that each write takes all."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def send(self, data: memoryview) -> int:
        self.taken_bytes += len(data)
        return len(data)

    def sendmsg(self, parts: List[memoryview]) -> int:
        return self.send(memoryview(b"".join(parts)))


def test_a_flush_ends_after_as_many_bytes_as_it_may_send(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    for number in range(10):
        dealer.send([b"%d" % number, LARGE])
    stream, waiting_bytes = dealer._stream, dealer.unsent_bytes
    eager = dealer._stream = EagerStream()  # type: ignore[assignment]  # as far as it is used
    flushes, most_bytes = 0, 2 << 20
    is_empty = False
    while not is_empty:
        before = eager.taken_bytes
        is_empty = dealer.flush(most_bytes)
        flushes += 1
        assert eager.taken_bytes - before < most_bytes + LARGEST_WRITE_BYTES
    dealer._stream = stream
    assert eager.taken_bytes == waiting_bytes
    assert flushes >= waiting_bytes // (most_bytes + LARGEST_WRITE_BYTES)


def test_what_waits_can_be_dropped_but_for_the_message_in_part(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    for number in range(5):
        dealer.send([b"%d" % number, LARGE])
    dealer.drop_unsent()
    dealer.send([b"last"])

    messages = receive(router, dealer, 2)
    assert [frames[0] for frames in messages] == [b"0", b"last"]
    assert dealer.unsent_bytes == 0


def test_small_messages_that_wait_can_be_dropped_but_for_the_one_in_part(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    sent = [[b"%d" % number, b"x" * (number % 300)] for number in range(20_000)]
    for frames in sent:
        dealer.send(frames)
    messages = router.receive() + router.receive()
    dealer.flush()
    dealer.drop_unsent()
    dealer.drop_unsent()
    dealer.send([b"last"])

    while messages[-1] != [b"last"]:
        dealer.flush()
        messages += router.receive()
    assert messages[:-1] == sent[: len(messages) - 1] and len(messages) < len(sent)
    assert dealer.unsent_bytes == 0


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="PyPy does not trace memory")
def test_what_waits_takes_as_much_memory_as_is_counted(pair: Tuple[Connection, Connection]) -> None:
    import tracemalloc

    dealer, router = pair
    shake_hands(dealer, router)
    while not dealer.has_unsent:
        dealer.send([b"h" * 40, b""])
    counted = dealer.unsent_bytes
    tracemalloc.start()
    try:
        for _ in range(20_000):
            dealer.send([b"h" * 40, b""])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dealer.unsent_bytes - counted >= 20_000 * 44
    assert taken < 1.3 * (dealer.unsent_bytes - counted), "each message's end is noted besides"


def test_a_read_holds_no_more_small_messages_than_fit_into_the_smallest(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    for _ in range(10_000):
        dealer.send([b"h" * 40, b""])
    counts: List[int] = []
    while sum(counts) < 10_000:
        dealer.flush()
        counts.append(len(router.receive()))
    assert max(counts) <= SMALLEST_READ_BYTES // 44 + 1


def test_the_end_of_the_stream_comes_after_all_that_was_sent(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    dealer.send([b"last words"])
    dealer.finish()

    assert router.receive() == [[b"last words"]]
    with pytest.raises(PeerGoneError):
        router.receive()


def test_sending_to_a_peer_that_is_gone_is_an_error(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    router.close()
    with pytest.raises(OSError):
        dealer.send([b"hello?"])


def test_large_frames_come_in_the_memory_of_the_one_before(pair: Tuple[Connection, Connection]) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    for end in pair:
        end.protocol.reused_bytes = len(LARGE) + 64
    sizes = [len(LARGE), 70_000, len(LARGE) - 1, 100, 1 << 20]
    memories = set()
    for number, size in enumerate(sizes):
        sender.send([b"%d" % number, LARGE[number : number + size]])
        [[header, body]] = receive(receiver, sender, 1)
        assert header == b"%d" % number and body == LARGE[number : number + size]
        view = memoryview(body)
        if not view.readonly:
            memories.add(id(view.obj))
        sender.protocol.all_has_left()
    assert len(memories) == 1
    sender.send([b"last", LARGE + LARGE])
    [[_, body]] = receive(receiver, sender, 1)
    assert type(body) is bytes and body == LARGE + LARGE, "a larger one has memory of its own"


def test_only_the_last_frame_of_a_message_comes_in_memory_that_is_used_again(
    pair: Tuple[Connection, Connection],
) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    receiver.protocol.reused_bytes = len(LARGE) + 64
    frames = [LARGE, LARGE[1:], LARGE[2:]]
    sender.send(frames)
    [received] = receive(receiver, sender, 1)
    assert received == frames and [type(frame) for frame in received[:2]] == [bytes, bytes]


def test_a_frame_is_returned_before_the_next_one_takes_its_memory(pair: Tuple[Connection, Connection]) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    protocol = receiver.protocol
    protocol.reused_bytes = len(LARGE) + 64
    messages = [[b"", LARGE], [b"", LARGE[::-1]]]
    first, second = (b"".join(map(bytes, sender.protocol.encode(message))) for message in messages)
    assert protocol.feed(first[:90_000]) == []
    assert protocol.feed(first[90_000:] + second[:90_000]) == messages[:1]
    assert protocol.feed(second[90_000:]) == messages[1:]


def test_frames_that_have_not_left_are_not_overwritten(pair: Tuple[Connection, Connection]) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    sender.protocol.reused_bytes = len(LARGE) + 64
    sent = [LARGE[number:] for number in range(3)]
    for body in sent:
        sender.send([b"", body])
    assert [body for _, body in receive(receiver, sender, len(sent))] == sent


def test_large_frames_are_sealed_and_opened_when_their_owner_does_it() -> None:
    with connected(secure_ends) as (sender, receiver):
        shake_hands(sender, receiver)
        for end in (sender, receiver):
            end.protocol.reused_bytes = len(LARGE) + 64
        receiver.protocol.aside_bytes = len(LARGE)
        seal = sender.send_aside([b"first", LARGE], len(LARGE))
        assert seal is not None and sender.has_unsent
        assert sender.send_aside([b"second", LARGE], len(LARGE)) is None, "there is memory for one"
        sender.send([b"second", LARGE[100:]])
        assert receiver.receive() == [], "nothing has left before it was sealed"
        run_in_another_thread(seal)
        run_in_another_thread(opening_of(receiver, sender))
        assert receiver.opened() == [[b"first", LARGE]] and not receiver.protocol.opening
        assert receive(receiver, sender, 1) == [[b"second", LARGE[100:]]], "that is shorter"


def test_a_forged_frame_is_an_error_of_its_opening() -> None:
    with connected(secure_ends) as (sender, receiver):
        shake_hands(sender, receiver)
        protocol = receiver.protocol
        protocol.reused_bytes, protocol.aside_bytes = len(LARGE) + 64, 1
        sealed = bytearray(b"".join(map(bytes, sender.protocol.encode([b"", LARGE]))))
        sealed[-1] ^= 1
        assert protocol.feed(bytes(sealed[:100_000])) == protocol.feed(bytes(sealed[100_000:])) == []
        assert protocol.opening is not None
        with pytest.raises(ZmtpError, match="changed on its way"):
            protocol.opening()


def test_without_keys_nothing_is_sealed_aside() -> None:
    with connected(plain_ends) as (sender, receiver):
        shake_hands(sender, receiver)
        sender.protocol.reused_bytes = len(LARGE)
        assert sender.send_aside([b"", LARGE], 1) is None and not sender.has_unsent


def test_a_frame_that_is_kept_is_not_overwritten(pair: Tuple[Connection, Connection]) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    protocol = receiver.protocol
    protocol.reused_bytes = len(LARGE) + 64
    kept, views = [], []
    for number in range(5):
        sender.send([b"", LARGE[number:]])
        [[_, body]] = receive(receiver, sender, 1)
        view = memoryview(body)
        memory = protocol.keep_memory(view)
        assert memory is not None and protocol.keep_memory(view) is None
        kept.append(memory)
        views.append(view)
        if number == 2:
            protocol.use_memory(kept[1])
    assert [number for number in range(5) if views[number] == LARGE[number:]] == [0, 2, 3, 4]
    assert kept[4] is kept[1] and len(set(map(id, kept))) == 4


def test_the_end_of_the_stream_may_come_within_a_large_frame(pair: Tuple[Connection, Connection]) -> None:
    shake_hands(*pair)
    sender, receiver = pair
    receiver.protocol.reused_bytes = len(LARGE) + 64
    sender.send([b"", LARGE])
    sender.drop_unsent()
    sender.finish()
    with pytest.raises(PeerGoneError):
        while True:
            assert receiver.receive() == []


def test_nothing_to_read_is_no_message(pair: Tuple[Connection, Connection]) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    assert router.receive() == []


def test_the_local_socket_is_used_where_its_owner_listens() -> None:
    address = parse_address(quiet_address())
    name = local_socket_name(address)
    if name is None:
        pytest.skip("this system has no abstract namespace")
    assert connect_to_local_socket(address) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        listener.listen()
        stream = connect_to_local_socket(address)
        assert stream is not None
        stream.close()
    assert connect_to_local_socket(parse_address("tcp://192.0.2.1:1")) is None


class FailingStream:
    """A socket whose next calls of one kind raise an error."""

    def __init__(self, stream: socket.socket, call: str, error: Exception) -> None:
        self._stream = stream
        self._call = call
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            return self._fail
        return getattr(self._stream, name)

    def _fail(self, *arguments: Any) -> int:
        raise self._error


ERRORS = [OSError(errno.ENOMEM, "Cannot allocate memory"), MemoryError(), OSError(errno.EIO, "Input/output error")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("call, frames", [("send", [b"small"]), ("sendmsg", [b"1" * 50_000, b"2" * 50_000])])
def test_a_message_that_cannot_be_sent_ends_the_stream_for_both(
    pair: Tuple[Connection, Connection], call: str, frames: List[bytes], error: Exception
) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    dealer.send([b"before"])
    router.send([b"on its way"])
    dealer._stream = FailingStream(dealer._stream, call, error)  # type: ignore[assignment]  # as far as it is used
    with pytest.raises(type(error)):
        dealer.send(frames)
    assert not dealer.has_unsent and dealer.unsent_bytes == 0
    assert dealer.receive() == [[b"on its way"]], "what had arrived is read"
    with pytest.raises(PeerGoneError):
        dealer.receive()
    assert router.receive() == [[b"before"]]
    with pytest.raises((PeerGoneError, ConnectionError)):
        router.receive()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_messages_that_were_read_are_delivered_although_the_answer_cannot_be_sent(
    pair: Tuple[Connection, Connection], error: Exception
) -> None:
    dealer, router = pair
    shake_hands(dealer, router)
    ping = b"\x04PING\x00\x10"
    router.send([b"one"])
    router.protocol._send_command(ping)
    router.send_encoded(router.protocol.take_output())
    router.send([b"two"])
    dealer._stream = FailingStream(dealer._stream, "send", error)  # type: ignore[assignment]  # as far as it is used
    assert dealer.receive() == [[b"one"], [b"two"]]
    with pytest.raises(PeerGoneError):
        dealer.receive()


@pytest.mark.parametrize(
    ("spoken", "found"),
    [(b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL", b""), (b"\xff", b""), (b"HTTP/1.0 400\r\n", b"HTTP/1.0 400\r\n")],
    ids=["a greeting of ZMTP", "its beginning", "another protocol"],
)
def test_the_first_words_of_a_server_that_speaks_zmtp_are_not_foreign(spoken: bytes, found: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.sendall(spoken)
                stream.recv(64)

        thread = threading.Thread(target=answer)
        thread.start()
        address = parse_address(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        assert first_words(address, 10.0) == found
        thread.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone tells when so many bytes are there")
def test_an_owner_of_large_frames_is_told_to_read_when_much_or_the_rest_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = socket.create_connection(listener.getsockname())
        second, _ = listener.accept()
    writer, reader = Zmtp("DEALER", LIMIT_BYTES), Connection(second, Zmtp("ROUTER", LIMIT_BYTES))
    with contextlib.closing(first), contextlib.closing(reader):
        reader.start()
        first.sendall(writer.take_output())
        while not writer.is_ready:
            if select.select([reader], [], [], 0)[0]:
                reader.receive()
            writer.feed(first.recv(65536))
            first.sendall(writer.take_output())
        sent = memoryview(b"".join(writer.encode([LARGE[: 3 * COLLECTED_BYTES + SMALLEST_READ_BYTES + 5]])))

        def send(size: int) -> bool:
            """Send so much more; returns whether there is something to read now."""
            nonlocal sent
            first.sendall(sent[:size])
            sent = sent[size:]
            return bool(select.select([reader], [], [], 0)[0])

        def read() -> List[List[bytes]]:
            messages = reader.receive()
            reader.collect()
            return messages

        pieces, reads = 0, 0
        assert send(10) and read() == [] and not send(1000), "little of a large frame"
        messages: List[List[bytes]] = []
        while sent:
            is_readable, pieces = send(16_000), pieces + 1
            if is_readable:
                reads += 1
                messages += read()
        while not messages:
            assert select.select([reader], [], [], 10)[0], "the rest is there"
            messages += read()
        assert reads < pieces / 2, "it is less only while the system has little memory for the connection"
        assert messages == [[LARGE[: len(messages[0][0])]]] and len(messages[0][0]) > 3 * COLLECTED_BYTES
        sent = memoryview(b"".join(writer.encode([b"small"])))
        assert send(len(sent)) and read() == [[b"small"]]
        sent = memoryview(b"".join(writer.encode([LARGE])))
        assert send(1000) and read() == [] and not send(1000)
        first.shutdown(socket.SHUT_WR)
        assert select.select([reader], [], [], 10)[0], "the end of the connection is told at once"
