"""The engines that situations are run against, each behind the same two calls."""

from __future__ import annotations

import contextlib
import inspect
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


class _RayResult:
    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def result(self, timeout: float) -> Any:
        import ray

        if isinstance(self.reference, ray.ObjectRefGenerator):
            return [ray.get(each, timeout=timeout) for each in self.reference]
        return ray.get(self.reference, timeout=timeout)


class RayEngine(Engine):
    name = "Ray"
    wait_seconds = 15.0

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.get([ray.remote(_nothing).remote() for _ in range(WORKERS)])

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import ray

        remote = ray.remote(function if inspect.isfunction(function) else _function_of(function))
        return _RayResult(remote.remote(*map(_reference_of, args), **kwargs))

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> List[Any]:
        return [each.result(self.wait_seconds) for each in [self.submit(function, *args) for args in zip(*iterables)]]

    def repair(self) -> None:
        try:
            for _ in range(WORKERS):
                self.submit(_nothing).result(self.wait_seconds)
        except Exception:
            self.close()
            self._start()

    def close(self) -> None:
        import ray

        ray.shutdown()


def _function_of(callable_object: Callable[..., Any]) -> Callable[..., Any]:
    """Ray takes functions only: what its users write around anything else."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return callable_object(*args, **kwargs)

    return called


def _reference_of(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_reference_of(each) for each in argument]
    return argument.reference if isinstance(argument, _RayResult) else argument


def _nothing() -> None:
    """What shows that a process is there."""


ENGINES: Dict[str, Type[Engine]] = {
    engine.name: engine for engine in (ScalerEngine, ExecutorEngine, PoolEngine, DaskEngine, RayEngine)
}
