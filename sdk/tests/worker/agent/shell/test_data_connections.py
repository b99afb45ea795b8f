"""Data connections of two workers on one event loop, with and without keys."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from scaler.data_serving import data_connections
from scaler.data_serving.data_connections import NOWHERE, DataConnections
from scaler.data_serving.rounds import Rounds
from scaler.worker.agent.core.effects import CloseData, ConnectData, SendData
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import Address, parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.secure_zmtp import ClientSecurity

ANY = Address("*", 0)
HOST = "127.0.0.1"
DEADLINE_SECONDS = 60.0


def new_keys() -> ClientSecurity:
    sodium = load_sodium()
    return ClientSecurity(sodium, sodium.new_keys(), b"")


class Side:
    """One worker's data connections, and what they report."""

    def __init__(self, loop: asyncio.AbstractEventLoop, security: Optional[ClientSecurity] = None) -> None:
        self.loop = loop
        self.events: List[Tuple[Any, ...]] = []
        self.answers: Optional[Callable[[int, Any], None]] = None
        self.connections = DataConnections(Rounds(loop, lambda: None), loop, self)
        self.place = self.connections.listen(ANY, HOST, security)

    def do(self, effect: Any) -> None:
        self.connections.operations[type(effect)](effect)

    def on_data_accepted(self, connection: int, key: bytes) -> None:
        self.events.append(("accepted", connection, key))

    def on_data_connected(self, connection: int) -> None:
        self.events.append(("connected", connection))

    def on_data_message(self, connection: int, message: Any, payload: bytes) -> None:
        self.events.append(("message", connection, message, bytes(payload)))  # its memory is used again
        if self.answers is not None:
            self.answers(connection, message)

    def on_data_closed(self, connection: int, reason: str) -> None:
        self.events.append(("closed", connection, reason))

    def take(self, kind: str) -> Tuple[Any, ...]:
        """Wait for an event of a kind, which has to be the next one."""

        async def wait() -> None:
            deadline = self.loop.time() + DEADLINE_SECONDS
            while not self.events:
                assert self.loop.time() < deadline, f"no {kind}"
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())
        event = self.events.pop(0)
        assert event[0] == kind, event
        return event[1:]


class Bench:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sides: List[Side] = []

    def side(self, security: Optional[ClientSecurity] = None) -> Side:
        made = Side(self.loop, security)
        self.sides.append(made)
        return made

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            deadline = self.loop.time() + DEADLINE_SECONDS
            while not condition():
                assert self.loop.time() < deadline
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def close(self) -> None:
        for each in self.sides:
            each.connections.close()
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def request(offset: int = 0) -> m.ObjectRequest:
    return m.ObjectRequest(id=7, offset=offset, length=10, ticket=b"s" * 32)


@pytest.mark.parametrize("has_keys", [False, True])
def test_requests_and_parts_pass_between_two_workers(bench: Bench, has_keys: bool) -> None:
    keys = [new_keys() if has_keys else None for _ in range(2)]
    fetcher, holder = map(bench.side, keys)
    assert parse_address(holder.place.address).host == HOST and parse_address(holder.place.address).port
    fetcher.do(ConnectData(1, holder.place.address, holder.place.key))
    assert fetcher.take("connected") == (1,)
    fetcher.do(SendData(1, request()))
    number, key = holder.take("accepted")
    assert number < 0 and key == fetcher.place.key and bool(key) is has_keys
    assert holder.take("message") == (number, request(), b"")
    part = bytes(range(256)) * 4096
    response = m.ObjectResponse(id=7, size=len(part))
    holder.do(SendData(number, response, part))
    assert fetcher.take("message") == (1, response, part)
    fetcher.do(CloseData(1))
    assert holder.take("closed")[0] == number
    assert not fetcher.events, "who closes it needs no event"


@pytest.mark.parametrize("has_keys", [False, True])
def test_more_than_what_was_asked_for_is_not_read(bench: Bench, has_keys: bool) -> None:
    keys = [new_keys() if has_keys else None for _ in range(2)]
    fetcher, holder = map(bench.side, keys)
    fetcher.do(ConnectData(1, holder.place.address, holder.place.key, chunk_bytes=100_000))
    fetcher.take("connected")
    fetcher.do(SendData(1, request()))
    number, _ = holder.take("accepted")
    part = bytes(200_000)
    holder.do(SendData(number, m.ObjectResponse(id=7, size=len(part)), part))
    connection, reason = fetcher.take("closed")
    assert connection == 1 and "bytes" in reason
    assert not fetcher.events


@pytest.mark.parametrize("has_keys", [False, True])
def test_parts_follow_one_another_in_the_same_memory(bench: Bench, has_keys: bool) -> None:
    keys = [new_keys() if has_keys else None for _ in range(2)]
    fetcher, holder = map(bench.side, keys)
    size = 1024 * 1024
    used: List[memoryview] = []

    def answer(number: int, message: m.ObjectRequest) -> None:
        memory = holder.connections.memory(number, size)
        memory[:] = bytes([message.offset]) * size
        used.append(memory)
        bench.loop.call_soon(holder.do, SendData(number, m.ObjectResponse(id=7, offset=message.offset), memory))

    holder.answers = answer
    fetcher.do(ConnectData(1, holder.place.address, holder.place.key))
    fetcher.take("connected")
    for offset in range(1, 9):
        fetcher.do(SendData(1, request(offset)))
    for offset in range(1, 9):
        _, message, part = fetcher.take("message")
        assert message.offset == offset and part == bytes([offset]) * size
    assert len({id(memory.obj) for memory in used}) == 1


def test_parts_that_are_to_be_sent_at_once_have_memory_of_their_own(bench: Bench) -> None:
    fetcher, holder = bench.side(), bench.side()
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.take("connected")
    fetcher.do(SendData(1, request()))
    number, _ = holder.take("accepted")
    holder.take("message")
    memories = [holder.connections.memory(number, 100) for _ in range(3)]
    for content, memory in enumerate(memories):
        memory[:] = bytes([content]) * len(memory)
    for memory in memories:
        holder.do(SendData(number, m.ObjectResponse(id=7), memory))
    assert [fetcher.take("message")[2] for _ in memories] == [bytes([content]) * 100 for content in range(3)]
    assert len(holder.connections.memory(-99, 5)) == 5, "that of a connection that has ended"


def test_a_worker_without_the_expected_key_gets_nothing(bench: Bench) -> None:
    fetcher, holder, other = (bench.side(new_keys()) for _ in range(3))
    fetcher.do(ConnectData(1, holder.place.address, other.place.key))
    assert fetcher.take("connected") == (1,), "as far as TCP is concerned"
    fetcher.do(SendData(1, request()))
    assert fetcher.take("closed")[0] == 1
    assert not holder.events


@pytest.mark.parametrize("has_key", [False, True])
def test_there_is_no_way_down_to_a_connection_without_keys(bench: Bench, has_key: bool) -> None:
    fetcher, holder = bench.side(new_keys() if has_key else None), bench.side(None if has_key else new_keys())
    fetcher.do(ConnectData(1, holder.place.address, holder.place.key))
    number, reason = fetcher.take("closed")
    assert number == 1 and "uses a key" in reason
    assert not holder.events


def test_a_caller_without_a_key_is_closed_by_one_with_keys(bench: Bench) -> None:
    fetcher, holder = bench.side(), bench.side(new_keys())
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.take("connected")
    assert fetcher.take("closed")[0] == 1
    assert not holder.events


def test_a_refusal_is_read_before_the_end(bench: Bench) -> None:
    fetcher, holder = bench.side(), bench.side()
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.take("connected")
    for offset in range(4):
        fetcher.do(SendData(1, request(offset)))
    number, _ = holder.take("accepted")
    holder.take("message")
    refusal = m.Refusal(reason=m.RefusalReason.TICKET_UNKNOWN, message="no")
    holder.do(SendData(number, refusal))
    holder.do(CloseData(number))
    assert fetcher.take("message") == (1, refusal, b"")
    assert fetcher.take("closed")[0] == 1
    bench.run_until(lambda: not holder.connections._connections)
    assert all(kind == "message" for kind, *_ in holder.events), "its end is no news for who has closed it"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no-such-host.invalid:1", "nonsense", "ipc:///nowhere"])
def test_a_holder_that_cannot_be_reached_is_reported(bench: Bench, address: str) -> None:
    fetcher = bench.side()
    fetcher.do(ConnectData(1, address, b""))
    number, reason = fetcher.take("closed")
    assert number == 1 and reason


def test_an_attempt_can_be_given_up(bench: Bench) -> None:
    fetcher, holder = bench.side(), bench.side()
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.do(CloseData(1))
    fetcher.do(ConnectData(2, holder.place.address, b""))
    assert fetcher.take("connected") == (2,)


def test_a_caller_that_does_not_read_takes_little_memory(bench: Bench) -> None:
    holder = bench.side()
    part = bytes(1024 * 1024)
    served: Dict[int, int] = {}

    def answer(number: int, message: Any) -> None:
        served[number] = served.get(number, 0) + 1
        bench.loop.call_soon(holder.do, SendData(number, m.ObjectResponse(id=7, size=len(part)), part))

    holder.answers = answer
    fetcher = bench.side()
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.take("connected")
    reader = fetcher.connections._connections[1]
    fetcher.connections._rounds.remove_reader(reader.connection.fileno())  # after the handshake it reads nothing
    bench.run_until(lambda: bool(holder.connections._connections))
    fetcher.connections._rounds.add_reader(reader.connection.fileno(), lambda: fetcher.connections._read(reader))
    bench.run_until(lambda: reader.connection.is_ready)
    fetcher.connections._rounds.remove_reader(reader.connection.fileno())
    for offset in range(64):
        fetcher.do(SendData(1, request(offset)))
    bench.run_until(lambda: any(each.connection.unsent_bytes for each in holder.connections._connections.values()))
    for _ in range(50):
        bench.loop.run_until_complete(asyncio.sleep(0))
    [each] = holder.connections._connections.values()
    assert each.connection.unsent_bytes <= len(part) + 1000
    assert served[each.number] < 64


def test_more_callers_than_allowed_get_no_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_connections, "MAXIMUM_SERVED", 2)
    fetcher, holder = bench.side(), bench.side()
    numbers = {}
    for number in (1, 2, 3):
        fetcher.do(ConnectData(number, holder.place.address, b""))
        fetcher.take("connected")
        fetcher.do(SendData(number, request()))
        numbers[number] = holder.take("accepted")[0]
        holder.take("message")
    for number in (1, 2, 1, 2):
        holder.do(SendData(numbers[number], m.ObjectResponse(id=7, size=3), b"abc"))
        assert fetcher.take("message")[2] == b"abc"
    holder.do(SendData(numbers[3], m.ObjectResponse(id=7, size=3), b"abc"))
    assert fetcher.take("closed")[0] == 3
    assert holder.take("closed")[0] == numbers[3]
    fetcher.do(CloseData(1))
    assert holder.take("closed")[0] == numbers[1]
    fetcher.do(ConnectData(4, holder.place.address, b""))
    fetcher.take("connected")
    fetcher.do(SendData(4, request()))
    fourth, _ = holder.take("accepted")
    holder.take("message")
    holder.do(SendData(fourth, m.ObjectResponse(id=7, size=3), b"abc"))
    assert fetcher.take("message")[2] == b"abc", "there is room again"


def test_who_has_got_nothing_makes_room_for_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest caller of the host from which most have come; those that are served stay."""
    monkeypatch.setattr(data_connections, "MAXIMUM_NEWCOMERS", 3)
    fetcher, holder = bench.side(), bench.side()
    fetcher.do(ConnectData(1, holder.place.address, b""))
    fetcher.take("connected")
    fetcher.do(SendData(1, request()))
    served, _ = holder.take("accepted")
    holder.take("message")
    holder.do(SendData(served, m.ObjectResponse(id=7, size=3), b"abc"))
    assert fetcher.take("message")[2] == b"abc"
    place = parse_address(holder.place.address)

    def call(source: str) -> socket.socket:
        before = holder.connections._last_caller
        stream = socket.create_connection((place.host, place.port), DEADLINE_SECONDS, (source, 0))
        bench.run_until(lambda: holder.connections._last_caller < before)
        stream.setblocking(False)
        return stream

    def is_closed(stream: socket.socket) -> bool:
        try:
            while stream.recv(1000):
                pass
            return True
        except BlockingIOError:
            return False

    alone, *many = [call(each) for each in ("127.0.0.9", "127.0.0.7", "127.0.0.7", "127.0.0.7", "127.0.0.8")]
    try:
        bench.run_until(lambda: is_closed(many[0]))
        assert not any(map(is_closed, (alone, *many[2:])))
        assert is_closed(many[1])
        assert served in holder.connections._connections
        assert not holder.events, "the core knows nothing of callers without a handshake"
    finally:
        for stream in (alone, *many):
            stream.close()


def test_a_caller_that_does_not_greet_is_dropped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_connections, "HANDSHAKE_SECONDS", 0.01)
    holder = bench.side()
    address = parse_address(holder.place.address)
    with socket.create_connection((address.host, address.port)) as stream:
        stream.setblocking(False)

        def is_ended() -> bool:  # it may have been accepted and dropped within one turn of the loop
            try:
                while stream.recv(4096):
                    pass
            except BlockingIOError:
                return False
            except ConnectionResetError:
                pass
            return True

        bench.run_until(is_ended)
    assert not holder.connections._connections and not holder.events


def test_junk_ends_a_connection(bench: Bench) -> None:
    holder = bench.side()
    address = parse_address(holder.place.address)
    with socket.create_connection((address.host, address.port)) as stream:
        bench.run_until(lambda: bool(holder.connections._connections))
        stream.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
        bench.run_until(lambda: not holder.connections._connections)
    assert not holder.events


def test_a_worker_serves_where_it_reaches_the_scheduler(bench: Bench) -> None:
    side = bench.side()
    before = side.place
    assert side.connections.listen(ANY, HOST, None) == before, "also after it has connected again"
    assert side.connections.listen(ANY, "", None) == NOWHERE, "not beside a local socket"
    other = side.connections.listen(ANY, HOST, None)
    assert other.address and other != NOWHERE
    taken = parse_address(other.address)
    assert bench.side().connections.listen(taken, HOST, None) == NOWHERE, "another one has the port"


def test_a_place_can_be_chosen(bench: Bench) -> None:
    side = bench.side()
    assert parse_address(side.connections.listen(Address("localhost", 0), HOST, None).address).host == "localhost"
    everywhere = side.connections.listen(Address("*", parse_address(side.place.address).port), HOST, None)
    assert parse_address(everywhere.address).host in (HOST, "localhost")
