"""The output of tasks at the client: shown, or passed to a callback.

    I/O thread: on_task_log ──▶ queue ──▶ own thread: callback, or standard output and standard error

Rules:
- Showing output may block or raise, so it has a thread of its own, which starts when a task first prints.
- In order, as the scheduler sent it: the output of one task in the order in which it printed, both streams together.
- What is shown controls no terminal: control characters but those of colours are escaped. A callback gets the text as
  it is.
- Bounded: when output comes faster than it is shown, what exceeds MAXIMUM_WAITING_BYTES is dropped, and the amount is
  logged.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from contextvars import Context
from typing import Callable, NamedTuple, Optional, Tuple

from scaler_protocol import messages as m
from scaler_protocol.programs.terminal_texts import escaped_but_colours

logger = logging.getLogger("scaler")

MAXIMUM_WAITING_BYTES = 64 * 1024 * 1024
CLOSE_TIMEOUT_SECONDS = 2.0

_STDERR = 2


class TaskOutput(NamedTuple):
    """Text that a task printed: whole lines, unless the task flushed or ended within one, or printed a very long
    one."""

    task_id: int
    """As in `future.task_id`."""

    stream: str
    """`stdout` or `stderr`."""

    text: str


OutputCallback = Callable[[TaskOutput], object]


class OutputChannel:
    """Shows what tasks print; `callback` may be set until a task has printed."""

    def __init__(self) -> None:
        self.callback: OutputCallback = print_output
        self._waiting: queue.SimpleQueue[Optional[Tuple[TaskOutput, Optional[Context]]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._dropped = 0
        self._thread: Optional[threading.Thread] = None

    def on_task_log(self, message: m.TaskLog, context: Optional[Context] = None) -> None:
        """A task printed something. I/O thread.

        Parameters:
            context: of the submission, if known: a notebook shows the output in the cell that submitted the task.
        """
        output = task_output(message)
        with self._lock:
            if self._waiting_bytes >= MAXIMUM_WAITING_BYTES:
                self._dropped += len(output.text)
                return
            self._waiting_bytes += len(output.text)
        self._waiting.put((output, context))
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="scaler-client-output", daemon=True)
            try:
                thread.start()
                self._thread = thread
            except (RuntimeError, MemoryError):
                pass  # no room for a thread: tried again with the next output

    def close(self) -> None:
        """No more output follows; wait a bounded time until everything is shown."""
        self._waiting.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        waiting = self._waiting.get()
        while waiting is not None:
            output, context = waiting
            try:
                if context is None:
                    self.callback(output)
                else:
                    context.run(self.callback, output)
            except BaseException:  # raised by user code: even SystemExit must not end this thread
                logger.exception("the output of task %d could not be shown", output.task_id)
            with self._lock:
                self._waiting_bytes -= len(output.text)
                dropped, self._dropped = self._dropped, 0
            if dropped:
                logger.warning("%d characters of tasks' output came faster than they could be shown", dropped)
            waiting = self._waiting.get()


def task_output(message: m.TaskLog) -> TaskOutput:
    """What a task printed."""
    return TaskOutput(message.id, "stderr" if message.stream == _STDERR else "stdout", message.text)


def print_output(output: TaskOutput) -> None:
    """Print each line after the number of its task."""
    stream = sys.stderr if output.stream == "stderr" else sys.stdout
    mark = f"[task {output.task_id}] "
    stream.write("".join(f"{mark}{escaped_but_colours(line)}\n" for line in output.text.splitlines()))
    stream.flush()
