"""A Dask graph as one Scaler graph: its nodes in bundles, and futures of what is wanted.

    NodeOrder ──▶ bundles, by layer ──▶ functions ─┐
              ╲─▶ nodes with much data ──▶ objects ┴▶ one message with all tasks ──▶ futures of the wanted keys

Rules:
- A node is pickled once. A bundle has nodes of one layer, which share most of what they refer to.
- Data never becomes a task: small data is part of the bundle, large data is sent as an object, once.
- An error names the key that Dask knows.
- Nodes that share a lock of Dask run one after the other: see `dask_locks`.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from scaler.adapters.dask_locks import LockOrder
from scaler.adapters.dask_nodes import BundledNode, NodeBundle, Retried, run_node
from scaler.adapters.dask_order import NodeOrder
from scaler.client.functions import FunctionRecord
from scaler.client.future import ScalerFuture
from scaler.client.graph_submission import GraphBuilder
from scaler.client.submission import Submission
from scaler.exceptions import SerializeObjectError
from scaler.values.payload import OUT_OF_BAND_BYTES, PROTOCOL, ObjectReference, ResultOf, dump_slots
from scaler.values.pickling import Pickler
from scaler.values.texts import description_of, repr_of

MAXIMUM_NODES = 256
"""Of a bundle. Each processor that runs one of them loads all, at a few microseconds each."""

MAXIMUM_BYTES = 48 * 1024
"""A bundle is closed when it has this size, so that it travels in the message."""

LARGE_NODE_BYTES = 8 * 1024
"""A node of this size is not part of a bundle: processors that do not run it would load it, too."""

FEW_RESULTS = 8
"""Of a task whose payload is kept for others like it."""


def submit_nodes(
    client: Submission,
    order: NodeOrder,
    wanted: Sequence[Any],
    retries: Mapping[Any, int],
    futures: Dict[Any, ScalerFuture[Any]],
) -> Dict[Any, ScalerFuture[Any]]:
    """Send a graph; returns futures by key.

    Parameters:
        client: what to submit with.
        order: the nodes.
        wanted: keys of nodes, not of aliases, each once.
        retries: how often a node may be called again after it has raised an exception, by key.
        futures: gets them before the graph is posted.

    Raises SerializeObjectError for a node that cannot be pickled, and what `Client.submit` raises.
    """
    builder = _DaskBuilder(client, order, retries)
    try:
        builder.add_all()
        builder.submit(wanted, futures)
    finally:
        builder.let_go()
    return futures


class _OpenBundle:
    """The nodes of one layer, until they are sent."""

    __slots__ = ("positions", "_stream", "_buffers", "_pickler")

    def __init__(self) -> None:
        self.positions: List[int] = []
        self._stream = io.BytesIO()
        self._buffers: List[Any] = []
        self._pickler = Pickler(self._stream, protocol=PROTOCOL, buffer_callback=self._is_small)

    def _is_small(self, buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < OUT_OF_BAND_BYTES:
            return True
        self._buffers.append(buffer)
        return False

    def add(self, position: int, entry: BundledNode) -> bool:
        """Returns False for a node that is too large; then no other may be added."""
        start = self._stream.tell()
        self._pickler.dump(tuple(entry))
        if self._buffers or self._stream.tell() - start > LARGE_NODE_BYTES:
            self._stream.seek(start)
            self._stream.truncate()
            return False
        self.positions.append(position)
        return True

    @property
    def is_full(self) -> bool:
        return len(self.positions) >= MAXIMUM_NODES or self._stream.tell() >= MAXIMUM_BYTES

    def content(self) -> bytes:
        return self._stream.getvalue()


class _DaskBuilder(GraphBuilder):
    """Makes the columns of a Dask graph."""

    def __init__(self, client: Submission, order: NodeOrder, retries: Mapping[Any, int]) -> None:
        super().__init__(client, order.data, order)
        self._nodes = order
        self._retries = retries
        self._open: Dict[str, _OpenBundle] = {}  # by layer
        self._layers: Dict[str, str] = {}  # by the first part of keys
        self._large_layers: Dict[str, None] = {}
        self._client_pickle = _pickled(client)
        self._calls: Dict[Tuple[int, int], bytes] = {}  # payloads by index and number of results
        self._bundles: List[NodeBundle] = []  # keeps them alive, and so the functions that they are

    def add_all(self) -> None:
        """Make functions and payloads, in order."""
        nodes = self._nodes
        unknown: Any = None
        self._records: List[FunctionRecord] = [unknown] * len(nodes)
        self._payloads = [b""] * len(nodes)
        with LockOrder() as locks:
            for position, key in enumerate(nodes.keys):
                self._add(position, key)
                if locks.has_locks:
                    locks.add(position, self._layer_of(key))
        for layer, bundle in self._open.items():
            self._close(layer, bundle)
        nodes.wait_also(locks.after)

    def _add(self, position: int, key: Any) -> None:
        nodes = self._nodes
        node, names = nodes.nodes[position], nodes.names[position]
        if self._retries:
            node = Retried(node, self._retries[key]) if self._retries.get(key) else node
        data: Optional[Dict[Any, Any]] = None
        if len(names) != nodes.offsets[position + 1] - nodes.offsets[position]:  # some are data, or aliases
            data = {name: self._data_of(name) for name in names if nodes.find(name) is None}
            if any(type(value) is ObjectReference for value in data.values()):
                self._add_alone(position, key, node, names)
                return
            if data:
                names = tuple([name for name in names if name not in data])
        self._add_to_bundle(position, key, BundledNode(node, names, data))

    def _add_to_bundle(self, position: int, key: Any, entry: BundledNode) -> None:
        layer = self._layer_of(key)
        if layer not in self._large_layers:
            bundle = self._open.get(layer)
            if bundle is None:
                bundle = self._open[layer] = _OpenBundle()
            try:
                is_added = bundle.add(position, entry)
            except Exception as error:
                raise SerializeObjectError(
                    f"node {repr_of(key)} of the Dask graph cannot be serialised: {description_of(error)}"
                ) from error
            if is_added:
                self._payloads[position] = self._call(len(bundle.positions) - 1, position, entry.names)
                if bundle.is_full:
                    self._close(layer, self._open.pop(layer))
                return
            self._close(layer, self._open.pop(layer))
            self._large_layers[layer] = None
        self._add_alone(position, key, entry.node, (*entry.names, *(entry.data or ())))

    def _call(self, index: int, position: int, names: Tuple[Any, ...]) -> bytes:
        """The payload of a task that is part of a bundle: the index, and the results."""
        offsets = self._nodes.offsets
        count = len(names)
        if count != offsets[position + 1] - offsets[position]:  # some are aliases of the same
            places = self._places(position)
            return self._dumped(index, [(slot, places[self._position_of(name)]) for slot, name in enumerate(names, 1)])
        payload = self._calls.get((index, count))
        if payload is None:
            payload = self._dumped(index, [(place + 1, place) for place in range(count)])
            if count <= FEW_RESULTS:
                self._calls[index, count] = payload
        return payload

    def _dumped(self, index: int, slots: List[Tuple[int, int]]) -> bytes:
        payload = dump_slots(slots, [index, *([None] * len(slots))])
        assert payload is not None, "an index is plain"
        return payload

    def _add_alone(self, position: int, key: Any, node: Any, names: Sequence[Any]) -> None:
        places = self._places(position)
        while len(self._results) < len(places):
            self._results.append(ResultOf(len(self._results)))
        values = [
            self._data_of(name) if self._nodes.find(name) is None else self._results[places[self._position_of(name)]]
            for name in names
        ]
        self._records[position] = self._known.get(id(run_node)) or self._hold_function(run_node)
        arguments = (self._client_pickle, node, tuple(names), *values)
        self._payloads[position], dependencies = self._dump(key, run_node, arguments)
        self._set_dependencies(key, position, dependencies)

    def _places(self, position: int) -> Dict[int, int]:
        """The positions of a node's predecessors, to their place among them."""
        nodes = self._nodes
        needed = nodes.predecessors[nodes.offsets[position] : nodes.offsets[position + 1]]
        return dict(zip(needed, range(len(needed))))

    def _position_of(self, name: Any) -> int:
        position = self._nodes.find(name)
        assert position is not None, "it is not data"
        return position

    def _close(self, layer: str, bundle: _OpenBundle) -> None:
        """Send a bundle as a function."""
        if not bundle.positions:
            return
        function = NodeBundle(layer, bundle.content(), len(bundle.positions), self._client_pickle)
        self._bundles.append(function)
        record = self._hold_function(function)
        for position in bundle.positions:
            self._records[position] = record

    def _layer_of(self, key: Any) -> str:
        name = key[0] if type(key) is tuple and key else key
        if type(name) is not str:
            return type(name).__name__
        layer = self._layers.get(name)
        if layer is None:
            from dask.utils import key_split

            layer = self._layers[name] = str(key_split(name))
        return layer


def _pickled(client: Submission) -> bytes:
    with io.BytesIO() as stream:
        Pickler(stream, protocol=PROTOCOL).dump(client)
        return stream.getvalue()
