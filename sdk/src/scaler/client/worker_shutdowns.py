"""Asking the scheduler that a worker leaves.

Rules: each question has a number, and waits for its own answer, so that threads may ask at the same time.
"""

from __future__ import annotations

import itertools
import queue
from typing import TYPE_CHECKING, Dict

from scaler.exceptions import ArgumentTypeError, DisconnectedError, InvalidArgumentError, ShutdownRefusedError
from scaler_protocol import messages as m

if TYPE_CHECKING:
    from scaler.client.shell.client_shell import ClientCore


_SESSIONS_LIMIT = 1 << 32


class WorkerShutdowns:
    """The questions of one client that the scheduler has not answered yet."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._answers: Dict[int, queue.SimpleQueue[m.WorkerShutdownResponse]] = {}

    def on_response(self, message: m.WorkerShutdownResponse) -> None:
        """The scheduler answers. Called by the I/O thread."""
        answer = self._answers.get(message.request_id)
        if answer is not None:
            answer.put(message)

    def ask(self, core: ClientCore, worker: object, drain: bool, timeout_seconds: float) -> None:
        """Ask that a worker leaves; raises what `Client.shutdown_worker` says."""
        if isinstance(worker, bool) or not isinstance(worker, (int, str)) or not worker:
            raise ArgumentTypeError(f"worker must be a session number or a name, got {worker!r}")
        if isinstance(worker, int) and not 0 < worker < _SESSIONS_LIMIT:
            raise InvalidArgumentError(f"no worker has the session number {worker}: see Client.info()")
        session, name = (worker, "") if isinstance(worker, int) else (0, worker)
        number = next(self._numbers)
        answer = self._answers[number] = queue.SimpleQueue()
        try:
            with core.lock:
                core.check_open()
                core.send(m.WorkerShutdown(request_id=number, session=session, name=name, is_draining=drain))
            response = answer.get(timeout=timeout_seconds)
        except queue.Empty:
            raise DisconnectedError("the scheduler did not answer the request to let a worker leave") from None
        finally:
            del self._answers[number]
        if not response.accepted:
            raise ShutdownRefusedError(response.message)
