"""Workers differ in speed: tasks go to quick ones first, and to slow ones only where that ends the work sooner.

Most of it in virtual time: what is asserted is computed, not measured.
"""

from __future__ import annotations

from random import Random
from typing import List, Sequence, Set, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker, options
from virtual_cluster import VirtualCluster

from scaler_appliance.core.placement.speeds import Speeds
from scaler_appliance.core.tasks.pace import LEAST_MICROSECONDS, STEP, Pace, Typical
from scaler_protocol import messages as m

SLOTS = 4
SLOWNESS = 3.0
MEASURED = 64  # tasks, before those that count
GRACE_SECONDS = 0.05  # for messages


def paces(harness: Harness) -> Set[float]:
    return {worker.pace.factor for worker in harness.state.workers.values()}


class Mixed:
    """A quick and a slow worker that have worked off some tasks together, each as long as the first that counts."""

    def __init__(self, durations: Sequence[float], slowness: float = SLOWNESS, is_quick_first: bool = True) -> None:
        self.cluster = VirtualCluster([durations[0]] * MEASURED + list(durations))
        pair = [self.cluster.join(SLOTS, slowness=each) for each in sorted((1.0, slowness), reverse=not is_quick_first)]
        self.quick, self.slow = pair if is_quick_first else pair[::-1]
        self.cluster.submit(range(MEASURED))
        self.cluster.run_until(range(MEASURED))
        self.cluster.advance(1.0)

    def seconds(self, start: int, stop: int) -> float:
        """How long these tasks take, submitted now, counted from those that were measured."""
        begin = self.cluster.harness.now
        numbers = range(MEASURED + start, MEASURED + stop)
        self.cluster.submit(numbers)
        return self.cluster.run_until(numbers) - begin


@pytest.mark.parametrize("is_quick_first", [True, False])
@pytest.mark.parametrize(
    "count, seconds",
    [
        (1, 1.0),
        (4, 1.0),  # all at the quick worker
        (6, 2.0),  # the others wait for it: at the slow one they would take three seconds
        (8, 2.0),
        (12, 3.0),
        (16, 3.0),  # four at the slow one: it has done them in time
        (20, 4.0),
        (28, 6.0),  # eight at the slow one
    ],
)
def test_few_long_tasks_take_no_longer_than_they_must(count: int, seconds: float, is_quick_first: bool) -> None:
    assert Mixed([1.0] * count, is_quick_first=is_quick_first).seconds(0, count) <= seconds + GRACE_SECONDS


@pytest.mark.parametrize("task_seconds", [0.005, 0.05, 0.3])
def test_much_work_is_divided_by_speed(task_seconds: float) -> None:
    count = int(20.0 / task_seconds)
    seconds = Mixed([task_seconds] * count).seconds(0, count)
    ideal = count * task_seconds / (SLOTS + SLOTS / SLOWNESS)
    assert seconds <= 1.05 * ideal + SLOWNESS * task_seconds


def test_one_task_after_the_other_goes_to_the_quick_worker() -> None:
    mixed = Mixed([0.2] * 10, is_quick_first=False)
    assert all(mixed.seconds(place, place + 1) <= 0.2 + GRACE_SECONDS for place in range(10))


def test_tasks_of_very_different_length_do_not_make_equal_workers_slow() -> None:
    random = Random(5)
    durations = [random.lognormvariate(-3.0, 1.0) for _ in range(3000)]
    cluster = VirtualCluster(durations)
    machines = [cluster.join(2) for _ in range(8)]
    cluster.submit(range(3000))
    factors: List[float] = []
    while len(cluster.finished) < 2900:
        cluster.advance(0.5)
        factors += [worker.pace.factor for worker in cluster.harness.state.workers.values()]
    assert len(machines) * 30 < len(factors)
    assert sum(each != 1.0 for each in factors) <= 0.05 * len(factors), "by chance"
    assert max(factors) <= STEP**2 and min(factors) >= STEP**-2


def test_tasks_that_come_to_take_longer_make_no_worker_slow() -> None:
    """The worker that gets the first of the long ones takes much longer than tasks of the function took before."""
    durations = [0.002] * 40 + [1.0] * 40 + [0.002] * 40 + [0.2] * 40
    mixed = Mixed(durations, slowness=1.0)
    for first in range(0, len(durations), 8):
        mixed.seconds(first, first + 8)
        assert paces(mixed.cluster.harness) == {1.0}


def test_a_worker_that_recovers_is_slow_no_longer() -> None:
    mixed = Mixed([0.5] * 200)
    mixed.slow.slowness = 1.0
    mixed.seconds(0, 190)
    assert mixed.seconds(190, 198) <= 0.5 + GRACE_SECONDS


# What is waited for, and for how long ---------------------------------------------------------------------------------


ROUNDS = 12


def work_off(client: Client, workers: Sequence[Worker], function: str, *seconds: float, first: int = 0) -> None:
    """Workers of one slot work off some tasks, which take so long at each."""
    for begin in range(first, first + ROUNDS * len(seconds), len(seconds)):
        client.submit(range(begin, begin + len(seconds)), function_name=function)
        received = [received_by(worker) for worker in workers]
        while any(received):
            for worker, each, instances in zip(workers, seconds, received):
                for instance in instances:
                    worker.finish([instance], busy_microseconds=int(each * 1e6))
            received = [received_by(worker) for worker in workers]
        client.inbox.clear()


def received_by(worker: Worker) -> List[int]:
    """The tasks that came; it gives none back."""
    instances: List[int] = []
    while worker.inbox:
        if isinstance(worker.inbox[0][0], m.Task):
            instances += worker.take_tasks()
            continue
        message, _ = worker.inbox.popleft()
        if isinstance(message, m.BalanceRequest):
            worker.give_back([], message.request_id)
    return instances


def taken(*workers: Worker) -> List[int]:
    return [len(received_by(worker)) for worker in workers]


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


@pytest.fixture
def pair(harness: Harness, client: Client) -> Tuple[Worker, Worker]:
    """A quick worker, at which a task takes one second, and a slow one, at which it takes four."""
    quick, slow = harness.worker(), harness.worker()
    work_off(client, [quick, slow], "f", 1.0, 4.0)
    return quick, slow


def test_a_task_waits_no_longer_than_the_slow_worker_would_have_taken(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    client.submit([101, 102])
    assert taken(*pair) == [1, 0]
    harness.wait(3.0)
    assert taken(*pair) == [0, 0]
    harness.wait(1.5)
    assert taken(*pair) == [0, 1]


@pytest.mark.parametrize(
    "seconds, is_waiting",
    [
        (0.1, False),  # it would begin in 0.9 s there
        (0.7, True),
        (1.2, True),  # the other task is a little late
        (2.5, False),  # who knows when it ends
    ],
)
def test_what_a_task_has_run_counts(harness: Harness, client: Client, seconds: float, is_waiting: bool) -> None:
    quick, slow = harness.worker(), harness.worker()
    work_off(client, [quick, slow], "f", 1.0, 1.6)
    client.submit([101])
    assert taken(quick, slow) == [1, 0]
    harness.wait(seconds)
    client.submit([102])
    assert taken(slow) == [0 if is_waiting else 1]


def test_a_task_that_others_pass_at_the_quick_worker_waits_no_longer_either(
    client: Client, harness: Harness, pair: Tuple[Worker, Worker]
) -> None:
    quick, slow = pair
    client.submit([101])
    running = quick.take_tasks()
    client.submit([102])
    waited_seconds = 0
    while not taken(slow)[0]:
        assert waited_seconds <= 5, "it takes four seconds at the slow worker"
        waited_seconds += 1
        harness.wait(1.0)
        client.submit([102 + waited_seconds], options=m.TaskOptions(priority=1))
        quick.finish(running, busy_microseconds=1_000_000)
        running = received_by(quick)
        assert quick.payloads == [str(102 + waited_seconds).encode()]
    assert waited_seconds >= 4


def test_the_wait_begins_again_when_a_task_is_placed(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    quick, slow = pair
    client.submit([101, 102, 103])
    first = quick.take_tasks()
    harness.wait(2.0)
    quick.finish(first, busy_microseconds=1_000_000)
    client.take_results()
    assert taken(quick, slow) == [1, 0]
    harness.wait(3.0)
    assert taken(quick, slow) == [0, 0]
    harness.wait(3.0)
    assert taken(quick, slow) == [0, 1]


def test_who_asks_is_told_what_a_task_waits_for(client: Client, pair: Tuple[Worker, Worker]) -> None:
    client.submit([101, 102])
    client.send(m.ExplanationRequest(request_id=1, task_id=102))
    assert client.take(m.Explanation).text == (
        "the task waits because where a slot is free, it would take 3.8 times as long: others are likely to end it"
        " sooner"
    )


def test_a_stuck_worker_that_was_asked_to_give_tasks_back_is_not_waited_for(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    quick, slow = pair
    work_off(client, pair, "short", 0.001, 0.004, first=50)
    client.submit([101, 102, 103], function_name="short")
    instances = quick.take_all_tasks()
    assert len(instances) == 3 and taken(slow) == [0]
    harness.wait(1.0)
    harness.wait(1.0)
    request = quick.take(m.BalanceRequest)
    quick.give_back(instances[-request.count :], request.request_id)
    assert taken(slow) == [request.count]


def test_a_quick_worker_that_leaves_is_not_waited_for() -> None:
    harness = Harness(protected=False)
    client, quick, slow = harness.client(), harness.worker(), harness.worker()
    work_off(client, [quick, slow], "f", 1.0, 4.0)
    client.submit([101, 102])
    assert taken(quick, slow) == [1, 0]
    client.send(m.WorkerShutdown(session=quick.session, is_draining=True))
    assert taken(slow) == [1]


def test_a_quick_worker_that_is_gone_is_not_waited_for(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    quick, slow = pair
    client.submit([101, 102])
    assert taken(quick, slow) == [1, 0]
    quick.vanish()
    assert len(slow.take_all_tasks()) >= 1
    harness.state.check_invariants()


def test_what_not_every_worker_can_run_waits_for_none(harness: Harness, client: Client) -> None:
    quick, slow = harness.worker(), harness.worker(gpu=1.0)
    work_off(client, [quick, slow], "f", 1.0, 4.0)
    assert len(paces(harness)) == 2
    client.submit([101], options=options(gpu=1.0))
    assert taken(quick, slow) == [0, 1]


def test_a_function_that_was_never_measured_waits_for_none(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    client.submit([101, 102], function_name="another")
    assert taken(*pair) == [1, 1]


def test_tasks_in_line_at_a_quick_worker_are_not_asked_for_to_run_at_a_slow_one(
    harness: Harness, client: Client, pair: Tuple[Worker, Worker]
) -> None:
    quick, slow = pair
    work_off(client, pair, "short", 0.05, 0.2, first=50)
    harness.wait(1.0)
    client.submit([101, 102], function_name="short")
    assert taken(quick, slow) == [2, 0], "they take 100 ms there, and one takes 200 ms at the other"
    harness.wait(0.1)
    harness.nothing_else_was_sent()


def test_who_is_gone_is_neither_quick_nor_slow(harness: Harness) -> None:
    quick, slow = (harness.state.workers[harness.worker().session] for _ in range(2))
    speeds = Speeds(harness.state)
    speeds.add(quick)
    slow.pace.factor = STEP**4
    speeds.add(slow)
    assert (speeds.usual.differ, speeds.usual.cheapest) == (True, 1.0)
    for _ in range(2):
        speeds.remove(quick)
        assert (speeds.usual.differ, speeds.usual.cheapest) == (False, STEP**4)
    slow.pace.factor = STEP
    speeds.update(slow)
    assert speeds.usual.cheapest == STEP
    speeds.update(quick)
    assert not speeds.usual.differ, "it is gone"


# What others need -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_and_gpu(harness: Harness, client: Client) -> Tuple[Worker, Worker]:
    """A plain worker and one with a GPU, at which a task takes one second."""
    plain, gpu = harness.worker(), harness.worker(gpu=1.0)
    work_off(client, [plain, gpu], "f", 1.0, 1.0)
    return plain, gpu


def use_gpu(client: Client, gpu: Worker) -> None:
    """A task has needed it."""
    client.submit([90], options=options(gpu=1.0))
    gpu.finish(gpu.take_tasks(), busy_microseconds=1_000_000)
    client.take_results()


@pytest.mark.parametrize("seconds, is_waiting", [(0.5, False), (0.8, True), (1.1, True), (1.5, False)])
def test_a_plain_task_waits_for_a_plain_slot_that_is_free_soon(
    harness: Harness, client: Client, plain_and_gpu: Tuple[Worker, Worker], seconds: float, is_waiting: bool
) -> None:
    plain, gpu = plain_and_gpu
    use_gpu(client, gpu)
    client.submit([101])
    first = plain.take_tasks()
    harness.wait(seconds)
    client.submit([102])
    assert taken(plain, gpu) == ([0, 0] if is_waiting else [0, 1])
    if is_waiting:
        client.send(m.ExplanationRequest(request_id=1, task_id=102))
        assert client.take(m.Explanation).text == (
            "the task waits because the free slots are of workers that other tasks need, and others will be free soon"
        )
        plain.finish(first, busy_microseconds=int(seconds * 1e6))
        assert taken(plain, gpu) == [1, 0]


def test_it_does_not_wait_for_long(harness: Harness, client: Client, plain_and_gpu: Tuple[Worker, Worker]) -> None:
    plain, gpu = plain_and_gpu
    use_gpu(client, gpu)
    client.submit([101])
    harness.wait(0.8)
    client.submit([102])
    assert taken(plain, gpu) == [1, 0]
    harness.wait(0.3)
    assert taken(plain, gpu) == [0, 0]
    harness.wait(1.0)
    assert taken(plain, gpu) == [0, 1], "the plain worker takes longer than was to be expected"


def test_a_task_that_needs_the_gpu_gets_it_while_a_plain_one_waits(
    harness: Harness, client: Client, plain_and_gpu: Tuple[Worker, Worker]
) -> None:
    plain, gpu = plain_and_gpu
    use_gpu(client, gpu)
    client.submit([101])
    harness.wait(0.8)
    client.submit([102])
    client.submit([103], options=options(gpu=1.0))
    assert taken(plain, gpu) == [1, 1]


@pytest.mark.parametrize("since_seconds, is_waiting", [(500.0, True), (700.0, False)])
def test_what_no_task_has_needed_for_ten_minutes_is_not_kept_free(
    harness: Harness,
    client: Client,
    plain_and_gpu: Tuple[Worker, Worker],
    since_seconds: float,
    is_waiting: bool,
) -> None:
    plain, gpu = plain_and_gpu
    use_gpu(client, gpu)
    for _ in range(int(since_seconds / 5)):
        harness.wait(5.0)
        for peer in (client, plain, gpu):
            peer.send(m.Heartbeat())
    taken(plain, gpu)
    client.submit([101])
    harness.wait(0.8)
    client.submit([102])
    assert taken(plain, gpu) == ([1, 0] if is_waiting else [1, 1])


def test_a_free_plain_slot_of_a_slow_worker_is_left_alone_if_the_worker_with_a_gpu_is_much_quicker(
    harness: Harness, client: Client
) -> None:
    plain, gpu = harness.worker(), harness.worker(gpu=1.0)
    work_off(client, [plain, gpu], "f", 4.0, 1.0)
    use_gpu(client, gpu)
    client.submit([101])
    assert taken(plain, gpu) == [0, 1]


def test_three_of_four_actors_go_to_the_worker_at_which_tasks_take_a_third(harness: Harness, client: Client) -> None:
    slow, quick = (harness.worker(4, features=["actors"]) for _ in range(2))
    harness.state.workers[slow.session].pace.factor = 3.0
    for number in range(1, 5):
        actor = client.create(number, b"class")
        client.submit([number], function=actor, options=options(actor=True))
        for worker in slow, quick:
            for instance in received_by(worker):
                worker.finish([instance])
    assert [len(harness.state.workers[each.session].actors) for each in (slow, quick)] == [1, 3]


# Measuring ------------------------------------------------------------------------------------------------------------


def factor_after(*ratios: float) -> float:
    pace = Pace()
    for ratio in ratios:
        pace.measure(ratio)
        pace.settle()
    return pace.factor


@pytest.mark.parametrize("ratio, factor", [(3.0, STEP**5), (2.0, STEP**3), (0.5, STEP**-3), (1.15, 1.0), (0.9, 1.0)])
def test_a_pace_goes_in_steps(ratio: float, factor: float) -> None:
    assert factor_after(*[ratio] * 10) == pytest.approx(factor)


def test_one_report_says_nothing() -> None:
    assert factor_after(10.0) == factor_after(10.0, 10.0, 10.0) == 1.0


def test_what_may_be_chance_says_nothing() -> None:
    assert factor_after(*[0.2, 4.0, 0.2, 4.0, 0.2, 4.0, 0.2]) == 1.0


def test_a_ratio_beyond_belief_does_not_stay_for_long() -> None:
    pace = Pace()
    for ratio in [1.0] * 20 + [1e9]:
        pace.measure(ratio)
        pace.settle()
    assert pace.factor == 1.0


def test_tasks_are_compared_with_those_before_them_as_a_worker_of_usual_pace_would_take() -> None:
    typical = Typical()
    assert typical.compare(30.0, 3.0) == 0.0
    assert typical.compare(10.0, 1.0) == 1.0
    assert typical.compare(30.0, 3.0) == 3.0
    assert typical.microseconds == 10.0


def test_short_work_is_not_compared(harness: Harness, client: Client) -> None:
    workers = [harness.worker() for _ in range(2)]
    longest = LEAST_MICROSECONDS / 1e6 / 2  # and a report is of no more than one
    work_off(client, workers, "f", longest / 10, longest)
    assert paces(harness) == {1.0}
