"""The sizes of chunks: by measured durations, within the buffer."""

from __future__ import annotations

from typing import List, Optional

import pytest

from scaler.client.streams.chunk_planner import CHUNKS_AHEAD, MAXIMUM_CHUNK_ITEMS, TARGET_SECONDS, ChunkPlanner


def sent_by(planner: ChunkPlanner, slots: int, left: Optional[int] = None) -> List[int]:
    """The chunks that are sent until there is no room."""
    sizes: List[int] = []
    while True:
        size = planner.next_items(slots, left)
        if not size or len(sizes) > 1000:
            return sizes
        planner.sent(size)
        sizes.append(size)


def measured(planner: ChunkPlanner, item_seconds: float) -> None:
    """Let a first item have run, and its result be yielded."""
    planner.sent(1)
    planner.ended(1, item_seconds)
    planner.yielded(1)


def test_until_the_first_measurement_each_slot_gets_one_item() -> None:
    assert sent_by(ChunkPlanner(), 4) == [1] * 4
    assert sent_by(ChunkPlanner(buffer_items=1000), 4) == [1] * 4
    assert sent_by(ChunkPlanner(buffer_items=3), 4) == [1] * 3


def test_a_buffer_without_room_for_larger_chunks_does_not_wait_for_a_measurement() -> None:
    assert sent_by(ChunkPlanner(buffer_items=2), 1) == [1] * 2
    assert sent_by(ChunkPlanner(buffer_items=15), 4) == [1] * 8
    assert sent_by(ChunkPlanner(buffer_items=16), 4) == [1] * 4


@pytest.mark.parametrize("item_seconds", [TARGET_SECONDS / 100, TARGET_SECONDS / 7, TARGET_SECONDS, 10.0])
def test_a_chunk_is_about_the_target_of_work_and_runs_ahead_for_each_slot(item_seconds: float) -> None:
    planner = ChunkPlanner()
    measured(planner, item_seconds)
    expected = max(1, int(TARGET_SECONDS / item_seconds))
    assert sent_by(planner, 3) == [expected] * CHUNKS_AHEAD * 3


@pytest.mark.parametrize(("travel_seconds", "chunks"), [(0.01, 2), (0.09, 5), (0.39, 14), (60.0, 62)])
def test_more_chunks_run_ahead_while_they_travel(travel_seconds: float, chunks: int) -> None:
    planner = ChunkPlanner()
    planner.sent(1)
    planner.ended(1, TARGET_SECONDS / 10, TARGET_SECONDS / 10 + travel_seconds)
    planner.yielded(1)
    assert sent_by(planner, 3) == [10] * chunks * 3


def test_of_all_travels_the_shortest_counts_so_that_queues_do_not_make_longer_queues() -> None:
    planner = ChunkPlanner()
    for travel_seconds in (3.0, 0.09, 0.7):
        planner.sent(1)
        planner.ended(1, TARGET_SECONDS, TARGET_SECONDS + travel_seconds)
        planner.yielded(1)
    assert sent_by(planner, 1) == [1] * 5


def test_a_chunk_has_a_maximum_and_may_be_limited_further() -> None:
    planner = ChunkPlanner()
    measured(planner, 1e-12)
    assert planner.next_items(2) == MAXIMUM_CHUNK_ITEMS
    planner.limit(10)
    assert planner.next_items(2) == 10
    planner.limit(0)
    assert planner.next_items(2) == 1


def test_durations_are_averaged_and_those_of_nothing_are_ignored() -> None:
    planner = ChunkPlanner()
    measured(planner, TARGET_SECONDS / 100)
    planner.sent(100)
    planner.ended(0, 5.0)  # its first item has failed
    planner.yielded(100)
    assert planner.next_items(1) == 100
    planner.sent(100)
    planner.ended(100, TARGET_SECONDS * 3)
    planner.yielded(100)
    assert planner.next_items(1) == 50


@pytest.mark.parametrize("buffer_items", [1, 2, 7, 100, 12_345])
@pytest.mark.parametrize("item_seconds", [1e-6, 1e-3, 1.0])
def test_the_buffer_is_never_exceeded_and_always_used_up_to_a_chunk(buffer_items: int, item_seconds: float) -> None:
    planner, slots = ChunkPlanner(buffer_items), 4
    measured(planner, item_seconds)
    sizes = sent_by(planner, slots)
    assert sum(sizes) <= buffer_items
    assert sum(sizes) + sizes[0] > buffer_items or len(sizes) == CHUNKS_AHEAD * slots
    assert len(sizes) >= min(buffer_items, slots)  # all slots have something to do


def test_room_comes_back_a_chunk_at_a_time_and_the_planner_says_when() -> None:
    planner = ChunkPlanner(buffer_items=80)
    measured(planner, 1e-9)
    assert sent_by(planner, 4) == [10] * 8
    for _ in range(8):
        planner.ended(10, 1e-8)
    assert planner.next_items(4) == 0
    assert planner.items_until_room(4) == 10
    planner.yielded(9)
    assert planner.next_items(4) == 0
    assert planner.items_until_room(4) == 1
    planner.yielded(1)
    assert sent_by(planner, 4) == [10]


def test_without_a_buffer_results_that_are_not_consumed_end_the_sending() -> None:
    planner, slots = ChunkPlanner(), 2
    measured(planner, TARGET_SECONDS / 10)
    total = 0
    for _ in range(100):
        for size in sent_by(planner, slots):
            planner.ended(size, size * TARGET_SECONDS / 10)
            total += size
    assert total == 10 * (CHUNKS_AHEAD + 1) * slots
    planner.yielded(10)
    assert sent_by(planner, slots) == [10]


def test_the_last_chunks_of_a_known_number_leave_no_slot_idle() -> None:
    planner, left, sizes = ChunkPlanner(buffer_items=10**9), 1000, []
    measured(planner, 1e-9)
    while left:
        size = planner.next_items(5, left)
        left -= size
        sizes.append(size)
        planner.sent(size)
        planner.ended(size, size * 1e-9)
    assert sizes[0] == 101
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-5:] == [1] * 5


def test_a_fixed_size_fills_the_buffer_whatever_the_slots() -> None:
    assert sent_by(ChunkPlanner(buffer_items=10, fixed_items=3), slots=1) == [3, 3, 3]
    assert sent_by(ChunkPlanner(buffer_items=2, fixed_items=3), slots=1) == [2]
    planner = ChunkPlanner(buffer_items=2, fixed_items=1)
    assert sent_by(planner, slots=1) == [1, 1]
    planner.ended(1, 1.0)
    assert planner.items_until_room(1) == 1
    planner.yielded(1)
    assert sent_by(planner, slots=1) == [1]
