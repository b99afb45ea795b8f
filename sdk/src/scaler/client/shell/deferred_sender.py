"""Sends tasks that waited here for the results of others: the results are prepended to their payloads as received.

Rules: sending may take time, because large results are written to files. A separate thread does it, which exists only
while there is something to send.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, List, Tuple

from scaler.client.core.commands import Command, EndDeferred, SubmitDeferred
from scaler.client.core.deferring import DeferredTask
from scaler.client.shell.future_internals import content_of, has_failed, is_cancelled
from scaler.exceptions import DisconnectedError
from scaler.values.payload import INLINE_BYTES, RESULT_IS_OBJECT, Buffer, results_header


class DeferredSender:
    """Parameters:
    send_object: places content in the cluster; returns its id.
    post: posts commands to the core.
    """

    def __init__(self, send_object: Callable[[Buffer], int], post: Callable[[Command], None]) -> None:
        self._send_object = send_object
        self._post = post
        self._ready: Deque[DeferredTask] = deque()
        self._lock = threading.Lock()
        self._is_working = False

    def send(self, task: DeferredTask) -> None:
        """All that the task needs has ended. I/O thread."""
        with self._lock:
            self._ready.append(task)
            if self._is_working:
                return
            self._is_working = True
        try:
            threading.Thread(target=self._work, name="scaler-client-deferred", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # no room for a thread
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            tasks, self._is_working = list(self._ready), False
            self._ready.clear()
        for task in tasks:
            self._post(EndDeferred(task, error=error))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._ready:
                    self._is_working = False
                    return
                task = self._ready.popleft()
            self.send_here(task)

    def send_here(self, task: DeferredTask) -> None:
        """Send a task in this thread."""
        try:
            self._post(self._command(task))
        except DisconnectedError:
            pass  # which ends its future as well
        except Exception as error:  # for example no room for a large result: the future must end in any case
            self._post(EndDeferred(task, error=error))

    def _command(self, task: DeferredTask) -> Command:
        predecessors: Any = task.predecessors
        if any(map(is_cancelled, predecessors)):
            return EndDeferred(task)
        failed = next(filter(has_failed, predecessors), None)
        if failed is not None:
            return EndDeferred(task, failed=failed)
        payload, objects = self._results_in_front(task)
        return SubmitDeferred(task, payload, objects, objects)

    def _results_in_front(self, task: DeferredTask) -> Tuple[bytes, List[int]]:
        """The payload with the predecessors' results that fit, and objects with the others."""
        parts: List[Buffer] = []
        sizes: List[int] = []
        objects: List[int] = []
        inline_bytes = len(task.payload)
        for each in task.predecessors:
            content = content_of(each)  # type: ignore[arg-type]
            assert content is not None, f"the result of task {each._task_id} was not kept"
            if inline_bytes + len(content) < INLINE_BYTES:
                inline_bytes += len(content)
                parts.append(content)
                sizes.append(len(content))
            else:
                objects.append(self._send_object(content))
                sizes.append(RESULT_IS_OBJECT)
        return b"".join([results_header(sizes), *parts, task.payload]), objects
