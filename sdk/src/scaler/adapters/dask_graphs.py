"""Dask's collections on a Scaler cluster: what `Client.dask_get` does.

    compute() ──▶ get(expression, keys) ──▶ nodes in order ──▶ one graph ──▶ values, in the shape of the keys

Rules:
- Dask optimises its graph before it calls; here it is run. Intermediate results stay in the cluster.
- Errors are those of the nodes, with Dask's key in a note. Whatever ends the wait, Ctrl-C too, stops the rest.
- The options of a graph are those of all its tasks: what annotations ask for is added up.
- With callbacks for single tasks, all tasks have futures here, since a callback sees results.
"""

from __future__ import annotations

from concurrent.futures import as_completed
from math import ceil
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from scaler import blocking
from scaler.adapters.dask_order import DaskGraph, NodeOrder, read_graph
from scaler.adapters.dask_submission import submit_nodes
from scaler.client.client_options import Options
from scaler.client.graph_submission import cancel_rest, submitted_results
from scaler.client.submission import Submission
from scaler.exceptions import ArgumentTypeError

Callbacks = Sequence[Tuple[Any, ...]]
"""Of Dask: start, start_state, pretask, posttask and finish of each, or None."""


def get(client: Submission, dsk: Any, keys: Any, options: Mapping[str, Any]) -> Any:
    """The values of keys of a Dask graph; see `Client.dask_get`."""
    from dask.callbacks import local_callbacks

    retries = {key: ceil(number) for key, number in _annotations(dsk).get("retries", {}).items()}
    wanted = list(dict.fromkeys(_flat(keys)))
    with local_callbacks(options.get("callbacks")) as callbacks:
        if callbacks:
            found = _run_with_callbacks(client, read_graph(dsk), wanted, retries, options, list(callbacks))
        else:
            found = _run(client, read_graph(dsk), wanted, retries, options)
    return _in_shape_of(keys, found)


def _run(
    client: Submission, graph: DaskGraph, wanted: Sequence[Any], retries: Mapping[Any, int], options: Mapping[str, Any]
) -> Dict[Any, Any]:
    order = NodeOrder(graph, wanted)
    client._shell.check_open()
    targets = _targets(order, wanted)
    results: Dict[Any, Any] = {}
    if targets:
        counts = _retries_of(order, retries, options)
        results = submitted_results(client, lambda made: submit_nodes(client, order, targets, counts, made), True)
    return _found(order, wanted, results)


def _targets(order: NodeOrder, wanted: Sequence[Any]) -> List[Any]:
    """The keys of nodes behind the wanted keys, each once."""
    positions = dict.fromkeys([order.find(key) for key in wanted])
    return [order.keys[position] for position in positions if position is not None]


def _found(order: NodeOrder, wanted: Sequence[Any], results: Mapping[Any, Any]) -> Dict[Any, Any]:
    found: Dict[Any, Any] = {}
    for key in wanted:
        position = order.find(key)
        found[key] = order.data[key] if position is None else results[order.keys[position]]
    return found


def _flat(keys: Any) -> Iterator[Any]:
    if type(keys) is not list:
        yield keys
        return
    for each in keys:
        yield from _flat(each)


def _in_shape_of(keys: Any, found: Mapping[Any, Any]) -> Any:
    """As Dask's own schedulers return values: a tuple for each list."""
    if type(keys) is not list:
        return found[keys]
    return tuple([_in_shape_of(each, found) for each in keys])


# Options ------------------------------------------------------------------------------------------------------------


def _annotations(dsk: Any) -> Dict[str, Dict[Any, Any]]:
    """What `dask.annotate` has said, by name and key."""
    of_expression = getattr(dsk, "__dask_annotations__", None)
    if of_expression is not None:
        return dict(of_expression())
    found: Dict[str, Dict[Any, Any]] = {}
    for layer in (getattr(dsk, "layers", None) or {}).values():
        for name, value in (getattr(layer, "annotations", None) or {}).items():
            for key in layer:
                found.setdefault(name, {})[key] = value(key) if callable(value) else value
    return found


def options_of(client: Options, dsk: Any, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of `Client.options` that annotations and arguments of `compute` ask for.

    Parameters:
        client: the options of the client.
        dsk: the graph.
        options: of `compute`.

    Raises ArgumentTypeError if resources are no dictionary.
    """
    annotations = _annotations(dsk)
    priorities = [*annotations.get("priority", {}).values(), *_given(options, "priority")]
    retries = [*annotations.get("retries", {}).values(), *_given(options, "retries")]
    all_resources = [*annotations.get("resources", {}).values(), *_given(options, "resources")]
    wanted: Dict[str, Any] = {}
    if priorities:
        wanted["priority"] = ceil(max(priorities))
    if retries and not client.at_most_once:
        wanted["retries"] = ceil(max(retries))
    if all_resources:
        wanted["capabilities"] = dict(client.capabilities)
    for resources in all_resources:
        if not isinstance(resources, Mapping):
            raise ArgumentTypeError(f"resources must be a dict such as {{'gpu': 1}}, got {resources!r}")
        for name, amount in resources.items():
            wanted["capabilities"][name] = max(amount, wanted["capabilities"].get(name, 0))
    return wanted


def _given(options: Mapping[str, Any], name: str) -> List[Any]:
    return [] if options.get(name) is None else [options[name]]


def _retries_of(order: NodeOrder, retries: Mapping[Any, int], options: Mapping[str, Any]) -> Mapping[Any, int]:
    """How often each node may be called again after an exception, if any may."""
    of_all = options.get("retries")
    return {key: retries.get(key, ceil(of_all)) for key in order.keys} if of_all else retries


# Callbacks ----------------------------------------------------------------------------------------------------------


def _run_with_callbacks(
    client: Submission,
    graph: DaskGraph,
    wanted: Sequence[Any],
    retries: Mapping[Any, int],
    options: Mapping[str, Any],
    callbacks: Callbacks,
) -> Dict[Any, Any]:
    """Run a graph with Dask's callbacks; each gets `finish` once it has got `start`."""
    nodes = dict(graph.nodes)  # callbacks may change it
    started: List[Tuple[Any, ...]] = []
    state: Dict[str, Any] = {}
    has_failed = True
    try:
        for callback in callbacks:
            if callback[0]:
                callback[0](nodes)
            started.append(callback)
        order = NodeOrder(graph._replace(nodes=nodes), wanted)
        state = _state_of(order)
        for callback in callbacks:
            if callback[1]:
                callback[1](nodes, state)
        results = _followed(client, order, wanted, _retries_of(order, retries, options), nodes, state, callbacks)
        found = _found(order, wanted, results)
        has_failed = False
        return found
    finally:
        for callback in started:
            if callback[4]:
                callback[4](nodes, state, has_failed)


def _state_of(order: NodeOrder) -> Dict[str, Any]:
    """The tasks before they run, as Dask's schedulers describe them."""
    dependencies = {key: set(names) for key, names in zip(order.keys, order.names)}
    dependents: Dict[Any, Any] = {key: set() for key in order.keys}
    for key, names in dependencies.items():
        for name in names:
            dependents.setdefault(name, set()).add(key)
    return {
        "dependencies": dependencies,
        "dependents": dependents,
        "waiting": {},
        "waiting_data": {},
        "cache": dict(order.data),
        "ready": [],
        "running": set(order.keys),
        "finished": set(),
        "released": set(),
    }


def _followed(
    client: Submission,
    order: NodeOrder,
    wanted: Sequence[Any],
    retries: Mapping[Any, int],
    nodes: Dict[Any, Any],
    state: Dict[str, Any],
    callbacks: Callbacks,
) -> Dict[Any, Any]:
    """The results of the wanted nodes; calls the callbacks for single tasks."""
    before = [callback[2] for callback in callbacks if callback[2]]
    after = [callback[3] for callback in callbacks if callback[3]]
    targets = _targets(order, wanted)
    if not targets:
        return {}
    if not before and not after:
        return submitted_results(client, lambda made: submit_nodes(client, order, targets, retries, made), True)
    futures: Dict[Any, Any] = {}
    results: Dict[Any, Any] = {}
    results_wanted = set(targets)
    try:
        submit_nodes(client, order, order.keys, retries, futures)
        by_future: Dict[Any, Any] = {future: key for key, future in futures.items()}
        for key in order.keys:
            for pretask in before:
                pretask(key, nodes, state)
        with blocking.announced():
            for future in as_completed(by_future):
                key = by_future[future]
                # Loaded only if it is used: for a bar it is not.
                result = future.result() if after or key in results_wanted or _has_failed(future) else None
                state["running"].discard(key)
                state["finished"].add(key)
                for posttask in after:
                    posttask(key, result, nodes, state, None)
                if key in results_wanted:
                    results[key] = result
    finally:
        cancel_rest(client, futures, is_forced=True)
    return results


def _has_failed(future: Any) -> bool:
    from scaler.client.shell.future_internals import has_failed

    return future.cancelled() or has_failed(future)
