"""Objects of one worker: known, fetched, served, forgotten; with real files and no socket."""

from __future__ import annotations

import errno
import os
from typing import Any, Dict, Iterator

import pytest
from worker_objects_bench import CHUNK, CREATE, INLINE, REMOTE, SHARED, Bench

from scaler.worker.frames import ContentPlace
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory, object_name
from scaler_protocol.host.spill import NoRoomError
from scaler_protocol.session.features import KEPT_RESULTS
from scaler_protocol.session.fetching import FETCH_WINDOW_CHUNKS

DELETE, CLEAR = m.ObjectAction.DELETE, m.ObjectAction.CLEAR


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_inline_content_is_kept(bench: Bench) -> None:
    bench.create(9, INLINE, b"content")

    assert bench.objects.is_available(9)
    assert bench.objects.definition(9) == (m.ObjectKind.FUNCTION, ContentPlace.INLINE, b"content")
    assert not bench.objects.is_available(10)
    assert bench.objects.definition(10) is None


def test_objects_are_values_when_their_kinds_are_left_out(bench: Bench) -> None:
    bench.objects.on_instruction(m.ObjectInstruction(ids=[9], sizes=[2], storages=bytes([INLINE])), b"ab")

    assert bench.objects.definition(9) == (m.ObjectKind.VALUE, ContentPlace.INLINE, b"ab")


def test_instructions_for_others_and_of_newer_schedulers_change_nothing(bench: Bench) -> None:
    bench.create(9, INLINE, b"content")

    for action in (m.ObjectAction.SPILL, 99):
        assert bench.objects.on_instruction(m.ObjectInstruction(action=action, ids=[9]), b"") == []

    assert bench.objects.is_available(9)


def test_a_large_object_is_fetched_through_a_window(bench: Bench) -> None:
    content = os.urandom(7 * CHUNK + 5)
    bench.create(9, REMOTE, size=len(content))
    assert bench.sent() == []  # until a task needs it
    assert not bench.objects.is_available(9)
    bench.objects.fetch(9)
    bench.objects.fetch(9)

    open_requests = bench.sent()
    assert [request.offset for request in open_requests] == [0, CHUNK, 2 * CHUNK, 3 * CHUNK]
    asked = len(open_requests)
    while open_requests:
        bench.respond(open_requests.pop(0), content)
        more = bench.sent()
        asked += len(more)
        open_requests += more
        assert len(open_requests) <= FETCH_WINDOW_CHUNKS

    assert asked == 8
    assert bench.events == [("available", 9)]
    _, place, path = bench.definition(9)
    assert place == ContentPlace.FILE
    with open(os.fsdecode(path), "rb") as file:
        assert file.read() == content


def test_an_object_that_was_never_announced_is_asked_for(bench: Bench) -> None:
    bench.objects.fetch(9)
    [request] = bench.sent()
    assert (request.id, request.offset, request.length) == (9, 0, CHUNK)
    content = bytes(3 * CHUNK)
    bench.respond(request, content)
    for request in bench.sent():
        bench.respond(request, content)

    assert bench.events == [("available", 9)]


def test_an_object_that_is_missing_or_comes_out_of_order_is_given_up(bench: Bench) -> None:
    bench.objects.fetch(9)
    bench.objects.on_response(m.ObjectResponse(id=9, status=m.ObjectResponseStatus.MISSING), b"")
    bench.objects.fetch(10)
    bench.objects.on_response(m.ObjectResponse(id=10, offset=CHUNK, size=2 * CHUNK), bytes(CHUNK))

    assert bench.events == [("missing", 9), ("missing", 10)]


@pytest.mark.parametrize("answered", [0, 1])
def test_answers_to_a_fetch_that_was_given_up_are_no_answers_to_the_next_one(bench: Bench, answered: int) -> None:
    """The task that needed it was cancelled, and another one needs it; twice."""
    content = os.urandom(6 * CHUNK)
    bench.create(9, REMOTE, size=len(content))
    requests = []
    for _ in range(3):
        bench.objects.fetch(9)
        opened = bench.sent()
        for request in opened[:answered]:
            bench.respond(request, content)
        requests += opened[answered:] + bench.sent()
        bench.objects.forget(9)
    bench.objects.fetch(9)
    requests += bench.sent()
    while requests:
        bench.respond(requests.pop(0), content)
        requests += bench.sent()

    assert bench.events == [("available", 9)]
    _, _, path = bench.definition(9)
    with open(os.fsdecode(path), "rb") as file:
        assert file.read() == content


def test_a_missing_object_is_fetched_again_when_a_task_needs_it(bench: Bench) -> None:
    content = os.urandom(3 * CHUNK)
    bench.create(9, REMOTE, size=len(content))
    bench.objects.fetch(9)
    first, *others = bench.sent()
    missing = m.ObjectResponseStatus.MISSING
    bench.objects.on_response(m.ObjectResponse(id=9, offset=first.offset, status=missing), b"")
    bench.objects.fetch(9)
    for request in others:
        bench.objects.on_response(m.ObjectResponse(id=9, offset=request.offset, status=missing), b"")
    for request in bench.sent():
        bench.respond(request, content)

    assert bench.events == [("missing", 9), ("available", 9)]


def test_an_object_that_the_scheduler_had_no_room_for_is_called_so(bench: Bench) -> None:
    bench.objects.fetch(9)
    missing = m.ObjectResponseStatus.MISSING
    bench.objects.on_response(m.ObjectResponse(id=9, status=missing, missing_reason=m.MissingReason.NO_ROOM), b"")
    bench.objects.fetch(9)
    bench.objects.on_response(m.ObjectResponse(id=9, status=missing, missing_reason=77), b"")

    assert bench.events == [("no room", 9), ("missing", 9)]


def test_the_rest_of_a_short_answer_is_asked_for(bench: Bench) -> None:
    content = os.urandom(5 * CHUNK + 7)
    bench.objects.fetch(9)
    requests = bench.sent()
    while requests:
        request = requests.pop(0)
        end = request.offset + max(1, request.length - 300)
        response = m.ObjectResponse(id=9, offset=request.offset, size=len(content))
        bench.objects.on_response(response, content[request.offset : end])
        requests += bench.sent()
        assert len(requests) <= FETCH_WINDOW_CHUNKS

    assert bench.events == [("available", 9)]
    with open(os.fsdecode(bench.definition(9)[2]), "rb") as file:
        assert file.read() == content


@pytest.mark.parametrize(
    ("offset", "size", "length"),
    [(0, 3 * CHUNK, CHUNK), (CHUNK, 3 * CHUNK + 1, CHUNK), (CHUNK, 3 * CHUNK, CHUNK + 1), (2**64 - 1, 3 * CHUNK, 1)],
    ids=["twice", "of another size", "too much", "elsewhere"],
)
def test_an_object_whose_bytes_contradict_each_other_is_given_up(
    bench: Bench, offset: int, size: int, length: int
) -> None:
    bench.objects.fetch(9)
    bench.respond(bench.sent()[0], bytes(3 * CHUNK))
    bench.objects.on_response(m.ObjectResponse(id=9, offset=offset, size=size), bytes(length))

    assert bench.events == [("missing", 9)]


def test_an_object_deleted_while_it_is_fetched_is_missing(bench: Bench) -> None:
    bench.create(9, REMOTE, size=3 * CHUNK)
    bench.objects.fetch(9)
    [first, *_] = bench.sent()
    bench.respond(first, bytes(3 * CHUNK))
    assert bench.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=[9]), b"") == [9]
    bench.respond(m.ObjectRequest(id=9, offset=CHUNK, length=CHUNK), bytes(3 * CHUNK))

    assert bench.events == [("missing", 9)]
    assert sorted(os.listdir(os.path.dirname(bench.write_prefix))) == ["spill", "token"]


def test_clearing_forgets_everything(bench: Bench) -> None:
    bench.create(9, INLINE, b"x")
    bench.create(10, REMOTE, size=5)

    assert sorted(bench.objects.on_instruction(m.ObjectInstruction(action=CLEAR), b"")) == [9, 10]
    assert not bench.objects.is_available(9)


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"sizes": [1], "storages": bytes([INLINE]), "kinds": b"\0\0"}, b"x"),
        ({"sizes": [2], "storages": bytes([INLINE]), "kinds": b"\0"}, b"x"),
    ],
)
def test_an_instruction_that_contradicts_itself_is_named(bench: Bench, fields: Dict[str, Any], payload: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="ObjectInstruction"):
        bench.objects.on_instruction(m.ObjectInstruction(action=CREATE, ids=[9], **fields), payload)


def test_a_result_is_served_and_then_forgotten(bench: Bench) -> None:
    content = os.urandom(2 * CHUNK + 1)
    object_id = bench.write_result(content)
    assert object_id == 3 << 40 | 1
    [instruction] = bench.sent()
    assert (list(instruction.ids), list(instruction.sizes)) == ([object_id], [len(content)])
    assert instruction.storages == bytes([REMOTE])

    for offset in (0, CHUNK, 2 * CHUNK):
        assert bench.events == []
        bench.objects.served.on_request(m.ObjectRequest(id=object_id, offset=offset, length=CHUNK))
    sent = bench.sent_with_payloads()
    assert b"".join(payload for _, payload in sent) == content
    assert {message.size for message, _ in sent} == {len(content)}
    assert bench.events == [("served", object_id)]
    assert sorted(os.listdir(os.path.dirname(bench.write_prefix))) == ["spill", "token"]

    bench.objects.served.on_request(m.ObjectRequest(id=object_id, offset=0, length=CHUNK))
    assert [message.status for message in bench.sent()] == [m.ObjectResponseStatus.MISSING]


@pytest.fixture
def keeping() -> Iterator[Bench]:
    """A worker whose scheduler lets it keep results."""
    made = Bench(features=[KEPT_RESULTS])
    yield made
    made.close()


def test_a_result_is_used_here_and_served_until_its_deletion(keeping: Bench) -> None:
    content = os.urandom(2 * CHUNK + 1)
    object_id = keeping.write_result(content)
    [instruction] = keeping.sent()
    assert instruction.storages == bytes([m.ObjectStorage.KEPT])
    assert keeping.events == [("served", object_id)], "its outcome does not wait"
    kind, place, path = keeping.definition(object_id)
    assert (kind, place) == (m.ObjectKind.VALUE, ContentPlace.FILE)
    with open(os.fsdecode(path), "rb") as file:
        assert file.read() == content

    for _ in range(2):
        for offset in (0, CHUNK, 2 * CHUNK):
            keeping.objects.served.on_request(m.ObjectRequest(id=object_id, offset=offset, length=CHUNK))
        assert b"".join(payload for _, payload in keeping.sent_with_payloads()) == content
    keeping.objects.forget_unused(1e9, 1.0, set)
    assert keeping.objects.is_available(object_id), "however long it was not used"

    assert keeping.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=[object_id]), b"") == [object_id]
    keeping.perform()
    assert not os.path.exists(os.fsdecode(path))
    assert not keeping.objects.is_available(object_id)
    keeping.objects.served.on_request(m.ObjectRequest(id=object_id, offset=0, length=CHUNK))
    assert [message.status for message in keeping.sent()] == [m.ObjectResponseStatus.MISSING]


def test_a_worker_owes_results_until_they_are_fetched_or_deleted(keeping: Bench) -> None:
    owed = [keeping.objects.owes_results]
    fetched, deleted = keeping.write_result(bytes(CHUNK + 1)), keeping.write_result(bytes(5))
    for offset in (0, CHUNK):
        owed.append(keeping.objects.owes_results)
        keeping.objects.served.on_request(m.ObjectRequest(id=fetched, offset=offset, length=CHUNK))
        keeping.perform()
    owed.append(keeping.objects.owes_results)
    keeping.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=[deleted]), b"")
    owed.append(keeping.objects.owes_results)

    assert owed == [False, True, True, True, False]


def test_a_kept_result_whose_file_is_gone_is_not_available(keeping: Bench) -> None:
    object_id = keeping.write_result(bytes(2 * CHUNK))
    keeping.sent()
    os.unlink(os.fsdecode(keeping.definition(object_id)[2]))
    keeping.objects.served.on_request(m.ObjectRequest(id=object_id, offset=0, length=CHUNK))

    assert [message.status for message in keeping.sent()] == [m.ObjectResponseStatus.MISSING]
    assert not keeping.objects.is_available(object_id) and not keeping.objects.owes_results


def test_kept_results_end_with_the_session(keeping: Bench) -> None:
    path = os.fsdecode(keeping.definition(keeping.write_result(bytes(5)))[2])
    keeping.objects.forget_all()
    keeping.perform()

    assert not os.path.exists(path)
    assert not keeping.objects.owes_results


def test_an_object_that_was_lost_with_its_maker_is_called_so(bench: Bench) -> None:
    bench.objects.fetch(9)
    missing = m.ObjectResponseStatus.MISSING
    bench.objects.on_response(m.ObjectResponse(id=9, status=missing, missing_reason=m.MissingReason.MAKER_LOST), b"")

    assert bench.events == [("maker lost", 9)]


@pytest.mark.parametrize("offset", [2 * CHUNK + 1, 2**64 - 1])
def test_bytes_beyond_the_end_of_a_result_are_missing_and_it_stays(bench: Bench, offset: int) -> None:
    object_id = bench.write_result(bytes(2 * CHUNK))
    bench.sent()
    for asked in (offset, 2 * CHUNK, CHUNK):
        bench.objects.served.on_request(m.ObjectRequest(id=object_id, offset=asked, length=CHUNK))

    assert [message.status == m.ObjectResponseStatus.MISSING for message in bench.sent()] == [True, False, False]
    assert bench.events == []  # its first bytes have not been asked for


@pytest.mark.parametrize("what", ["gone", "shorter", "deleted"])
def test_a_result_that_disappears_before_it_was_fetched_is_lost(bench: Bench, what: str) -> None:
    object_id = bench.write_result(bytes(2 * CHUNK))
    bench.sent()
    path = os.path.join(os.path.dirname(bench.write_prefix), object_name(object_id))
    if what == "deleted":
        bench.objects.on_instruction(m.ObjectInstruction(action=DELETE, ids=[object_id]), b"")
    else:
        os.unlink(path) if what == "gone" else os.truncate(path, 5)
        bench.objects.served.on_request(m.ObjectRequest(id=object_id, offset=0, length=CHUNK))
        assert [message.status for message in bench.sent()] == [m.ObjectResponseStatus.MISSING]

    assert bench.events == [("unserved", object_id)]


def test_a_result_that_disappeared_is_no_object(bench: Bench) -> None:
    object_id = bench.objects.adopt(bench.write_prefix + "77-1", 5)

    assert bench.events == [("unserved", object_id)]
    assert bench.sent() == []


def test_a_result_whose_directory_went_with_its_scheduler_says_so() -> None:
    directory = ObjectDirectory()
    bench = Bench(object_directory=directory.path, object_directory_token=directory.token)
    directory.remove()
    object_id = bench.objects.adopt(bench.write_prefix + "77-1", 5)

    assert bench.events == [("unserved", object_id)]
    assert bench.logs[-1].endswith("its directory is gone, as after the end of its scheduler")
    bench.close()


def test_a_result_that_the_scheduler_does_not_take_is_removed(bench: Bench) -> None:
    bench.start_session(4)
    bench.objects.start_session(m.Welcome(session=5, limits=m.Limits(maximum_object_bytes=10)))
    path = bench.write_prefix + "77-1"
    with open(path, "wb") as file:
        file.write(bytes(11))

    assert bench.objects.adopt(path, 11) == 0
    bench.perform()

    assert not os.path.exists(path)
    assert bench.sent() == []


def test_a_file_that_cannot_be_written_loses_the_object(bench: Bench) -> None:
    bench.objects.fetch(9)
    [request] = bench.sent()
    os.mkdir(bench.files._own_directory().object_path(9))
    bench.respond(request, bytes(5))

    assert bench.events == [("missing", 9)]
    assert "Is a directory" in bench.logs[0]


def test_an_object_without_room_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, size: int) -> bool:
        raise NoRoomError(errno.ENOSPC, "there is no room")

    monkeypatch.setattr("scaler.worker.agent.shell.worker_files.make_room", refuse)
    bench.objects.fetch(9)
    [request] = bench.sent()
    bench.respond(request, bytes(5))

    assert bench.events == [("no room", 9)]
    assert "there is no room" in bench.logs[0]


def test_leftovers_of_a_dead_processor_are_removed(bench: Bench) -> None:
    for name in ("77-1", "77-2", "777-1"):
        with open(bench.write_prefix + name, "wb"):
            pass
    bench.remove_leftovers(77)

    left = os.listdir(os.path.dirname(bench.write_prefix))
    assert sorted(name.rpartition("-")[0][-4:] for name in left if name.startswith("new-")) == ["-777"]


def test_a_new_session_starts_with_nothing(bench: Bench) -> None:
    bench.create(9, INLINE, b"x")
    bench.objects.fetch(10)
    bench.write_result(bytes(5))
    bench.start_session(4)
    bench.sent()

    assert not bench.objects.is_available(9)
    assert bench.write_result(bytes(5)) == 4 << 40 | 2, "numbers go on, as they come from a secret order of all"


def test_the_own_directory_goes_with_the_worker(bench: Bench) -> None:
    directory = os.path.dirname(bench.write_prefix)
    assert bench.patterns == [directory, os.path.realpath(os.path.join(directory, "spill"))]
    bench.close()

    assert not os.path.exists(directory)


def test_named_functions_have_one_id_each(bench: Bench) -> None:
    first, second = (
        bench.objects.named_functions.id_of(b"math:sqrt"),
        bench.objects.named_functions.id_of(b"math:floor"),
    )

    assert first != second
    assert bench.objects.named_functions.id_of(b"math:sqrt") == first
    assert bench.objects.is_available(first)


@pytest.mark.parametrize("action", [CLEAR, DELETE, m.ObjectAction.CREATE])
def test_no_instruction_of_the_schedulers_ends_a_named_function(bench: Bench, action: m.ObjectAction) -> None:
    named = bench.objects.named_functions.id_of(b"math:sqrt")
    columns: Dict[str, Any] = {"sizes": [1], "storages": bytes([INLINE])} if action == m.ObjectAction.CREATE else {}

    bench.objects.on_instruction(m.ObjectInstruction(action=action, ids=[named], **columns), b"x")

    assert bench.objects.is_available(named)
    assert bench.objects.definition(named) == (m.ObjectKind.VALUE, ContentPlace.INLINE, b"math:sqrt")


def test_shared_objects_are_found_where_the_scheduler_keeps_them() -> None:
    directory = ObjectDirectory()
    bench = Bench(object_directory=directory.path, object_directory_token=directory.token)
    try:
        assert bench.objects.is_shared
        bench.create(9, SHARED, size=5)
        assert bench.definition(9)[1:] == (ContentPlace.FILE, os.fsencode(directory.object_path(9)))
        with open(directory.object_path(10), "wb"):
            pass
        bench.objects.fetch(10)
        assert bench.events == [("available", 10)]  # it is there, though it was not announced
        bench.objects.fetch(11)
        assert [request.id for request in bench.sent()] == [11]  # it is not

        object_id = bench.write_result(b"12345")
        assert bench.events[1:] == [("served", object_id)]
        assert bench.sent()[0].storages == bytes([SHARED])
        assert object_name(object_id) in os.listdir(directory.path)
        with open(bench.write_prefix + "1-1", "wb"):
            pass
        bench.close()
        assert sorted(os.listdir(directory.path)) == sorted(["token", object_name(10), object_name(object_id)])
    finally:
        directory.remove()
