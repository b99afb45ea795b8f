"""Batches that are sent, and sent again in another session; how long that is waited for."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from scaler.client.core import recovery as recovery_module
from scaler.client.core.kept_objects import ObjectChannel
from scaler.client.core.outbox import ROOM_BYTES, Outbox, TaskRun
from scaler.client.core.recovery import Recovery
from scaler.client.future import ScalerFuture
from scaler_protocol import messages as m


def make_run() -> TaskRun:
    """Tasks 10 to 13, of which 11 and 13 need objects."""
    outbox = Outbox(lambda object_id: None)
    for number in range(4):
        run = outbox.add_task(7, 10 + number, bytes([number]) * number, [100 + number] * number if number % 2 else ())
    assert outbox.take() == [run] and not outbox.take()
    return run


def renumbered(object_id: int) -> int:
    return object_id + 1000


def test_a_whole_run_is_sent() -> None:
    run = make_run()
    assert not run.was_sent
    task, payload = run.message(renumbered)
    assert run.was_sent
    assert (task.ids, task.function) == (array("Q", [10, 11, 12, 13]), 1007)
    assert (task.payload_sizes, b"".join(payload)) == (array("I", [0, 1, 2, 3]), b"\1\2\2\3\3\3")
    assert task.dependency_counts == array("H", [0, 1, 0, 3])
    assert task.dependencies == array("Q", [1101, 1103, 1103, 1103])
    assert run.part([10, 11, 12, 13], renumbered) == run.message(renumbered)


def test_a_part_of_a_run_is_sent_again_as_often_as_need_be() -> None:
    run = make_run()
    run.message(renumbered)
    for _ in range(2):
        task, payload = run.part([11, 13], lambda object_id: object_id)
        assert (task.ids, task.function) == (array("Q", [11, 13]), 7)
        assert (task.payload_sizes, b"".join(payload)) == (array("I", [1, 3]), b"\1\3\3\3")
        assert task.dependency_counts == array("H", [1, 3])
        assert task.dependencies == array("Q", [101, 103, 103, 103])
    task, payload = run.part([12], renumbered)
    assert (task.ids, b"".join(payload), task.dependencies) == (array("Q", [12]), b"\2\2", array("Q"))


def test_what_is_sent_again_fits_a_scheduler_that_takes_less() -> None:
    outbox = Outbox(lambda object_id: None)
    outbox.set_limits(m.Limits(maximum_message_bytes=ROOM_BYTES + 100))
    run = outbox.add_task(7, 10, b"a" * 30)
    for task_id, size in ((11, 0), (12, 40), (13, 10), (14, 20)):
        assert outbox.add_task(7, task_id, b"b" * size) is run
    outbox.take()

    outbox.set_limits(m.Limits(maximum_message_bytes=ROOM_BYTES + 29))
    outbox.add_again(run, [10, 11, 12, 14])

    sent = [again.message(lambda object_id: object_id) for again in outbox.take()]
    assert [list(task.ids) for task, _ in sent] == [[10], [11, 12], [14]]  # type: ignore[union-attr]
    assert [sum(map(len, payload)) for _, payload in sent] == [30, 40, 20]
    assert (outbox.task_count, outbox.task_bytes) == (5 + 4, 100 + 90)


def test_a_task_that_may_run_once_is_not_sent_a_second_time() -> None:
    objects = ObjectChannel(m.Welcome(session=1))
    outbox = Outbox(objects.find)
    recovery = Recovery(None, objects, outbox, {}, 60.0)  # type: ignore[arg-type]  # no connection is made
    once = m.TaskOptions(at_most_once=True)
    sent, unsent = TaskRun(7, once, 0), TaskRun(7, once, 1)
    futures: Dict[int, ScalerFuture[Any]] = {}
    for number, run in enumerate((sent, unsent)):
        run.payloads.append(b"")
        future = futures[number] = ScalerFuture(None, number, None)  # type: ignore[arg-type]  # of no client
        future._source = run
    sent.message(objects.wire_id)
    ((lost, error),) = recovery.start_session(m.Welcome(session=2), futures)
    assert lost.task_id == 0 and "at most once" in str(error)
    assert list(futures) == [1]
    (again,) = outbox.take()
    assert again.message(objects.wire_id)[0].ids == array("Q", [1])  # type: ignore[union-attr]


class LosingTransport:
    """Whose scheduler welcomes everybody, and drops them."""

    address = "tcp://127.0.0.1:1"

    def __init__(self) -> None:
        self.deadlines: List[float] = []

    def connect_again(self, deadline: float, is_wanted: Any) -> m.Welcome:
        self.deadlines.append(deadline)
        return m.Welcome(session=2)

    def came_to_stay(self) -> None:
        self.deadlines.append(0.0)


def test_time_without_a_scheduler_counts_until_a_session_is_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(recovery_module, "time", SimpleNamespace(monotonic=lambda: now))
    transport, objects = LosingTransport(), ObjectChannel(m.Welcome(session=1))
    recovery = Recovery(transport, objects, Outbox(objects.find), {}, 60.0)  # type: ignore[arg-type]  # no connection
    for moment, outcomes in ((1000, 5), (1003, 5), (1006, 6), (1009, 6), (1020, 6)):
        now = float(moment)
        recovery.connect(outcomes, 1, lambda: True)
    first_loss, an_outcome_came, it_lasted = [1060.0, 1060.0], [0.0, 1066.0, 1066.0], [0.0, 1080.0]
    assert transport.deadlines == first_loss + an_outcome_came + it_lasted
