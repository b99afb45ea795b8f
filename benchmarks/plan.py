"""What is measured: the list of benchmarks, their sizes, and which engines compete in each.

No measuring and no printing here. A group is what is compared with each other; its members run interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from engines import engine_class

LARGE_BYTES = 100 * 1000 * 1000
STANDARD_ENGINES = ("scaler", "ppe", "pool")


@dataclass(frozen=True)
class Measurement:
    """One line of a table: one engine (or scheduler interpreter) at one size."""

    benchmark: str
    engine: str
    workers: int
    amount: int
    style: str = "map"
    timeout_seconds: float = 600.0

    @property
    def scheduler_python(self) -> str:
        """For the benchmarks of the scheduler alone, `engine` names the interpreter it runs on."""
        return self.engine.partition("-")[2]


@dataclass(frozen=True)
class Sizes:
    """How much of everything; --quick divides it so that the whole suite takes a few minutes."""

    tasks: int = 100_000
    round_trips: int = 2_000
    tree_nodes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    fan_nodes: int = 10_000
    chain_nodes: int = 10_000
    makespan_tasks: int = 1_000
    large_bytes: int = LARGE_BYTES
    idle_seconds: int = 5
    queued: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    streamed_tasks: int = 200_000
    streamed_workers: tuple[int, ...] = (1, 10, 100, 1_000)
    memory_tasks: int = 1_000_000


FULL = Sizes()
QUICK = Sizes(
    tasks=10_000,
    round_trips=1_000,
    tree_nodes=(10_000,),
    chain_nodes=1_000,
    makespan_tasks=200,
    large_bytes=LARGE_BYTES,
    idle_seconds=2,
    queued=(1_000, 10_000, 100_000),
    streamed_tasks=50_000,
    streamed_workers=(1, 10, 100),
    memory_tasks=200_000,
)

Group = list[Measurement]

BENCHMARKS = (
    *("submit", "map", "round-trip", "graph", "makespan"),
    *("large", "zero-worker", "memory", "footprint", "startup"),
)
"""What --only takes, in the order of running."""


def plan(names: Sequence[str], sizes: Sizes, engines: Sequence[str], schedulers: Sequence[str]) -> list[Group]:
    """The groups of the named benchmarks. `schedulers` are interpreters: "cpython", "pypy"."""
    makers: dict[str, Callable[[], list[Group]]] = {
        "submit": lambda: _by_engine("submit", engines, (10, 2), sizes.tasks),
        "map": lambda: [_maps(engines, sizes.tasks)],
        "round-trip": lambda: _by_engine("round-trip", engines, (10,), sizes.round_trips),
        "graph": lambda: _graphs(engines, sizes),
        "makespan": lambda: [_makespans(engines, sizes.makespan_tasks)],
        "large": lambda: _large(engines, sizes.large_bytes),
        "zero-worker": lambda: _zero_worker(schedulers, sizes),
        "memory": lambda: [[_alone("memory", name, 0, sizes.memory_tasks) for name in schedulers]],
        "footprint": lambda: _by_engine("footprint", engines, (10,), sizes.idle_seconds),
        "startup": lambda: _by_engine("startup", engines, (10,), 1),
    }
    return [group for name in BENCHMARKS if name in names for group in makers[name]() if group]


def _by_engine(benchmark: str, engines: Sequence[str], worker_counts: Sequence[int], amount: int) -> list[Group]:
    return [[Measurement(benchmark, engine, workers, amount) for engine in engines] for workers in worker_counts]


def _maps(engines: Sequence[str], amount: int) -> Group:
    return [
        Measurement("map", engine, 10, amount, style) for engine in engines for style in engine_class(engine).map_styles
    ]


def _graphs(engines: Sequence[str], sizes: Sizes) -> list[Group]:
    able = [engine for engine in engines if engine_class(engine).runs_graphs]
    kinds = [("graph-tree", nodes) for nodes in sizes.tree_nodes]
    kinds += [("graph-fan", sizes.fan_nodes), ("graph-chain", sizes.chain_nodes)]
    return [[Measurement(name, engine, 10, nodes) for engine in able] for name, nodes in kinds]


def _makespans(engines: Sequence[str], tasks: int) -> Group:
    group = [Measurement("makespan", engine, 10, tasks, "one host") for engine in engines]
    growing = [engine for engine in engines if engine_class(engine).grows]
    others = ("one host a worker", "one more, late")
    return group + [Measurement("makespan", engine, 10, tasks, style) for engine in growing for style in others]


def _large(engines: Sequence[str], size: int) -> list[Group]:
    # apply_async sends large values as ProcessPoolExecutor does, through one pipe: one of the two is enough
    competitors = [engine for engine in engines if engine != "pool"]
    return [[Measurement(name, engine, 10, size) for engine in competitors] for name in ("argument", "result", "array")]


def _zero_worker(schedulers: Sequence[str], sizes: Sizes) -> list[Group]:
    queued = [[_alone("queued", name, 10, amount) for name in schedulers] for amount in sizes.queued]
    streamed = [
        [_alone("streamed", name, workers, sizes.streamed_tasks) for name in schedulers]
        for workers in sizes.streamed_workers
    ]
    return queued + streamed


def _alone(benchmark: str, scheduler: str, workers: int, amount: int) -> Measurement:
    return Measurement(benchmark, f"scheduler-{scheduler}", workers, amount, timeout_seconds=300.0)
