"""Which units a simulated cluster has, and whether the right ones go.

Rules:
- Busy units go only if they may, and then only with all idle ones; what goes was asked for, drains, and is no more.
- Its chance is its own: a history without a provisioner stays what it was.
"""

from __future__ import annotations

from random import Random
from typing import Any, Dict, List

from scaler_protocol import messages as m

SHARE = 0.05  # of the histories
UNITS = 4  # so workers share some


class ProvisioningWorld:
    """Which units there are, and what was asked for."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"provisioner: {seed}")
        self.is_used = self.random.random() < SHARE
        self.requests: Dict[int, m.ReleaseRequest] = {}
        self.released = 0
        self._sequence = 0  # of requests, in all sessions

    def new_unit(self) -> str:
        """The unit of a new worker; empty: it is of none."""
        return f"unit {self.random.randrange(UNITS)}" if self.is_used and self.random.random() < 0.8 else ""

    def new_request(self, names: List[str]) -> m.ReleaseRequest:
        self._sequence += 1
        request = m.ReleaseRequest(request_id=self._sequence, units=names, count=self.random.choice((0, 1, 1, 2, 9)))
        request.idle_milliseconds = self.random.choice((0, 0, 300, 5000))
        request.may_be_busy = self.random.random() < 0.5
        self.requests[request.request_id] = request
        return request

    def on_sent(self, message: object, workers: Any) -> None:
        """The scheduler sends a message.

        Parameters:
            workers: the sessions of all workers, as the wire shows them; those that were released drain.
        """
        if not isinstance(message, m.Release):
            return
        request = self.requests.pop(message.request_id)
        assert len(set(message.units)) == len(message.units) <= request.count, f"{message.units} go: too many"
        assert set(message.units) <= set(request.units), f"{message.units} go, and were not named"
        self.released += len(message.units)
        units: Dict[str, List[Any]] = {}
        for worker in workers:
            if worker.unit:
                units.setdefault(worker.unit, []).append(worker)
        for name in message.units:
            of_unit = units.get(name, [])  # none: its last one has left in this round
            assert all(worker.is_draining for worker in of_unit), f"{name} goes, and a worker of it does not drain"
        busy = [name for name in message.units if any(worker.tasks for worker in units.get(name, []))]
        assert request.may_be_busy or not busy, f"{busy} go, and have tasks"
        left = [
            name
            for name in request.units
            if name in units
            and not any(worker.tasks or worker.actor_needs or worker.is_draining for worker in units[name])
        ]
        assert not (busy and left and not request.idle_milliseconds), f"{busy} go, and {left} are idle"
