"""The staged load of `growing_pools.py`, and the figures of a pool that has run it.

    STAGES ──▶ an engine submits ──▶ tasks and machines write notes ──▶ figures()

Rules:
- Tasks sleep, so that two cores are enough for all units. Each notes its begin and its end; a task without an end was
  stopped in the middle.
- The ideal knows everything: all units boot when the stage begins, and the longest task that can run goes first.
- Times are those of the machine's steady clock, which all its processes share.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, NamedTuple

UNIT_VARIABLE = "BENCHMARK_UNIT"
FLAP_SECONDS = 30.0


class TaskGroup(NamedTuple):
    """Tasks of one function.

    Attributes:
        name: of the function.
        tasks: how many there are.
        seconds: that each sleeps.
        after: the name of the group that they wait for; empty: they can run at once.
    """

    name: str
    tasks: int
    seconds: float
    after: str = ""


class Stage(NamedTuple):
    """Tasks that are submitted at once.

    Attributes:
        at: seconds from the beginning.
        groups: of tasks.
        is_impossible: there is one task more, which needs what no unit has.
    """

    at: float
    groups: tuple[TaskGroup, ...]
    is_impossible: bool = False


STAGES = (
    Stage(0.0, (TaskGroup("short", 60, 0.5), TaskGroup("long", 12, 8.0))),
    Stage(70.0, (TaskGroup("blocker", 1, 15.0), TaskGroup("blocked", 30, 2.0, "blocker")), is_impossible=True),
    Stage(150.0, (TaskGroup("six", 15, 6.0),)),
)
END_SECONDS = 215.0
Submit = Callable[..., Any]


def note(path: str, *words: object) -> None:
    """Append a line that begins with the time; lines of several processes do not mix."""
    with open(path, "a") as file:
        file.write(" ".join(map(str, (f"{time.monotonic():.4f}", *words))) + "\n")


def sleep_task(path: str, name: str, seconds: float) -> None:
    """What each task does."""
    unit = os.environ.get(UNIT_VARIABLE, "?")
    note(path, "begin", name, unit)
    time.sleep(seconds)
    note(path, "end", name, unit)


def short(path: str, name: str, seconds: float, *_: Any) -> None:
    sleep_task(path, name, seconds)


def long(path: str, name: str, seconds: float, *_: Any) -> None:
    sleep_task(path, name, seconds)


def blocker(path: str, name: str, seconds: float, *_: Any) -> None:
    sleep_task(path, name, seconds)


def blocked(path: str, name: str, seconds: float, *_: Any) -> None:
    sleep_task(path, name, seconds)


def six(path: str, name: str, seconds: float, *_: Any) -> None:
    sleep_task(path, name, seconds)


FUNCTIONS = {each.__name__: each for each in (short, long, blocker, blocked, six)}
"""By name: an engine measures durations by function, and so each kind of task is one."""


def run_stages(submit: Submit, submit_impossible: Submit, notes: str, began: float) -> tuple[list[Any], list[Any]]:
    """Submit each stage at its time, and wait until the end; the futures, and those of tasks that cannot run.

    Parameters:
        submit: a call of a function with these arguments, of which futures are to end before.
        submit_impossible: likewise, of a task that needs what no unit has.
        notes: the path of the notes.
    """
    futures: list[Any] = []
    impossible: list[Any] = []
    clock = threading.Event()  # that is never set
    for stage in STAGES:
        clock.wait(max(0.0, began + stage.at - time.monotonic()))
        of_stage: dict[str, list[Any]] = {}
        for group in stage.groups:
            function, before = FUNCTIONS[group.name], of_stage.get(group.after, [])
            names = [f"{group.name}-{number}" for number in range(group.tasks)]
            of_stage[group.name] = [submit(function, notes, name, group.seconds, *before) for name in names]
            futures += of_stage[group.name]
        if stage.is_impossible:
            impossible.append(submit_impossible(FUNCTIONS["six"], notes, "impossible", 1.0))
    clock.wait(max(0.0, began + END_SECONDS - time.monotonic()))
    return futures, impossible


def ideal_seconds(stage: Stage, units: int, boot_seconds: float) -> float:
    """How long a stage takes at least, if all units begin to boot with it."""
    slots = [boot_seconds] * units
    ends: dict[str, float] = {}
    for group in sorted(stage.groups, key=lambda each: (bool(each.after), -each.seconds)):
        earliest = ends.get(group.after, 0.0)
        for _ in range(group.tasks):
            end = max(heapq.heappop(slots), earliest) + group.seconds
            heapq.heappush(slots, end)
            ends[group.name] = max(ends.get(group.name, 0.0), end)
    return max(ends.values())


class _Unit:
    """What the notes say of a unit."""

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.up = self.down = 0.0


def figures(path: Path, began: float, ended: float, units: int, boot_seconds: float) -> dict[str, Any]:
    """What came of a run.

    Parameters:
        path: of the notes.
        began: when the first stage was submitted.
        ended: when the run was over; what goes on then is cut off.
    """
    machines: dict[str, _Unit] = {}
    begins: Counter[str] = Counter()
    first_end: dict[str, float] = {}
    running: dict[tuple[str, str], float] = {}
    used: set[str] = set()
    busy_seconds = 0.0
    for line in path.read_text().splitlines():
        time_text, word, name, *rest = line.split()
        at = float(time_text)
        if at > ended:
            continue
        if word == "asked":
            machines[name] = _Unit(at)
        elif word == "up":
            machines[name].up = at
        elif word == "down":
            machines[name].down = at
        elif word == "begin":
            begins[name] += 1
            used.add(rest[0])
            running[name, rest[0]] = at
        else:
            since = running.pop((name, rest[0]))
            if name not in first_end:
                first_end[name] = at
                busy_seconds += at - since
    expected = sum(group.tasks for stage in STAGES for group in stage.groups)
    assert len(first_end) == expected, f"{len(first_end)} of {expected} tasks have ended"
    up_seconds = sum((each.down or ended) - each.up for each in machines.values() if each.up)
    paid_seconds = sum((each.down or ended) - each.asked for each in machines.values())
    stages = []
    for number, stage in enumerate(STAGES):
        names = [f"{group.name}-{each}" for group in stage.groups for each in range(group.tasks)]
        seconds = max(first_end[name] for name in names) - began - stage.at
        until = STAGES[number + 1].at if number + 1 < len(STAGES) else ended - began
        started = sum(stage.at <= each.asked - began < until for each in machines.values())
        ideal = ideal_seconds(stage, units, boot_seconds)
        stages.append({"seconds": round(seconds, 2), "of ideal": round(seconds / ideal, 3), "units started": started})
    return {
        "stages": stages,
        "utilisation": round(busy_seconds / up_seconds, 3),
        "utilisation with boots": round(busy_seconds / paid_seconds, 3),
        "units started": len(machines),
        "units without a task": sum(name not in used for name in machines),
        "units at a time": _most([(each.asked, each.down or ended) for each in machines.values()]),
        "flaps": _flaps(list(machines.values()), began),
        "tasks stopped in the middle": len(running),
        "tasks run again": sum(begins.values()) - len(begins),
        "units left at the end": sum(not each.down for each in machines.values()),
    }


def _most(spans: list[tuple[float, float]]) -> int:
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    count = most = 0
    for _, change in changes:
        count += change
        most = max(most, count)
    return most


def _flaps(machines: list[_Unit], began: float) -> int:
    """Units that were asked for soon after another one had ended, without new work in between."""
    found = 0
    for each in machines:
        work_came = max(began + stage.at for stage in STAGES if began + stage.at <= each.asked + 0.01)
        found += any(max(work_came, each.asked - FLAP_SECONDS) < other.down < each.asked for other in machines)
    return found
