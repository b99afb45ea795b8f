"""Ray on this machine, without its dashboard."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Callable

from engines import Engine


class RayEngine(Engine):
    """Ray: one remote function for each function, as its documentation has it."""

    title = "Ray"
    map_styles = ("util.multiprocessing.Pool.map",)

    def __init__(self) -> None:
        self._ray: Any = None
        self._pool: Any = None
        self._remote_functions: dict[Callable[..., Any], Any] = {}

    def start(self, workers: int) -> None:
        self._ray = importlib.import_module("ray")
        self._ray.init(
            num_cpus=workers, include_dashboard=False, log_to_driver=False, object_store_memory=4_000_000_000
        )

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
        self._ray.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        remote = self._remote_functions.get(function)
        if remote is None:
            remote = self._remote_functions[function] = self._ray.remote(_as_python_function(function))
        return remote.remote(*arguments)

    def result(self, handle: Any) -> Any:
        return self._ray.get(handle)

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        if self._pool is None:
            self._pool = importlib.import_module("ray.util.multiprocessing").Pool()
        return list(self._pool.map(function, items))

    def send_object(self, value: Any) -> Any:
        return self._ray.put(value)

    def version(self) -> str:
        return str(importlib.import_module("ray").__version__)


def _as_python_function(function: Callable[..., Any]) -> Callable[..., Any]:
    # ray.remote takes no builtins, such as len
    if hasattr(function, "__code__"):
        return function
    return lambda *arguments: function(*arguments)
