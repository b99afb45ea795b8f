"""A single task is sent by the thread that submits it: posting it to the I/O thread would cost more than sending it.

    user thread                                              I/O thread
    slot.task_id, slot.send ◀── offered while nothing is unfinished, and nothing waits to be sent
    commands.append(LoneTask)          (1)
    claim the slot, send, note it      (2) ──▶ scheduler
                                               withdraw the slot, before anything else is applied or sent
                                               was it claimed? apply that task first, as sent; the others as usual

Rules:
- (1) and (2) are one C call each, so Ctrl-C comes before, between or after them. Between them the task waits like any
  other posted command.
- A slot is claimed once: by the user thread that sends, or by the I/O thread that withdraws it. So the task's number
  and the socket belong to one of them at a time.
- The I/O thread may see a claimed slot before the number of sent bytes is recorded, while the system call runs; it
  waits for the record. If that never came, it would be unknown what was sent, and the session would be ended: the next
  one sends everything again.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from typing import Any, Deque, Iterable, List, Optional, Tuple

from scaler.client.core.client_objects import ClientObjects
from scaler.client.core.commands import Command, PlainTask
from scaler.client.shell.transport import TaskSender
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.payload import Buffer
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode

_CLAIM_TIMEOUT_SECONDS = 1.0
_LONGEST_STEP_SECONDS = 0.05  # in which this process ran; more than that is a stop, in which the other thread stood too
_DEFAULT_OPTIONS = m.TaskOptions()  # of most tasks; never changed


class LoneTask:
    """A task that its own thread may have sent.

    Parameters:
        data: the whole message, as it travels.
        frames: the message.
    """

    __slots__ = ("task", "data", "frames", "sent")

    def __init__(self, task: PlainTask, data: bytes, frames: List[Buffer]) -> None:
        self.task = task
        self.data = data
        self.frames = frames
        self.sent: Deque[int] = deque()  # how many of its bytes were written, once it was sent


class Slot:
    """The right to send one task at once.

    Parameters:
        task_id: of that task.
        sender: encodes and sends it.
        objects: has the function's id at the scheduler.
    """

    __slots__ = ("_task_id", "_encode", "_send", "_objects", "_claims")

    def __init__(self, task_id: int, sender: TaskSender, objects: ClientObjects) -> None:
        self._task_id = task_id
        self._encode, self._send = sender
        self._objects = objects
        self._claims: List[int] = [0]  # the thread that pops it has the slot; also the flags of `send`

    def use(self, task: PlainTask, commands: Deque[Any]) -> Optional[bool]:
        """Post and send a task: True; or post it for the I/O thread to send: False; or neither: None."""
        frames = self._frames(task)
        buffers = self._encode(frames)
        if len(buffers) != 1:
            return None
        data = bytes(buffers[0])
        lone = LoneTask(task, data, frames)
        commands.append(lone)
        try:
            # One C call: claim the slot, send, and record how much was sent.
            lone.sent.extend(map(self._send, (data,), map(self._claims.pop, (-1,))))
        except IndexError:
            return False  # another thread has the slot
        except OSError:
            lone.sent.append(0)
            return False
        except MemoryError:
            return False  # it is unknown whether it was sent
        return lone.sent[0] == len(data)

    def _frames(self, task: PlainTask) -> List[Buffer]:
        _, function, payload, options = task
        message = m.Task(
            ids=array("Q", (self._task_id,)),
            payload_sizes=array("I", (len(payload),)),
            codec=PYTHON_CODEC,
            options=_DEFAULT_OPTIONS if options is None else options,
        )
        if isinstance(function, int):
            message.function = self._objects.wire_id(function)
        else:
            message.function_name, message.codec = function.name, function.codec
        return [encode(message), payload]

    def withdraw(self) -> bool:
        """Withdraw the slot; returns whether a thread has claimed it before."""
        try:
            self._claims.pop()
        except IndexError:
            return True
        return False


def plain_command(command: Any) -> Command:
    """The core's form of a LoneTask; any other command is unchanged."""
    return command.task if type(command) is LoneTask else command


def sort_out(commands: List[Any], was_claimed: bool) -> Tuple[Optional[LoneTask], List[Command]]:
    """The task that was sent, if one was, and the other commands, in order.

    Parameters:
        was_claimed: the result of withdrawing the slot.

    Raises TimeoutError when it is unknown what was sent.
    """
    if len(commands) == 1 and was_claimed and commands[0].sent and commands[0].sent[0]:
        return commands[0], []
    lone = [command for command in commands if type(command) is LoneTask]
    if not lone:
        return None, commands
    sent = _sent(lone) if was_claimed else None
    others = [plain_command(command) for command in commands if command is not sent]
    if sent is not None and not sent.sent[0]:
        return None, [sent.task, *others]
    return sent, others


def _sent(lone: Iterable[LoneTask]) -> LoneTask:
    waited_seconds, before = 0.0, time.monotonic()
    while True:
        for each in lone:
            if each.sent:
                return each
        if waited_seconds > _CLAIM_TIMEOUT_SECONDS:
            raise TimeoutError
        time.sleep(0)
        now = time.monotonic()
        waited_seconds += min(now - before, _LONGEST_STEP_SECONDS)
        before = now
