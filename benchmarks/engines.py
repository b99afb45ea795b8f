"""One small class per engine: start, submit, map, send_object, stop.

An engine does nothing clever and nothing the engine's own documentation would not show; the workloads treat
them all alike. Engines import their library when they start, never when this module is imported, so that
one engine's imports never weigh on another's figures.
"""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.pool
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Callable, ClassVar, Optional


class Engine(ABC):
    """A thing that runs Python functions in other processes of this machine."""

    title: ClassVar[str]
    """How tables call it."""
    map_styles: ClassVar[tuple[str, ...]] = ("map",)
    """The ways of mapping that are worth measuring; the first is the one its documentation shows first."""
    sends_objects: ClassVar[bool] = True
    """Whether a value can be placed once and used by many tasks."""
    runs_graphs: ClassVar[bool] = False
    """Whether it has `start_graph`."""
    grows: ClassVar[bool] = False
    """Whether it has `add_worker`."""

    @abstractmethod
    def start(self, workers: int) -> None:
        """Bring up `workers` worker processes and whatever else the engine needs."""

    @abstractmethod
    def stop(self) -> None:
        """End every process that start() brought up."""

    @abstractmethod
    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Hand in one task; returns the engine's own handle."""

    def result(self, handle: Any) -> Any:
        """Wait for the result of one handle."""
        return handle.result()

    @abstractmethod
    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        """Run the function on each item, in one of `map_styles`."""

    def send_object(self, value: Any) -> Any:
        """Place a value; what it returns goes into submit(). Engines without that call send it each time."""
        return value

    def start_graph(self, graph: dict[Any, Any], key: Any) -> Any:
        """Hand in a graph of tasks, of which one key is wanted; returns a handle of its result."""
        raise NotImplementedError(f"{self.title} runs no graphs")

    def add_worker(self) -> None:
        """Bring up one more worker process, as another host would."""
        raise NotImplementedError(f"{self.title} has the workers that it started with")

    @abstractmethod
    def version(self) -> str:
        """The version of the engine, for the record."""


class ScalerEngine(Engine):
    """Our own: a scheduler, a worker agent and its processors on this machine."""

    title = "Scaler"
    runs_graphs = True
    grows = True

    def __init__(self) -> None:
        self._cluster: Any = None
        self._client: Any = None
        self._added: list[Any] = []

    def start(self, workers: int) -> None:
        scaler = importlib.import_module("scaler")
        self._cluster = scaler.SchedulerClusterCombo(n_workers=workers)
        self._client = scaler.Client(address=self._cluster.get_address())

    def stop(self) -> None:
        self._client.disconnect()
        for added in self._added:
            added.terminate()
        for added in self._added:
            added.shutdown()
        self._cluster.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.submit(function, *arguments)

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        return list(self._client.map(function, items))

    def start_graph(self, graph: dict[Any, Any], key: Any) -> Any:
        return self._client.submit_graph(graph, [key])[0]

    def add_worker(self) -> None:
        scaler = importlib.import_module("scaler")
        self._added.append(scaler.Cluster(self._cluster.get_address(), n_workers=1))
        self._added[-1].start()

    def send_object(self, value: Any) -> Any:
        return self._client.send_object(value)

    def version(self) -> str:
        return str(importlib.import_module("scaler").__version__)


class ProcessPoolExecutorEngine(Engine):
    """`concurrent.futures.ProcessPoolExecutor` with the defaults of this Python."""

    title = "ProcessPoolExecutor"
    map_styles = ("chunksize=1", "chunksize=1000")
    sends_objects = False

    def __init__(self) -> None:
        self._executor: Optional[ProcessPoolExecutor] = None

    @property
    def executor(self) -> ProcessPoolExecutor:
        assert self._executor is not None, "start() comes first"
        return self._executor

    def start(self, workers: int) -> None:
        self._executor = ProcessPoolExecutor(workers)

    def stop(self) -> None:
        self.executor.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.executor.submit(function, *arguments)

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        chunk_size = int(style.partition("=")[2])
        return list(self.executor.map(function, items, chunksize=chunk_size))

    def version(self) -> str:
        return f"Python {platform.python_version()}"


class PoolEngine(Engine):
    """`multiprocessing.Pool` with the defaults of this Python."""

    title = "multiprocessing.Pool"
    map_styles = ("default chunksize",)
    sends_objects = False

    def __init__(self) -> None:
        self._pool: Optional[multiprocessing.pool.Pool] = None

    @property
    def pool(self) -> multiprocessing.pool.Pool:
        assert self._pool is not None, "start() comes first"
        return self._pool

    def start(self, workers: int) -> None:
        self._pool = multiprocessing.Pool(workers)

    def stop(self) -> None:
        self.pool.close()
        self.pool.join()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.pool.apply_async(function, arguments)

    def result(self, handle: Any) -> Any:
        return handle.get()

    def map(self, function: Callable[..., Any], items: Iterable[Any], style: str) -> list[Any]:
        return self.pool.map(function, items)

    def version(self) -> str:
        return f"Python {platform.python_version()}"


_ENGINES = {
    "scaler": "engines:ScalerEngine",
    "ppe": "engines:ProcessPoolExecutorEngine",
    "pool": "engines:PoolEngine",
    "dask": "peers.dask_engine:DaskEngine",
    "ray": "peers.ray_engine:RayEngine",
    "scaler-1": "peers.earlier_scaler_engines:ScalerOneEngine",
    "scaler-2": "peers.earlier_scaler_engines:ScalerTwoEngine",
    "scaled": "peers.earlier_scaler_engines:ScaledEngine",
}


def engine_names() -> list[str]:
    """Every engine that --engine accepts."""
    return list(_ENGINES)


def engine_class(name: str) -> type[Engine]:
    """The class of an engine by its short name; importing it does not import the engine's library."""
    module_name, _, class_name = _ENGINES[name].partition(":")
    found: type[Engine] = getattr(importlib.import_module(module_name), class_name)
    return found
