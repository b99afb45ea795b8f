"""What the scheduler and its workers say to each other, judged from the messages alone.

Rules:
- A task is at a worker from the moment it is sent there until the worker has reported it, given it back, or confirmed
  that it is cancelled.
- A task that was lost with several workers goes to a free slot only, and so does one that has to begin at once.
- A worker that was asked to drain, by the scheduler or by itself, gets no more tasks but calls of its actors. It says
  that it has drained when it has no task left, and not before.
- A task that says how long it may run is not sent to a worker that leaves before its end.
- While an object is fetched, each part of it is requested once. Of an object that was missing, an answer to an earlier
  fetch may end a later one, and a third may begin before that one is answered. A worker that is rid of tasks without
  having run them may have given up what it fetched for them, and begin again when it needs that.
"""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

from scaler_protocol import messages as m

SUSPICIOUS_ATTEMPT = 3  # two workers were lost with the task


class WorkerDialogues:
    """The dialogues of one scheduler, by the names of connections.

    Parameters:
        disks_may_be_full: of workers, which then request again what they could not store.
    """

    def __init__(self, disks_may_be_full: bool) -> None:
        self._disks_may_be_full = disks_may_be_full
        self._open: Dict[bytes, Set[int]] = {}  # instances at the worker
        self._suspects: List[Tuple[Set[int], int]] = []  # what was at their workers when they were sent, and the slots
        self._calls: Set[int] = set()  # of actors, each of which needs one slot at most
        self._ending: Set[int] = set()  # their workers were told to drop or end them, as when their client is gone
        self._draining: Set[bytes] = set()
        self._ends: Dict[bytes, float] = {}  # of workers that have said when they leave, by the scheduler's clock
        self._stopping: Set[bytes] = set()  # do not have to finish their tasks
        self._requested: Dict[Tuple[bytes, int], Set[int]] = {}  # offsets of an object's parts
        self._missing: Set[Tuple[bytes, int]] = set()  # objects that a worker was told it cannot have
        self._given_up: Set[Tuple[bytes, int]] = set()  # fetches that may have been

    def on_sent(self, now: float, name: bytes, message: Any, payload_bytes: int, slots: int) -> None:
        """
        Parameters:
            now: the scheduler's clock.
            slots: of a worker, with those that its blocked tasks have given up.
        """
        if isinstance(message, m.Task):
            at_worker = self._open.setdefault(name, set())
            at_worker.update(message.ids)
            assert name not in self._draining or message.options.actor, f"{name!r} drains, and gets tasks {message.ids}"
            request_seconds = 0.0 if message.options.actor else message.options.time_request_milliseconds / 1000
            left_seconds = self._ends.get(name, float("inf")) - now
            assert request_seconds == 0.0 or request_seconds <= left_seconds + 1e-6, (
                f"{name!r} leaves in {left_seconds} s, and gets tasks that may take {request_seconds} s"
            )
            if message.options.actor:
                self._calls.update(message.ids)
            has_to_begin = request_seconds > 0.0 and name in self._ends
            if message.attempt >= SUSPICIOUS_ATTEMPT or has_to_begin:
                self._suspects.append((at_worker - self._calls, slots))
        elif isinstance(message, m.TaskCancel):
            self._ending.update(message.ids)
        elif isinstance(message, m.ObjectResponse):
            if message.status != m.ObjectResponseStatus.OK:
                self._missing.add((name, message.id))
            if message.status != m.ObjectResponseStatus.OK or message.offset + payload_bytes >= message.size:
                self._requested.pop((name, message.id), None)  # it may be requested again
                self._given_up.discard((name, message.id))
        elif isinstance(message, m.DisconnectRequest):
            is_draining = message.reason == m.DisconnectReason.DRAINING
            (self._draining if is_draining else self._stopping).add(name)

    def on_tick(self) -> None:
        """All messages of a tick are sent."""
        for at_worker, slots in self._suspects:
            count = len(at_worker - self._ending)
            assert count <= slots, f"a task that needs a free slot is among {count} at a worker with {slots} slots"
        self._suspects.clear()

    def on_received(self, now: float, name: bytes, message: Any) -> None:
        if isinstance(message, m.Hello):
            self._draining.discard(name)
            self._stopping.discard(name)
            if message.remaining_milliseconds:
                self._ends[name] = now + message.remaining_milliseconds / 1000
        elif isinstance(message, (m.TaskResult, m.BalanceResponse)):
            self._open.get(name, set()).difference_update(message.ids)
            if message.ids and isinstance(message, m.BalanceResponse):
                self._may_give_up(name)
        elif isinstance(message, m.TaskCancelConfirm):
            confirmed = zip(message.ids, message.outcomes)
            cancelled = [instance for instance, outcome in confirmed if outcome == m.CancelOutcome.CANCELLED]
            self._open.get(name, set()).difference_update(cancelled)
            if cancelled:
                self._may_give_up(name)
        elif isinstance(message, m.ObjectRequest):
            self._on_request(name, message)
        elif isinstance(message, m.DisconnectRequest) and message.reason != m.DisconnectReason.DRAINING:
            self._stopping.add(name)
        elif isinstance(message, m.DisconnectResponse) and name in self._draining - self._stopping:
            # Calls may cross it: of an actor that a forced cancel has ended, of which the scheduler has yet to hear.
            left = self._open.get(name, set()) - self._calls
            assert not left, f"{name!r} has drained, and still has tasks {left}"

    def _may_give_up(self, name: bytes) -> None:
        self._given_up.update(each for each in self._requested if each[0] == name)

    def _on_request(self, name: bytes, message: m.ObjectRequest) -> None:
        requested = self._requested.setdefault((name, message.id), set())
        if message.offset in requested and (name, message.id) in self._given_up:
            requested.clear()
            self._given_up.discard((name, message.id))
        is_first = message.offset not in requested or (name, message.id) in self._missing
        assert is_first or self._disks_may_be_full, f"{name!r} requests byte {message.offset} of an object twice"
        requested.add(message.offset)

    def has_tasks(self, name: bytes) -> bool:
        """Whether a worker has tasks."""
        return bool(self._open.get(name))

    def on_peer_gone(self, name: bytes) -> None:
        self._open.pop(name, None)
