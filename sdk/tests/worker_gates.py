"""What tests of the whole worker share: a gate that tasks wait at, and a look at heartbeats."""

from __future__ import annotations

import os
from typing import Any, Callable

from fake_scheduler import FakeScheduler

from scaler.values import payload as payloads
from scaler_protocol import messages as m

CANCELLED, RUNNING, NOT_FOUND = m.CancelOutcome.CANCELLED, m.CancelOutcome.RUNNING, m.CancelOutcome.NOT_FOUND


class Gate:
    """A pipe with a name: tasks wait in `wait_at(gate.path)` until the test opens it."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR)  # its own reader, so that nothing written is lost

    def open(self) -> None:
        """Let one waiting task go on, or the next that will wait."""
        os.write(self._descriptor, b"x")

    def remove(self) -> None:
        os.close(self._descriptor)


def _make_wait_at() -> Callable[[str], str]:
    def wait_at(path: str) -> str:
        os.read(os.open(path, os.O_RDONLY), 1)
        return "went through"

    return wait_at


wait_at = _make_wait_at()  # a local function, so that it is sent whole: workers cannot import this module


def wait_for_heartbeat(scheduler: FakeScheduler, condition: Callable[[m.Heartbeat], object]) -> m.Heartbeat:
    """A heartbeat that says so."""
    for _ in range(1000):
        for heartbeat in scheduler.heartbeats:
            if condition(heartbeat):
                return heartbeat
        scheduler.heartbeats.clear()
        message = scheduler.read()
        if not isinstance(message.message, m.Heartbeat):
            scheduler.kept.append(message)
    raise AssertionError("no such heartbeat came")


def private_directory(scheduler: FakeScheduler) -> str:
    """The worker's own object directory, learnt from a task that looks where large results are written."""

    def find() -> str:
        from scaler.worker.processor.processor import current

        processor = current()
        assert processor is not None
        return os.path.dirname(processor.next_object_path())

    scheduler.send_calls(scheduler.create_function(find), {1: ()})
    return str(scheduler.result(1).value)


def with_reference(*args: Any) -> bytes:
    return payloads.join(payloads.dump_arguments(args, {}, None, []))


REFERENCE = payloads.ObjectReference("", 0, 0)


def send_task_with_object(scheduler: FakeScheduler, instance: int, function: int, object_id: int) -> None:
    content = with_reference(REFERENCE)
    task = m.Task(
        ids=[instance],
        payload_sizes=[len(content)],
        function=function,
        codec="cloudpickle",
        dependency_counts=[1],
        dependencies=[object_id],
    )
    scheduler.send(task, content)
