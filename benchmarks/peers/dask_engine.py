"""Dask's distributed scheduler on this machine: `LocalCluster` with one thread in each worker process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Callable

from engines import Engine


class DaskEngine(Engine):
    """dask.distributed."""

    title = "dask.distributed"
    map_styles = ("map + gather",)
    runs_graphs = True

    def __init__(self) -> None:
        self._cluster: Any = None
        self._client: Any = None

    def start(self, workers: int) -> None:
        distributed = importlib.import_module("distributed")
        self._cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        )
        self._client = distributed.Client(self._cluster)
        self._client.wait_for_workers(workers)

    def stop(self) -> None:
        self._client.close()
        self._cluster.close()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # pure=False: with the default Dask would answer a repeated call from memory
        return self._client.submit(function, *arguments, pure=False)

    def map(self, function: Callable[..., Any], items: Sequence[Any], style: str) -> list[Any]:
        return list(self._client.gather(self._client.map(function, items, pure=False)))

    def start_graph(self, graph: dict[Any, Any], key: Any) -> Any:
        return self._client.get(graph, key, sync=False)

    def send_object(self, value: Any) -> Any:
        return self._client.scatter(value, hash=False)

    def version(self) -> str:
        return str(importlib.import_module("distributed").__version__)
