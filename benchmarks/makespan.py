"""How well tasks of different durations are spread: the time that they take, beside the time that they must take.

The tasks sleep, so that ten workers need no ten cores. The ideal is the sum of their durations divided by the slots,
from the first submit on; a slot that comes later counts from the start of its first task. Nothing can be faster.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from engines import Engine
from processes import cpu_between, read_cpu
from tasks import sleep_and_tell
from workloads import Figures, WrongResultError

SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 0.1
LATE_AFTER = 0.3  # of the ideal time
_STARTING_SECONDS = 60.0

STYLES = ("one host", "one host a worker", "one more, late")


def measure_makespan(engine: Engine, workers: int, tasks: int, style: str) -> Figures:
    """Sleep `tasks` times for 10 to 100 ms. The engine was started with all workers, or with the first of them."""
    for _ in range(workers - 1 if style != STYLES[0] else 0):
        engine.add_worker()
    initial = _wait_for_workers(engine, workers)
    chance = random.Random(2)
    durations = [chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) for _ in range(tasks)]
    timer = threading.Timer(LATE_AFTER * sum(durations) / workers, engine.add_worker)
    before = read_cpu()
    started = time.monotonic()
    if style == STYLES[2]:
        timer.start()
    handles = [engine.submit(sleep_and_tell, seconds) for seconds in durations]
    told = [engine.result(handle) for handle in handles]
    finished = time.monotonic()
    used = cpu_between(before, read_cpu())
    late = [start for process, start in told if process not in initial]
    if (style == STYLES[2]) != bool(late):
        raise WrongResultError(f"{len(late)} tasks ran on a worker that came late")
    ideal = _ideal_seconds(sum(durations), workers, min(late) - started if late else 0.0, bool(late))
    return {
        "makespan_by_ideal": (finished - started) / ideal,
        "seconds": finished - started,
        "ideal_seconds": ideal,
        "late_worker_seconds": min(late) - started if late else "–",
        "late_worker_tasks": float(len(late)) if late else "–",
        "other_jobs_cores": used.other_jobs_cores,
    }


def _wait_for_workers(engine: Engine, workers: int) -> set[int]:
    """Give all of them something to do until each has done some of it; returns their processes."""
    processes: set[int] = set()
    deadline = time.monotonic() + _STARTING_SECONDS
    while len(processes) < workers:
        if time.monotonic() > deadline:
            raise WrongResultError(f"{len(processes)} of {workers} workers have run something")
        handles: list[Any] = [engine.submit(sleep_and_tell, SHORTEST_SECONDS) for _ in range(4 * workers)]
        processes.update(engine.result(handle)[0] for handle in handles)
    return processes


def _ideal_seconds(work_seconds: float, workers: int, late_after: float, is_one_late: bool) -> float:
    if not is_one_late:
        return work_seconds / workers
    return late_after + (work_seconds - workers * late_after) / (workers + 1)
