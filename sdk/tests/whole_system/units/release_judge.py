"""What the scheduler answers to a provisioner, judged from the messages alone.

Rules:
- A unit that is released has a worker, is one of those that were asked for, and no more of them go than were asked for.
- Nothing has been at its worker for as long as was asked for; a busy one goes only if it may, and no idle one stays.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from scaler_protocol import messages as m

_ROUNDING_SECONDS = 1e-6


class ReleaseJudge:
    """
    Parameters:
        is_busy: whether tasks are at the worker of a connection.
    """

    def __init__(self, is_busy: Callable[[bytes], bool]) -> None:
        self._is_busy = is_busy
        self._requests: Dict[int, m.ReleaseRequest] = {}
        self._last_task: Dict[bytes, float] = {}  # when one came or went, by the scheduler's clock

    def on_received(self, now: float, name: bytes, message: Any) -> None:
        if isinstance(message, m.ReleaseRequest):
            self._requests[message.request_id] = message
        elif isinstance(message, (m.TaskResult, m.BalanceResponse)) and message.ids:
            self._last_task[name] = now

    def on_sent(self, now: float, name: bytes, message: Any, workers: Dict[str, bytes]) -> None:
        """
        Parameters:
            workers: the connections of units, by name.
        """
        if isinstance(message, m.Task):
            self._last_task[name] = now
        elif isinstance(message, m.Release):
            request = self._requests.pop(message.request_id)
            assert set(message.units) <= set(request.units), f"{message.units} go, and {request.units} were named"
            assert len(set(message.units)) == len(message.units) <= request.count, f"{message.units} go"
            for unit in message.units:
                worker = workers[unit]
                assert not self._is_busy(worker), f"unit {unit} goes, and has tasks"
                idle_seconds = now - self._last_task.get(worker, -float("inf"))
                assert idle_seconds >= request.idle_milliseconds / 1000 - _ROUNDING_SECONDS, (
                    f"unit {unit} goes, and has been idle for {idle_seconds} s"
                )
