"""Why a graph is rejected; and rejecting one for which there is no memory, without building it."""

from __future__ import annotations

from array import array

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.sessions import ClientSession
from scaler_appliance.core.steps import Steps, check_ascending, parts
from scaler_appliance.core.tasks.client_results import ResultSpan
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

NODE_BYTES = 200
EDGE_BYTES = 24
EXPLAINED_TARGETS = 1000
"""Of a graph with more targets, the others get a short text: the texts of all would take more memory than the graph."""


def needed_bytes(message: m.GraphTask) -> int:
    """About how much memory a graph takes, besides its message."""
    edges = len(message.predecessors) + len(message.dependencies)
    return NODE_BYTES * len(message.ids) + EDGE_BYTES * edges


def text_of_too_large(count: int, limit: int) -> str:
    """Why a graph of `count` tasks is rejected where only so many may wait."""
    return (
        f"a graph of {count} tasks exceeds the tasks that may wait at the scheduler"
        f" ({limit} in all, with those that wait for others): submit smaller ones, add workers, or raise"
        " --max-number-of-tasks-waiting"
    )


def reject_graph(client: ClientSession, message: m.GraphTask, text: str, part: int) -> Steps:
    """Report all targets of a graph as lost.

    Raises PeerError for malformed ids or targets.
    """
    yield from check_ascending(message.ids, client.last_task_id, "GraphTask", part)
    client.last_task_id = message.ids[-1]
    ids, targets = message.ids, message.targets
    if targets and max(targets) >= len(ids):
        raise PeerError(m.RefusalReason.MALFORMED, "GraphTask: targets are not nodes, each once")
    payload = _failure(text)
    for start, stop in parts(len(targets), min(part, EXPLAINED_TARGETS)):
        count = stop - start
        lost = bytes([m.TaskStatus.LOST]) * count
        span = ResultSpan(array("I", [len(payload)]) * count, payload * count, "", lost)
        client.report(array("Q", [ids[target] for target in targets[start:stop]]), span)
        payload = _failure("the scheduler's memory is full")
        yield count


def _failure(text: str) -> bytes:
    return encode_struct(m.Failure(kind=m.FailureKind.REJECTED, message=text, attempts=1))
