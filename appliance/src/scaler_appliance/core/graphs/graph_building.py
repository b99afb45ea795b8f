"""From a GraphTask to a Graph: checking its columns, and making those that follow from them.

Rules:
- A graph is checked completely before anything changes; the faults of a malformed one are PeerErrors.
- Columns are read and made in parts, and as far as possible at the speed of C: a node costs less than a microsecond.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain, compress, islice, repeat
from operator import le, lt, not_, or_, sub
from typing import Generator, Sequence

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.graphs.graph_nodes import Graph
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.steps import COLUMN_ENTRIES_PER_UNIT, Steps, check_ascending, parts, total_of
from scaler_appliance.core.tasks.capabilities import check_capabilities
from scaler_protocol import messages as m
from scaler_protocol.wire.columns import check_lengths, sum_differs

EDGES_PER_UNIT = 4


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise PeerError(m.RefusalReason.MALFORMED, f"GraphTask: {what}")


# SCL-SCH-002
def build_graph(client: ClientSession, message: m.GraphTask, payload: bytes, part: int) -> Generator[int, None, Graph]:
    """Check a message and build its graph, of which nothing else knows yet.

    Raises PeerError or MalformedMessageError.
    """
    check_lengths(message, "ids", ("payload_sizes", "functions"), ("dependency_counts",))
    check_capabilities(message.options.capabilities)
    # SCL-CLT-015
    if message.options.actor:
        text = "GraphTask: nodes are no calls of an actor, because calls run in the order in which they are submitted"
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, text)
    graph = Graph(client.number, message, payload, client.tenant)
    yield len(graph) // COLUMN_ENTRIES_PER_UNIT // 4
    yield from check_ascending(message.ids, client.last_task_id, "GraphTask", part)
    yield from _check_sums(message, payload, part)
    graph.offsets = yield from _offsets_of(message.payload_sizes, part)
    counts: Sequence[int] = message.dependency_counts or bytes(len(graph))
    graph.dependency_offsets = yield from _offsets_of(counts, part)
    yield from _add_targets(graph, message.targets, part)
    yield from _add_edges(graph, message, part)
    yield from _find_unneeded(graph, part)
    return graph


def _check_sums(message: m.GraphTask, payload: bytes, part: int) -> Steps:
    total = yield from total_of(message.dependency_counts, part)
    if total != len(message.dependencies):
        raise sum_differs("GraphTask", "dependency_counts", total, "dependencies", len(message.dependencies))
    total = yield from total_of(message.payload_sizes, part)
    if total != len(payload):
        raise sum_differs("GraphTask", "payload_sizes", total, "the payload frame", len(payload))
    for start, stop in parts(len(message.functions), part * COLUMN_ENTRIES_PER_UNIT):
        _check(all(message.functions[start:stop]), "each node must have a function object")
        yield (stop - start) // COLUMN_ENTRIES_PER_UNIT


def _offsets_of(sizes: Sequence[int], part: int) -> Generator[int, None, array[int]]:
    """Where each entry begins, and where the last one ends; the column has its length at once, and never moves."""
    offsets = array("Q", [0]) * (len(sizes) + 1)
    yield len(sizes) // COLUMN_ENTRIES_PER_UNIT // 4
    end = 0
    for start, stop in parts(len(sizes), part * EDGES_PER_UNIT):
        own = array("Q", accumulate(sizes[start:stop], initial=end))
        offsets[start : stop + 1] = own
        end = own[-1]
        yield (stop - start) // COLUMN_ENTRIES_PER_UNIT + 1
    return offsets


def _add_targets(graph: Graph, targets: array[int], part: int) -> Steps:
    is_target, count = graph.is_target, len(graph)
    text = "targets are not nodes, each once"
    _check(len(targets) <= count, text)
    for start, stop in parts(len(targets), part * EDGES_PER_UNIT):
        own = targets[start:stop]
        _check(max(own) < count, text)
        first, last = own[0], own[-1]
        if last - first == stop - start - 1 and own == array("I", range(first, last + 1)):
            _check(not any(is_target[first : last + 1]), text)
            is_target[first : last + 1] = b"\x01" * len(own)
        else:
            for node in own:
                is_target[node] += 1
                _check(is_target[node] == 1, text)
        yield (stop - start) // EDGES_PER_UNIT + 1


def _add_edges(graph: Graph, message: m.GraphTask, part: int) -> Steps:
    """The numbers of predecessors and dependants, and the dependants of each node."""
    count, offsets, predecessors = len(graph), graph.predecessor_offsets, graph.predecessors
    _check(len(offsets) == count + 1, "predecessor_offsets do not fit the ids")
    fits = offsets[0] == 0 and offsets[-1] == len(predecessors)
    ascend = "predecessor_offsets do not ascend"
    _check(fits, ascend)
    if not predecessors:
        for start, stop in parts(count, part * COLUMN_ENTRIES_PER_UNIT):
            _check(not any(offsets[start:stop]), ascend)
            yield (stop - start) // COLUMN_ENTRIES_PER_UNIT
        graph.missing = array("I", [0]) * count
        yield count // COLUMN_ENTRIES_PER_UNIT
        graph.successor_offsets = array("Q", [0]) * (count + 1)
        yield count // COLUMN_ENTRIES_PER_UNIT
        return
    nodes_of_edges = array("I")
    for start, stop in parts(count, part * EDGES_PER_UNIT):
        own = offsets[start : stop + 1]
        _check(all(map(le, own, islice(own, 1, None))), ascend)
        counts = array("I", map(sub, islice(own, 1, None), own))
        graph.missing += counts
        if own[-1] - own[0] > EDGES_PER_UNIT * (stop - start):  # some nodes may have very many
            for node, before in enumerate(counts, start):
                nodes_of_edges += array("I", [node]) * before
        else:
            nodes_of_edges.extend(chain.from_iterable(map(repeat, range(start, stop), counts)))
        yield (stop - start) // EDGES_PER_UNIT + 1
    dependants = graph.dependants
    for start, stop in parts(len(predecessors), part * EDGES_PER_UNIT):
        own = predecessors[start:stop]
        _check(all(map(lt, own, nodes_of_edges[start:stop])), "a node must come after its predecessors")
        for node in own:
            dependants[node] += 1
        yield (stop - start) // EDGES_PER_UNIT + 1
    graph.successor_offsets = yield from _offsets_of(dependants, part)
    yield from _transpose(graph, nodes_of_edges, part)


def _transpose(graph: Graph, nodes_of_edges: array[int], part: int) -> Steps:
    """The dependants of each node, at `successor_offsets`."""
    places = graph.successor_offsets[:]
    successors = graph.successors = array("I", bytes(4 * len(nodes_of_edges)))
    yield len(places) // COLUMN_ENTRIES_PER_UNIT // 4
    for start, stop in parts(len(nodes_of_edges), part * EDGES_PER_UNIT):
        for predecessor, node in zip(graph.predecessors[start:stop], nodes_of_edges[start:stop]):
            place = places[predecessor]
            successors[place] = node
            places[predecessor] = place + 1
        yield (stop - start) // EDGES_PER_UNIT + 1


def _find_unneeded(graph: Graph, part: int) -> Steps:
    """Nodes that no target needs, because nothing does."""
    for start, stop in parts(len(graph), part * EDGES_PER_UNIT):
        is_needed = map(or_, graph.dependants[start:stop], graph.is_target[start:stop])
        graph.unneeded.extend(compress(range(start, stop), map(not_, is_needed)))
        yield (stop - start) // EDGES_PER_UNIT + 1
