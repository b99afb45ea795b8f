"""Large tasks beside all else that a host has: short tasks, actors, nested tasks, tasks in line, and other hosts."""

from __future__ import annotations

from typing import List, Sequence

import pytest
from hosts_with_memory import GIB, LARGE, SECONDS, SMALL, beat, counts, host, large, newcomer, see, small
from keeper import SIZE, Keeper, submit
from scheduler_harness import Client, Harness, given, options, task

from scaler_protocol import messages as m


@pytest.fixture
def client(harness: Harness) -> Client:
    return newcomer(harness)


def statuses(running: Sequence[int], gib: float, suspended: int = 0) -> List[m.ProcessorStatus]:
    return [
        m.ProcessorStatus(
            process_id=1 + place, instance=each, resident_bytes=int(gib * GIB), suspended=place < suspended
        )
        for place, each in enumerate(running)
    ]


def test_short_tasks_do_not_keep_large_ones_from_a_worker_for_ever(harness: Harness, client: Client) -> None:
    other = newcomer(harness)
    only = host(harness, "only", 64, slots=2)
    for number in range(1, 4):
        small(client, [number])
        only.finish(given(only), busy_microseconds=10_000)
    small(client, range(10, 200))
    large(other, [1])
    for _ in range(100):
        running = given(only)
        if running and harness.state.sessions[only.name].large_dispatches:
            break
        only.finish(running[:1], busy_microseconds=10_000)
        for instance in running[1:]:
            only.finish([instance], busy_microseconds=10_000)
    assert harness.state.sessions[only.name].large_dispatches, "it has its turn as others do"


def test_a_small_task_gets_a_free_slot_though_the_large_one_before_it_goes_behind_another(harness: Harness) -> None:
    client = harness.client()
    function, limit = client.create(LARGE, b"large"), options(memory_limit_bytes=3 * GIB)
    client.create(SMALL, b"small")
    roomy, full = host(harness, "roomy", 64, slots=1), host(harness, "full", 4, slots=4)
    for number in (1, 2):
        client.submit([number], function=function, function_name="", options=limit)
    assert counts(roomy, full) == [1, 1]
    client.post(*task([3], function=function, function_name="", options=limit))
    client.post(*task([4], function=client.object_id(SMALL), function_name=""))
    harness.tick()
    assert counts(roomy, full) == [1, 1]


def test_what_all_tasks_of_a_function_need_stays_known_as_processes_give_memory_back(
    harness: Harness, client: Client
) -> None:
    only = host(harness, "only", 16)
    see(client, only, 16, 10, SECONDS, task=1, function=client.object_id(LARGE))
    large(client, range(2, 100))
    for _ in range(60):
        running = given(only)
        beat(only, 15, running, 1)
        beat(only, 6, running, 10)
        assert len(running) == 1
        only.finish(running, busy_microseconds=int(SECONDS * 1e6))


def test_mapped_objects_are_not_what_a_task_needs(harness: Harness) -> None:
    client, only = harness.client(), host(harness, "only", 16)
    function = client.create(SMALL, b"function")
    object_id = client.announce(7, 10 * GIB, m.ObjectStorage.SHARED)
    client.submit([1], function=function, function_name="", dependency_counts=[1], dependencies=[object_id])
    running = given(only)
    beat(only, 6, running, 10.1)
    only.finish(running, busy_microseconds=int(SECONDS * 1e6))
    assert len(harness.state.memory_needs) == 0


def test_the_idle_process_of_an_actor_is_no_room(harness: Harness, client: Client) -> None:
    only = harness.worker(8, places={"data_address": "tcp://only:1"}, features=["actors"])
    beat(only, 16)
    actor = client.create(200, b"actor")
    client.submit([1], function=actor, function_name="", options=options(actor=True))
    call = given(only)
    beat(only, 6, call, 10)
    only.finish(call, busy_microseconds=1_000_000)
    only.send(m.Heartbeat(free_bytes=6 * GIB, processors=statuses([0], 10)))
    large(client, range(10, 20))
    assert counts(only) == [2]


def test_the_process_of_a_task_that_is_not_large_is_no_room(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 16, slots=8)
    small(client, [1])
    only.finish(given(only), busy_microseconds=500_000)
    small(client, [2, 3])
    only.send(m.Heartbeat(free_bytes=4 * GIB, processors=statuses(given(only), 5)))
    large(client, range(10, 20))
    assert counts(only) == [1]


def test_small_tasks_that_wait_for_nested_ones_are_not_taken_for_large_ones(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 4, slots=3)
    small(client, [1, 2])
    running = given(only)
    large(client, [3])
    assert counts(only) == [1]
    only.send(m.Heartbeat(free_bytes=4 * GIB, processors=statuses(running, 0.01, suspended=2)))
    large(client, range(4, 8))
    assert counts(only) == [0]


def test_many_small_tasks_do_not_hide_large_ones(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 4, slots=128)
    for number in range(1, 91):
        small(client, [number])
    large(client, range(100, 110))
    assert counts(only) == [91]


def test_large_tasks_do_not_wait_for_quick_hosts_without_room(harness: Harness, client: Client) -> None:
    quick, slow = host(harness, "quick", 4), host(harness, "slow", 64)
    session = harness.state.sessions[slow.name]
    session.pace.factor = 2.0
    harness.core._placement.on_pace_changed(session)
    large(client, range(1, 5))
    assert counts(quick, slow) == [1, 3]


def test_they_do_not_go_beside_those_in_line_for_their_bytes_without_room() -> None:
    harness = Harness(transfer_bytes_per_second=SIZE / 1000.0, chunk_bytes=SIZE)
    client, other = harness.client(), harness.client()
    keeper = Keeper(harness, slots=1)
    beat(keeper.peer, 4)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    keeper.read()
    function = other.create(LARGE, b"large")
    keeper.keep(1, int(SECONDS * 1e6))
    assert len(keeper.read()) == 2
    harness.state.memory_needs.of = lambda batch: 3.0 * GIB
    session = harness.state.sessions[keeper.peer.name]
    session.large_dispatches.update(session.dispatches)
    other.submit([1], function=function, function_name="")
    harness.wait(1)
    assert keeper.read() == []


def test_a_blocked_worker_that_got_urgent_tasks_is_not_free(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 7, slots=4)
    small(client, [1, 2])
    large(client, [3, 4])
    running = given(only)
    only.send(m.Heartbeat(free_bytes=GIB, processors=statuses(running, 3, suspended=1)))
    large(client, range(10, 20), options=options(priority=1))
    session = harness.state.sessions[only.name]
    assert session.assigned > session.slots
    assert session not in harness.core._placement.idle_workers()


def test_tasks_of_a_function_that_is_large_no_more_do_not_wait_for_others(harness: Harness, client: Client) -> None:
    other = newcomer(harness)
    only = host(harness, "only", 4, slots=8)
    large(client, [1, 2])
    large(other, range(1, 5))
    assert counts(only) == [1]
    harness.state.memory_needs.forget(other.object_id(LARGE))
    harness.wait(1)
    assert counts(only) == [4]


def test_large_ones_line_up_behind_short_tasks_only_where_there_is_room(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 4, slots=1)
    small(client, [1])
    only.finish(given(only), busy_microseconds=10_000)
    small(client, [2])
    client.submit([3, 4, 5], options=options(memory_limit_bytes=12 * GIB))
    assert counts(only) == [2]


def test_the_next_hosts_are_looked_at_if_the_first_ones_have_no_room(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.core.state, "check_invariants", lambda: None)  # takes long for so many
    full = [host(harness, f"full {number}", 4, slots=2) for number in range(300)]
    large(client, range(1, 301))
    assert sum(counts(*full)) == 300
    last = host(harness, "last", 1)
    beat(last, 1)
    large(client, [301])
    placed = sum(counts(*full, last))
    for _ in range(3):
        harness.wait(1)
        placed += counts(last)[0]
    assert placed == 1


@pytest.mark.parametrize("work", [40, 100_000])
def test_a_parked_class_of_which_all_are_set_apart_is_gone(work: int) -> None:
    harness = Harness(work_per_call=work)
    client = newcomer(harness)
    host(harness, "only", 4)
    for number in (1, 2):
        client.post(*task_with_gpu(client, number))
    harness.tick()
    harness.wait(1)
    assert len(harness.state.ready) == 2


def task_with_gpu(client: Client, number: int) -> tuple[m.Task, bytes]:
    message = m.Task(
        ids=[number], payload_sizes=[1], function=client.object_id(LARGE), codec="", options=options(gpu=1)
    )
    return message, b"x"
