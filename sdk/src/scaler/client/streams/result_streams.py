"""The results of a map, one by one, while its items are still being taken and sent.

    for result in stream:  ──▶ room in the buffer ──▶ Sending.fill ──▶ more items

Rules:
- A stream is a generator: closing it, or the loss of its last reference, ends the map. Its first item is None, and is
  taken by who makes it, because a generator that was never started would not notice its end.
- Items are taken and sent when there is room for a chunk, before the last result is yielded that makes the room: the
  cluster works while the user does.
- A result that was yielded is no longer referred to here.
- Results before an item that fails are yielded before its exception is raised, which ends the map.
"""

from __future__ import annotations

from typing import Any, Callable, Generator, List, Optional

from scaler.client.streams.sending import Sending

Stream = Generator[Any, None, None]


def started(stream: Stream) -> Stream:
    """The stream, after its first item, which is None."""
    next(stream)
    return stream


def in_order(sending: Sending, deadline: Optional[float] = None, ends_when_lost: bool = True) -> Stream:
    """The results in the order of the items.

    Parameters:
        deadline: of `time.monotonic`, when the iterator raises TimeoutError.
        ends_when_lost: even if it was never asked for a result. Otherwise it has no first item to be taken, and
            `sending` was filled before.
    """
    try:
        if ends_when_lost:
            sending.fill()
            yield None
        while sending.sent:
            chunk = sending.sent[0]
            if chunk.outcome is None:
                sending.await_chunk(deadline)
                sending.fill()
                continue
            sending.sent.popleft()
            outcome, chunk = chunk.outcome, None  # type: ignore[assignment]  # which has the results
            yield from _yielding(sending, outcome.results)
            if outcome.error is not None:
                raise outcome.error
            outcome = None  # type: ignore[assignment]  # likewise
        if sending.error is not None:
            raise sending.error
    except KeyboardInterrupt:
        sending.is_interrupted = True
        raise
    finally:
        outcome = None  # type: ignore[assignment]  # an exception refers to this frame
        sending.error = None
        sending.close()


def as_they_end(sending: Sending) -> Stream:
    """The results in the order in which their chunks end; failures after all results that have arrived by then."""
    failed: List[BaseException] = []
    try:
        sending.fill()
        yield None
        while sending.running or sending.ended:
            if not sending.ended:
                if failed:
                    break
                sending.await_chunk()
                sending.fill()
                continue
            outcome = sending.ended.popleft().outcome
            assert outcome is not None
            if outcome.error is not None:
                failed.append(outcome.error)
            yield from _yielding(sending, outcome.results)
            outcome = None
            sending.collect()
        if failed:
            raise failed[0]
        if sending.error is not None:
            raise sending.error
    except KeyboardInterrupt:
        sending.is_interrupted = True
        raise
    finally:
        outcome = None
        sending.error = None
        failed.clear()
        sending.close()


def _yielding(sending: Sending, results: List[Any]) -> Stream:
    results.reverse()
    take: Callable[[], Any] = results.pop
    planner = sending.planner
    while results:
        count = min(len(results), planner.items_until_room(sending.slots))
        for _ in range(count - 1):
            yield take()
        planner.yielded(count)
        sending.collect()
        sending.fill()
        yield take()
