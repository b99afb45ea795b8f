"""Graphs of tasks: from a dictionary of keys to columns that the scheduler runs by itself.

    {"a": 1, "b": (inc, "a"), "c": (add, "b", "b")}, ["c"]
         │ cull, sort: b, c (graph.order)               a is data: it goes into b's arguments
         ▼
    node 0: inc(1)    node 1: add(result of 0, result of 0)    target: 1

Rules:
- Data never becomes a task. Small data is part of the arguments that name it; large data is sent as an object, once.
- One message carries the whole graph; the client has futures of the wanted tasks only.
- Whatever equals a key stands for it (see `scaler.graph.order`). A tuple inside arguments that begins with a callable
  is called, too.
"""

from __future__ import annotations

import pickle
from array import array
from concurrent.futures import FIRST_EXCEPTION
from typing import Any, Callable, Dict, Hashable, List, Optional, Protocol, Sequence, Set, Tuple

from scaler import blocking
from scaler.client.core.commands import SubmitGraph
from scaler.client.core.outbox import GraphRun
from scaler.client.functions import FunctionRecord, function_name
from scaler.client.future import ScalerFuture, TaskOutcome
from scaler.client.mapping import add_note
from scaler.client.progress_bar import Bar, wait
from scaler.client.submission import MAXIMUM_DEPENDENCIES, Submission
from scaler.exceptions import (
    ArgumentTypeError,
    GraphKeyError,
    SerializeObjectError,
    TaskRejectedError,
    TooManyReferences,
)
from scaler.graph.graph_tasks import FLAT, NO_KEYS, ONLY_RESULTS, Graph, is_key, is_task
from scaler.graph.order import GraphOrder
from scaler.notebook import FuturesByKey
from scaler.values.coroutines import awaited
from scaler.values.named_functions import NamedFunction
from scaler.values.payload import (
    BY_DEPENDENCY,
    INLINE_BYTES,
    PROTOCOL,
    Buffer,
    ObjectReference,
    Parts,
    ResultOf,
    dump_arguments,
    dump_node_arguments,
    dump_slots,
    dump_value,
    is_plain,
    join,
    parts_size,
)
from scaler.values.texts import description_of, repr_of
from scaler_protocol import MAXIMUM_HEADER_BYTES
from scaler_protocol import messages as m


class GraphOutcome(TaskOutcome):
    """The outcome of a graph's task: its exception names the task that raised it."""

    _cause = 0
    _keys: Sequence[Any] = ()  # of the graph's tasks, by position
    _functions: Sequence[FunctionRecord] = ()
    _position = 0

    def _loaded(self, payload: Buffer) -> Tuple[Any, Optional[BaseException]]:
        position = self._position
        if self._cause:
            position += self._cause - 1 - self._task_id
            self._function = self._functions[position]
        result, error = super()._loaded(payload)
        if error is not None and self._has_failed and self._keys:
            keys, self._keys = self._keys, ()
            add_note(error, f"(raised by node {repr_of(keys[position])} of the graph)")
        return result, error


class GraphFuture(GraphOutcome, ScalerFuture[Any]):
    """The future of a graph's task."""


def run_graph(client: Submission, graph: Graph, keys: Sequence[Hashable]) -> Dict[Any, Any]:
    """The values of `keys`; raises the exception of the first task that failed."""
    return submitted_results(client, lambda made: submit_graph(client, graph, keys, made))


def submitted_results(
    client: Submission,
    submit: Callable[[Dict[Any, ScalerFuture[Any]]], Dict[Any, ScalerFuture[Any]]],
    is_forced: bool = False,
) -> Dict[Any, Any]:
    """As `results_of` the futures of a graph that is submitted here: Ctrl-C may come before they are returned.

    Parameters:
        submit: fills its argument with futures before their tasks are posted.
    """
    made: Dict[Any, ScalerFuture[Any]] = {}
    try:
        return results_of(client, submit(made), is_forced)
    except KeyboardInterrupt:
        cancel_rest(client, made, is_forced=True)
        raise


def results_of(client: Submission, futures: Dict[Any, ScalerFuture[Any]], is_forced: bool = False) -> Dict[Any, Any]:
    """Wait for the futures of a graph; returns their results, or raises the exception of the first one that failed, and
    cancels the others, as `cancel_rest` does. After Ctrl-C, tasks that run are stopped."""
    try:
        with blocking.announced(), Bar(client._options.progress, len(futures), "graph") as bar:
            done = wait(futures.values(), bar, return_when=FIRST_EXCEPTION).done
        for future in futures.values():
            if future in done:
                future.result()
        return {key: future.result() for key, future in futures.items()}
    except KeyboardInterrupt:
        is_forced = True
        raise
    finally:
        cancel_rest(client, futures, is_forced)


def cancel_rest(client: Submission, futures: Dict[Any, ScalerFuture[Any]], is_forced: bool) -> None:
    """Cancel what has no outcome, without waiting; tasks that run are stopped only by force."""
    rest = [future for future in futures.values() if not future.done()]
    for future in rest:
        future._is_unwanted = True
    if rest and is_forced:
        client._shell.stop(rest)
    elif rest:
        client._shell.ask_to_cancel(rest)


def submit_graph(
    client: Submission,
    graph: Graph,
    keys: Sequence[Hashable],
    made: Optional[Dict[Any, ScalerFuture[Any]]] = None,
) -> Dict[Any, ScalerFuture[Any]]:
    """Futures of `keys`, in their order.

    Parameters:
        made: gets those of tasks before these are posted, for callers that are interrupted before they have them.
    """
    _check_keys(graph, keys)
    client._shell.check_open()
    order = GraphOrder(graph, keys)
    futures: Dict[Any, ScalerFuture[Any]] = {} if made is None else made
    if len(order):
        builder = _TupleGraphBuilder(client, graph, order)
        try:
            builder.add_all()
            builder.submit(keys, futures)
        finally:
            builder.let_go()
    return FuturesByKey((key, futures[key] if key in futures else _done(client, graph[key])) for key in keys)


def _check_keys(graph: Graph, keys: Sequence[Hashable]) -> None:
    if isinstance(keys, (str, bytes)):
        raise ArgumentTypeError(f"keys must be a list of keys, not one: pass [{keys!r}]")
    seen: Set[Any] = set()
    for key in keys:
        try:
            is_asked_for_twice, is_in_graph = key in seen, key in graph
        except TypeError as error:  # not hashable, and says so
            raise ArgumentTypeError(f"{repr_of(key)} cannot be a key: {description_of(error)}") from error
        except Exception as error:
            raise GraphKeyError(f"{repr_of(key)} cannot be a key: {description_of(error)}") from error
        if is_asked_for_twice:
            raise GraphKeyError(f"key {repr_of(key)} was given twice; give each key once")
        if not is_in_graph:
            raise GraphKeyError(f"key {repr_of(key)} is not in the graph")
        seen.add(key)


def _done(client: Submission, value: Any) -> ScalerFuture[Any]:
    """The future of data: it has its result already."""
    future: ScalerFuture[Any] = client._future_kind(client)
    future._set_result_loaded(value)
    return future


# Building messages -------------------------------------------------------------------------------------------------


class _Call:
    """A call inside the arguments of a task."""

    __slots__ = ("function", "arguments")

    def __init__(self, function: Callable[..., Any], arguments: List[Any]) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_Call, (self.function, self.arguments))


def call_nested(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function of a task that has calls inside its arguments."""
    return awaited(function)(*map(_evaluate, arguments))


def _evaluate(value: Any) -> Any:
    if type(value) is _Call:
        return awaited(value.function)(*map(_evaluate, value.arguments))
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_evaluate, value))
    return value


class SortedTasks(Protocol):
    """The tasks of a graph, sorted: see `GraphOrder`."""

    keys: List[Any]
    offsets: array[int]
    predecessors: array[int]

    def __len__(self) -> int: ...

    def find(self, key: Any) -> Optional[int]:
        """The position of a task; None if the key is not that of a needed task."""


class GraphBuilder:
    """Makes the columns of one graph; subclasses know how to read its tasks.

    Parameters:
        client: what to submit with.
        graph: has the data that `order` has no tasks for, by key.
        order: the tasks.
    """

    def __init__(self, client: Submission, graph: Graph, order: SortedTasks) -> None:
        self._client = client
        self._graph = graph
        self._order = order
        self._data: Dict[Any, Any] = {}  # data as it appears in arguments: the value itself, or a reference
        self._results: List[ResultOf] = []
        self._held: Dict[int, FunctionRecord] = {}  # by object id
        self._known: Dict[int, FunctionRecord] = {}  # by identity of functions
        self._functions: List[Callable[..., Any]] = []  # keeps these alive, and so their identities their own
        self._objects: Set[int] = set()  # made for this graph
        self._payloads: List[bytes] = []
        self._records: List[FunctionRecord] = []  # of the functions
        self._dependencies: Dict[int, List[int]] = {}  # by position; most need none

    def _data_of(self, key: Any) -> Any:
        """Data as an argument: large data is sent as an object, when it is first met."""
        if key not in self._data:
            value = self._graph[key]
            if not is_plain((value,)) and type(value) is not ObjectReference:
                value = self._reference_if_large(key, value)
            self._data[key] = value
        return self._data[key]

    def _reference_if_large(self, key: Any, value: Any) -> Any:
        try:
            content = dump_value(value, self._client._serializer)
        except Exception as error:
            raise SerializeObjectError(
                f"the data of node {repr_of(key)}, of type {type(value).__name__}, cannot be serialised:"
                f" {description_of(error)}"
            ) from error
        if isinstance(content, bytes):
            return value
        return ObjectReference(repr_of(key), parts_size(content), self._send_object(content))

    def _send_object(self, parts: Parts) -> int:
        object_id = self._client._shell.send_object(parts, "", m.ObjectKind.VALUE)
        self._objects.add(object_id)
        return object_id

    def _hold_function(self, function: Callable[..., Any]) -> FunctionRecord:
        if isinstance(function, NamedFunction):
            raise ArgumentTypeError(
                f"{function.name} is called by name, which graph nodes do not support: submit it by itself"
            )
        functions = self._client._shell.functions
        record = functions.find(function) or self._client._register(function)
        if record.object_id not in self._held:
            while not functions.hold(record):
                record = self._client._register(function)
            self._held[record.object_id] = record
        self._known[id(function)] = record
        self._functions.append(function)
        return record

    def _dump(self, key: Any, function: Callable[..., Any], arguments: Tuple[Any, ...]) -> Tuple[bytes, List[int]]:
        """A node's payload, and the objects that it needs."""
        serializer = self._client._serializer
        if serializer is None:
            short = dump_node_arguments(arguments)
            if short is not None and len(short) < INLINE_BYTES:
                return short, []
        references: List[ObjectReference] = []
        try:
            parts = dump_arguments(arguments, {}, serializer, references)
        except Exception as error:
            raise SerializeObjectError(
                f"an argument of {function_name(function)} in node {repr_of(key)} cannot be serialised:"
                f" {description_of(error)}"
            ) from error
        dependencies = [
            each.object_id if each.object_id in self._objects else self._client._check_reference(each)
            for each in references
        ]
        if parts_size(parts) < INLINE_BYTES:
            return join(parts), dependencies
        return BY_DEPENDENCY, [self._send_object(parts), *dependencies]

    def _set_dependencies(self, key: Any, position: int, dependencies: List[int]) -> None:
        if len(dependencies) > MAXIMUM_DEPENDENCIES:
            raise TooManyReferences(
                f"node {repr_of(key)} needs more than {MAXIMUM_DEPENDENCIES} objects: gather some in one first"
            )
        if dependencies:
            self._dependencies[position] = dependencies

    def submit(self, keys: Sequence[Hashable], futures: Dict[Any, ScalerFuture[Any]]) -> None:
        """Send the graph, after `futures` has those of `keys` that are tasks."""
        shell = self._client._shell
        payload = b"".join(self._payloads)
        self._check_size(len(payload))
        order = self._order
        targets: Dict[int, ScalerFuture[Any]] = {}
        for key in keys:
            position = order.find(key)
            if position is None:
                continue
            future = futures[key] = targets[position] = self._client._graph_future_kind(
                self._client, self._records[position]
            )
            future._keys, future._position, future._functions = order.keys, position, self._records
        columns = m.GraphTask(
            payload_sizes=array("I", map(len, self._payloads)),
            functions=array("Q", [record.object_id for record in self._records]),
            predecessor_offsets=order.offsets,
            predecessors=order.predecessors,
            targets=array("I", targets),
            options=self._client._travelling_options(),
        )
        for position, dependencies in self._dependencies.items():
            columns.dependency_counts = columns.dependency_counts or array("H", bytes(2 * len(order)))
            columns.dependency_counts[position] = len(dependencies)
            columns.dependencies.extend(dependencies)
        shell.check_open()
        kept = [shell.kept_object(object_id) for object_id in self._held]
        run = GraphRun(columns, payload, kept)
        shell.post(SubmitGraph(run, sorted(set(columns.dependencies)), targets))

    def _check_size(self, payload_bytes: int) -> None:
        limit = self._client._shell.welcome.limits.maximum_message_bytes
        dependency_count = sum(map(len, self._dependencies.values()))
        columns_bytes = 32 * len(self._payloads) + 4 * len(self._order.predecessors) + 8 * dependency_count
        count = len(self._payloads)
        if limit and payload_bytes + columns_bytes > limit:
            raise TaskRejectedError(
                f"a graph of {count} tasks makes a message of {payload_bytes + columns_bytes} bytes, and the scheduler"
                f" takes {limit} at most: submit it in parts"
            )
        if columns_bytes > MAXIMUM_HEADER_BYTES:
            raise TaskRejectedError(
                f"a graph of {count} tasks, with {len(self._order.predecessors)} needs of each other, makes a header of"
                f" {columns_bytes} bytes; it may have {MAXIMUM_HEADER_BYTES}: submit the graph in parts"
            )

    def let_go(self) -> None:
        """Release what was made for the graph: from now on only the scheduler holds it."""
        shell = self._client._shell
        for record in self._held.values():
            shell.functions.let_go(record)
        for object_id in sorted(self._objects):
            shell.delete_object(object_id)


class _TupleGraphBuilder(GraphBuilder):
    """Reads tasks that are tuples."""

    def __init__(self, client: Submission, graph: Graph, order: GraphOrder) -> None:
        super().__init__(client, graph, order)
        self._sorted = order

    def add_all(self) -> None:
        """Make functions and payloads, in order. The most common kinds of nodes are handled here, the others in
        `_add`."""
        known = self._known
        payloads, records = self._payloads, self._records
        is_short = self._client._serializer is None
        for key, task, form in zip(self._sorted.keys, self._sorted.tasks, self._sorted.forms):
            payload: Optional[bytes] = None
            if form == ONLY_RESULTS:
                payload = b""
            elif form == NO_KEYS:
                arguments = task[1:]
                if is_plain(arguments):
                    payload = pickle.dumps(arguments, PROTOCOL) if arguments else b""
            elif form == FLAT:
                payload = self._dump_flat(task[1:])
            if payload is None or len(payload) >= INLINE_BYTES or not is_short:
                self._add(key, task)
                continue
            records.append(known.get(id(task[0])) or self._hold_function(task[0]))
            payloads.append(payload)

    def _dump_flat(self, arguments: Tuple[Any, ...]) -> Optional[bytes]:
        """The payload of a FLAT node; None if its other arguments are not plain."""
        find = self._order.find
        places: Dict[int, int] = {}  # of predecessors, among those of the node
        slots: List[Tuple[int, int]] = []
        others: List[Any] = []
        for slot, value in enumerate(arguments):
            position = find(value)
            if position is not None:
                slots.append((slot, places.setdefault(position, len(places))))
                value = None
            others.append(value)
        return dump_slots(slots, others)

    def _add(self, key: Any, task: Tuple[Any, ...]) -> None:
        """Append a task of any kind."""
        function: Callable[..., Any] = task[0]
        needed: Dict[int, int] = {}  # positions of predecessors, to their place among them
        has_calls = [False]
        arguments = [self._resolve(value, needed, has_calls) for value in task[1:]]
        if has_calls[0]:
            function, arguments = call_nested, [function, *arguments]
        record = self._known.get(id(function)) or self._hold_function(function)
        payload, dependencies = self._dump(key, function, tuple(arguments))
        self._set_dependencies(key, len(self._payloads), dependencies)
        self._records.append(record)
        self._payloads.append(payload)

    def _resolve(self, value: Any, needed: Dict[int, int], has_calls: List[bool]) -> Any:
        """An argument with its keys replaced by what they stand for."""
        if is_key(self._graph, value):
            position = self._order.find(value)
            if position is None:
                return self._data_of(value)
            place = needed.setdefault(position, len(needed))
            while place >= len(self._results):
                self._results.append(ResultOf(len(self._results)))
            return self._results[place]
        if type(value) is list or type(value) is tuple:
            items = [self._resolve(item, needed, has_calls) for item in value]
            if type(value) is list:
                return items
            if is_task(value):
                has_calls[0] = True
                return _Call(value[0], items[1:])
            return tuple(items)
        return value
