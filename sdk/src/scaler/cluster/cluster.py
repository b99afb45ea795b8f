"""A worker on this machine, as a child process."""

from __future__ import annotations

import os
import sys
from typing import Dict, Mapping, Optional

from scaler.arguments import whole
from scaler.cluster.child_program import ChildProgram, option_arguments
from scaler.cluster.settings import ClusterOptions, ClusterSettings, option_values, takes
from scaler.compat.earlier_arguments import accepts_earlier
from scaler.cpus import default_slots
from scaler.notebook import card
from scaler.values.texts import counted


class Cluster(ChildProgram):
    """A worker that connects to a scheduler. If its process is killed, it is replaced by a new one.

    `shutdown` and the end of a `with` block stop it at once, and what it runs goes to other workers. After `terminate`
    it drains first: its running tasks may take `drain_timeout_seconds` to end.

    Parameters:
        address: of the scheduler.
        n_workers: the slots of the worker: how many tasks it runs at once, each in a process of its own. By default
            one for each name, else one less than there are usable CPUs.
        worker_names: a name for each slot, for monitors.
        per_worker_capabilities: what each slot offers, such as `{"gpu": 1}`.
        capabilities: what all slots offer together.
        Others are the options of `scaler_cluster`, by the same names; `scaler_cluster -h` explains them. Durations are
        seconds or texts such as "30s", sizes are bytes or texts such as "1GB".

    Raises InvalidArgumentError and ArgumentTypeError if a duration or a size is invalid.
    """

    @accepts_earlier("Cluster")
    @takes(ClusterSettings)
    def __init__(self, settings: ClusterSettings) -> None:
        n_workers, worker_names = settings.n_workers, settings.worker_names
        if n_workers is None:
            n_workers = len(worker_names) if worker_names else default_slots()
        n_workers = whole("n_workers", n_workers)
        options = option_values(settings, ClusterOptions)
        for name in ("per_worker_capabilities", "capabilities"):
            options[name] = _capability_list(options[name])
        names = ",".join(worker_names) if worker_names else None
        super().__init__(
            [
                sys.executable,
                "-m",
                "scaler.worker",
                settings.address,
                "--exit-when-stdin-closes",
                *option_arguments(num_of_workers=n_workers, worker_names=names, **options),
            ],
            environment=_environment(),
            is_replaced=True,
            stops_at_once=True,
        )
        self._address = settings.address
        self._n_workers = n_workers

    @property
    def slots(self) -> int:
        """How many tasks the worker runs at once."""
        return self._n_workers

    def __repr__(self) -> str:
        return f"<Cluster of {counted(self._n_workers, 'slot')} on 1 worker for {self._address}, {self.state}>"

    def _repr_html_(self) -> str:
        return card("Cluster", [("scheduler", self._address), ("slots", self._n_workers), ("state", self.state)])


def _environment() -> Dict[str, str]:
    """Environment variables with which tasks can import what this program can, and write compiled code if it does."""
    environment = {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    if sys.dont_write_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def _capability_list(capabilities: Optional[Mapping[str, float]]) -> Optional[str]:
    return ",".join(f"{name}={amount:.17g}" for name, amount in capabilities.items()) if capabilities else None
