"""Outcomes on their way to the scheduler: results, failures, and large results that are fetched first.

Rules:
- An outcome whose result is a file is held until the file has its object's name. From then on the scheduler sees to it
  that no client learns of an outcome whose result could be lost with this worker. If it is too old for that, the
  outcome is held until it has fetched the result.
- Everything else is sent with the next turn (see `result_outbox`).
"""

from __future__ import annotations

from array import array
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from scaler.values.codecs import NEUTRAL_CODECS
from scaler.worker import frames
from scaler.worker.agent.core.effects import ObjectSource
from scaler.worker.agent.core.result_messages import ResultMessages
from scaler.worker.agent.core.task_queue import HeldTasks, TaskTraits
from scaler.worker.frames import Results
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

TooLargePayload = Callable[[int, int, int, bool], bytes]
"""Takes the size, the scheduler's limit, the attempt, and whether readers of any language must understand it."""


class Ran(NamedTuple):
    """Where a lost task ran, and for how long."""

    processor: int  # process id; 0: nowhere
    busy_microseconds: int


NOT_RUN = Ran(0, 0)


class _HeldResult(NamedTuple):
    traits: TaskTraits
    instance: int
    busy_microseconds: int
    profiles: Optional[Tuple[array[int], array[int], array[int]]]
    processor: int


class FinishedTasks:
    """Gathers outcomes until `drain`.

    Parameters:
        objects: turns large results into objects.
        worker_name: for the text of failures.
        too_large_payload: makes the failure payload of a task whose result is too large. It is passed in because it
        pickles an exception, which the core must not do.
    """

    def __init__(self, objects: ObjectSource, worker_name: str, too_large_payload: TooLargePayload) -> None:
        self._too_large_payload = too_large_payload
        self._objects = objects
        self._worker_name = worker_name
        self._outbox = ResultMessages()
        self._held: Dict[int, _HeldResult] = {}  # by object id

    def keep_to(self, maximum_message_bytes: int) -> None:
        """Limit messages to this size; 0: no limit is known."""
        self._outbox.keep_to(maximum_message_bytes)

    def watch(self, is_watched: bool) -> None:
        """Monitors want to know which processor ran which task, or no longer do."""
        self._outbox.is_watched = is_watched

    @property
    def holds_any(self) -> bool:
        """Whether any outcome waits for its result to be fetched."""
        return bool(self._held)

    def held_among(self, instances: Set[int]) -> Set[int]:
        """Those of the tasks whose outcome is held."""
        return instances.intersection(result.instance for result in self._held.values())

    def add(self, traits: TaskTraits, ids: array[int], results: Results, processor: int) -> None:
        """A processor with this process id has reported outcomes of tasks `ids`."""
        if results.large:
            self._add_one_by_one(traits, ids, results, processor)
            return
        self._outbox.add(
            traits.codec,
            ids,
            results.sizes,
            results.payload,
            statuses=results.statuses,
            busy_microseconds=results.busy_microseconds,
            profiles=results.profiles,
            processor=processor,
        )

    def _add_one_by_one(self, traits: TaskTraits, ids: array[int], results: Results, processor: int) -> None:
        """Handle outcomes of which some are files: they are few, or their bytes cost far more than this."""
        start = 0
        for index, instance in enumerate(ids):
            place = slice(index, index + 1)
            size = results.sizes[index]
            payload = results.payload[start : start + size]
            start += size
            profiles = None
            if results.profiles is not None:
                durations, cpu_times, peaks = results.profiles
                profiles = (durations[place], cpu_times[place], peaks[place])
            one = results._replace(
                sizes=results.sizes[place],
                statuses=results.statuses[place],
                busy_microseconds=results.busy_microseconds if index == 0 else 0,
                profiles=profiles,
                large=b"",
                payload=payload,
            )
            if results.large[index]:
                self._add_large(traits, instance, one, processor)
            else:
                self.add(traits, ids[place], one, processor)

    def _add_large(self, traits: TaskTraits, instance: int, result: Results, processor: int) -> None:
        size, path = frames.parse_large_result(result.payload)
        ids = array("Q", [instance])
        object_id = self._objects.adopt(path, size)
        if object_id:
            # SCL-OBJ-013
            self._held[object_id] = _HeldResult(traits, instance, result.busy_microseconds, result.profiles, processor)
        else:
            self._add_too_large(traits, ids, size, result, processor)

    def _add_too_large(self, traits: TaskTraits, ids: array[int], size: int, result: Results, processor: int) -> None:
        """A task ran, but its result exceeds the scheduler's limit."""
        is_neutral = traits.codec in NEUTRAL_CODECS
        payload = self._too_large_payload(size, self._objects.maximum_object_bytes, traits.attempt, is_neutral)
        self._outbox.add(
            traits.codec,
            ids,
            array("I", [len(payload)]),
            payload,
            statuses=bytes([m.TaskStatus.FAILED]),
            busy_microseconds=result.busy_microseconds,
            profiles=result.profiles,
            processor=processor,
        )

    def _lose_result(self, traits: TaskTraits, instance: int, what: str) -> None:
        task = HeldTasks(traits, array("Q", [instance]), array("I", [0]), b"")
        self.lose(task, m.FailureKind.OBJECT_MISSING, f"the result ({what}) disappeared before it was sent")

    def on_served(self, object_id: int) -> None:
        """The outcome whose result is this object may be sent."""
        held = self._held.pop(object_id, None)
        if held is not None:
            ids, objects = array("Q", [held.instance]), array("Q", [object_id])
            self._outbox.add(
                held.traits.codec,
                ids,
                array("I", [0]),
                b"",
                objects=objects,
                busy_microseconds=held.busy_microseconds,
                profiles=held.profiles,
                processor=held.processor,
            )

    def on_unserved(self, object_id: int) -> None:
        """A large result is no longer here, and the scheduler does not have all of it."""
        held = self._held.pop(object_id, None)
        if held is not None:
            self._lose_result(held.traits, held.instance, f"object {object_id:x}")

    def lose(
        self,
        tasks: HeldTasks,
        kind: m.FailureKind,
        text: str,
        stack: str = "",
        ran: Ran = NOT_RUN,
        missing_reason: m.MissingReason = m.MissingReason.UNKNOWN,
    ) -> None:
        """Tasks end without having finished."""
        attempts = tasks.traits.attempt
        # SCL-WRK-006, SCL-WRK-031
        failure = m.Failure(kind=kind, message=text, worker=self._worker_name, attempts=attempts, traceback=stack)
        failure.missing_reason = missing_reason
        payload = encode_struct(failure)
        count = len(tasks)
        sizes = array("I", [len(payload)]) * count
        ids = tasks.ids[tasks.start :]
        self._outbox.add(
            tasks.traits.codec,
            ids,
            sizes,
            payload * count,
            statuses=bytes([m.TaskStatus.LOST]) * count,
            busy_microseconds=ran.busy_microseconds,
            processor=ran.processor,
        )

    def drain(self) -> Iterable[Tuple[m.TaskResult, bytes]]:
        """The messages with their payload frames."""
        drained: List[Tuple[m.TaskResult, bytes]] = self._outbox.drain() if self._outbox else []
        return drained

    def clear(self) -> None:
        self._outbox.clear()
        self._held.clear()
