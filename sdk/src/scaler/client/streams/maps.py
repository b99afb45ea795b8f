"""The maps of a client: a list of results, or a stream of them.

Rules:
- A list fails as soon as an item does, with the exception of the first of those that have failed by then. A lost worker
  costs its chunks, which run again elsewhere, not the call.
- What the options say of a call applies to it, whatever chunk it is in.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

from scaler.client.functions import function_name
from scaler.client.named_calls import submit_named
from scaler.client.progress_bar import Bar
from scaler.client.streams.chunk_planner import ChunkPlanner
from scaler.client.streams.chunk_sender import CallSender, ChunkSender, Item, Sender
from scaler.client.streams.result_streams import Stream, as_they_end, in_order, started
from scaler.client.streams.sending import Sending
from scaler.client.submission import Submission
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError
from scaler.values.named_functions import NamedFunction


def run_map(
    client: Submission, function: Callable[..., Any], items: List[Item], is_unpacked: bool = False
) -> List[Any]:
    """Run `function(*item)` for each item in the cluster; returns the results in order."""
    if not items:
        return []
    sender = ChunkSender(client, function, is_unpacked, keeps_results=False)
    sending: Optional[Sending] = None
    try:
        bar = Bar(client._options.progress, len(items), function_name(function))
        planner = ChunkPlanner(sys.maxsize)
        sending = Sending(client._shell, sender, planner, iter(items), bar, len(items))
        while True:
            sending.fill()
            if sending.error is not None:
                raise sending.error
            if sending.has_failed or not sending.running:
                break
            sending.await_chunk()
    except KeyboardInterrupt:
        if sending is not None:
            sending.is_interrupted = True
        raise
    finally:
        if sending is None:
            sender.close()
        else:
            sending.error = None
            sending.close()
    outcomes = [chunk.outcome for chunk in sending.sent if chunk.outcome is not None]
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [result for outcome in outcomes for result in outcome.results]


def stream_map(
    client: Submission,
    function: Callable[..., Any],
    calls: Iterator[Item],
    is_unpacked: bool,
    buffersize: Optional[int],
    total: Optional[int],
    keeps_order: bool,
) -> Stream:
    """Run `function(*call)` for each call in the cluster, as its results are asked for.

    Parameters:
        buffersize: how many items may be taken whose results were not yielded; None: as many as keep all slots busy.
        total: how many calls there are, for the bar.
        keeps_order: the results come in the order of the calls.
    """
    sender: Sender
    if isinstance(function, NamedFunction):
        sender = CallSender(lambda *args: submit_named(client, function, args, {}), function.name)
    else:
        sender = ChunkSender(client, function, is_unpacked)
    bar = Bar(client._options.progress, total, sender.name)
    sending = Sending(client._shell, sender, ChunkPlanner(buffersize), calls, bar, None, keeps_order)
    return started(in_order(sending) if keeps_order else as_they_end(sending))


def checked_buffersize(buffersize: Any) -> Optional[int]:
    """Raises ArgumentTypeError and InvalidArgumentError, in the words of the standard library."""
    if buffersize is None:
        return None
    if isinstance(buffersize, bool) or not hasattr(buffersize, "__index__"):
        raise ArgumentTypeError(f"buffersize must be an integer or None, got {type(buffersize).__name__}")
    number = operator.index(buffersize)
    if number < 1:
        raise InvalidArgumentError(f"buffersize must be None or > 0, got {number}")
    return number


def length_of(iterables: Sequence[Iterable[Any]]) -> Optional[int]:
    """How many calls a map of these has, if all of them know their length."""
    try:
        return min(len(each) for each in iterables)  # type: ignore[arg-type]  # those without one raise TypeError
    except (TypeError, ValueError):
        return None
