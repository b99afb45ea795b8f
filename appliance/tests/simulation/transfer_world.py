"""Which simulated workers serve others, and where."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Dict

if TYPE_CHECKING:
    from simulation.workers import Worker


class TransferWorld:
    """Chance, and who serves where, in one run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"transfers between workers: {seed}")  # histories without them stay what they were
        self.rate = self.random.choice((0.0, 0.7, 1.0))  # of workers that have them
        self.loses_no_worker = self.rate > 0.0 and self.random.random() < 0.5
        self.large_rate = self.random.choice((0.0, 0.3, 0.9)) if self.loses_no_worker else 0.0
        self.fault_rate = self.random.choice((0.0, 0.1, 0.5))
        self.workers: Dict[str, Worker] = {}  # by address
        self.copies = 0  # that were fetched by workers from one another

    def has_large_result(self) -> bool:
        """Whether a task of a worker that serves others has a large result, besides those of any worker."""
        return self.random.random() < self.large_rate

    def new_address(self, worker: Worker) -> str:
        """Where a worker serves; empty: it has no transfers."""
        if self.random.random() >= self.rate:
            return ""
        address = f"tcp://worker:{len(self.workers) + 1}"
        self.workers[address] = worker
        return address
