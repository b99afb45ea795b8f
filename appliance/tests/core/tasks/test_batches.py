"""Columns of tasks: finding runs in them, and fencing."""

from __future__ import annotations

from array import array
from typing import List

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduler_harness import options, task

from scaler_appliance.core.tasks import batches
from scaler_appliance.core.tasks.batches import (
    Dispatch,
    Requirement,
    TaskBatch,
    consecutive_run,
    dispatch_number,
    position_in_dispatch,
)
from scaler_protocol import messages as m

RUNS = st.lists(
    st.tuples(st.one_of(st.integers(0, 50), st.just(2**64 - 2000)), st.integers(1, 700)), min_size=1, max_size=6
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a machine with other work to do
@given(RUNS, st.integers(1, 2000), st.data())
def test_a_run_ends_where_ids_stop_being_consecutive(
    parts: list[tuple[int, int]], limit: int, data: st.DataObject
) -> None:
    ids = array("Q", [first + position for first, length in parts for position in range(length)])
    start = data.draw(st.integers(0, len(ids) - 1))
    stop = start + 1
    while stop < min(len(ids), start + limit) and ids[stop] == ids[stop - 1] + 1:
        stop += 1
    assert consecutive_run(ids, start, limit) == stop


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_runs_cover_any_column(values: List[int]) -> None:
    ids = array("Q", values)
    position, parts = 0, []
    while position < len(ids):
        stop = consecutive_run(ids, position)
        assert list(ids[position:stop]) == list(range(ids[position], ids[position] + stop - position))
        parts.append(ids[position:stop])
        position = stop
    assert sum(parts, array("Q")) == ids


def test_the_end_of_the_number_range_is_no_obstacle() -> None:
    ids = array("Q", range(2**64 - 500, 2**64))
    assert consecutive_run(ids, 0) == 500


def test_instance_ids_tell_dispatch_and_position() -> None:
    batch = TaskBatch(1, *task(range(10, 20)))
    dispatch = Dispatch(77, batch, 3, 6, 2, 1.0)
    assert [(dispatch_number(i), position_in_dispatch(i)) for i in dispatch.ids] == [
        (77, 0),
        (77, 1),
        (77, 2),
    ]
    assert dispatch.instance_of(4) == dispatch.ids[1]


def test_a_closed_instance_is_fenced() -> None:
    batch = TaskBatch(1, *task(range(5)))
    dispatch = Dispatch(1, batch, 0, 5, 2, 1.0)
    dispatch.close(1, 3)
    assert [dispatch.is_open(index) for index in range(5)] == [True, False, False, True, True]
    assert dispatch.open_count == 3
    assert [dispatch.alike(start, 5) for start in (0, 1, 2, 3)] == [1, 3, 3, 5]
    assert dispatch.open_instances() == [dispatch.instance_of(index) for index in (0, 3, 4)]


def test_payloads_and_dependencies_are_found_by_position() -> None:
    message, payload = task(range(3), [b"a", b"", b"ccc"], dependency_counts=[1, 0, 2], dependencies=[7, 8, 9])
    batch = TaskBatch(1, message, payload)
    assert [bytes(batch.payload_of(i, i + 1)) for i in range(3)] == [b"a", b"", b"ccc"]
    assert bytes(batch.payload_of(0, 3)) == b"accc"
    assert [list(batch.dependencies_of(i, i + 1)) for i in range(3)] == [[7], [], [8, 9]]


def test_needs_that_say_the_same_are_one_class() -> None:
    once = Requirement.of(options(priority=2, gpu=3, big=0))
    twice = m.TaskOptions(
        priority=2,
        capabilities=[m.Capability(name=name, amount=amount) for name, amount in (("gpu", 1), ("big", 0), ("gpu", 2))],
    )
    assert once == Requirement.of(twice)
    assert Requirement.of(options(priority=3)) < once, "higher priority comes first"


def test_requirements_without_capabilities_are_remembered_but_few_and_short_ones() -> None:
    first = Requirement.of(options(priority=2), "cloudpickle")
    assert Requirement.of(options(priority=2), "cloudpickle") is first
    assert first == Requirement(-2, batches.Needs((), "cloudpickle", ""))
    assert Requirement.of(options(priority=2), "", "cloudpickle") == Requirement(
        -2, batches.Needs((), "", "cloudpickle")
    )
    long = "x" * 10_000
    assert Requirement.of(options(), long, long) == Requirement(0, batches.Needs((), long, long))
    for priority in range(1000):
        Requirement.of(options(priority=priority))
    assert 0 < len(batches._PLAIN) <= 256
    assert not any(long in (needs.codec, needs.function_name) for _, needs, _ in batches._PLAIN.values())
