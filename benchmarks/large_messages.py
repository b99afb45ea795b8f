"""How long the scheduler's core is busy at a time with messages of a million parts, and what a part costs.

    python benchmarks/large_messages.py --size 1000000 --shapes tree missing_function

    messages of one shape ──▶ core: on_message, tick, tick … until no work is left ──▶ longest call, cost of a part

Rules:
- Measured are the calls of a core, without sockets and codec. What workers answer is made outside the measured time.
- A part is a node, task or object of the shape. Time is that of the thread: other processes do not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from array import array
from collections import deque
from typing import Any, Callable, Dict, Iterator, List, Tuple

from zero_worker_peers import hello

from scaler_appliance.core.effects import Send
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.scheduler_program import tune_garbage_collection
from scaler_protocol import messages as m

LONG_SECONDS = 0.01
INLINE = bytes([m.ObjectStorage.INLINE])


class Driver:
    """A core whose calls are measured.

    Parameters:
        has_worker: whether a worker with many slots takes tasks.
    """

    def __init__(self, has_worker: bool = False) -> None:
        self.core = SchedulerCore(
            Settings(client_tasks_in_flight=0, client_bytes_in_flight=0, per_worker_queue_size=1000)
        )
        self.seconds: List[float] = []
        self.now = 0.0
        self.batches: deque[Tuple[array[int], int]] = deque()
        self.greet(b"client", m.Role.CLIENT)
        if has_worker:
            self.greet(b"worker", m.Role.WORKER)
        self.client = next(iter(self.core.state.clients.values()))
        self.session = self.client.number
        self.function = self.session << 40 | 1
        self.send(
            b"client",
            m.ObjectInstruction(
                ids=[self.function], sizes=[1], storages=INLINE, kinds=bytes([m.ObjectKind.FUNCTION]), names=["f"]
            ),
            b"f",
        )
        self.settle()
        self.seconds.clear()

    def greet(self, peer: bytes, role: m.Role) -> None:
        """A peer joins."""
        message = hello(role, peer.decode())
        if role == m.Role.WORKER:
            message.slots = 1000
        self.send(peer, message)

    def send(self, peer: bytes, message: Any, payload: bytes = b"") -> None:
        """A message arrives."""
        self._measure(lambda: self.core.on_message(self.now, peer, message, payload))

    def leave(self, peer: bytes) -> None:
        """A connection ends."""
        self._measure(lambda: self.core.on_peer_gone(self.now, peer))

    def settle(self) -> None:
        """Let the core finish its work."""
        while True:
            self.now += 0.0001
            self._measure(lambda: self.core.tick(self.now))
            for effect in self.core.take_effects():
                if isinstance(effect, Send) and isinstance(effect.message, m.Task):
                    self.batches.append((effect.message.ids, 0))
            if not self.core.has_work:
                return

    def finish_tasks(self) -> None:
        """The worker succeeds with all tasks it has, and those it gets then."""
        while self.batches:
            ids, _ = self.batches.popleft()
            for start in range(0, len(ids), 1000):
                part = ids[start : start + 1000]
                count = len(part)
                result = m.TaskResult(ids=part, payload_sizes=array("I", [4]) * count, busy_microseconds=count)
                self.send(b"worker", result, b"done" * count)
            self.settle()

    def _measure(self, call: Callable[[], object]) -> None:
        begin = time.thread_time()
        call()
        self.seconds.append(time.thread_time() - begin)


def graph(driver: Driver, counts: array[int], predecessors: array[int], targets: array[int], function: int) -> None:
    """A graph arrives, with these numbers of predecessors."""
    size = len(counts)
    offsets = array("I", [0])
    total = 0
    for count in counts:
        total += count
        offsets.append(total)
    message = m.GraphTask(
        ids=array("Q", range(1, size + 1)),
        payload_sizes=array("I", [1]) * size,
        functions=array("Q", [function]) * size,
        predecessor_offsets=offsets,
        predecessors=predecessors,
        targets=targets,
    )
    driver.seconds.clear()
    driver.send(b"client", message, b"p" * size)


def independent(size: int) -> Tuple[array[int], array[int], array[int]]:
    """Counts of predecessors, predecessors, targets: of nodes that need no others, all of them targets."""
    return array("I", bytes(4 * size)), array("I"), array("I", range(size))


def tree(size: int) -> Tuple[array[int], array[int], array[int]]:
    """A node with children, which have children, 100 each; all targets."""
    counts = array("I", [1]) * size
    counts[0] = 0
    return counts, array("I", [(node - 1) // 100 for node in range(1, size)]), array("I", range(size))


def chain(size: int) -> Tuple[array[int], array[int], array[int]]:
    """Each node needs the one before it; the last one is the target."""
    counts = array("I", [1]) * size
    counts[0] = 0
    return counts, array("I", range(size - 1)), array("I", [size - 1])


def reduction(size: int) -> Tuple[array[int], array[int], array[int]]:
    """The last node needs all others."""
    counts = array("I", bytes(4 * size))
    counts[-1] = size - 1
    return counts, array("I", range(size - 1)), array("I", [size - 1])


def fan(size: int) -> Tuple[array[int], array[int], array[int]]:
    """All others need the first node."""
    counts = array("I", [1]) * size
    counts[0] = 0
    return counts, array("I", bytes(4 * (size - 1))), array("I", range(size))


Parts = Callable[[int], "Tuple[array[int], array[int], array[int]]"]


def accepted(parts: Parts) -> Callable[[int], Driver]:
    """A graph is accepted, and nothing else."""

    def measure(size: int) -> Driver:
        driver = Driver()
        graph(driver, *parts(size), driver.function)
        driver.settle()
        return driver

    return measure


def missing_function(parts: Parts) -> Callable[[int], Driver]:
    """A graph whose function does not exist."""

    def measure(size: int) -> Driver:
        driver = Driver()
        graph(driver, *parts(size), driver.function + 1)
        driver.settle()
        assert not driver.client.graphs
        return driver

    return measure


def executed(parts: Parts) -> Callable[[int], Driver]:
    """A graph is accepted and runs."""

    def measure(size: int) -> Driver:
        driver = Driver(has_worker=True)
        graph(driver, *parts(size), driver.function)
        driver.settle()
        driver.finish_tasks()
        assert not driver.client.graphs
        return driver

    return measure


def failing_root(parts: Parts) -> Callable[[int], Driver]:
    """A graph whose first node fails."""

    def measure(size: int) -> Driver:
        driver = Driver(has_worker=True)
        graph(driver, *parts(size), driver.function)
        driver.settle()
        driver.seconds.clear()
        ids, _ = driver.batches.popleft()
        failed = bytes([m.TaskStatus.FAILED])
        driver.send(b"worker", m.TaskResult(ids=ids[:1], payload_sizes=[3], statuses=failed), b"bad")
        driver.settle()
        return driver

    return measure


def submit(driver: Driver, size: int, batch: int, **fields: Any) -> None:
    """Tasks arrive, in batches."""
    for start in range(1, size + 1, batch):
        count = min(batch, size + 1 - start)
        own = {name: column[start - 1 : start - 1 + count] for name, column in fields.items()}
        message = m.Task(
            ids=array("Q", range(start, start + count)),
            payload_sizes=array("I", [1]) * count,
            function=driver.function,
            **own,
        )
        driver.send(b"client", message, b"p" * count)


def tasks(batch: int) -> Callable[[int], Driver]:
    """Tasks are accepted, in batches of this size; 0: in one."""

    def measure(size: int) -> Driver:
        driver = Driver()
        submit(driver, size, batch or size)
        driver.settle()
        return driver

    return measure


def tasks_with_objects(size: int) -> Driver:
    """A batch of tasks that need an object each."""
    driver = Driver()
    counts = array("H", [1]) * size
    submit(driver, size, size, dependency_counts=counts, dependencies=array("Q", [driver.function]) * size)
    driver.settle()
    return driver


def tasks_that_wait(size: int) -> Driver:
    """A batch of tasks that all need one before them."""
    driver = Driver()
    submit(driver, 1, 1)
    message = m.Task(
        ids=array("Q", range(2, size + 2)),
        payload_sizes=array("I", [1]) * size,
        function=driver.function,
        predecessor_counts=array("H", [1]) * size,
        predecessors=array("Q", [1]) * size,
    )
    driver.send(b"client", message, b"p" * size)
    driver.settle()
    return driver


def cancelled(begin: Callable[[int], Driver]) -> Callable[[int], Driver]:
    """All nodes or tasks are cancelled at once."""

    def measure(size: int) -> Driver:
        driver = begin(size)
        driver.seconds.clear()
        driver.send(b"client", m.TaskCancel(ids=array("Q", range(1, size + 1))))
        driver.settle()
        assert not driver.client.graphs and not any(driver.client.batches())
        return driver

    return measure


def left(begin: Callable[[int], Driver]) -> Callable[[int], Driver]:
    """The client of a graph, or of waiting tasks, leaves."""

    def measure(size: int) -> Driver:
        driver = begin(size)
        driver.seconds.clear()
        driver.leave(b"client")
        driver.settle()
        assert not driver.core.state.clients
        return driver

    return measure


def lost_worker(batch: int) -> Callable[[int], Driver]:
    """The worker that has all tasks is lost."""

    def measure(size: int) -> Driver:
        driver = Driver(has_worker=True)
        submit(driver, size, batch)
        driver.settle()
        driver.seconds.clear()
        driver.leave(b"worker")
        driver.settle()
        return driver

    return measure


def instruction(driver: Driver, size: int, action: m.ObjectAction) -> None:
    """Objects are created or deleted in one message."""
    first = driver.session << 40 | 2
    message = m.ObjectInstruction(action=action, ids=array("Q", range(first, first + size)))
    if action == m.ObjectAction.CREATE:
        message.sizes, message.storages = array("Q", [1]) * size, INLINE * size
    driver.send(b"client", message, b"p" * size if action == m.ObjectAction.CREATE else b"")
    driver.settle()


def objects(end: str) -> Callable[[int], Driver]:
    """Objects are created, deleted or cleared; or their client leaves."""

    def measure(size: int) -> Driver:
        driver = Driver()
        instruction(driver, size, m.ObjectAction.CREATE)
        if end != "created":
            driver.seconds.clear()
        if end == "deleted":
            instruction(driver, size, m.ObjectAction.DELETE)
        elif end == "cleared":
            instruction(driver, 0, m.ObjectAction.CLEAR)
        elif end == "left":
            driver.leave(b"client")
            driver.settle()
        return driver

    return measure


SHAPES: Dict[str, Callable[[int], Driver]] = {
    "missing_function": missing_function(independent),
    "missing_function_of_a_chain": missing_function(chain),
    "independent": accepted(independent),
    "tree": accepted(tree),
    "chain": accepted(chain),
    "fan": accepted(fan),
    "reduction": accepted(reduction),
    "tree_executed": executed(tree),
    "fan_executed": executed(fan),
    "reduction_executed": executed(reduction),
    "failing_root_of_a_fan": failing_root(fan),
    "failing_root_of_a_chain": failing_root(chain),
    "cancelled_tree": cancelled(accepted(tree)),
    "cancelled_independent": cancelled(accepted(independent)),
    "cancelled_reduction": cancelled(accepted(reduction)),
    "left_tree": left(accepted(tree)),
    "left_independent": left(accepted(independent)),
    "tasks_in_one": tasks(0),
    "tasks_with_objects": tasks_with_objects,
    "tasks_that_wait": tasks_that_wait,
    "cancelled_tasks_of_one_batch": cancelled(tasks(0)),
    "cancelled_tasks_one_by_one": cancelled(tasks(1)),
    "left_tasks_of_one_batch": left(tasks(0)),
    "left_tasks_one_by_one": left(tasks(1)),
    "lost_worker_thousands": lost_worker(1000),
    "lost_worker_one_by_one": lost_worker(1),
    "objects_created": objects("created"),
    "objects_deleted": objects("deleted"),
    "objects_cleared": objects("cleared"),
    "objects_left": objects("left"),
}


def measured(names: List[str], size: int) -> Iterator[Dict[str, object]]:
    """Figures of each shape."""
    for name in names:
        gc.collect()
        seconds = sorted(SHAPES[name](size).seconds, reverse=True)
        yield {
            "shape": name,
            "size": size,
            "longest_milliseconds": round(1e3 * seconds[0], 2),
            "second_milliseconds": round(1e3 * [*seconds, 0.0][1], 2),
            "calls": len(seconds),
            "long_calls": sum(each > LONG_SECONDS for each in seconds),
            "microseconds_per_part": round(1e6 * sum(seconds) / size, 3),
        }


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure the scheduler's core with messages of a million parts.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", type=int, default=1_000_000, help="parts of each message")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), metavar="SHAPE")
    options = parser.parse_args()
    tune_garbage_collection()  # as the scheduler does
    for figures in measured(options.shapes, options.size):
        print(json.dumps({"interpreter": platform.python_implementation(), **figures}), flush=True)


if __name__ == "__main__":
    main()
