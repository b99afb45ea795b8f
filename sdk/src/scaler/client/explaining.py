"""Why a future is not done, in one sentence.

Rules:
- Here is known whether it is done, and how; all else the scheduler is asked.
- The scheduler's warnings are logged by a thread of their own: handlers of logs are user code, which the I/O thread
  must not run.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from typing import TYPE_CHECKING, Any, Dict

from scaler.client.core.deferring import DeferredTask
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler.client.future import ScalerFuture
    from scaler.client.shell.client_shell import ClientCore

logger = logging.getLogger("scaler")


class Explaining:
    """The questions of one client that the scheduler has not answered yet."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._answers: Dict[int, queue.SimpleQueue[str]] = {}

    def on_explanation(self, message: m.Explanation) -> None:
        """The scheduler answers, or warns unasked. Called by the I/O thread."""
        if message.request_id:
            answer = self._answers.get(message.request_id)
            if answer is not None:
                answer.put(message.text)
        else:  # SCL-CLT-012
            threading.Thread(
                target=logger.warning, args=("%s", message.text), name="scaler-warning", daemon=True
            ).start()

    def explain(self, core: ClientCore, future: ScalerFuture, timeout_seconds: float) -> str:
        """The sentence about a future of this client."""
        if not future.done() and core.closed_because is None:
            if type(future._source) is DeferredTask:
                return _text_of_deferred(future._source)
            if not core.is_connected:
                return "the client has lost its scheduler and tries to connect again; then the task is sent again"
            number = next(self._numbers)
            answer = self._answers[number] = queue.SimpleQueue()
            try:
                with core.lock:
                    core.send(m.ExplanationRequest(request_id=number, task_id=future.task_id))
                text = answer.get(timeout=timeout_seconds)
            except queue.Empty:
                text = f"the scheduler has not answered for {timeout_seconds:g} s where the task is"
            finally:
                del self._answers[number]
            if not future.done():
                return text
        return _outcome_of(future)


def _text_of_deferred(task: DeferredTask) -> str:
    missing = [each for each in task.predecessors if not each.done()]
    if not missing:
        return "the task is about to be sent, with the results that it needs"
    name = missing[0]._function.name if missing[0]._function is not None else ""
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"the task waits in this client for task {missing[0].task_id}{f' of {name}' if name else ''}{others}"


def _outcome_of(future: Any) -> str:
    """How a future that is done ended; loads no result, which would run user code."""
    if not future.done():
        return "the task will have no outcome: its client is disconnected"
    if future.cancelled():
        return "the task was cancelled"
    if future._exception is not None:
        return f"the task has failed: {type(future._exception).__name__}: {future._exception}"
    return "the task has failed: see exception()" if future._has_failed else "the task has a result"
