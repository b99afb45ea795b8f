"""Which tasks may wait for memory though slots are free: see `placement_judge`.

Rules:
- Tasks of a function may if one of them was seen in a heartbeat with a large process, unless all of them were quick.
- So may tasks whose limit is large.
- What may wait once may wait ever after. When it waits, and for how long, is not judged: every task has to end.
"""

from __future__ import annotations

from typing import Any, Iterable, Set

from whole_system.judges.judged_peers import JudgedClient, JudgedWorker

from scaler_appliance.core.tasks import memory_needs
from scaler_protocol import messages as m

LARGE_BYTES = 256 * 1024 * 1024
NEARLY = 0.9  # of the least duration: others may be in the mean that counts


class LargeTasks:
    """
    Attributes:
        has_more: tasks of further functions may wait than when `drop_from` was last called.
    """

    def __init__(self) -> None:
        self.has_more = False
        self._large: Set[object] = set()  # functions
        self._seen: Set[object] = set()
        self._measured: Set[object] = set()
        self._long: Set[object] = set()

    def on_submitted(self, function: object, options: Any) -> None:
        """A client has tasks of a function."""
        if options.memory_limit_bytes >= LARGE_BYTES:
            self._add(function)

    def on_heartbeat(self, worker: JudgedWorker, message: m.Heartbeat) -> None:
        """A worker says what its processes have."""
        for processor in message.processors:
            task = worker.tasks.get(processor.instance)
            if task is not None and processor.resident_bytes >= LARGE_BYTES:
                self._seen.add(task.function)
                if task.function not in self._measured or task.function in self._long:
                    self._add(task.function)

    def on_measured(self, function: object, mean_microseconds: float) -> None:
        """Tasks of a function took so long."""
        self._measured.add(function)
        if mean_microseconds >= NEARLY * memory_needs.LEAST_MICROSECONDS:
            self._long.add(function)
            if function in self._seen:
                self._add(function)

    def _add(self, function: object) -> None:
        self.has_more |= function not in self._large
        self._large.add(function)

    def may_wait(self, function: object) -> bool:
        """Whether tasks of a function may."""
        return function in self._large

    def drop_from(self, clients: Iterable[JudgedClient]) -> None:
        """Tasks that may wait from now on have no claim to a turn."""
        self.has_more = False
        for client in clients:
            for claim in client.claims.values():
                for key in [*claim.keys, *claim.fresh_keys]:
                    if client.functions[key] in self._large:
                        client.drop(key)
