"""What several schedulers would do, simulated: jobs, slots, and schedulers that take some time for each task.

    python benchmarks/several_schedulers.py

    jobs ──▶ which scheduler? ──▶ its queue, in turns ──▶ a slot of its workers
                                        ▲
                    workers move to the scheduler at which most work waits, if they may

Rules:
- Slots are the same in all lines, and divided among the schedulers. So one scheduler without cost is the best there is.
- A scheduler is one core: it hands out one task after the other, and each takes it the same time.
- Jobs take turns at their scheduler, a task each. Nine of ten jobs are small, and the tenth has most of the work.
- A worker that moves finishes what it runs first, as when it drains, and takes a while to start elsewhere.
- Time is simulated, and chance is seeded: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Deque, NamedTuple

SLOTS_PER_WORKER = 8
LARGE_SHARE, LARGE_FACTOR = 0.1, 30
LOOK_SECONDS = 1.0  # between two looks at whether a worker should move
MOVE_SECONDS = 2.0  # to start elsewhere
WORTH_MOVING = 2.0  # times as much waits there for each slot

CHOICES = ("at random", "least work waiting", "at random, workers move")


class Job(NamedTuple):
    """Tasks that come together."""

    at: float
    seconds: tuple[float, ...]  # of each task


class Outcome(NamedTuple):
    """Attributes:
    slowdowns: of jobs: how long they took, by what they would have taken alone with all slots.
    tasks_per_second: from the first task to the last.
    """

    slowdowns: list[float]
    tasks_per_second: float


class _Worker:
    def __init__(self) -> None:
        self.running = 0
        self.is_leaving = False


class _Scheduler:
    def __init__(self, workers: int) -> None:
        self.workers = [_Worker() for _ in range(workers)]
        self.jobs: Deque[int] = deque()  # the one whose turn it is first
        self.waiting_seconds = 0.0  # of tasks that have not begun
        self.free_at = 0.0  # when it can hand out the next task

    @property
    def load_seconds(self) -> float:
        """Of work that waits, for each slot."""
        return self.waiting_seconds / max(1, SLOTS_PER_WORKER * len(self.workers))

    def free_worker(self) -> _Worker | None:
        return next((each for each in self.workers if each.running < SLOTS_PER_WORKER and not each.is_leaving), None)


class Simulation:
    """Parameters:
    schedulers: how many.
    workers: of all together; a multiple of that.
    task_cost_seconds: that a scheduler takes for each task.
    choice: one of CHOICES.
    """

    def __init__(
        self, jobs: Sequence[Job], schedulers: int, workers: int, task_cost_seconds: float, choice: str, seed: int = 1
    ) -> None:
        self._jobs = jobs
        self._cost_seconds = task_cost_seconds
        self._choice = choice
        self._chance = random.Random(seed)
        self._slots = workers * SLOTS_PER_WORKER
        self._schedulers = [_Scheduler(workers // schedulers) for _ in range(schedulers)]
        self._left = [deque(job.seconds) for job in jobs]
        self._unfinished = [len(job.seconds) for job in jobs]
        self._ended_at = [0.0] * len(jobs)
        self._events: list[tuple[float, int, str, Any]] = []
        self._count = 0
        for number, job in enumerate(jobs):
            self._at(job.at, "job", number)
        if self._moves:
            self._at(LOOK_SECONDS, "look", None)

    @property
    def _moves(self) -> bool:
        return self._choice == CHOICES[2]

    def _at(self, time: float, kind: str, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, kind, what))

    def run(self) -> Outcome:
        """Until all jobs have ended."""
        open_jobs = len(self._jobs)
        while open_jobs:
            now, _, kind, what = heapq.heappop(self._events)
            if kind == "job":
                scheduler = self._choose()
                scheduler.jobs.append(what)
                scheduler.waiting_seconds += sum(self._left[what])
            elif kind == "end":
                scheduler, worker, job = what
                worker.running -= 1
                self._unfinished[job] -= 1
                if not self._unfinished[job]:
                    self._ended_at[job] = now
                    open_jobs -= 1
                if worker.is_leaving and not worker.running:
                    self._at(now + MOVE_SECONDS, "come", None)
                    scheduler.workers.remove(worker)
            elif kind == "come":
                scheduler = max(self._schedulers, key=lambda each: each.load_seconds)
                scheduler.workers.append(_Worker())
            else:
                self._look(now)
                continue
            self._hand_out(scheduler, now)
        tasks = sum(len(job.seconds) for job in self._jobs)
        return Outcome(list(self._slowdowns()), tasks / (max(self._ended_at) - self._jobs[0].at))

    def _choose(self) -> _Scheduler:
        if self._choice == CHOICES[1]:
            return min(self._schedulers, key=lambda each: each.load_seconds)
        return self._chance.choice(self._schedulers)

    def _hand_out(self, scheduler: _Scheduler, now: float) -> None:
        while scheduler.jobs:
            worker = scheduler.free_worker()
            if worker is None:
                return
            job = scheduler.jobs.popleft()
            seconds = self._left[job].popleft()
            if self._left[job]:
                scheduler.jobs.append(job)  # others have the next turn
            scheduler.waiting_seconds -= seconds
            scheduler.free_at = max(now, scheduler.free_at) + self._cost_seconds
            worker.running += 1
            self._at(scheduler.free_at + seconds, "end", (scheduler, worker, job))

    def _look(self, now: float) -> None:
        """A worker leaves the scheduler at which least work waits, if much more waits at another one."""
        self._at(now + LOOK_SECONDS, "look", None)
        least, most = (choose(self._schedulers, key=lambda each: each.load_seconds) for choose in (min, max))
        staying = [each for each in least.workers if not each.is_leaving]
        if len(staying) < 2 or most.load_seconds <= WORTH_MOVING * least.load_seconds:
            return
        worker = min(staying, key=lambda each: each.running)
        worker.is_leaving = True
        if not worker.running:
            least.workers.remove(worker)
            self._at(now + MOVE_SECONDS, "come", None)

    def _slowdowns(self) -> Iterator[float]:
        for job, ended_at in zip(self._jobs, self._ended_at):
            alone = max(max(job.seconds), sum(job.seconds) / self._slots)
            yield (ended_at - job.at) / alone


def make_jobs(count: int, slots: int, utilisation: float, mean_task_seconds: float, seed: int = 1) -> list[Job]:
    """Jobs that come at random, and keep the slots busy for that part of the time."""
    chance = random.Random(seed)
    small_tasks = slots
    mean_tasks = small_tasks * (1 + LARGE_SHARE * (LARGE_FACTOR - 1))
    between_seconds = mean_tasks * mean_task_seconds / (slots * utilisation)
    at, jobs = 0.0, []
    for _ in range(count):
        at += chance.expovariate(1 / between_seconds)
        tasks = small_tasks * (LARGE_FACTOR if chance.random() < LARGE_SHARE else 1)
        jobs.append(Job(at, tuple(chance.expovariate(1 / mean_task_seconds) for _ in range(tasks))))
    return jobs


def main() -> int:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Simulate several schedulers.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=64, help=f"with {SLOTS_PER_WORKER} slots each")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--task-seconds", type=float, default=0.05, help="that a task takes on average")
    parser.add_argument("--cost-microseconds", type=float, default=140.0, help="that a scheduler takes for a task")
    parser.add_argument("--utilisation", type=float, default=0.6, help="of the slots")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    jobs = make_jobs(options.jobs, options.workers * SLOTS_PER_WORKER, options.utilisation, options.task_seconds)
    cost_seconds = options.cost_microseconds / 1e6
    lines = [(1, 0.0, CHOICES[0]), (1, cost_seconds, CHOICES[0])]
    lines += [(count, cost_seconds, choice) for count in (2, 4, 8) for choice in CHOICES]
    figures: list[dict[str, Any]] = []
    for schedulers, cost_seconds, choice in lines:
        found = Simulation(jobs, schedulers, options.workers, cost_seconds, choice).run()
        ordered = sorted(found.slowdowns)
        figures.append(
            {
                "schedulers": schedulers,
                "microseconds a task": round(1e6 * cost_seconds),
                "jobs go": choice if schedulers > 1 else "–",
                "slowdown, median": round(statistics.median(ordered), 2),
                "slowdown, 95 %": round(ordered[int(0.95 * len(ordered))], 2),
                "tasks a second": round(found.tasks_per_second),
            }
        )
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print("| " + " | ".join(figures[0]) + " |\n|" + " --- |" * len(figures[0]))
        print("\n".join("| " + " | ".join(map(str, each.values())) + " |" for each in figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
