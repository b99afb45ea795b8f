"""A task that its own thread sends is sent once, whatever comes in between, and so is every other."""

from __future__ import annotations

import itertools
from collections import deque
from types import SimpleNamespace
from typing import Any, Callable, Deque, List

import pytest

from scaler.client.core.client_objects import ClientObjects
from scaler.client.shell.lone_tasks import LoneTask, Slot, sort_out
from scaler.client.shell.mailbox import Mailbox
from scaler.client.shell.transport import TaskSender
from scaler.values.named_functions import NamedFunction
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.zmtp import encode

ECHO = NamedFunction("scaler.conformance/echo")


def slot_with(send: Callable[[bytes, int], int]) -> Slot:
    return Slot(
        5, TaskSender(encode, send), ClientObjects(m.Welcome(session=1), itertools.count(1), lambda effect: None)
    )


def task(name: str) -> Any:
    return (name, ECHO, b"payload", None)


def test_a_task_that_was_sent_comes_before_what_was_handed_over_meanwhile() -> None:
    sent: List[bytes] = []

    def send(data: bytes, flags: int) -> int:
        sent.append(data)
        return len(data)

    slot, commands = slot_with(send), deque([task("other")])
    assert slot.use(task("lone"), commands) is True
    assert slot.withdraw()
    lone, others = sort_out(list(commands), True)
    assert lone is not None and lone.task == task("lone") and [lone.data] == sent
    assert others == [task("other")]


def test_a_slot_is_used_once() -> None:
    commands: Deque[Any] = deque()
    slot = slot_with(lambda data, flags: len(data))
    assert [slot.use(task(name), commands) for name in ("first", "second")] == [True, False]
    lone, others = sort_out(list(commands), slot.withdraw())
    assert lone is not None and lone.task == task("first")
    assert others == [task("second")]


def test_what_was_handed_over_and_not_sent_is_a_task_like_any_other() -> None:
    """Ctrl-C came in between, or the I/O thread was faster."""
    slot = slot_with(lambda data, flags: len(data))
    assert not slot.withdraw()
    commands: Deque[Any] = deque()
    assert slot.use(task("late"), commands) is False
    assert sort_out(list(commands), False) == (None, [task("late")])
    assert sort_out([LoneTask(task("interrupted"), b"", [b""])], False) == (None, [task("interrupted")])


def test_what_the_system_does_not_take_is_sent_by_the_other_thread() -> None:
    def refuse(data: bytes, flags: int) -> int:
        raise BlockingIOError

    commands: Deque[Any] = deque()
    slot = slot_with(refuse)
    assert slot.use(task("lone"), commands) is False
    assert sort_out(list(commands), slot.withdraw()) == (None, [task("lone")])


def test_a_part_that_was_sent_is_known() -> None:
    commands: Deque[Any] = deque()
    slot = slot_with(lambda data, flags: 3)
    assert slot.use(task("lone"), commands) is False
    lone, _ = sort_out(list(commands), slot.withdraw())
    assert lone is not None and list(lone.sent) == [3]


def test_commands_that_come_after_the_end_are_refused() -> None:
    refused: List[Any] = []
    mailbox = Mailbox(refused.extend)
    mailbox.post("before")
    assert mailbox.take() == ["before"] and not mailbox.take()
    mailbox.post("last")
    mailbox.close()
    mailbox.post("late")
    assert refused == ["last", "late"]
    mailbox.close_pipe()


def test_commands_are_refused_though_the_end_came_while_one_woke_the_io_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: List[Any] = []
    mailbox = Mailbox(refused.extend)
    ends = iter([mailbox.close])
    monkeypatch.setattr(mailbox, "waker", SimpleNamespace(write=lambda byte: next(ends, lambda: None)()))
    mailbox.sleep()
    mailbox.post("last")
    mailbox.post("late")
    assert refused == ["last", "late"]


def test_who_sleeps_is_woken_once() -> None:
    mailbox = Mailbox(lambda commands: None)
    assert mailbox.sleep()
    mailbox.post("first")
    assert not mailbox.sleeping, "the next thread has nothing to do"
    assert not mailbox.sleep(), "there is something to be taken"
    mailbox.close_pipe()
