"""Workers that fetch from one another: two workers' objects, with real files, and tickets from a played scheduler."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from worker_objects_bench import CHUNK, Bench

from scaler.data_serving.ticket_service import (
    FIRST_REQUEST_SECONDS,
    IDLE_SECONDS,
    KEPT_EXPIRED_SECONDS,
    MAXIMUM_TICKETS,
    TICKET_WAIT_SECONDS,
)
from scaler.worker.agent.core.effects import CloseData, ConnectData, SendData
from scaler.worker.agent.core.transfers.direct_fetches import CONNECT_SECONDS, MAXIMUM_DIRECT_FETCHES, STALL_SECONDS
from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.spill import NoRoomError
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS

HELD = m.ObjectStorage.HELD
HOLD, DROP, DELETE = m.ObjectAction.HOLD, m.ObjectAction.DROP, m.ObjectAction.DELETE
HOLDER, FETCHER, OTHER_HOLDER = 3, 4, 5  # sessions
KEY = b"k" * 32
SECRET = b"s" * 32
ADDRESS = "tcp://holder:7"
LIFETIME_SECONDS = 30.0


class Side:
    """One worker."""

    def __init__(self, session: int) -> None:
        self.bench = Bench(features=[KEPT_RESULTS, PEER_FETCH])
        self.bench.start_session(session, features=[KEPT_RESULTS, PEER_FETCH])
        self.objects = self.bench.objects
        self.transfers = self.bench.objects.transfers

    def take_data(self) -> List[Any]:
        """The effects about other workers since last asked."""
        self.bench.perform()
        taken, self.bench.data = self.bench.data, []
        return taken


class Pair:
    """A holder with a result, a fetcher to which it is announced, and what is between them."""

    def __init__(self, content: bytes) -> None:
        self.holder, self.fetcher = Side(HOLDER), Side(FETCHER)
        self.now = 0.0
        self.content = content
        self.object_id = self.holder.bench.write_result(content)
        self.holder.bench.sent()
        self.passed = 0  # parts

    def close(self) -> None:
        self.holder.bench.close()
        self.fetcher.bench.close()

    def fetch(self) -> None:
        """A task at the fetcher needs the object."""
        self.fetcher.bench.create(self.object_id, HELD, size=len(self.content))
        self.fetcher.objects.fetch(self.object_id)

    def issue(self, **fields: Any) -> None:
        """The scheduler names the holder, to both."""
        usual: Dict[str, Any] = {
            "id": self.object_id,
            "holder": HOLDER,
            "secret": SECRET,
            "lifetime_milliseconds": 30_000,
        }
        self.holder.transfers.on_ticket(m.Ticket(**{**usual, "key": KEY, **fields}), self.now)
        self.fetcher.transfers.on_ticket(m.Ticket(**usual, address=ADDRESS, key=KEY), self.now)

    def connect(self) -> int:
        """The fetcher's connection is made; returns its number."""
        [effect] = self.fetcher.take_data()
        assert effect == ConnectData(effect.connection, ADDRESS, KEY, CHUNK)
        self.holder.transfers.on_accepted(-1, KEY, self.now)
        self.fetcher.transfers.on_connected(effect.connection, self.now)
        return int(effect.connection)

    def pass_on(self, most_parts: int = 1_000_000) -> None:
        """Messages pass between the two, until nothing does."""
        while True:
            requests = [each for each in self.fetcher.take_data() if isinstance(each, SendData)]
            for each in requests:
                self.holder.transfers.on_message(-1, decode(encode(each.message)), b"", self.now)
            answers = [each for each in self.holder.take_data() if isinstance(each, SendData)]
            for each in answers:
                if self.passed < most_parts:
                    self.passed += 1
                    message = decode(encode(each.message))
                    self.fetcher.transfers.on_message(1, message, bytes(each.payload), self.now)
            if not requests and not answers:
                return

    def request(self, secret: bytes = SECRET, object_id: int = 0, connection: int = -1) -> None:
        """A worker requests bytes of the holder."""
        request = m.ObjectRequest(id=object_id or self.object_id, offset=0, length=10, ticket=secret)
        self.holder.transfers.on_message(connection, request, b"", self.now)

    def answer(self, connection: int = -1) -> Any:
        """The holder's answer, and the end of the connection if it is a Refusal."""
        sent, *rest = self.holder.take_data()
        assert sent.connection == connection
        assert rest == ([CloseData(connection)] if isinstance(sent.message, m.Refusal) else [])
        return sent.message if isinstance(sent.message, m.Refusal) else sent.payload

    def watch(self, seconds: float) -> None:
        self.now += seconds
        self.holder.transfers.watch(self.now)
        self.fetcher.transfers.watch(self.now)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(os.urandom(6 * CHUNK + 7))
    yield made
    made.close()


# The whole way ------------------------------------------------------------------------------------------------------


def test_an_object_comes_from_its_holder_and_the_fetcher_is_one_then(pair: Pair) -> None:
    pair.fetch()
    assert pair.fetcher.bench.sent() == [m.TicketRequest(id=pair.object_id)], "no byte is requested of the scheduler"
    pair.issue()
    pair.connect()
    pair.pass_on()

    assert pair.fetcher.bench.events == [("available", pair.object_id)]
    [hold] = pair.fetcher.bench.sent()
    assert (hold.action, list(hold.ids)) == (HOLD, [pair.object_id])
    _, _, path = pair.fetcher.bench.definition(pair.object_id)
    with open(os.fsdecode(path), "rb") as file:
        assert file.read() == pair.content
    for now in (1.0, 1e9):
        pair.fetcher.objects.forget_unused(now, 1.0, set)
    assert pair.fetcher.objects.is_available(pair.object_id), "however long it is not used: others count on it"
    pair.fetcher.objects.served.on_request(m.ObjectRequest(id=pair.object_id, offset=0, length=CHUNK))
    assert pair.fetcher.bench.sent_with_payloads()[0][1] == pair.content[:CHUNK], "also for the scheduler"
    assert pair.fetcher.objects.owes_results
    for action, owes in ((DROP, False), (DELETE, False)):
        pair.fetcher.objects.on_instruction(m.ObjectInstruction(action=action, ids=[pair.object_id]), b"")
        assert pair.fetcher.objects.owes_results is owes
    pair.fetcher.bench.perform()
    assert not os.path.exists(os.fsdecode(path))
    assert not len(pair.fetcher.transfers.fetches)


def answer(pair: Pair, connection: int, offset: int) -> List[int]:
    """The holder answers a request; returns the offsets that are requested then."""
    message = m.ObjectResponse(id=pair.object_id, offset=offset, size=len(pair.content))
    pair.fetcher.transfers.on_message(connection, message, pair.content[offset : offset + CHUNK], pair.now)
    return asked_for(pair)


def asked_for(pair: Pair) -> List[int]:
    """The offsets that the fetcher requests of holders."""
    return [int(each.message.offset) for each in pair.fetcher.take_data() if type(each) is not CloseData]


def test_no_more_requests_are_open_than_at_a_scheduler_until_one_is_answered(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    connection = pair.connect()
    offsets = [each.message.offset for each in pair.fetcher.take_data()]
    assert offsets == [number * CHUNK for number in range(FETCH_WINDOW_CHUNKS)]

    pair.now = 0.1
    assert answer(pair, connection, 0) == [4 * CHUNK, 5 * CHUNK], "one more: this is as long as an answer takes"
    assert answer(pair, connection, CHUNK) == [6 * CHUNK], "and no more than there is"


def test_another_holder_is_asked_for_few_parts_again(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    first = pair.connect()
    pair.fetcher.take_data()
    pair.now = 0.1
    answer(pair, first, 0)
    pair.fetcher.transfers.on_closed(first, "connection reset by peer")
    pair.fetcher.bench.sent()
    pair.fetcher.take_data()
    pair.issue()
    [connect] = pair.fetcher.take_data()
    pair.fetcher.transfers.on_connected(connect.connection, pair.now)
    offsets = [each.message.offset for each in pair.fetcher.take_data()]
    assert offsets == [number * CHUNK for number in range(1, 1 + FETCH_WINDOW_CHUNKS)]


def test_requests_that_wait_behind_one_another_become_no_more(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    connection = pair.connect()
    pair.fetcher.take_data()
    asked: List[int] = []
    for number in range(3):
        pair.now += 0.1  # so long takes a part, and the way nothing
        asked += answer(pair, connection, number * CHUNK)
    assert asked == [number * CHUNK for number in range(FETCH_WINDOW_CHUNKS, 7)], "one and one more, twice; then one"


def fetch_another(pair: Pair, holder: int = HOLDER) -> Tuple[int, int]:
    """While the object comes, another one of eight parts is fetched; returns it, and its connection."""
    later_id = pair.object_id + 1
    pair.fetcher.bench.create(later_id, HELD, size=8 * CHUNK)
    pair.fetcher.objects.fetch(later_id)
    pair.fetcher.transfers.on_ticket(m.Ticket(id=later_id, holder=holder, secret=SECRET, address=ADDRESS), pair.now)
    [connect] = pair.fetcher.take_data()
    pair.fetcher.transfers.on_connected(connect.connection, pair.now)
    return later_id, connect.connection


@pytest.mark.parametrize(("holder", "opened"), [(HOLDER, 1), (OTHER_HOLDER, FETCH_WINDOW_CHUNKS)])
def test_of_several_objects_from_one_holder_the_first_one_comes_nearly_alone(
    pair: Pair, holder: int, opened: int
) -> None:
    pair.fetch()
    pair.issue()
    first = pair.connect()
    pair.fetcher.take_data()
    later_id, connection = fetch_another(pair, holder)
    offsets = asked_for(pair)
    assert offsets == [number * CHUNK for number in range(opened)]

    for number in range(7):  # the first one is there
        answer(pair, first, number * CHUNK)
    message = m.ObjectResponse(id=later_id, offset=0, size=8 * CHUNK)
    pair.fetcher.transfers.on_message(connection, message, bytes(CHUNK), pair.now)
    offsets += asked_for(pair)
    assert offsets == [number * CHUNK for number in range(FETCH_WINDOW_CHUNKS + 2)], "from now on it has the way alone"


def test_behind_others_or_not_a_scheduler_is_asked_for_as_much(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    pair.connect()
    pair.fetcher.take_data()
    later_id, connection = fetch_another(pair)
    assert asked_for(pair) == [0]
    pair.fetcher.transfers.on_closed(connection, "connection reset by peer")
    pair.fetcher.bench.sent()
    pair.fetcher.transfers.on_ticket(m.Ticket(id=later_id), pair.now)
    requests = [each for each in pair.fetcher.bench.sent() if isinstance(each, m.ObjectRequest)]
    assert [each.offset for each in requests] == [number * CHUNK for number in range(FETCH_WINDOW_CHUNKS)]


def test_a_fetch_goes_on_at_the_scheduler_with_what_is_missing(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    connection = pair.connect()
    pair.pass_on(most_parts=3)
    pair.fetcher.bench.sent()
    pair.fetcher.transfers.on_closed(connection, "connection reset by peer")
    assert pair.fetcher.bench.sent() == [m.TicketRequest(id=pair.object_id, failed_holder=HOLDER)]
    pair.fetcher.transfers.on_ticket(m.Ticket(id=pair.object_id), pair.now)
    asked: List[int] = []
    while not pair.fetcher.bench.events:
        for request in pair.fetcher.bench.sent():
            asked.append(request.offset)
            pair.fetcher.bench.respond(request, pair.content)
    assert sorted(asked) == [number * CHUNK for number in range(3, 7)]
    with open(os.fsdecode(pair.fetcher.bench.definition(pair.object_id)[2]), "rb") as file:
        assert file.read() == pair.content
    assert [each.action for each in pair.fetcher.bench.sent()] == [HOLD]


def test_a_fetch_goes_on_at_another_holder_with_what_is_missing(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    first = pair.connect()
    pair.pass_on(most_parts=2)
    pair.fetcher.transfers.on_closed(first, "connection reset by peer")
    second = m.Ticket(id=pair.object_id, holder=9, secret=b"t" * 32, address="tcp://other:7", lifetime_milliseconds=1)
    pair.fetcher.transfers.on_ticket(second, pair.now)
    connect = [each for each in pair.fetcher.take_data() if isinstance(each, ConnectData)]
    assert [each.address for each in connect] == ["tcp://other:7"]
    pair.fetcher.transfers.on_connected(connect[0].connection, pair.now)
    requests = [each.message for each in pair.fetcher.take_data()]
    assert [each.offset for each in requests] == [2 * CHUNK, 3 * CHUNK, 4 * CHUNK, 5 * CHUNK]
    assert {each.ticket for each in requests} == {b"t" * 32}
    late = m.ObjectResponse(id=pair.object_id, offset=2 * CHUNK, size=len(pair.content))
    pair.fetcher.transfers.on_message(first, late, b"x" * CHUNK, pair.now)
    assert pair.fetcher.take_data() == [], "what still comes from the first holder is ignored"


@pytest.mark.parametrize(
    "what", ["refusal", "missing", "junk", "other object", "unrequested", "too little", "silence", "no connection"]
)
def test_whatever_is_wrong_with_a_holder_the_scheduler_learns_of_it(pair: Pair, what: str) -> None:
    pair.fetch()
    pair.issue()
    if what == "no connection":
        [effect] = pair.fetcher.take_data()
        connection = effect.connection
    else:
        connection = pair.connect()
    messages: Dict[str, Any] = {
        "refusal": m.Refusal(reason=m.RefusalReason.TICKET_EXPIRED, message="too late"),
        "missing": m.ObjectResponse(id=pair.object_id, status=m.ObjectResponseStatus.MISSING),
        "junk": m.Heartbeat(),
        "other object": m.ObjectResponse(id=77, size=10),
        "too little": m.ObjectResponse(id=pair.object_id, size=len(pair.content)),
        "unrequested": m.ObjectResponse(id=pair.object_id, offset=5 * CHUNK, size=len(pair.content)),
    }
    pair.fetcher.bench.sent()
    pair.fetcher.take_data()
    if what in messages:
        pair.fetcher.transfers.on_message(connection, messages[what], b"x", pair.now)
    else:
        pair.watch((CONNECT_SECONDS if what == "no connection" else STALL_SECONDS) - 0.1)
        assert pair.fetcher.bench.sent() == []
        pair.watch(0.1)
    assert pair.fetcher.bench.sent() == [m.TicketRequest(id=pair.object_id, failed_holder=HOLDER)]
    assert pair.fetcher.take_data() == [CloseData(connection)]
    assert "going on" in pair.fetcher.bench.logs[-1]


def test_a_holder_is_not_given_up_while_what_it_has_sent_is_being_written(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    connection = pair.connect()
    pair.fetcher.bench.sent()
    first = m.ObjectResponse(id=pair.object_id, size=len(pair.content))
    pair.fetcher.transfers.on_message(connection, first, pair.content[:CHUNK], pair.now)
    for _ in range(3):
        pair.watch(STALL_SECONDS)
    pair.fetcher.bench.perform()
    pair.watch(STALL_SECONDS - 0.1)
    assert pair.fetcher.bench.sent() == []
    pair.watch(0.1)
    assert pair.fetcher.bench.sent() == [m.TicketRequest(id=pair.object_id, failed_holder=HOLDER)]


def test_so_many_are_fetched_at_once_and_the_others_in_turn(pair: Pair) -> None:
    ids = [99 << 40 | number for number in range(1, MAXIMUM_DIRECT_FETCHES + 3)]
    for object_id in ids:
        pair.fetcher.bench.create(object_id, HELD, size=10)
        pair.fetcher.objects.fetch(object_id)
    assert [each.id for each in pair.fetcher.bench.sent()] == ids[:MAXIMUM_DIRECT_FETCHES]
    pair.fetcher.transfers.on_ticket(m.Ticket(id=ids[0]), pair.now)
    sent = pair.fetcher.bench.sent()
    assert [(type(each), each.id) for each in sent] == [
        (m.ObjectRequest, ids[0]),
        (m.TicketRequest, ids[MAXIMUM_DIRECT_FETCHES]),
    ]
    pair.fetcher.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=ids[1:2]), b"")
    assert [each.id for each in pair.fetcher.bench.sent()] == [ids[MAXIMUM_DIRECT_FETCHES + 1]]


def test_a_fetcher_without_room_says_that_there_will_be_no_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.fetch()
    pair.issue()
    pair.connect()

    def make_no_room(path: str, size: int) -> None:
        raise NoRoomError("no room", size, 0)

    monkeypatch.setattr("scaler.worker.agent.shell.worker_files.make_room", make_no_room)
    pair.pass_on()
    sent = pair.fetcher.bench.sent()
    assert [each.action for each in sent if isinstance(each, m.ObjectInstruction)] == [DROP]
    assert pair.fetcher.bench.events == [("no room", pair.object_id)]


# The holder ---------------------------------------------------------------------------------------------------------


def test_a_ticket_is_for_one_object(pair: Pair) -> None:
    pair.issue(id=pair.object_id + 1)
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.request()
    assert pair.answer().reason == m.RefusalReason.TICKET_FOREIGN


def test_a_ticket_is_for_one_key(pair: Pair) -> None:
    pair.issue()
    pair.holder.transfers.on_accepted(-1, b"another key", pair.now)
    pair.request()
    assert pair.answer().reason == m.RefusalReason.TICKET_FOREIGN


def test_a_ticket_is_for_one_connection_and_ends_with_it(pair: Pair) -> None:
    pair.issue()
    for connection in (-1, -2, -3):
        pair.holder.transfers.on_accepted(connection, KEY, pair.now)
    pair.request()
    assert pair.answer() == pair.content[:10]
    pair.request(connection=-2)
    assert pair.answer(-2).reason == m.RefusalReason.TICKET_FOREIGN
    pair.request()
    assert pair.answer() == pair.content[:10]
    pair.holder.transfers.on_closed(-1, "gone")
    pair.request(connection=-3)
    pair.watch(TICKET_WAIT_SECONDS)
    assert pair.answer(-3).reason == m.RefusalReason.TICKET_UNKNOWN


def test_a_ticket_has_to_be_used_in_time_and_holds_then(pair: Pair) -> None:
    pair.issue()
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.request()
    assert pair.answer() == pair.content[:10]
    pair.now += LIFETIME_SECONDS
    pair.request()
    assert pair.answer() == pair.content[:10], "it was used in time"
    pair.issue(secret=b"2" * 32)
    pair.now += LIFETIME_SECONDS
    pair.holder.transfers.on_accepted(-2, KEY, pair.now)
    pair.request(b"2" * 32, connection=-2)
    assert pair.answer(-2).reason == m.RefusalReason.TICKET_EXPIRED
    pair.watch(LIFETIME_SECONDS + KEPT_EXPIRED_SECONDS)
    pair.holder.take_data()
    assert not len(pair.holder.transfers.service)


def test_a_ticket_that_is_taken_back_serves_no_one_any_more(pair: Pair) -> None:
    for connection in (-1, -2):
        pair.holder.transfers.on_accepted(connection, KEY, pair.now)
    for connection, secret in ((-1, SECRET), (-2, b"2" * 32)):
        pair.issue(secret=secret)
        if connection == -1:
            pair.request()
            assert pair.answer() == pair.content[:10]
        taken = m.Ticket(id=pair.object_id, holder=HOLDER, secret=secret)
        pair.holder.transfers.on_ticket(taken, pair.now)
        pair.request(secret, connection=connection)
        assert pair.answer(connection).reason == m.RefusalReason.TICKET_EXPIRED, "whether it was used or not"


def test_a_ticket_may_be_shown_before_it_is_known(pair: Pair) -> None:
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.request()
    pair.watch(TICKET_WAIT_SECONDS / 2)
    assert pair.holder.take_data() == []
    pair.issue()
    assert pair.answer() == pair.content[:10]
    pair.request(b"2" * 32)
    assert pair.answer().reason == m.RefusalReason.TICKET_UNKNOWN, "who has shown one needs no patience"


def test_a_ticket_that_never_comes_is_unknown(pair: Pair) -> None:
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.request()
    assert pair.holder.transfers.next_time <= pair.now + TICKET_WAIT_SECONDS
    pair.watch(TICKET_WAIT_SECONDS)
    refusal = pair.answer()
    assert refusal.reason == m.RefusalReason.TICKET_UNKNOWN
    assert "ask the scheduler" in refusal.message


def test_connections_without_use_are_closed(pair: Pair) -> None:
    pair.issue()
    for connection in (-1, -2):
        pair.holder.transfers.on_accepted(connection, KEY, pair.now)
    pair.request()
    pair.holder.take_data()
    pair.watch(FIRST_REQUEST_SECONDS)
    assert pair.holder.take_data() == [CloseData(-2)]
    pair.watch(IDLE_SECONDS)
    assert pair.holder.take_data() == [CloseData(-1)]


def test_tickets_are_bounded(pair: Pair) -> None:
    for number in range(MAXIMUM_TICKETS + 5):
        pair.holder.transfers.on_ticket(m.Ticket(id=1, holder=HOLDER, secret=b"%d" % number), pair.now)
    assert len(pair.holder.transfers.service) == MAXIMUM_TICKETS


def test_a_holder_that_has_lost_the_bytes_says_so_to_both(pair: Pair) -> None:
    pair.issue()
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    os.remove(os.fsdecode(pair.holder.bench.definition(pair.object_id)[2]))
    pair.request()
    [answer] = pair.holder.take_data()
    assert answer.message.status == m.ObjectResponseStatus.MISSING
    [drop] = pair.holder.bench.sent()
    assert (drop.action, list(drop.ids)) == (DROP, [pair.object_id])


def test_an_object_that_was_deleted_is_not_served_any_more(pair: Pair) -> None:
    pair.issue()
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.request()
    pair.holder.take_data()
    pair.holder.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=[pair.object_id]), b"")
    pair.request()
    assert pair.answer().reason == m.RefusalReason.TICKET_UNKNOWN


def test_who_sends_something_else_is_not_served(pair: Pair) -> None:
    pair.holder.transfers.on_accepted(-1, KEY, pair.now)
    pair.holder.transfers.on_message(-1, m.Heartbeat(), b"", pair.now)
    assert pair.holder.take_data() == [CloseData(-1)]


# Sessions -----------------------------------------------------------------------------------------------------------


def test_transfers_end_with_the_session(pair: Pair) -> None:
    pair.fetch()
    pair.issue()
    connection = pair.connect()
    pair.fetcher.objects.forget_all()
    pair.holder.objects.forget_all()
    assert CloseData(connection) in pair.fetcher.take_data()
    assert CloseData(-1) in pair.holder.take_data()
    assert not len(pair.fetcher.transfers.fetches) and not len(pair.holder.transfers.service)


def test_an_old_scheduler_is_asked_for_no_ticket() -> None:
    side = Side(FETCHER)
    side.bench.start_session(5, features=[KEPT_RESULTS])
    side.bench.create(9, HELD, size=10)  # which it would not send
    side.objects.fetch(9)
    assert [type(each) for each in side.bench.sent()] == [m.ObjectRequest]
    side.bench.close()
