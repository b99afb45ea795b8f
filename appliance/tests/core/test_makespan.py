"""How long everything takes: real decisions in virtual time, and workers that do what the agent does.

The ideal is the work divided by the slots that are there, from the moment they are there; nothing can be faster. Tasks
of 10 to 100 ms, as users' are, may take a tenth more.
"""

from __future__ import annotations

import heapq
from collections import deque
from random import Random
from typing import Callable, Deque, Dict, List, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker

from scaler_protocol import messages as m

HOP_SECONDS = 0.0005
"""From one process to the other."""

TASKS = 1000
PATIENCE_SECONDS = 1000.0


class Machine:
    """A worker in virtual time: first come, first served; asked for tasks, it gives back those that came last."""

    def __init__(self, cluster: VirtualCluster, slots: int, queue_size: int) -> None:
        self._cluster = cluster
        self.slots = slots
        self.peer: Worker = cluster.harness.worker(slots, queue_size)
        self.running = 0
        self.most_queued = 0
        self._queue: Deque[Tuple[int, int]] = deque()  # instances, and the numbers of their tasks

    def read(self) -> None:
        """Messages arrive."""
        while self.peer.inbox:
            if isinstance(self.peer.inbox[0][0], m.Task):
                instances = self.peer.take_tasks()
                self._queue.extend(zip(instances, map(int, self.peer.payloads)))
                continue
            request, _ = self.peer.inbox.popleft()
            assert isinstance(request, m.BalanceRequest), f"tasks are moved by asking, not by {request}"
            self._cluster.requests += 1
            given = [self._queue.pop()[0] for _ in range(min(request.count, len(self._queue)))]
            self._cluster.send(lambda request=request, given=given: self.peer.give_back(given, request.request_id))
        self.most_queued = max(self.most_queued, len(self._queue))
        self._start_some()

    def _start_some(self) -> None:
        while self._queue and self.running < self.slots:
            instance, task = self._queue.popleft()
            self.running += 1
            self._cluster.starts.append(task)
            seconds = self._cluster.durations[task]
            self._cluster.after(seconds, lambda instance=instance, seconds=seconds: self._end(instance, seconds))

    def _end(self, instance: int, seconds: float) -> None:
        self.running -= 1
        self._cluster.send(lambda: self.peer.finish([instance], busy_microseconds=int(seconds * 1e6)))
        self._start_some()


class VirtualCluster:
    """A scheduler core, a client, machines; and a clock that jumps from event to event."""

    def __init__(self, durations: List[float]) -> None:
        self.harness = Harness()
        self.client: Client = self.harness.client()
        self.durations = durations  # by task, in seconds
        self.machines: List[Machine] = []
        self.starts: List[int] = []
        self.requests = 0
        self.finished: Dict[int, float] = {}
        self._events: List[Tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.after(1.0, self._tick)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.harness.now + seconds, self._sequence, action))

    def send(self, message: Callable[[], None]) -> None:
        """To the scheduler; its answers arrive a moment later."""
        self.after(HOP_SECONDS, lambda: (message(), self._deliver()))  # type: ignore[func-returns-value]

    def _tick(self) -> None:
        self.harness.tick()
        self._deliver()
        self.after(1.0, self._tick)

    def _deliver(self) -> None:
        while self.client.inbox:
            message, _ = self.client.inbox.popleft()
            if isinstance(message, m.TaskResult):
                self.finished.update(dict.fromkeys(message.ids, self.harness.now))
        for machine in self.machines:
            if machine.peer.inbox:
                self.after(HOP_SECONDS, machine.read)

    def join(self, slots: int = 1, queue_size: int = 1000) -> None:
        """One more worker."""
        self.machines.append(Machine(self, slots, queue_size))
        self.harness.tick()
        self._deliver()

    def submit(self, numbers: range) -> None:
        for first in numbers[::100]:  # as clients do: in batches
            self.client.submit(range(first, min(first + 100, numbers.stop)))
        self._deliver()

    def run(self) -> float:
        """Until all tasks have their result; returns the time."""
        while len(self.finished) < len(self.durations):
            self.harness.now, _, action = heapq.heappop(self._events)
            assert self.harness.now < PATIENCE_SECONDS, f"{len(self.finished)} of {len(self.durations)} are done"
            for peer in self.harness.peers.values():
                self.harness.state.sessions[peer.name].last_heard = self.harness.now
            action()
        assert sorted(self.starts) == sorted(range(len(self.durations))), "each task was started once"
        return max(self.finished.values())


def mixed(seed: int) -> List[float]:
    random = Random(seed)
    return [random.uniform(0.01, 0.1) for _ in range(TASKS)]


def ideal_seconds(durations: List[float], joined_at: List[float]) -> float:
    """When the work is done if each slot works from its joining on."""
    left = sum(durations)
    for slots, (start, stop) in enumerate(zip(joined_at, [*joined_at[1:], float("inf")]), 1):
        if left <= slots * (stop - start):
            return start + left / slots
        left -= slots * (stop - start)
    raise AssertionError("the last slot stays for ever")


ORDERS: Dict[str, Callable[[int], List[float]]] = {
    "mixed": mixed,
    "long tasks last": lambda seed: sorted(mixed(seed)),
    "short tasks last": lambda seed: sorted(mixed(seed), reverse=True),
    "short, then long": lambda seed: [0.01] * (TASKS * 9 // 10) + [0.1] * (TASKS // 10),
}


@pytest.mark.parametrize("workers_first", [True, False])
@pytest.mark.parametrize("slots", [1, 2, 10])
@pytest.mark.parametrize("order", ORDERS)
def test_ten_slots_are_done_within_a_tenth_of_the_ideal(order: str, slots: int, workers_first: bool) -> None:
    cluster = VirtualCluster(ORDERS[order](7))
    if not workers_first:
        cluster.submit(range(TASKS))
    for _ in range(10 // slots):
        cluster.join(slots)
    if workers_first:
        cluster.submit(range(TASKS))
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0] * 10)


@pytest.mark.parametrize("progress", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("order", ORDERS)
def test_a_worker_that_joins_late_takes_its_share(order: str, progress: float) -> None:
    cluster = VirtualCluster(ORDERS[order](8))
    joins_at = progress * ideal_seconds(cluster.durations, [0.0] * 10)
    for _ in range(10):
        cluster.join()
    cluster.submit(range(TASKS))
    cluster.after(joins_at, cluster.join)
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0] * 10 + [joins_at])


@pytest.mark.parametrize("newcomers", [1, 4])
def test_who_joins_when_nothing_waits_takes_from_the_queue_of_another(newcomers: int) -> None:
    """Tasks were short until now: as many were sent ahead as a worker's queue holds, and these are not."""
    cluster = VirtualCluster([0.0001] * 100 + [0.05] * 900)
    cluster.join()
    cluster.submit(range(TASKS))
    cluster.after(1.2, lambda: [cluster.join() for _ in range(newcomers)] and None)
    seconds = cluster.run()
    assert cluster.machines[0].most_queued > 800, "there was something to take"
    assert seconds <= 1.1 * ideal_seconds(cluster.durations, [0.0] + [1.2] * newcomers)


def test_work_is_moved_when_a_slot_is_free_and_not_only_now_and_then() -> None:
    """Half of the tasks take longer than all before: whoever is done with the short ones gets some of the others'."""
    cluster = VirtualCluster([0.001] * 500 + [0.1, 0.001] * 20)
    cluster.join()
    cluster.join()
    cluster.submit(range(len(cluster.durations)))
    assert cluster.run() <= 1.1 * ideal_seconds(cluster.durations, [0.0, 0.0])


def test_the_end_of_many_short_tasks_is_not_worth_a_message() -> None:
    cluster = VirtualCluster([0.00001] * 5000)
    cluster.join()
    cluster.join()
    cluster.submit(range(5000))
    cluster.run()
    assert cluster.harness.now < 1.0, "nobody has looked at everybody meanwhile"
    assert cluster.requests == 0
