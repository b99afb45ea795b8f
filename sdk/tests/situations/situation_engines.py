"""The engines that situations are run against, each behind the same two calls."""

from __future__ import annotations

import contextlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Dict, Iterable, List, Type

WORKERS = 2


class Engine:
    """Runs functions in other processes."""

    name = ""
    wait_seconds = 60.0
    """After so long without an outcome, there is none."""

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns something with `result(timeout)`."""
        raise NotImplementedError

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        raise NotImplementedError

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of one call."""
        return self.submit(function, *args, **kwargs).result(self.wait_seconds)

    def repair(self) -> None:
        """After each situation: what the last one broke is started again."""

    def close(self) -> None:
        raise NotImplementedError


class ScalerEngine(Engine):
    name = "Scaler"

    def __init__(self) -> None:
        from scaler import Client, SchedulerClusterCombo

        self._combo = SchedulerClusterCombo(n_workers=WORKERS, logging_level="ERROR")
        self._client = Client(self._combo.get_address())

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._client.submit(function, *args, **kwargs)

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        return self._client.map(function, *iterables)

    def close(self) -> None:
        self._client.disconnect()
        self._combo.shutdown()


class ExecutorEngine(Engine):
    name = "ProcessPoolExecutor"

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._executor = ProcessPoolExecutor(WORKERS)
        self._executor.submit(abs, 1).result()  # its processes are forked now, before anything is defined

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._executor.submit(function, *args, **kwargs)

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        return list(self._executor.map(function, *iterables, timeout=self.wait_seconds))

    def repair(self) -> None:
        try:
            self._executor.submit(abs, 1).result()
        except BrokenProcessPool:
            self._start()

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


class _PoolResult:
    def __init__(self, result: Any) -> None:
        self._result = result

    def result(self, timeout: float) -> Any:
        return self._result.get(timeout)


class PoolEngine(Engine):
    name = "multiprocessing.Pool"
    wait_seconds = 2.0  # its tasks vanish with their processes

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pool = multiprocessing.Pool(WORKERS)
        self._pool.apply(abs, (1,))

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return _PoolResult(self._pool.apply_async(function, args, kwargs))

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        if len(iterables) == 1:
            return self._pool.map_async(function, *iterables).get(self.wait_seconds)
        return self._pool.starmap_async(function, zip(*iterables)).get(self.wait_seconds)

    def repair(self) -> None:
        try:
            self._pool.apply_async(abs, (1,)).get(self.wait_seconds)
        except Exception:
            self.close()
            self._start()

    def close(self) -> None:
        with contextlib.suppress(AssertionError):  # of a pool whose own threads have died
            self._pool.terminate()


class DaskEngine(Engine):
    name = "Dask"
    wait_seconds = 15.0

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        from distributed import Client, LocalCluster

        self._cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
        self._client = Client(self._cluster)

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._client.submit(function, *args, **kwargs)

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        return [future.result(self.wait_seconds) for future in self._client.map(function, *iterables)]

    def repair(self) -> None:
        try:
            for _ in range(WORKERS):
                self._client.submit(abs, 1, pure=False).result(self.wait_seconds)
        except Exception:
            self.close()
            self._start()

    def close(self) -> None:
        self._client.close(5)
        self._cluster.close(5)


ENGINES: Dict[str, Type[Engine]] = {
    engine.name: engine for engine in (ScalerEngine, ExecutorEngine, PoolEngine, DaskEngine)
}
