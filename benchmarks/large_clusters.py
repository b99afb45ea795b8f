"""How long the scheduler's core is busy at a time because much is connected or waiting, whatever the messages are.

    python benchmarks/large_clusters.py --shapes snapshot_of_workers tick_of_workers

    a core with thousands of peers or functions ──▶ one call, or one part of a publication ──▶ longest

Rules:
- Measured are the calls of a core, and the parts in which publications for monitors are encoded: time of the thread.
- Each shape is measured several times; "longest" is the median of the longest calls. On PyPy, the first time also has
  the code compiled: it is told apart, and the others count.
- On PyPy, the young generation is as large as the scheduler's (ADR 0009).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, Tuple

from zero_worker_peers import hello

from scaler_appliance.__main__ import NURSERY_SIZE, NURSERY_VARIABLE
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.scheduler_program import tune_garbage_collection
from scaler_protocol import messages as m
from scaler_protocol.wire.codec import encode_in_parts

IS_PYPY = platform.python_implementation() == "PyPy"
INLINE = bytes([m.ObjectStorage.INLINE])
PROCESSORS = 8  # of a worker


class Cluster:
    """A core whose calls are measured."""

    def __init__(self) -> None:
        self.core = SchedulerCore(Settings(client_tasks_in_flight=0, client_bytes_in_flight=0))
        self.seconds: List[float] = []
        self.now = 0.0
        self.is_measured = False

    def call(self, call: Callable[[], Any]) -> Any:
        """Do something, measured."""
        begin = time.thread_time()
        result = call()
        if self.is_measured:
            self.seconds.append(time.thread_time() - begin)
        return result

    def send(self, peer: bytes, message: Any, payload: bytes = b"") -> None:
        """A message arrives."""
        self.call(lambda: self.core.on_message(self.now, peer, message, payload))

    def settle(self, seconds: float = 0.0001) -> None:
        """Let the core finish its work."""
        self.now += seconds
        while True:
            self.call(lambda: self.core.tick(self.now))
            self.core.take_effects()
            if not self.core.has_work:
                return
            self.now += 0.0001

    def greet(self, peer: bytes, role: m.Role, **fields: Any) -> int:
        """A peer joins; returns its session."""
        message = hello(role, peer.decode())
        for name, value in fields.items():
            setattr(message, name, value)
        self.send(peer, message)
        self.core.take_effects()
        return self.core.state.sessions[peer].number

    def add_workers(self, count: int, **fields: Any) -> None:
        """Workers join, and report their processors."""
        processors = [m.ProcessorStatus(process_id=1 + each, initialized=True) for each in range(PROCESSORS)]
        for number in range(count):
            self.greet(b"worker %d" % number, m.Role.WORKER, slots=PROCESSORS, **fields)
            self.send(b"worker %d" % number, m.Heartbeat(processors=processors))
        self.settle()

    def add_client(self, name: bytes = b"client") -> int:
        """A client joins, with a function; returns the id of the latter."""
        function = self.greet(name, m.Role.CLIENT) << 40 | 1
        kinds = bytes([m.ObjectKind.FUNCTION])
        self.send(name, m.ObjectInstruction(ids=[function], sizes=[1], storages=INLINE, kinds=kinds, names=["f"]), b"f")
        return function

    def submit(self, ids: Any, name: bytes = b"client", **fields: Any) -> None:
        """A client submits a batch."""
        count = len(ids)
        self.send(name, m.Task(ids=array("Q", ids), payload_sizes=array("I", [1]) * count, **fields), b"p" * count)

    def publish(self, is_snapshot: bool) -> None:
        """A publication for monitors is made."""
        status = None
        while status is None:
            status = self.call(lambda: self.core.take_status(self.now, is_snapshot))
        parts = encode_in_parts(status)
        del status
        frame = None
        while frame is None:
            frame = self.call(lambda: next(parts))


def workers(count: int) -> Cluster:
    """So many workers."""
    cluster = Cluster()
    cluster.add_workers(count)
    return cluster


def busy_workers(count: int) -> Cluster:
    """So many workers whose slots are full, and tasks that wait."""
    cluster = workers(count)
    function = cluster.add_client()
    cluster.submit(range(1, 10 * PROCESSORS * count), function=function)
    cluster.settle()
    return cluster


def clients(count: int) -> Cluster:
    """So many clients."""
    cluster = Cluster()
    for number in range(count):
        cluster.add_client(b"client %d" % number)
    cluster.settle()
    return cluster


def functions(count: int) -> Cluster:
    """Tasks of so many functions, which are addressed by name."""
    cluster = Cluster()
    cluster.add_client()
    for number in range(count):
        cluster.submit([number + 1], function_name=f"module.function_{number}")
    cluster.settle()
    return cluster


def graphs(count: int) -> Cluster:
    """So many graphs of one client."""
    cluster = Cluster()
    function = cluster.add_client()
    for number in range(count):
        cluster.send(
            b"client",
            m.GraphTask(
                ids=[number + 1], payload_sizes=[1], functions=[function], predecessor_offsets=[0, 0], targets=[0]
            ),
            b"p",
        )
    cluster.settle()
    return cluster


def large_objects(count: int) -> Cluster:
    """So many objects that are published one by one, and ten times as many that are not."""
    cluster = Cluster()
    first = cluster.add_client() + 1
    shared = bytes([m.ObjectStorage.SHARED]) * (11 * count)
    sizes = array("Q", [1 << 20]) * count + array("Q", [1]) * (10 * count)
    cluster.send(b"client", m.ObjectInstruction(ids=range(first, first + 11 * count), sizes=sizes, storages=shared))
    cluster.settle()
    return cluster


def actors(count: int) -> Cluster:
    """So many actors, 1000 of a client, each with a call that waits for a worker."""
    cluster = Cluster()
    for number in range(count // 1000):
        peer = b"client %d" % number
        first = cluster.add_client(peer) + 1
        ids = array("Q", range(first, first + 1000))
        names = [f"Counter '{each}'" for each in range(1000)]
        cluster.send(
            peer,
            m.ObjectInstruction(ids=ids, sizes=array("Q", [1]) * 1000, storages=INLINE * 1000, names=names),
            b"o" * 1000,
        )
        for place, function in enumerate(ids, 1):
            cluster.submit([place], peer, function=function, options=m.TaskOptions(actor=True))
    cluster.settle()
    return cluster


def waiting_tasks(count: int) -> Cluster:
    """So many tasks, in batches of one, without a worker."""
    cluster = Cluster()
    function = cluster.add_client()
    for number in range(count):
        cluster.submit([number + 1], function=function)
    cluster.settle()
    return cluster


def objects_at_a_worker(count: int) -> Cluster:
    """A worker knows so many objects."""
    cluster = Cluster()
    cluster.add_workers(1)
    function = cluster.add_client()
    first = function + 1
    ids = array("Q", range(first, first + count))
    cluster.send(
        b"client",
        m.ObjectInstruction(ids=ids, sizes=array("Q", [1]) * count, storages=INLINE * count),
        b"o" * count,
    )
    cluster.settle()
    at_once = 60_000
    for number in range(0, count, at_once):
        own = ids[number : number + at_once]
        cluster.submit([1 + number], function=function, dependency_counts=array("H", [len(own)]), dependencies=own)
    cluster.settle()
    return cluster


# What happens then -------------------------------------------------------------------------------------------------


def snapshot(cluster: Cluster) -> None:
    """A monitor subscribes."""
    cluster.core.watch(True, True)
    cluster.publish(is_snapshot=True)


def increment(cluster: Cluster) -> None:
    """Everything is new to the monitor, in an increment."""
    cluster.core.watch(True, True)
    cluster.publish(is_snapshot=False)


def unsubscribe(cluster: Cluster) -> None:
    """The last monitor leaves, and much has changed."""
    cluster.core.watch(True, True)
    cluster.call(lambda: cluster.core.watch(False, False))


def tick(cluster: Cluster) -> None:
    """The scheduler looks after everything, as once a second."""
    for _ in range(3):
        cluster.settle(1.0)


def info(cluster: Cluster) -> None:
    """A client asks about the cluster."""
    cluster.greet(b"asking", m.Role.CLIENT)
    cluster.seconds.clear()
    cluster.send(b"asking", m.InfoRequest(maximum_workers=1000, maximum_actors=1000))


def explanation(cluster: Cluster) -> None:
    """A client asks why a task waits that needs something which no worker offers."""
    cluster.add_client(b"asking")
    options = m.TaskOptions(capabilities=[m.Capability(name=f"c{each}", amount=1.0) for each in range(64)])
    cluster.submit([1], b"asking", function_name="f", options=options)
    cluster.settle()
    cluster.seconds.clear()
    cluster.send(b"asking", m.ExplanationRequest(task_id=1))
    cluster.settle()
    for _ in range(8):
        cluster.settle(1.0)


def shut_down(cluster: Cluster) -> None:
    """The scheduler is stopped."""
    cluster.call(lambda: cluster.core.shut_down(cluster.now, "it is stopped"))
    cluster.settle()


def client_leaves(cluster: Cluster) -> None:
    """The client of everything leaves."""
    cluster.call(lambda: cluster.core.on_peer_gone(cluster.now, b"client"))
    cluster.settle()


def worker_leaves(cluster: Cluster) -> None:
    """The first worker leaves."""
    cluster.call(lambda: cluster.core.on_peer_gone(cluster.now, b"worker 0"))
    cluster.settle()


def all_workers_leave(cluster: Cluster) -> None:
    """All workers leave at once."""
    for number in range(len(cluster.core.state.workers)):
        cluster.call(lambda: cluster.core.on_peer_gone(cluster.now, b"worker %d" % number))  # noqa: B023
    cluster.settle()


def stood_still(cluster: Cluster) -> None:
    """The process was stopped, and memory has become short."""
    cluster.call(lambda: cluster.core.on_stood_still(cluster.now))
    cluster.call(lambda: cluster.core.on_memory_used(cluster.now, 1 << 40))
    cluster.settle()


def one_task(cluster: Cluster) -> None:
    """Another client submits a task, and one worker frees a slot."""
    function = cluster.add_client(b"another")
    cluster.settle()
    cluster.seconds.clear()
    cluster.submit([1], b"another", function=function)
    cluster.settle()


SHAPES: Dict[str, Tuple[Callable[[int], Cluster], int, Callable[[Cluster], None]]] = {
    "snapshot_of_workers": (workers, 5000, snapshot),
    "snapshot_of_clients": (clients, 5000, snapshot),
    "snapshot_of_functions": (functions, 50_000, snapshot),
    "snapshot_of_graphs": (graphs, 50_000, snapshot),
    "snapshot_of_objects": (large_objects, 50_000, snapshot),
    "snapshot_of_actors": (actors, 100_000, snapshot),
    "increment_of_actors": (actors, 100_000, increment),
    "tick_of_actors": (actors, 100_000, tick),
    "info_of_actors": (actors, 100_000, info),
    "increment_of_workers": (workers, 5000, increment),
    "increment_of_functions": (functions, 50_000, increment),
    "increment_of_objects": (large_objects, 50_000, increment),
    "unsubscribe_from_functions": (functions, 50_000, unsubscribe),
    "tick_of_workers": (workers, 5000, tick),
    "tick_of_busy_workers": (busy_workers, 5000, tick),
    "tick_of_clients": (clients, 5000, tick),
    "tick_of_functions": (functions, 50_000, tick),
    "tick_of_tasks": (waiting_tasks, 1_000_000, tick),
    "one_task_with_workers": (workers, 5000, one_task),
    "one_task_with_busy_workers": (busy_workers, 5000, one_task),
    "info_of_workers": (workers, 5000, info),
    "explanation_with_workers": (workers, 5000, explanation),
    "explanation_with_tasks": (waiting_tasks, 1_000_000, explanation),
    "shut_down_with_workers": (workers, 5000, shut_down),
    "shut_down_with_clients": (clients, 5000, shut_down),
    "shut_down_with_tasks": (waiting_tasks, 1_000_000, shut_down),
    "client_of_functions_leaves": (functions, 50_000, client_leaves),
    "client_of_graphs_leaves": (graphs, 50_000, client_leaves),
    "client_of_tasks_leaves": (waiting_tasks, 1_000_000, client_leaves),
    "worker_of_objects_leaves": (objects_at_a_worker, 1_000_000, worker_leaves),
    "client_of_known_objects_leaves": (objects_at_a_worker, 1_000_000, client_leaves),
    "busy_workers_leave": (busy_workers, 5000, all_workers_leave),
    "stood_still_with_clients": (clients, 5000, stood_still),
}


def measured(names: List[str], rounds: int, scale: float) -> Iterator[Dict[str, object]]:
    """Figures of each shape."""
    for name in names:
        make, size, then = SHAPES[name]
        longest, calls, total = [], 0, 0.0
        for _ in range(rounds):
            gc.collect()
            cluster = make(max(1, int(size * scale)))
            cluster.is_measured = True
            then(cluster)
            longest.append(max(cluster.seconds))
            calls, total = len(cluster.seconds), sum(cluster.seconds)
            del cluster
        yield {
            "shape": name,
            "size": int(size * scale),
            "first_longest_milliseconds": round(1e3 * longest[0], 2),
            "longest_milliseconds": round(1e3 * statistics.median(longest[1:] if IS_PYPY else longest), 2),
            "calls": calls,
            "total_milliseconds": round(1e3 * total, 1),
        }


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure the longest calls of the scheduler's core in large clusters.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes of the shapes")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), metavar="SHAPE")
    options = parser.parse_args()
    if options.rounds < (2 if IS_PYPY else 1):
        parser.error("on PyPy, --rounds must be >= 2: in the first one, the code is compiled")
    if IS_PYPY and NURSERY_VARIABLE not in os.environ:
        os.environ[NURSERY_VARIABLE] = NURSERY_SIZE
        os.execv(sys.executable, [sys.executable, *sys.argv])
    tune_garbage_collection()  # as the scheduler does
    for figures in measured(options.shapes, options.rounds, options.scale):
        print(json.dumps({"interpreter": platform.python_implementation(), **figures}), flush=True)


if __name__ == "__main__":
    main()
