"""Workers on one host have one file of an object, not each a copy: with real files, and tickets from a played
scheduler."""

from __future__ import annotations

import errno
import os
from typing import Any, Iterator, List

import pytest
from worker_objects_bench import CHUNK, Bench

from scaler.worker.agent.core.effects import ConnectData, LinkCopy, RemoveFiles
from scaler.worker.agent.core.transfers.direct_fetches import CONNECT_SECONDS
from scaler.worker.agent.shell import worker_files
from scaler_protocol import messages as m
from scaler_protocol.host.segments import write_chunk
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH

HELD = m.ObjectStorage.HELD
HOLDER, FETCHER, OTHER = 3, 4, 5  # sessions
NEAR, FAR = "tcp://127.0.0.1:7", "tcp://elsewhere:7"  # the bench is reached at 127.0.0.1
TOKEN, OTHER_TOKEN = b"t" * 16, b"u" * 16
CONTENT = bytes(range(256)) * 20


class Side:
    """One worker of this host."""

    def __init__(self, session: int, token: bytes = TOKEN) -> None:
        features = [KEPT_RESULTS, PEER_FETCH]
        self.bench = Bench(features=features)
        self.bench.start_session(session, features=features, object_directory_token=token)
        self.objects = self.bench.objects

    def need(self, object_id: int, size: int = len(CONTENT)) -> None:
        """A task needs an object that others hold."""
        self.bench.create(object_id, HELD, size=size)
        self.objects.fetch(object_id)
        self.bench.perform()

    def be_told(self, object_id: int, address: str) -> None:
        """The scheduler names a holder."""
        ticket = m.Ticket(id=object_id, holder=HOLDER, secret=b"s" * 32, lifetime_milliseconds=30_000, address=address)
        self.objects.transfers.on_ticket(ticket, 0.0)

    def connections(self) -> List[str]:
        """Where it has connected to."""
        self.bench.perform()
        return [effect.address for effect in self.bench.data if isinstance(effect, ConnectData)]

    def path(self, object_id: int) -> str:
        return os.fsdecode(self.bench.definition(object_id)[2])


class Host:
    """Two workers, of which the first one has made a result."""

    def __init__(self, token: bytes = TOKEN) -> None:
        self.maker, self.other = Side(HOLDER), Side(FETCHER, token)
        self.result = self.maker.bench.write_result(CONTENT)
        self.maker.bench.sent()

    def is_shared(self) -> bool:
        return os.path.samefile(self.maker.path(self.result), self.other.path(self.result))


@pytest.fixture
def sides() -> Iterator[List[Side]]:
    made: List[Side] = []
    yield made
    for each in made:
        each.bench.close()


@pytest.fixture
def host(sides: List[Side]) -> Host:
    made = Host()
    sides.extend((made.maker, made.other))
    return made


def test_the_file_of_another_worker_on_the_host_is_used_and_the_scheduler_learns_of_the_copy(host: Host) -> None:
    host.other.need(host.result)
    [hold] = host.other.bench.sent()
    assert (hold.action, list(hold.ids)) == (m.ObjectAction.HOLD, [host.result]), "no ticket is asked for"
    assert host.other.bench.events == [("available", host.result)]
    assert host.is_shared() and host.other.connections() == []
    host.other.objects.served.on_request(m.ObjectRequest(id=host.result, offset=0, length=CHUNK))
    [(_, part)] = host.other.bench.sent_with_payloads()
    assert part == CONTENT[:CHUNK], "it is a holder itself"


def test_the_bytes_stay_until_both_have_removed_them(host: Host) -> None:
    host.other.need(host.result)
    delete = m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[host.result])
    gone, path = host.maker.path(host.result), host.other.path(host.result)
    host.maker.objects.on_instruction(delete, b"")
    host.maker.bench.perform()
    with open(path, "rb") as file:
        assert file.read() == CONTENT and not os.path.exists(gone)
    host.other.objects.on_instruction(delete, b"")
    host.other.bench.perform()
    assert not os.path.exists(path)


def test_a_file_that_is_not_whole_is_not_found(sides: List[Side]) -> None:
    object_id = 9 << 40 | 1
    first, second = Side(OTHER), Side(FETCHER)
    sides.extend((first, second))
    first.need(object_id)
    first.be_told(object_id, FAR)
    first.bench.perform()
    first.objects.transfers.on_connected(1, 0.0)
    *parts, last = [CONTENT[start : start + CHUNK] for start in range(0, len(CONTENT), CHUNK)]
    for number, part in enumerate(parts):
        _receive(first, object_id, number * CHUNK, part)
    second.need(object_id)
    assert second.bench.sent() == [m.TicketRequest(id=object_id)]

    _receive(first, object_id, len(parts) * CHUNK, last)
    second.be_told(object_id, NEAR)
    assert second.connections() == [] and second.bench.events == [("available", object_id)]
    assert os.path.samefile(first.path(object_id), second.path(object_id)), "when it is, the ticket is not needed"


def _receive(side: Side, object_id: int, offset: int, part: bytes) -> None:
    response = m.ObjectResponse(id=object_id, offset=offset, size=len(CONTENT))
    side.objects.transfers.on_message(1, response, part, 0.0)
    side.bench.perform()


def test_a_file_of_which_a_part_could_not_be_written_is_never_found(
    sides: List[Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    object_id = 9 << 40 | 1
    first, second = Side(OTHER), Side(FETCHER)
    sides.extend((first, second))
    first.need(object_id, size=4 * CHUNK)
    first.be_told(object_id, FAR)
    first.bench.perform()
    first.objects.transfers.on_connected(1, 0.0)
    first.bench.perform()

    def fail_once(path: str, offset: int, chunk: bytes, is_first: bool = True) -> None:
        if offset == CHUNK:
            raise OSError(errno.EMFILE, "Too many open files")
        write_chunk(path, offset, chunk, is_first)

    monkeypatch.setattr(worker_files, "write_chunk", fail_once)
    for start in range(0, 4 * CHUNK, CHUNK):  # the first four are requested at once, and come at once
        response = m.ObjectResponse(id=object_id, offset=start, size=4 * CHUNK)
        first.objects.transfers.on_message(1, response, CONTENT[start : start + CHUNK], 0.0)
    assert first.bench.events == [("missing", object_id)]
    second.need(object_id, size=4 * CHUNK)
    assert second.bench.sent() == [m.TicketRequest(id=object_id)]
    folder = os.path.dirname(first.bench.write_prefix)
    assert sorted(os.listdir(folder)) == ["spill", "token"], "nothing is left of it"


def test_a_holder_on_this_host_is_asked_if_there_is_no_file_of_it(sides: List[Side]) -> None:
    object_id = 9 << 40 | 1
    side = Side(FETCHER)
    sides.append(side)
    side.need(object_id)
    side.be_told(object_id, NEAR)
    assert side.connections() == [NEAR]


def test_a_holder_elsewhere_is_asked_at_once(host: Host) -> None:
    object_id = 9 << 40 | 1
    host.other.need(object_id)
    host.other.be_told(object_id, FAR)
    assert not [effect for effect in host.other.bench.effects if isinstance(effect, LinkCopy)]
    assert host.other.connections() == [FAR]


@pytest.mark.parametrize("token", [OTHER_TOKEN, b""])
def test_objects_of_other_clusters_are_not_taken(token: bytes, sides: List[Side]) -> None:
    host = Host(token)
    sides.extend((host.maker, host.other))
    host.other.need(host.result)
    assert host.other.bench.sent() == [m.TicketRequest(id=host.result)]
    host.other.be_told(host.result, NEAR)
    assert host.other.connections() == [NEAR]


def test_a_file_of_another_size_is_not_taken(host: Host) -> None:
    host.other.need(host.result, size=len(CONTENT) + 1)
    assert host.other.bench.sent() == [m.TicketRequest(id=host.result)]


def test_the_file_of_an_object_that_ended_while_it_was_looked_for_is_removed(host: Host) -> None:
    objects = host.other.objects
    host.other.bench.create(host.result, HELD, size=len(CONTENT))
    objects.fetch(host.result)
    [look] = [effect for effect in objects._effects if isinstance(effect, LinkCopy)]
    objects.on_instruction(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=[host.result]), b"")
    objects._effects.clear()
    objects.on_copy_linked(host.result, look.fetch, "/own/copy")
    assert objects._effects == [RemoveFiles(("/own/copy",))]
    objects.on_copy_linked(host.result, look.fetch, "")


def test_a_holder_is_not_given_up_while_its_file_is_looked_for(host: Host) -> None:
    object_id = 9 << 40 | 1
    host.other.need(object_id)
    host.other.bench.sent()
    host.other.be_told(object_id, NEAR)
    [look] = list(host.other.objects._effects)
    assert isinstance(look, LinkCopy)
    host.other.objects._effects.clear()  # the disk takes its time
    host.other.objects.transfers.watch(CONNECT_SECONDS + 1)
    assert host.other.bench.sent() == [] and host.other.connections() == []
    answer: Any = (object_id, look.fetch, "")
    host.other.objects.on_copy_linked(*answer)
    assert host.other.connections() == [NEAR]
    host.other.objects.transfers.watch(CONNECT_SECONDS + 1.5)
    assert host.other.bench.sent() == [], "from then on it has its time"
