"""Workers that are quick at some functions only: each gets tasks that it is quick at, if any wait.

Most of it in virtual time: what is asserted is computed, not measured.
"""

from __future__ import annotations

from random import Random
from typing import Any, Dict, List, Optional, Sequence

import pytest
from scheduler_harness import Client, Harness
from virtual_cluster import VirtualCluster

from scaler_appliance.core.monitoring.state_tables import state_tables
from scaler_appliance.core.placement import speeds
from scaler_appliance.core.placement.ready_class import SPANS_AHEAD
from scaler_appliance.core.placement.speeds import MAXIMUM_LOOKS, Speeds
from scaler_appliance.core.tasks.pace import FUNCTIONS_OF_A_WORKER, STEP, WorkerPace
from scaler_protocol import messages as m

SLOTS = 4
SLOWNESS = 3.0
MEASURED = 64  # tasks of each function, before those that count
GRACE_SECONDS = 0.05  # for messages
ROUNDS = 24


class Crossed:
    """Two workers that have worked off tasks of two functions, each of them slow at one.

    Parameters:
        seconds: that each task takes where it is quick.
        count: tasks that count.
    """

    def __init__(self, seconds: float, count: int) -> None:
        self.cluster = VirtualCluster([seconds] * (2 * MEASURED + count))
        self.functions = [self.cluster.client.create(number, b"function") for number in (1, 2)]
        self.machines = [self.cluster.join(SLOTS) for _ in self.functions]
        for machine, function in zip(self.machines, self.functions):
            machine.slow_at = {function: SLOWNESS}
        for first, function in zip((0, MEASURED), self.functions):
            self._submit(range(first, first + MEASURED), function)
            self.cluster.run_until(range(first, first + MEASURED))
        self.cluster.advance(1.0)

    def _submit(self, numbers: range, function: int) -> None:
        self.cluster.submit(numbers, function=function, function_name="")

    def seconds_of(self, runs: Sequence[int]) -> float:
        """How long runs of tasks take that are submitted now, of the functions by turns."""
        begin, first = self.cluster.harness.now, 2 * MEASURED
        for place, length in enumerate(runs):
            self._submit(range(first, first + length), self.functions[place % 2])
            first += length
        return self.cluster.run_until(range(2 * MEASURED, first)) - begin

    def seconds_of_each(self, count: int) -> List[float]:
        """How long tasks take, one after the other, of the functions by turns."""
        found = []
        for place in range(2 * MEASURED, 2 * MEASURED + count):
            begin = self.cluster.harness.now
            self._submit(range(place, place + 1), self.functions[place % 2])
            found.append(self.cluster.run_until([place]) - begin)
        return found


@pytest.mark.parametrize(
    "task_seconds, runs", [(1.0, [4, 4]), (1.0, [1] * 40), (0.2, [1, 4, 4, 1]), (0.05, [1] * 200), (0.005, [1] * 300)]
)
def test_each_function_runs_where_it_is_quick(task_seconds: float, runs: List[int]) -> None:
    seconds = Crossed(task_seconds, sum(runs)).seconds_of(runs)
    rounds = -(-max(sum(runs[0::2]), sum(runs[1::2])) // SLOTS)
    assert seconds <= task_seconds * rounds + GRACE_SECONDS, "as if each worker had its function only"


@pytest.mark.parametrize("task_seconds, count", [(1.0, 20), (1.0, 200), (0.05, 100), (0.005, 1000)])
def test_tasks_of_one_function_are_at_both_workers_until_those_of_the_other_come(
    task_seconds: float, count: int
) -> None:
    seconds = Crossed(task_seconds, 2 * count).seconds_of([count, count])
    prefetched_seconds = max(0.1, SLOWNESS * task_seconds)
    assert seconds <= task_seconds * count / SLOTS + prefetched_seconds * SLOWNESS


def test_tasks_of_two_functions_one_after_the_other_run_where_they_are_quick() -> None:
    assert max(Crossed(0.2, 10).seconds_of_each(10)) <= 0.2 + GRACE_SECONDS


def test_many_tasks_of_one_function_are_for_both_workers() -> None:
    seconds = Crossed(0.05, 400).seconds_of([400])
    assert seconds <= 1.1 * 400 * 0.05 / (SLOTS + SLOTS / SLOWNESS)


def test_what_workers_are_equally_quick_at_is_not_waited_for() -> None:
    crossed = Crossed(1.0, 8)
    third = crossed.cluster.client.create(3, b"another")
    numbers = range(2 * MEASURED, 2 * MEASURED + 8)
    crossed.cluster.submit(numbers, function=third, function_name="")
    assert crossed.cluster.run_until(numbers) - crossed.cluster.harness.now <= 1.0 + GRACE_SECONDS


def test_tasks_of_very_different_length_do_not_make_equal_workers_quick_at_some_functions() -> None:
    random = Random(5)
    cluster = VirtualCluster([random.lognormvariate(-3.0, 1.0) for _ in range(4000)])
    functions = [cluster.client.create(number, b"function") for number in range(1, 9)]
    for _ in range(8):
        cluster.join(2)
    for place, function in enumerate(functions):
        cluster.submit(range(place * 500, (place + 1) * 500), function=function, function_name="")
    exceptions = looks = 0
    while len(cluster.finished) < 3900:
        cluster.advance(0.5)
        for worker in cluster.harness.state.workers.values():
            exceptions += len(worker.pace.exceptions)
            looks += len(functions)
    assert looks > 0 and exceptions <= 0.05 * looks, "by chance"


# What passes what -----------------------------------------------------------------------------------------------------


class Pair:
    """Two workers with one slot, each quick at one function: the other one takes four times as long there."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.client = harness, harness.client()
        self.workers = [harness.worker() for _ in range(2)]
        self.functions = [self.client.create(number, b"function") for number in (1, 2)]
        self.running: List[List[int]] = [[], []]
        self.asked = [0, 0]  # tasks that they should have given back, in all
        self.last_tasks: Dict[Client, int] = {}
        for place in range(2):
            self.work_off(place, (1.0, 4.0) if place == 0 else (4.0, 1.0))

    def work_off(self, function: int, seconds: Sequence[float]) -> None:
        for _ in range(ROUNDS):
            self.submit(2, function)
            while any(self.taken()):
                for worker, each in enumerate(seconds):
                    self.finish(worker, each)
            self.client.inbox.clear()

    def submit(
        self,
        count: int,
        function: int,
        client: Optional[Client] = None,
        codec: str = "",
        priority: int = 0,
        gpu: int = 0,
    ) -> int:
        """Tasks of a function, at once; returns the last one."""
        client = client or self.client
        first = self.last_tasks.get(client, 0) + 1
        self.last_tasks[client] = first + count - 1
        ids = range(first, first + count)
        needs = [m.Capability(name="gpu", amount=gpu)] if gpu else []
        client.submit(
            ids,
            function=self.functions[function],
            function_name="",
            codec=codec,
            options=m.TaskOptions(priority=priority, capabilities=needs),
        )
        return first + count - 1

    def taken(self) -> List[List[int]]:
        """What the workers got since last asked: the functions."""
        found: List[List[int]] = []
        for worker, running in zip(self.workers, self.running):
            found.append([])
            while worker.inbox:
                message, _ = worker.inbox.popleft()
                if isinstance(message, m.Task):
                    running += message.ids
                    found[-1] += [self.functions.index(message.function)] * len(message.ids)
                elif isinstance(message, m.BalanceRequest):
                    self.asked[self.workers.index(worker)] += message.count
                    worker.give_back([], message.request_id)
        return found

    def finish(self, worker: int, seconds: float = 1.0) -> None:
        """A worker has done what it has."""
        instances, self.running[worker] = self.running[worker], []
        for instance in instances:
            self.workers[worker].finish([instance], busy_microseconds=int(seconds * 1e6))


@pytest.fixture
def pair(harness: Harness) -> Pair:
    """The first one runs a task that it is quick at."""
    pair = Pair(harness)
    pair.submit(1, 0)
    assert pair.taken() == [[0], []]
    return pair


def test_a_task_passes_one_that_waits_for_another_worker(pair: Pair) -> None:
    pair.submit(1, 0)
    assert pair.taken() == [[], []]
    pair.submit(1, 1)
    assert pair.taken() == [[], [1]]


def test_what_is_passed_waits_no_longer_than_it_would_have_taken(harness: Harness, pair: Pair) -> None:
    """The worker that is waited for has more urgent tasks all the time."""
    pair.submit(1, 0)
    waited_seconds = 0
    while True:
        pair.submit(1, 0, priority=1)
        pair.submit(1, 1)
        taken = pair.taken()[1]
        if taken == [0]:
            break
        assert taken == [1] and waited_seconds <= 5, "it takes four seconds there"
        harness.wait(1.0)
        waited_seconds += 1
        pair.finish(0)
        assert pair.taken()[0] == [0]
        pair.finish(1)
    assert waited_seconds >= 4


def test_while_others_of_its_batch_are_taken_a_task_may_be_passed(harness: Harness, pair: Pair) -> None:
    pair.submit(38, 0)
    pair.submit(40, 1)
    assert pair.taken() == [[], [0]], "so many that both are needed"
    pair.finish(1, 4.0)
    assert pair.taken() == [[], [1]]
    for _ in range(20):
        harness.wait(1.0)
        for worker in range(2):
            pair.finish(worker)
        assert pair.taken() == [[0], [1]]


def test_no_more_pass_than_are_taken(pair: Pair) -> None:
    pair.submit(1, 0)
    pair.submit(20, 1)
    assert pair.taken() == [[], [1]]
    pair.workers[0].vanish()
    pair.finish(1)
    assert pair.taken()[1] == [0], "it is the next one again"


def test_a_task_of_another_client_passes_and_the_turn_is_given_back(harness: Harness, pair: Pair) -> None:
    other = harness.client()
    pair.functions.append(other.create(1, b"third"))
    pair.submit(2, 0)
    pair.submit(4, 2, other)
    assert pair.taken() == [[], [2, 2]]
    pair.finish(0)
    assert pair.taken() == [[0], []], "it is still the turn of the client that was passed"


def test_a_worker_that_is_gone_is_not_waited_for(harness: Harness, pair: Pair) -> None:
    pair.workers[0].vanish()
    assert pair.taken()[1] == [0]
    harness.state.check_invariants()


def test_nothing_passes_if_no_one_is_waited_for(harness: Harness, pair: Pair) -> None:
    pair.workers[0].congest()
    pair.submit(1, 1)
    assert pair.taken() == [[], [1]]
    pair.submit(1, 0)
    pair.submit(1, 1)
    pair.finish(1)
    assert pair.taken() == [[], [0]]


def test_no_slot_waits_for_tasks_of_another_class(harness: Harness, pair: Pair) -> None:
    pair.workers.append(harness.worker(gpu=1.0))
    pair.running.append([])
    pair.submit(1, 1, gpu=1)
    assert pair.taken() == [[], [], [1]]
    pair.submit(40, 0)
    pair.submit(2, 1, gpu=1)
    for _ in range(2):
        assert pair.taken()[1] == [0]
        pair.finish(1, 4.0)


def test_a_worker_that_is_slow_at_most_gets_what_it_is_quick_at(harness: Harness, pair: Pair) -> None:
    """It is looked for each time, also where tasks with usual prices come first."""
    pair.functions.append(pair.client.create(3, b"usual"))
    slow = harness.state.workers[pair.workers[1].session]
    slow.pace.factor, slow.pace.exceptions = 64.0, {pair.functions[1]: 1.0}
    harness.core._placement.speeds.update(slow)
    harness.state.durations.set(pair.functions[2], 1e6)
    for _ in range(3):
        pair.submit(1, 2)
        assert pair.taken() == [[], []]
    pair.submit(1, 1)
    assert pair.taken() == [[], [1]]


def test_tasks_in_line_are_not_asked_for_to_run_where_their_function_is_slow(harness: Harness, pair: Pair) -> None:
    pair.functions.append(pair.client.create(3, b"short"))
    pair.finish(0)
    pair.work_off(2, (0.05, 0.2))
    harness.wait(1.0)
    pair.taken()
    pair.asked = [0, 0]
    pair.submit(2, 2)
    assert pair.taken() == [[2, 2], []], "one is in line"
    harness.wait(0.1)
    harness.nothing_else_was_sent()


def test_the_state_of_a_scheduler_says_what_a_worker_is_slow_at(harness: Harness) -> None:
    client, worker = harness.client(), harness.state.workers[harness.worker().session]
    function = client.create(1, b"function")
    harness.state.objects.find(function).name = "train"
    worker.pace.exceptions = {("parse", "default"): 3.0, function: 0.5}
    assert state_tables(harness.state)["workers"][0]["paces_of_functions"] == "parse 3.000, train 0.500"


def test_who_asks_is_told_how_much_longer_it_would_take(pair: Pair) -> None:
    task_id = pair.submit(1, 0)
    pair.client.send(m.ExplanationRequest(request_id=1, task_id=task_id))
    assert pair.client.take(m.Explanation).text == (
        "the task waits because where a slot is free, it would take 3.8 times as long: others are likely to end it"
        " sooner"
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def measured(pace: WorkerPace, function: object, ratio: float, reports: int = 30) -> WorkerPace:
    for _ in range(reports):
        pace.measure(function, ratio)
    return pace


def test_a_worker_that_is_slow_at_everything_is_slow_at_what_is_not_known() -> None:
    pace = measured(measured(WorkerPace(), "f", 3.0), "g", 3.0)
    assert pace.of("f") == pace.of("another") == pytest.approx(STEP**5) and not pace.exceptions


def test_a_worker_may_be_slow_at_one_function() -> None:
    pace = WorkerPace()
    for _ in range(30):
        measured(measured(pace, "f", 3.0, 1), "g", 1.0, 1)
    assert pace.of("f") > 2.0 and pace.of("g") == 1.0


def test_a_function_of_which_little_is_known_is_as_quick_as_all_others() -> None:
    pace = measured(measured(WorkerPace(), "f", 3.0), "g", 1.0, 3)
    assert pace.of("g") == pace.factor > 2.0


def test_few_reports_of_a_function_that_differ_say_nothing() -> None:
    pace = measured(WorkerPace(), "usual", 1.0, 200)
    for ratio in (1.9, 1.3, 1.5, 1.8):
        pace.measure("f", ratio)
    assert not pace.exceptions


def test_a_worker_that_recovers_has_no_exceptions() -> None:
    pace = measured(measured(WorkerPace(), "f", 1.0, 200), "g", 3.0)
    assert pace.of("g") > 2.0
    measured(pace, "g", 1.0, 200)
    assert not pace.exceptions


def test_the_functions_of_a_worker_that_were_measured_last_are_known() -> None:
    pace = WorkerPace()
    for _ in range(10):
        measured(measured(pace, "usual", 1.0, 19), "slow", 4.0, 1)
    assert list(pace.exceptions) == ["slow"]
    assert not any(pace.measure(f"function {number}", 1.0) for number in range(FUNCTIONS_OF_A_WORKER - 2))
    measured(pace, "usual", 1.0, 1)
    assert pace.measure("one more", 1.0), "something has changed"
    assert not pace.exceptions


# Prices ---------------------------------------------------------------------------------------------------------------


def test_prices_of_a_function_end_with_its_last_exception(harness: Harness) -> None:
    first, second = (harness.state.workers[harness.worker().session] for _ in range(2))
    table = Speeds(harness.state)
    for worker in (first, second):
        table.add(worker)
    assert table.of("f") is table.usual and not table.differ
    first.pace.exceptions = {"f": 3.0}
    table.update(first)
    prices = table.of("f")
    assert [table.differ, table.usual.differ] == [True, False]
    assert (prices.of(first), prices.of(second), prices.cheapest, prices.differ) == (3.0, 1.0, 1.0, True)
    second.pace.exceptions = {"f": 3.0, "g": 2.0}
    table.update(second)
    assert table.of("f") is prices and (prices.cheapest, prices.differ) == (3.0, False)
    table.remove(second)
    assert (table.of("f").cheapest, table.of("g")) == (3.0, table.usual)
    first.pace.exceptions = {}
    table.update(first)
    assert table.of("f") is table.usual and not table.differ


@pytest.mark.parametrize("are_alike", [True, False])
def test_looking_ahead_costs_the_same_however_many_workers_there_are(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, are_alike: bool
) -> None:
    pair, looks = Pair(harness), 0
    usual = speeds.Speeds._is_quick_at

    def count(self: Speeds, *arguments: Any) -> bool:
        nonlocal looks
        looks += 1
        return usual(self, *arguments)

    monkeypatch.setattr(speeds.Speeds, "_is_quick_at", count)
    for number in range(200):
        session = harness.state.workers[harness.worker().session]
        session.pace.exceptions = dict.fromkeys(pair.functions, 64.0 if are_alike else 64.0 + number)
        harness.core._placement.speeds.update(session)
    for _ in range(SPANS_AHEAD):
        pair.submit(1, 0)
    looks = 0
    pair.submit(1, 0)
    assert 0 < looks <= SPANS_AHEAD * (3 if are_alike else MAXIMUM_LOOKS)
