"""Batches that are sent, and sent again in another session."""

from __future__ import annotations

import itertools
from array import array
from typing import Any, List, Tuple

from scaler.client.core.client_core import ClientCore
from scaler.client.core.effects import Failed, Send
from scaler.client.core.handles import NOT_NUMBERED
from scaler.client.core.outbox import ROOM_BYTES, Outbox, RunAgain, TaskRun
from scaler.values.named_functions import NamedFunction
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
    before = run.was_sent
    task, payload = run.message(renumbered)
    assert (before, run.was_sent) == (False, True)
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

    sent: List[Tuple[Any, Any]] = []
    for again in outbox.take():
        assert isinstance(again, RunAgain)
        sent.append(again.message(lambda object_id: object_id))
    assert [list(task.ids) for task, _ in sent] == [[10], [11, 12], [14]]
    assert [sum(map(len, payload)) for _, payload in sent] == [30, 40, 20]
    assert (outbox.task_count, outbox.task_bytes) == (5 + 4, 100 + 90)


class Future:
    """What a core knows of one."""

    _is_cancel_asked = False

    def __init__(self) -> None:
        self._task_id = NOT_NUMBERED
        self._source: Any = None


def test_a_task_that_may_run_once_is_not_sent_a_second_time() -> None:
    core = ClientCore(m.Welcome(session=1), itertools.count(1))
    function = NamedFunction("scaler.conformance/echo")
    once = m.TaskOptions(at_most_once=True)
    sent, unsent = Future(), Future()
    core.apply([(sent, function, b"1", once)])
    assert [type(effect) for effect in core.take_effects()] == [Send]
    core.on_lost()
    core.apply([(unsent, function, b"2", once)])
    assert core.on_welcome(m.Welcome(session=2)) == 1
    lost, again = core.take_effects()
    assert isinstance(lost, Failed) and lost.futures == [sent] and "at most once" in str(lost.error)
    assert isinstance(again, Send) and isinstance(again.message, m.Task)
    assert list(again.message.ids) == [unsent._task_id]
    assert list(core.futures.values()) == [unsent]
