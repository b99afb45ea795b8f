"""Nodes of Dask graphs as tasks: what runs on workers.

    LoadedNodes [node 0, node 1, …] ◀── task: call them with (1, result, …) ──▶ node 1, with the results by their keys

Rules:
- Small nodes travel in bundles. A bundle is a function: each processor loads it once, and what its nodes share, such as
  functions, classes and names, is in it once. A node with much data is an argument of `run_node`.
- A node that calls `compute` runs on the same cluster, unless the worker's Dask configuration names a scheduler.
- Dask is imported by loading a node, never by this module; nothing of the client is imported before it is needed.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from scaler.values.coroutines import Runner

Node = Callable[[Dict[Any, Any]], Any]
"""A GraphNode of Dask, or a `TupleNode`: called with the values of its dependencies by key."""


class BundledNode(NamedTuple):
    """A node of a bundle.

    Parameters:
        node: what to call.
        names: the keys whose values the task gets, in their order.
        data: the values of other keys that it needs.
    """

    node: Node
    names: Tuple[Any, ...]
    data: Optional[Dict[Any, Any]]


class NodeBundle:
    """A bundle on its way to the workers, where it becomes `LoadedNodes`.

    Parameters:
        name: of its nodes, for monitors and errors.
        content: one pickle after the other, with common memory.
        count: of nodes.
        client: pickled, for nodes that call `compute`.
    """

    def __init__(self, name: str, content: bytes, count: int, client: bytes) -> None:
        self.__qualname__ = name
        self._content = content
        self._count = count
        self._client = client

    def __call__(self, index: int, *results: Any) -> Any:
        return LoadedNodes(self._content, self._count, self._client)(index, *results)

    def __reduce__(self) -> Tuple[Any, ...]:
        return (LoadedNodes, (self._content, self._count, self._client))


class LoadedNodes:
    """A bundle in a processor."""

    def __init__(self, content: bytes, count: int, client: bytes) -> None:
        unpickler = pickle.Unpickler(io.BytesIO(content))
        self._entries: List[Tuple[Any, ...]] = [unpickler.load() for _ in range(count)]
        self._client = client

    def __call__(self, index: int, *results: Any) -> Any:
        node, names, data = self._entries[index]
        return _run(self._client, node, names, data, results)


def run_node(client: bytes, node: Node, names: Sequence[Any], *values: Any) -> Any:
    """The function of a node that is no part of a bundle; `values` are those of `names`."""
    return _run(client, node, names, None, values)


def _run(
    client: bytes, node: Node, names: Sequence[Any], data: Optional[Mapping[Any, Any]], results: Sequence[Any]
) -> Any:
    values = dict(zip(names, results))
    if data:
        values.update(data)
    config: Optional[Dict[str, Any]] = getattr(sys.modules.get("dask.config"), "config", None)
    if config is None or config.get("scheduler") is not None:
        return _awaited(node(values))
    config["scheduler"] = NestedScheduler(client)
    try:
        return _awaited(node(values))
    finally:
        config.pop("scheduler", None)


def _awaited(result: Any) -> Any:
    if type(result) is not types.CoroutineType:
        return result
    with Runner() as runner:
        return runner.run(result)


class NestedScheduler:
    """The scheduler of a `compute` inside a node: the cluster that the node runs on."""

    __slots__ = ("_client",)

    def __init__(self, client: bytes) -> None:
        self._client = client

    def __call__(self, dsk: Any, keys: Any, **options: Any) -> Any:
        return pickle.loads(self._client).dask_get(dsk, keys, **options)


class Retried:
    """A node that is called again when it raises an exception.

    Parameters:
        node: the node.
        retries: how often at most.
    """

    __slots__ = ("node", "retries")

    def __init__(self, node: Node, retries: int) -> None:
        self.node = node
        self.retries = retries

    def __call__(self, values: Dict[Any, Any]) -> Any:
        for _ in range(self.retries):
            try:
                return _awaited(self.node(values))
            except Exception:
                continue
        return self.node(values)


class TupleNode:
    """A task of a graph made of tuples, as Dask had them before 2024.12.

    Parameters:
        task: the tuple, or a list of tasks.
        dependencies: the keys that it names.
    """

    __slots__ = ("task", "dependencies")

    def __init__(self, task: Any, dependencies: Sequence[Any]) -> None:
        self.task = task
        self.dependencies = dependencies

    def __call__(self, values: Dict[Any, Any]) -> Any:
        from dask.core import _execute_task

        return _execute_task(self.task, values)
