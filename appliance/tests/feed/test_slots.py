"""Processors come and go; the slots of their worker stay."""

from __future__ import annotations

from typing import Dict, List, Set

from hypothesis import given
from hypothesis import strategies as some

from scaler_appliance.feed.slots import KEPT_PROCESSORS, KEPT_WORKERS, MOST_SLOTS, ProcessorSlots


@given(slots=some.integers(1, 6), beats=some.lists(some.sets(some.integers(1, 30), max_size=12), max_size=12))
def test_a_processor_keeps_its_slot_and_none_is_empty_beside_one_that_is_shared(
    slots: int, beats: List[Set[int]]
) -> None:
    places = ProcessorSlots()
    places.add_worker(7, slots)
    known: Dict[int, int] = {}
    fresh = True
    for present in beats:
        before = {process_id for process_id in present if process_id in known}
        places.set_present(7, sorted(present))
        now = {process_id: places.slot(7, process_id) for process_id in present}
        assert all(0 <= slot < slots for slot in now.values())
        assert all(now[process_id] == known[process_id] for process_id in before)
        fresh = not before
        if fresh:
            taken = [list(now.values()).count(slot) for slot in range(slots)]
            assert max(taken) - min(taken) <= 1
        known.update(now)


def test_a_successor_stands_where_its_predecessor_stood() -> None:
    places = ProcessorSlots()
    places.add_worker(7, 4)
    places.set_present(7, [1, 2, 3, 4])
    places.end_processor(7, 3)
    assert places.slot(7, 9) == 2
    places.set_present(7, [1, 2, 4, 9])
    assert [places.processor(7, slot) for slot in range(4)] == [1, 2, 9, 4]


def test_what_is_kept_is_bounded() -> None:
    places = ProcessorSlots()
    places.add_worker(7, 2**32 - 1)
    assert places.slots(7) == MOST_SLOTS
    places.add_worker(8, 2)
    for process_id in range(1, 10 * KEPT_PROCESSORS, 2):
        places.set_present(8, [process_id, process_id + 1])
    assert len(places._workers[8].by_process) <= KEPT_PROCESSORS + 2 * 8 + 2
    places.add_worker(9, 2)
    places.set_present(9, [1])
    for process_id in range(2, 3 * KEPT_PROCESSORS):  # its worker says which processors ran tasks, not which are there
        assert 0 <= places.slot(9, process_id) < 2
    others = places._workers[9]
    assert 1 in others.by_process and len(others.present) <= len(others.by_process) <= KEPT_PROCESSORS + 2 * 8
    for session in range(100, 100 + 2 * KEPT_WORKERS):
        places.add_worker(session, 1)
        places.remove_worker(session)
    assert len(places._workers) <= KEPT_WORKERS + 3
