"""The workloads that every engine runs alike: submit, map, round trips, large data.

Each takes a started engine and returns its figures as one flat dictionary, units in the names. Each checks
the results it got: a fast wrong answer is an error, not a figure. Warm-up comes before each clock starts.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Union

from engines import Engine
from processes import cpu_between, read_cpu
from tasks import array_memory, make_bytes, no_op, pause, sum_slice

Figures = dict[str, Union[float, str]]

LARGE_BYTES = 100 * 1000 * 1000
LARGE_REPETITIONS = 5
TASKS_PER_OBJECT = 10
_WARM_UP_TASKS = 500
_WARM_UP_PAUSE_SECONDS = 0.02
_WARM_UP_CALLS = 100


class WrongResultError(Exception):
    """An engine returned something else than the right answer."""


def warm_up(engine: Engine, workers: int) -> None:
    """Make every worker process run something, and each side import and cache what it needs."""
    pauses = [engine.submit(pause, _WARM_UP_PAUSE_SECONDS) for _ in range(workers * 4)]
    for handle in pauses:
        engine.result(handle)
    handles = [engine.submit(no_op, number) for number in range(_WARM_UP_TASKS)]
    for handle in handles:
        engine.result(handle)


def measure_submit(engine: Engine, tasks: int) -> Figures:
    """Submit `tasks` no-ops, then ask each handle for its result."""
    before = read_cpu()
    started = time.perf_counter()
    handles = [engine.submit(no_op, number) for number in range(tasks)]
    submitted = time.perf_counter()
    results = [engine.result(handle) for handle in handles]
    finished = time.perf_counter()
    used = cpu_between(before, read_cpu())
    _check_range(results, tasks)
    return {
        "seconds": finished - started,
        "microseconds_per_task": (finished - started) / tasks * 1e6,
        "submit_microseconds_per_task": (submitted - started) / tasks * 1e6,
        "cpu_microseconds_per_task": used.total_seconds / tasks * 1e6,
        "client_cpu_microseconds_per_task": used.own_seconds / tasks * 1e6,
        "other_jobs_cores": used.other_jobs_cores,
    }


def measure_map(engine: Engine, tasks: int, style: str) -> Figures:
    """Map a no-op over `tasks` integers."""
    items = list(range(tasks))
    engine.map(no_op, items[:_WARM_UP_TASKS], style)
    before = read_cpu()
    started = time.perf_counter()
    results = engine.map(no_op, items, style)
    finished = time.perf_counter()
    used = cpu_between(before, read_cpu())
    _check_range(results, tasks)
    return {
        "seconds": finished - started,
        "microseconds_per_task": (finished - started) / tasks * 1e6,
        "cpu_microseconds_per_task": used.total_seconds / tasks * 1e6,
        "other_jobs_cores": used.other_jobs_cores,
    }


def measure_round_trip(engine: Engine, calls: int) -> Figures:
    """One call at a time: submit, wait for the result, again."""
    for number in range(_WARM_UP_CALLS):
        engine.result(engine.submit(no_op, number))
    before = read_cpu()
    microseconds = []
    results = []
    for number in range(calls):
        started = time.perf_counter()
        results.append(engine.result(engine.submit(no_op, number)))
        microseconds.append((time.perf_counter() - started) * 1e6)
    used = cpu_between(before, read_cpu())
    _check_range(results, calls)
    microseconds.sort()
    return {
        "p50_microseconds": statistics.median(microseconds),
        "p99_microseconds": microseconds[min(calls - 1, round(calls * 0.99))],
        "maximum_microseconds": microseconds[-1],
        "cpu_microseconds_per_call": used.total_seconds / calls * 1e6,
        "other_jobs_cores": used.other_jobs_cores,
    }


def measure_large_argument(engine: Engine, size: int) -> Figures:
    """submit(len, bytes): new bytes each time, so that caches do not help."""
    seconds = []
    for repetition in range(LARGE_REPETITIONS):
        value = bytes([repetition + 1]) * size
        started = time.perf_counter()
        length = engine.result(engine.submit(len, value))
        seconds.append(time.perf_counter() - started)
        _check(length == size, f"len of {size} bytes came back as {length}")
    return {
        "median_seconds": statistics.median(seconds),
        "total_seconds": sum(seconds),
        "first_seconds": seconds[0],
    }


def measure_large_result(engine: Engine, size: int) -> Figures:
    """A task that makes and returns bytes."""
    seconds = []
    for _ in range(LARGE_REPETITIONS):
        started = time.perf_counter()
        value = engine.result(engine.submit(make_bytes, size))
        seconds.append(time.perf_counter() - started)
        _check(len(value) == size, f"asked for {size} bytes, got {len(value)}")
        del value
    return {
        "median_seconds": statistics.median(seconds),
        "total_seconds": sum(seconds),
        "first_seconds": seconds[0],
    }


def measure_large_array(engine: Engine, size: int) -> Figures:
    """Place one NumPy array, use it in ten tasks; then ask a task where the array's memory lies."""
    import numpy

    place_seconds, total_seconds = [], []
    answers: list[tuple[float, bool, bool]] = []
    where: set[str] = set()
    for repetition in range(LARGE_REPETITIONS):
        array = numpy.full(size // 8, float(repetition + 1))
        expected = float(len(array) // TASKS_PER_OBJECT * (repetition + 1))
        started = time.perf_counter()
        reference = engine.send_object(array)
        placed = time.perf_counter()
        handles = [
            engine.submit(sum_slice, reference, position, TASKS_PER_OBJECT) for position in range(TASKS_PER_OBJECT)
        ]
        answers = [engine.result(handle) for handle in handles]
        total_seconds.append(time.perf_counter() - started)
        place_seconds.append(placed - started)
        _check(all(total == expected for total, _, _ in answers), "a slice has a wrong sum")
        where.add(engine.result(engine.submit(array_memory, reference)))
    return {
        "median_seconds": statistics.median(total_seconds),
        "total_seconds": sum(total_seconds),
        "first_seconds": total_seconds[0],
        "place_seconds": statistics.median(place_seconds) if engine.sends_objects else "sent each time",
        "array_owns_data": _one_word(str(owns) for _, owns, _ in answers),
        "array_has_base": _one_word(str(base) for _, _, base in answers),
        "array_memory": _one_word(where),
    }


def _one_word(words: Any) -> str:
    return "/".join(sorted(set(words)))


def _check_range(results: list[Any], count: int) -> None:
    _check(results == list(range(count)), f"the results are not 0 to {count - 1} in order")


def _check(right: bool, what: str) -> None:
    if not right:
        raise WrongResultError(what)
