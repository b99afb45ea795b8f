"""The kinds of work that a client of a soak submits, and how each may end.

Rules:
- `right` says whether an outcome is the only right one. An outcome that is an error in `excusable` is reported with its
  times, and another process judges whether a fault explains it. Every other outcome is wrong.
- Retries are unlimited except where the kind is about dying: then no fault may change a result.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Tuple

from soak import soak_tasks
from soak.soak_tasks import allocate, append_once, die, double, fail, fibonacci, grow, leave, measure, nap_for_ever

from scaler import Client

RETRIES = 1000
GREEDY_BYTES = 1 << 30  # more than the tight worker has
LOST = frozenset({"WorkerDiedError", "ProcessorDiedError", "DisconnectedError"})
NO_ROOM = frozenset({"ObjectStorageFullError"})
FIBONACCI = (0, 1, 1, 2, 3, 5, 8)


class Work(NamedTuple):
    """A future, and what is known about it."""

    kind: str
    future: Any
    right: Callable[[object], bool]  # of a result, or of the exception
    excusable: FrozenSet[str] = frozenset()
    number: int = -1  # of a task that may run at most once


def _is(expected: object) -> Callable[[object], bool]:
    return lambda outcome: type(outcome) is type(expected) and outcome == expected


def _raises(*names: str) -> Callable[[object], bool]:
    return lambda outcome: type(outcome).__name__ in names


class WorkSource:
    """Submits work of random kinds through one client.

    Parameters:
        ledger: a file to which tasks append that may run at most once.
        first_number: above all numbers that others append there.
    """

    def __init__(self, client: Client, source: random.Random, ledger: str, weights: Dict[str, float]) -> None:
        self._client = client
        self._careful = client.options(retries=RETRIES)
        self._once = client.options(at_most_once=True)
        self._quick = client.options(retries=RETRIES, timeout=0.3)
        self._tight = client.options(capabilities={"tight": -1})
        self._random = source
        self._ledger = ledger
        self._numbers = 0
        self._kinds = list(weights)
        self._weights = list(weights.values())

    def submit(self) -> List[Work]:
        """Some work of one kind. Raises what `submit` raises, ObjectStorageFullError for instance."""
        kind = self._random.choices(self._kinds, self._weights)[0]
        submit: Callable[[int], List[Work]] = getattr(self, f"_{kind.replace(' ', '_')}")
        return submit(self._random.randrange(10**6))

    def _small(self, number: int) -> List[Work]:
        nap_seconds = self._random.choice((0.0, 0.0, 0.001, 0.02))
        count = self._random.choice((1, 1, 10))
        return [
            Work("small", self._careful.submit(double, each, nap_seconds), _is(2 * each))
            for each in range(number, number + count)
        ]

    def _slow(self, number: int) -> List[Work]:
        return [Work("slow", self._careful.submit(double, number, self._random.uniform(0.1, 1.0)), _is(2 * number))]

    def _large_argument(self, number: int) -> List[Work]:
        size = self._random.choice((70_000, 200_000, 2_000_000))
        return [Work("large argument", self._careful.submit(measure, bytes(size), number), _is(size + number), NO_ROOM)]

    def _large_result(self, number: int) -> List[Work]:
        size = self._random.choice((30_000, 200_000, 2_000_000))
        return [
            Work(
                "large result",
                self._careful.submit(grow, number, size),
                lambda data: data == grow(number, size),
                NO_ROOM,
            )
        ]

    def _object(self, number: int) -> List[Work]:
        size = self._random.choice((1_000, 300_000))
        reference = self._client.send_object(bytes(size))
        return [
            Work("object", self._careful.submit(measure, reference, each), _is(size + each), NO_ROOM)
            for each in range(number, number + 5)
        ]

    def _chain(self, number: int) -> List[Work]:
        works = [Work("chain", self._careful.submit(double, number), _is(2 * number))]
        for power in range(2, 5):
            future = self._careful.submit(double, works[-1].future)
            works.append(Work("chain", future, _is(2**power * number)))
        return works

    def _graph(self, number: int) -> List[Work]:
        graph: Dict[str, Tuple[Any, ...]] = {f"leaf {each}": (double, number + each) for each in range(20)}
        graph["data"] = (grow, number, 100_000)
        graph["size"] = (measure, "data", number)
        graph["all"] = (soak_tasks.total, [*(f"leaf {each}" for each in range(20)), "size"])
        futures = self._careful.get(graph, ["all", "leaf 3"], block=False)
        expected = {"all": 40 * number + 380 + 100_000 + number, "leaf 3": 2 * (number + 3)}
        return [Work("graph", future, _is(expected[key]), NO_ROOM) for key, future in futures.items()]

    def _nested(self, number: int) -> List[Work]:
        depth = number % 5
        return [Work("nested", self._careful.submit(fibonacci, depth), _is(FIBONACCI[depth]), NO_ROOM)]

    def _map(self, number: int) -> List[Work]:
        """`map` waits, so a thread calls it."""
        items = list(range(number, number + 100))
        future: Future[List[int]] = Future()

        def call() -> None:
            try:
                future.set_result(self._careful.map(double, items))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=call, name="map", daemon=True).start()
        return [Work("map", future, _is([2 * each for each in items]))]

    def _cancelled(self, number: int) -> List[Work]:
        """Half of them have started; one that was done before has its result."""
        future = self._careful.submit(double, number, 0.2)
        threading.Timer(self._random.choice((0.0, 0.1)), future.cancel).start()
        return [Work("cancelled", future, lambda end: type(end).__name__ == "CancelledError" or end == 2 * number)]

    def _at_most_once(self, number: int) -> List[Work]:
        self._numbers += 1
        future = self._once.submit(append_once, self._ledger, self._numbers, self._random.choice((0.0, 0.3)))
        return [Work("at most once", future, _is(self._numbers), LOST, self._numbers)]

    def _deadly(self, number: int) -> List[Work]:
        return [Work("deadly", self._client.submit(die, number), _raises("ProcessorDiedError"), LOST)]

    def _failing(self, number: int) -> List[Work]:
        return [Work("failing", self._careful.submit(fail, number), lambda end: repr(end) == f"ValueError({number})")]

    def _leaving(self, number: int) -> List[Work]:
        return [Work("leaving", self._careful.submit(leave, number), lambda end: repr(end) == f"SystemExit({number})")]

    def _endless(self, number: int) -> List[Work]:
        return [Work("endless", self._quick.submit(nap_for_ever, number), _raises("TaskTimeoutError"))]

    def _greedy(self, number: int) -> List[Work]:
        """More memory than its worker has: a cgroup kills the process, and a limit of addresses refuses."""
        future = self._tight.submit(allocate, number, GREEDY_BYTES)
        return [Work("greedy", future, _raises("ProcessorDiedError", "MemoryError"), LOST)]

    def _modest(self, number: int) -> List[Work]:
        future = self._tight.options(retries=RETRIES).submit(allocate, number, 10_000_000)
        return [Work("modest", future, _is(number), frozenset({"MemoryError"}))]


MIXED: Dict[str, float] = {
    "small": 60, "slow": 1, "large argument": 4, "large result": 4, "object": 2, "chain": 3, "graph": 3, "nested": 1,
    "map": 3, "cancelled": 5, "at most once": 6, "deadly": 0.6, "failing": 1, "leaving": 0.5, "endless": 0.3,
    "greedy": 0.1, "modest": 0.2,
}  # fmt: skip
HOARDING: Dict[str, float] = {"large result": 10, "small": 30}
"""Of a client that does not collect its results: they wait at the scheduler, which spills them."""
