"""Which objects leave memory for the disk, and when."""

from __future__ import annotations

from array import array
from typing import List

import pytest
from scheduler_harness import Client, Harness

from scaler_appliance.core.effects import RemoveObject, SpillObject, StoreChunk
from scaler_appliance.core.objects.object_memory import COMPLAINT_INTERVAL_SECONDS, RETRY_SECONDS
from scaler_appliance.core.objects.object_records import ObjectPlace
from scaler_protocol import messages as m

REMOTE, SHARED = m.ObjectStorage.REMOTE, m.ObjectStorage.SHARED
LIMIT_BYTES = 100


@pytest.fixture
def harness() -> Harness:
    return Harness(object_memory_limit_bytes=LIMIT_BYTES, object_spill_directory="/disk", chunk_bytes=10)


def share(client: Client, number: int, size: int) -> int:
    return client.announce(number, size, SHARED)


def take_spills(harness: Harness) -> List[int]:
    spills = [effect.object_id for effect in harness.effects if isinstance(effect, SpillObject)]
    harness.effects = [effect for effect in harness.effects if not isinstance(effect, SpillObject)]
    return spills


def finish(harness: Harness, object_id: int) -> None:
    harness.core.on_object_spilled(harness.now, object_id)
    harness.state.check_invariants()
    harness.tick()


def fail(harness: Harness, object_id: int) -> None:
    harness.core.on_object_spill_failed(harness.now, object_id, "no space left")
    harness.state.check_invariants()
    harness.tick()


def take_notice(client: Client) -> List[int]:
    """What the client is told to be on disk."""
    message = client.take(m.ObjectInstruction)
    assert message.action == m.ObjectAction.SPILL
    return list(message.ids)


def place(harness: Harness, object_id: int) -> ObjectPlace:
    return ObjectPlace(harness.state.objects.find(object_id).place)


def test_within_the_limit_everything_stays(harness: Harness) -> None:
    client = harness.client()
    for number in range(1, 11):
        share(client, number, LIMIT_BYTES // 10)
    harness.nothing_else_was_sent()


def test_past_the_limit_the_oldest_leave_and_their_maker_is_told(harness: Harness) -> None:
    client = harness.client()
    objects = [share(client, number, 40) for number in range(1, 5)]
    assert take_spills(harness) == objects[:2]
    finish(harness, objects[0])
    finish(harness, objects[1])
    assert take_notice(client) == [objects[0]] and take_notice(client) == [objects[1]]
    assert [place(harness, each) for each in objects] == [ObjectPlace.ON_DISK] * 2 + [ObjectPlace.RESIDENT] * 2
    harness.nothing_else_was_sent()


def test_what_is_used_stays_and_what_is_not_leaves(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    used, served, unused = share(client, 1, 30), share(client, 2, 30), share(client, 3, 30)
    client.submit([0], dependency_counts=[1], dependencies=[used])
    worker.take(m.ObjectInstruction)
    worker.take_tasks()
    worker.send(m.ObjectRequest(id=served, length=10))
    harness.take_effect()
    share(client, 4, 30)
    assert take_spills(harness) == [unused]
    share(client, 5, 30)
    assert take_spills(harness) == [used]
    harness.nothing_else_was_sent()


def test_one_that_is_larger_than_the_limit_drives_no_other_out(harness: Harness) -> None:
    client = harness.client()
    small, large = share(client, 1, 50), share(client, 2, LIMIT_BYTES + 1)
    assert take_spills(harness) == [large]
    assert place(harness, small) == ObjectPlace.RESIDENT
    harness.nothing_else_was_sent()


def test_one_that_arrives_and_is_larger_than_the_limit_never_is_in_memory(harness: Harness) -> None:
    client = harness.client()
    object_id = client.announce(1, LIMIT_BYTES + 1, REMOTE)
    asked = client.take(m.ObjectRequest)
    client.inbox.clear()
    client.send(m.ObjectResponse(id=object_id), b"x" * asked.length)
    assert harness.take_effect() == StoreChunk(object_id, 0, b"x" * 10, False, LIMIT_BYTES + 1, True)
    client.inbox.clear()
    assert harness.state.objects.memory.bytes_to_stay == 0
    harness.nothing_else_was_sent()


def test_one_that_arrives_and_for_which_the_disk_has_no_room_is_in_memory(harness: Harness) -> None:
    client = harness.client()
    object_id = client.announce(1, LIMIT_BYTES + 1, REMOTE)
    for _ in range(LIMIT_BYTES // 10 + 1):
        asked = client.take(m.ObjectRequest)
        client.send(m.ObjectResponse(id=object_id, offset=asked.offset), b"x" * asked.length)
        assert isinstance(harness.take_effect(), StoreChunk)
        if not asked.offset:
            fail(harness, object_id)
            assert place(harness, object_id) == ObjectPlace.ARRIVING
    assert place(harness, object_id) == ObjectPlace.RESIDENT
    harness.nothing_else_was_sent()
    harness.wait(RETRY_SECONDS)
    assert take_spills(harness) == [object_id]
    client.inbox.clear()


def test_what_arrives_counts_and_can_leave_once_it_is_whole(harness: Harness) -> None:
    client = harness.client()
    resident, arriving = share(client, 1, 95), client.announce(2, 10, REMOTE)
    assert take_spills(harness) == [resident]
    share(client, 3, 95)
    assert take_spills(harness) == [client.object_id(3)], "the one that arrives cannot leave"
    asked = client.take(m.ObjectRequest)
    client.send(m.ObjectResponse(id=arriving), b"x" * asked.length)
    assert harness.take_effect() == StoreChunk(arriving, 0, b"x" * 10, True, 10, False)
    share(client, 4, 95)
    assert take_spills(harness) == [arriving]
    harness.nothing_else_was_sent()


def test_one_for_which_memory_had_no_room_is_not_asked_to_leave(harness: Harness) -> None:
    client = harness.client()
    object_id = client.announce(1, 10, REMOTE)
    asked = client.take(m.ObjectRequest)
    client.send(m.ObjectResponse(id=object_id), b"x" * asked.length)
    assert isinstance(harness.take_effect(), StoreChunk)
    finish(harness, object_id)
    assert place(harness, object_id) == ObjectPlace.ON_DISK
    assert take_notice(client) == [object_id]
    share(client, 2, LIMIT_BYTES)
    harness.nothing_else_was_sent()


def test_an_object_deleted_while_it_leaves_is_removed_and_forgotten(harness: Harness) -> None:
    client = harness.client()
    object_id = share(client, 1, LIMIT_BYTES + 1)
    assert take_spills(harness) == [object_id]
    client.delete(object_id)
    assert harness.take_effect() == RemoveObject(object_id)
    finish(harness, object_id)
    fail(harness, object_id)
    assert not any(harness.state.objects.memory.bytes.values())
    harness.nothing_else_was_sent()


def test_that_the_disk_was_full_counts_although_the_object_has_been_deleted(harness: Harness) -> None:
    client = harness.client()
    object_id = share(client, 1, LIMIT_BYTES + 1)
    assert take_spills(harness) == [object_id]
    client.delete(object_id)
    assert harness.take_effect() == RemoveObject(object_id)
    fail(harness, object_id)
    following = share(client, 2, LIMIT_BYTES + 1)
    assert not take_spills(harness), "there is no room for it, either"
    harness.wait(RETRY_SECONDS)
    assert take_spills(harness) == [following]


def test_what_cannot_leave_stays_and_is_tried_again_later(harness: Harness) -> None:
    client = harness.client()
    first, second = share(client, 1, 90), share(client, 2, 90)
    assert take_spills(harness) == [first]
    fail(harness, first)
    (complaint,) = [line for line in harness.logs if "cannot be spilled" in line]
    assert "/disk: no space left" in complaint and "--object-spill-directory" in complaint
    third = share(client, 3, 90)
    assert take_spills(harness) == [], "nothing is tried for a while"
    assert {place(harness, each) for each in (first, second, third)} == {ObjectPlace.RESIDENT}
    harness.wait(RETRY_SECONDS)
    assert take_spills(harness) == [second, first], "the others first: they may be small enough"
    fail(harness, first)
    finish(harness, second)
    assert take_notice(client) == [second]
    harness.wait(RETRY_SECONDS)
    assert take_spills(harness) == [third]
    assert len([line for line in harness.logs if "cannot be spilled" in line]) == 1, "it is not said all the time"
    harness.wait(COMPLAINT_INTERVAL_SECONDS)
    client.inbox.clear()
    harness.peers[client.name].inbox.clear()


def test_a_burst_is_one_line_of_the_log(harness: Harness) -> None:
    client = harness.client()
    objects = [share(client, number, LIMIT_BYTES + 1) for number in range(1, 6)]
    assert take_spills(harness) == objects
    for object_id in objects[:-1]:
        finish(harness, object_id)
        harness.wait(0.01)
    assert not [line for line in harness.logs if "spilled" in line]
    finish(harness, objects[-1])
    harness.wait(2.0)
    (line,) = [line for line in harness.logs if "spilled" in line]
    assert line.startswith(f"Scheduler: spilled 5 objects of {5 * (LIMIT_BYTES + 1)} bytes to /disk")


def test_without_a_limit_everything_stays() -> None:
    harness = Harness()
    client = harness.client()
    for number in range(1, 5):
        share(client, number, 1 << 38)
    harness.nothing_else_was_sent()


def test_objects_of_workers_are_spilled_without_notifications(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    client.submit([0])
    instances = worker.take_tasks()
    object_id = worker.announce(1, LIMIT_BYTES + 1, SHARED)
    assert take_spills(harness) == [object_id]
    worker.finish(instances, [b""], objects=[object_id])
    client.take(m.TaskResult)
    finish(harness, object_id)
    client.send(m.ObjectRequest(id=object_id, length=10))
    harness.take_effect()
    client.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=array("Q", [object_id])))
    assert harness.take_effect() == RemoveObject(object_id)
    harness.nothing_else_was_sent()
