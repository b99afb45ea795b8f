"""Large tasks wait until a host has room for them; nothing else waits for that, and they do not wait for ever."""

from __future__ import annotations

from typing import List

import pytest
from hosts_with_memory import GIB, LARGE, SECONDS, beat, counts, host, large, newcomer, see, small
from keeper import SIZE, Keeper, submit
from scheduler_harness import Client, Harness, Worker, given, options

from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.memory_room import Room
from scaler_protocol import messages as m


@pytest.fixture
def client(harness: Harness) -> Client:
    return newcomer(harness)


def next_task(worker: Worker) -> m.Task:
    return next(message for message, _ in worker.inbox if isinstance(message, m.Task))


def finish(worker: Worker, instances: List[int], client: Client) -> None:
    worker.finish(instances, busy_microseconds=int(SECONDS * 1e6) * len(instances))
    client.take_results()


def pass_time(harness: Harness, seconds: int, client: Client, *workers: Worker) -> None:
    for _ in range(seconds):
        client.send(m.Heartbeat())
        client.inbox.clear()
        for worker in workers:
            free_gib = harness.state.sessions[worker.name].heartbeat.free_bytes / GIB
            beat(worker, free_gib)
        harness.wait(1)


def test_hosts_get_as_many_as_they_have_room_for_though_slots_are_free(harness: Harness, client: Client) -> None:
    hosts = [host(harness, "one", 8), host(harness, "two", 10)]
    large(client, range(1, 11))
    assert counts(*hosts) == [2, 3]


def test_the_next_one_comes_when_one_has_ended_and_goes_there(harness: Harness, client: Client) -> None:
    one, two = host(harness, "one", 7), host(harness, "two", 7)
    large(client, range(1, 6))
    first, second = given(one), given(two)
    assert (len(first), len(second)) == (2, 2)
    beat(one, 1, first, 3)
    beat(two, 1, second, 3)
    finish(two, second[:1], client)
    assert counts(one, two) == [0, 1]


def test_small_tasks_do_not_wait_behind_large_ones(harness: Harness, client: Client) -> None:
    other = newcomer(harness)
    only = host(harness, "only", 7)
    large(client, range(1, 6))
    small(client, [6])
    assert counts(only) == [3], "two large ones, and the small one"
    small(other, [1])
    assert counts(only) == [1]


def test_a_large_task_does_not_come_along_with_small_ones(harness: Harness, client: Client) -> None:
    for number in (1, 2):
        small(client, [number])
    large(client, [3, 4])
    for number in (5, 6):
        small(client, [number])
    only = host(harness, "only", 4, slots=8)
    assert counts(only) == [5]
    assert len(harness.state.ready) == 1


def test_those_of_one_function_that_have_no_limit_do_not_wait(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    only = host(harness, "only", 13, slots=3)
    careful = options(memory_limit_bytes=12 * GIB)
    for each in (client, other):
        each.submit([1, 2], options=careful)
        each.submit([3, 4])
    assert counts(only) == [5], "one of the large ones, and all others, of which some wait behind it"
    assert len(harness.state.ready) == 3


def test_large_tasks_of_clients_take_turns(harness: Harness, client: Client) -> None:
    other = newcomer(harness)
    only = host(harness, "only", 4)
    large(client, range(1, 6))
    running = given(only)
    large(other, [1, 2])
    turns = []
    for _ in range(4):
        only.finish(running, busy_microseconds=int(SECONDS * 1e6))
        turns.append(next_task(only).client)
        running = given(only)
    assert turns == [client.session, other.session] * 2


def test_an_urgent_large_task_comes_first_and_does_not_hold_up_small_ones(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 4)
    large(client, [1, 2])
    running = given(only)
    large(client, [3], options=options(priority=5))
    small(client, [4])
    assert counts(only) == [1]
    finish(only, running, client)
    assert next_task(only).options.priority == 5


def test_what_waits_for_long_goes_where_most_is_left(harness: Harness, client: Client) -> None:
    one, two = host(harness, "one", 4), host(harness, "two", 5)
    large(client, [1, 2, 3])
    assert counts(one, two) == [1, 1]
    pass_time(harness, 59, client, one, two)
    assert counts(one, two) == [0, 0]
    pass_time(harness, 2, client, one, two)
    assert counts(one, two) == [0, 1], "as if it ran for ever, what runs there"


def test_what_takes_longer_waits_for_longer(harness: Harness) -> None:
    client = harness.client()
    only = host(harness, "only", 4)
    see(client, only, 4, 3, seconds=100.0, function=client.create(LARGE, b"large"))
    large(client, [1, 2])
    assert counts(only) == [1]
    pass_time(harness, 299, client, only)
    assert counts(only) == [0]
    pass_time(harness, 2, client, only)
    assert counts(only) == [1]


def test_a_large_task_that_waits_for_nested_ones_does_not_count_as_there(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 3.5, slots=1)
    large(client, [1])
    running = given(only)
    large(client, [2])
    assert counts(only) == [0]
    beat(only, 0.1, running, 3, suspended=1)
    harness.wait(1)
    assert counts(only) == [1]


def test_large_nested_tasks_do_not_wait_at_the_worker_of_what_waits_for_them(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 7, slots=2)
    large(client, [1, 2])
    running = given(only)
    beat(only, 1, running, 3, suspended=1)
    large(client, [3], options=options(priority=1))
    assert counts(only) == [1]


def test_all_hosts_are_looked_at(harness: Harness, client: Client) -> None:
    full = [host(harness, f"full {number}", 4, slots=2) for number in range(100)]
    large(client, range(1, 101))
    assert counts(*full) == [1] * 100
    large(client, [101])
    assert counts(*full) == [0] * 100
    last = host(harness, "last", 4)
    assert counts(last) == [1]


def test_distant_hosts_count_too(harness: Harness, client: Client) -> None:
    near, distant = host(harness, "near", 4), host(harness, "distant", 64)
    for sequence in range(2):
        distant.send(m.Heartbeat(sequence=sequence, free_bytes=64 * GIB, latency_microseconds=100_000))
        distant.take(m.HeartbeatEcho)
    large(client, [1, 2, 3])
    harness.wait(1)
    assert sorted(counts(near, distant)) == [1, 2]


def test_they_wait_in_line_where_their_bytes_are_only_if_there_is_room() -> None:
    harness = Harness(transfer_bytes_per_second=SIZE / 1000.0, chunk_bytes=SIZE)
    first, second = Keeper(harness, slots=1), Keeper(harness, slots=1)
    submit(harness.client(), {1: [], 2: [1], 3: [1]}, [2, 3])
    made = {number: worker for worker in (first, second) for number in worker.read()}
    maker = made[1]
    other = second if maker is first else first
    for keeper in (maker, other):
        beat(keeper.peer, 4)
    harness.state.memory_needs.of = lambda batch: 3.0 * GIB
    maker.keep(1, int(SECONDS * 1e6))
    assert (maker.read(), other.read()) == ([2], [3])


def test_tasks_behind_others_are_asked_for_although_large_ones_wait(harness: Harness, client: Client) -> None:
    busy = host(harness, "busy", 4, slots=1)
    small(client, [1])
    (instance,) = given(busy)
    busy.finish([instance], busy_microseconds=50_000)
    client.take_results()
    small(client, [2, 3, 4])
    assert counts(busy) == [3], "they are short, so some wait behind one"
    large(client, [5, 6])
    free = host(harness, "free", 4)
    assert counts(free) == [1], "one of the large ones waits"
    harness.wait(1)
    assert busy.take(m.BalanceRequest).count


@pytest.mark.parametrize("which", [[2], [3, 4], [2, 3, 4, 5]])
def test_those_that_wait_can_be_cancelled(harness: Harness, client: Client, which: List[int]) -> None:
    only = host(harness, "only", 4)
    large(client, range(1, 6))
    running = given(only)
    client.cancel(*which)
    confirms = client.take_confirms()
    assert set(confirms) == set(which) and set(confirms.values()) == {m.CancelOutcome.CANCELLED}
    finish(only, running, client)
    assert counts(only) == [1 if len(which) < 4 else 0]


def test_cancelled_tasks_are_not_set_apart(harness: Harness, client: Client) -> None:
    large(client, range(1, 7))
    client.cancel(2, 3, 5)
    client.take_confirms()
    only = host(harness, "only", 4)
    assert counts(only) == [1]
    assert len(harness.state.ready) == 2


def test_one_task_that_needed_more_is_forgotten_as_others_end(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 64, slots=16)
    see(client, only, 64, 50, SECONDS, task=1, function=client.object_id(LARGE))
    large(client, range(2, 200))
    running = given(only)
    assert len(running) == 1
    ended, most = 0, 1
    while most < 16:
        only.finish(running[:1], busy_microseconds=int(SECONDS * 1e6))
        client.take_results()
        running = running[1:] + given(only)
        ended, most = ended + 1, len(running)
    assert ended < 100


def test_what_a_process_keeps_is_not_taken_for_what_the_next_task_needs(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 14)
    large(client, [1])
    running = given(only)
    beat(only, 4, running, 10)
    finish(only, running, client)
    beat(only, 4, [0], 10)
    small(client, [2])
    running = given(only)
    beat(only, 4, running, 10)
    only.finish(running, busy_microseconds=int(SECONDS * 1e6))
    client.take_results()
    small(client, [3, 4, 5])
    assert counts(only) == [3]


def test_explain_says_what_it_waits_for(harness: Harness, client: Client) -> None:
    only = host(harness, "only", 4)
    large(client, [1, 2])
    assert counts(only) == [1]
    client.send(m.ExplanationRequest(request_id=1, task_id=2))
    clause = "the large tasks on the hosts with a free slot leave too little memory there"
    assert client.take(m.Explanation).text == f"the task waits because {clause}: it may need 3.1 GB"
    harness.wait(1)
    harness.wait(6)
    told = [message.text for message, _ in client.inbox if isinstance(message, m.Explanation)]
    assert told == [f"1 task waits because {clause}"]


def test_the_tasks_of_a_client_that_goes_are_gone(harness: Harness, client: Client) -> None:
    other = newcomer(harness)
    only = host(harness, "only", 4)
    large(client, range(1, 6))
    running = given(only)
    client.vanish()
    assert len(harness.state.ready) == 0
    large(other, [1])
    cancel = next(message for message, _ in only.inbox if isinstance(message, m.TaskCancel))
    assert list(cancel.ids) == running
    assert counts(only) == [1]


def test_hosts_are_not_looked_at_for_each_message(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = host(harness, "only", 4, slots=8)
    large(client, range(1, 6))
    assert counts(only) == [1]
    memory = harness.core._placement.memory
    looks: List[object] = []
    room_of = memory._room_of

    def look(worker: WorkerSession) -> Room:
        looks.append(worker)
        return room_of(worker)

    monkeypatch.setattr(memory, "_room_of", look)
    for number in range(10, 30):
        small(client, [number])
        harness.now += 0.001
    assert len(looks) <= 1
