"""What the scheduler does while little memory is left."""

from __future__ import annotations

from array import array
from typing import Dict, List, Sequence, Tuple

import pytest
from scheduler_harness import Client, Harness, task

from scaler_appliance.core.effects import RemoveObject, StoreChunk
from scaler_appliance.core.memory_budget import BEGINS_AT, MemoryBudget, MemoryLevel
from scaler_appliance.core.peers.flow_control import LEAST_TASKS, SECONDS_BETWEEN_DISCONNECTIONS
from scaler_appliance.core.state import Settings
from scaler_protocol import messages as m

LIMIT_BYTES = 100 << 20
CONTENT = b"x" * Settings().smallest_file_bytes
SHARED = m.ObjectStorage.SHARED


@pytest.fixture
def harness() -> Harness:
    return Harness(
        memory_limit_bytes=LIMIT_BYTES,
        object_memory_limit_bytes=LIMIT_BYTES // 2,
        object_spill_directory="/disk",
        client_tasks_in_flight=64_000,
        client_bytes_in_flight=64 << 20,
    )


def use(harness: Harness, share: float) -> None:
    """So much of the limit is in use, besides files."""
    harness.core.on_memory_used(harness.now, int(share * LIMIT_BYTES))
    harness.state.check_invariants()
    harness.tick()


def fill(harness: Harness, level: MemoryLevel) -> None:
    use(harness, BEGINS_AT[level] + 0.01)
    assert harness.state.budget.level == level


def take_grant(client: Client) -> Tuple[int, int]:
    echo = client.take(m.TaskEcho)
    return echo.tasks_in_flight, echo.bytes_in_flight


def take_stored(harness: Harness) -> List[StoreChunk]:
    stored = [effect for effect in harness.effects if isinstance(effect, StoreChunk)]
    harness.effects.clear()
    return stored


# Levels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "levels"),
    [
        (((699, 0), (700, 0), (690, 0), (679, 0)), "FREE SHORT SHORT FREE"),  # left when clearly less is in use
        (((960, 0), (700, 0)), "EXHAUSTED SHORT"),
        (((400, 1000), (1000, 0)), "SHORTEST EXHAUSTED"),  # files that are about to go slow clients, and no more
    ],
)
def test_the_level_follows_what_is_in_use(measured: Sequence[Tuple[int, int]], levels: str) -> None:
    budget = MemoryBudget(1000)
    before, found = budget.level, []
    for staying, leaving in measured:
        is_new = budget.measure(staying, 0, leaving)
        assert is_new == (budget.level != before)
        before = budget.level
        found.append(before.name)
    assert found == levels.split()


def test_without_a_limit_memory_is_never_short() -> None:
    budget = MemoryBudget(0)
    assert not budget.measure(1 << 60, 1 << 60, 0)
    assert not budget.is_short and budget.has_room_for(1 << 60)
    assert budget.granted(100, 10) == 100 and budget.files_limit_bytes(7) == 7


# Slower ---------------------------------------------------------------------------------------------------------------


def test_clients_may_have_less_in_flight_at_each_level_and_are_told_at_once(harness: Harness) -> None:
    client = harness.client()
    for level, tasks in ((MemoryLevel.SHORT, 16_000), (MemoryLevel.SHORTER, 4_000), (MemoryLevel.SHORTEST, 1_000)):
        fill(harness, level)
        assert take_grant(client) == (tasks, (64 << 20) // (64_000 // tasks))
    use(harness, 0.1)
    assert take_grant(client) == (64_000, 64 << 20)
    harness.nothing_else_was_sent()
    (first, *_, last) = harness.logs[1:]
    assert "memory is short: 71 MiB of 100 MiB are in use" in first and "clients may have less" in first
    assert "no longer short" in last


def test_a_client_that_comes_while_memory_is_short_is_told_too(harness: Harness) -> None:
    fill(harness, MemoryLevel.SHORTER)
    client = harness.client()
    assert take_grant(client) == (4_000, 4 << 20)


def test_a_client_is_slowed_and_never_stopped(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=100)
    fill(harness, MemoryLevel.SHORTEST)
    take_grant(client)
    for first in range(0, 5_000, 1_000):
        client.submit(range(first, first + 1_000))
        while instances := worker.take_all_tasks():
            worker.finish(instances)
        released = 0
        while client.inbox:
            message, _ = client.inbox.popleft()
            released = message.tasks_released if isinstance(message, m.TaskEcho) else released
        assert released == first + 1_000


def test_what_a_client_sent_before_it_knew_is_accepted(harness: Harness) -> None:
    client = harness.client()
    fill(harness, MemoryLevel.SHORTEST)
    client.submit(range(20_000))
    assert take_grant(client)[0] == 1_000
    harness.nothing_else_was_sent()
    assert len(harness.state.ready) == 20_000


def test_a_client_without_limits_gets_some_for_a_while() -> None:
    harness = Harness(memory_limit_bytes=LIMIT_BYTES, client_tasks_in_flight=0, client_bytes_in_flight=0)
    client = harness.client()
    fill(harness, MemoryLevel.SHORTEST)
    tasks, size = take_grant(client)
    assert tasks >= LEAST_TASKS and 0 < size < LIMIT_BYTES
    use(harness, 0.1)
    assert take_grant(client) == (0, 0)


# To disk --------------------------------------------------------------------------------------------------------------


def test_contents_become_files_on_disk_while_memory_is_short(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker()
    early = client.create(1, CONTENT)
    fill(harness, MemoryLevel.SHORT)
    take_grant(client)
    late, small = client.create(2, CONTENT), client.create(3, CONTENT[:-1])
    [stored] = take_stored(harness)
    assert stored == StoreChunk(late, 0, CONTENT, True, len(CONTENT), True)
    client.submit([1], dependency_counts=[3], dependencies=[early, late, small])
    announced: Dict[int, int] = {}
    while isinstance(worker.inbox[0][0], m.ObjectInstruction):
        message = worker.take(m.ObjectInstruction)
        announced.update(zip(message.ids, message.storages))
    inline = m.ObjectStorage.INLINE
    assert announced == {early: inline, late: SHARED, small: inline}
    worker.finish(worker.take_tasks())
    client.delete(late)
    assert harness.effects == [RemoveObject(late)]


def test_a_content_that_finds_no_room_on_disk_or_in_memory_is_missing(harness: Harness) -> None:
    client = harness.client()
    fill(harness, MemoryLevel.SHORT)
    take_grant(client)
    object_id = client.create(1, CONTENT)
    take_stored(harness)
    harness.core.on_object_unreadable(harness.now, object_id, "no room", True)
    harness.state.check_invariants()
    client.submit([1], dependency_counts=[1], dependencies=[object_id])
    assert client.take_losses()[1].kind == m.FailureKind.OBJECT_MISSING


def test_files_may_use_what_the_heap_leaves(harness: Harness) -> None:
    client = harness.client()
    client.announce(1, 40 << 20, SHARED)
    harness.nothing_else_was_sent()
    use(harness, 0.35)  # and files 0.4: that is too much for both
    assert [type(effect).__name__ for effect in harness.effects] == ["SpillObject"]


# Rejected -------------------------------------------------------------------------------------------------------------


def test_new_tasks_are_rejected_when_memory_is_full_and_accepted_again_later(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=9)
    client.submit([1])
    fill(harness, MemoryLevel.FULL)
    client.submit([2, 3])
    [instance] = worker.take_tasks()
    take_grant(client)
    losses = client.take_losses()
    assert list(losses) == [2, 3]
    assert {loss.kind for loss in losses.values()} == {m.FailureKind.REJECTED}
    assert "memory is full (100 MiB)" in losses[2].message and "--memory-limit" in losses[2].message
    worker.finish([instance])
    assert client.take_results() == {1: b"done"}
    use(harness, 0.1)
    take_grant(client)
    client.submit([4])
    assert len(worker.take_tasks()) == 1


def submit_graph(client: Client, count: int) -> None:
    """Nodes that each need the one before; all are targets."""
    client.send(
        m.GraphTask(
            ids=array("Q", range(1, count + 1)),
            payload_sizes=array("I", [0] * count),
            functions=array("Q", [client.object_id(1)] * count),
            predecessor_offsets=array("I", [0, *range(count)]),
            predecessors=array("I", range(count - 1)),
            targets=array("I", range(count)),
        )
    )


def test_a_graph_that_finds_no_room_is_rejected_as_a_whole(harness: Harness) -> None:
    client = harness.client()
    client.create(1, b"function")
    fill(harness, MemoryLevel.SHORTEST)
    take_grant(client)
    count = 40_000  # which would take 8 MiB of the 5 that are left
    submit_graph(client, count)
    lost = 0
    first = client.take_losses()
    lost += len(first)
    assert "--memory-limit" in first[1].message
    while client.inbox:
        lost += len(client.take_losses())
    assert lost == count
    assert harness.state.clients[client.session].unfinished == 0
    use(harness, 0.1)
    take_grant(client)
    client.submit([count + 1])
    harness.nothing_else_was_sent()


def test_tasks_that_wait_for_others_are_rejected_if_there_is_no_room_for_them(harness: Harness) -> None:
    client = harness.client()
    client.submit([1])
    fill(harness, MemoryLevel.SHORTEST)
    take_grant(client)
    count = 10_000
    message, payload = task(range(2, 2 + count), predecessor_counts=[1] * count, predecessors=[1] * count)
    client.send(message, payload)
    assert len(client.take_losses()) == count
    assert client.take(m.TaskEcho).tasks_released == count
    harness.nothing_else_was_sent()


# Exhausted ------------------------------------------------------------------------------------------------------------


def test_the_client_that_holds_most_is_disconnected_when_nothing_is_left(harness: Harness) -> None:
    small, large = harness.client(), harness.client()
    small.submit([1])
    large.submit(range(1_000))
    use(harness, 0.99)
    assert "it holds most" in large.take_refusal(m.RefusalReason.LIMIT_EXCEEDED)
    take_grant(small)
    use(harness, 0.99)
    harness.nothing_else_was_sent()  # what the other one held may not have been measured yet
    assert harness.state.clients[small.session].unfinished == 1
    harness.now += SECONDS_BETWEEN_DISCONNECTIONS
    use(harness, 0.99)
    small.take_refusal(m.RefusalReason.LIMIT_EXCEEDED)
    assert not harness.state.clients
