"""The current state, which every page, metric and probe reads.

Rules:
- No socket here; a test can make a state of plain figures.
- Processor time is in percent of one core, here and in all output for browsers.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Protocol, Tuple

from scaler_appliance.feed.cluster_entities import WorkerRecord
from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.feed.task_history import TaskHistory
from scaler_appliance.ui.pages.figure_history import FigureHistory

SCHEMA = 1
"""The version of all JSON: increased when a key is removed or changes its meaning."""


class Watched(Protocol):
    """The used part of `feed.status_feed.Feed`."""

    address: str
    cluster: ClusterModel
    task_log: TaskHistory

    def age_seconds(self) -> float: ...

    def is_connected(self) -> bool: ...

    def silence_reason(self) -> str: ...


class UiState:
    """Everything that pages show.

    Parameters:
        feed: the scheduler's status.
        actions_allowed: whether browsers may drain and stop workers.
        unix_time: the wall clock.
    """

    def __init__(
        self, feed: Watched, actions_allowed: bool = False, unix_time: Callable[[], float] = time.time
    ) -> None:
        self.feed = feed
        self.actions_allowed = actions_allowed
        self.history = FigureHistory()
        self.unix_time = unix_time

    @property
    def cluster(self) -> ClusterModel:
        return self.feed.cluster

    @property
    def now(self) -> int:
        """The time of the last publication, in microseconds of the scheduler's clock; 0 before the first."""
        scheduler = self.cluster.scheduler
        return scheduler.unix_microseconds if scheduler is not None else 0

    @property
    def task_log(self) -> TaskHistory:
        return self.feed.task_log

    def sample(self) -> None:
        """Add the current figures to the history."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        if scheduler is None or not self.feed.is_connected():
            self.history.gap(self.unix_time())
            return
        tasks = cluster.tasks
        finished, failed = self.finished_and_failed_per_second()
        self.history.append(
            self.unix_time(),
            (
                finished,
                failed,
                tasks.get("unassigned", 0),
                tasks.get("running", 0),
                len(cluster.workers),
                scheduler.slots,
                scheduler.cpu_permille / 10,
                scheduler.resident_bytes,
                sum(map(resident_bytes, cluster.workers.values())),
                scheduler.object_bytes,
            ),
        )

    def finished_and_failed_per_second(self) -> Tuple[float, float]:
        rates = self.cluster.rates
        failed = rates.get("task.failed", 0.0) + rates.get("task.lost", 0.0)
        return rates.get("task.success", 0.0) + failed, failed

    def head(self) -> Dict[str, Any]:
        """The head, which every page shows."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        finished, failed = self.finished_and_failed_per_second()
        rates = {"finished": finished, "failed": failed, **cluster.rates}
        head: Dict[str, Any] = {
            "schema": SCHEMA,
            "clock": round(self.unix_time(), 3),
            "address": "",
            "monitor": self.feed.address,
            "scheduler_id": None,
            "generation": cluster.generation,
            "version": "",
            "python": "",
            "uptime_seconds": 0.0,
            "age_seconds": None if scheduler is None else round(self.feed.age_seconds(), 1),
            "is_connected": self.feed.is_connected(),
            "silence_reason": self.feed.silence_reason(),
            "is_protected": False,
            "is_insecure": False,
            "actions_allowed": self.actions_allowed,
            "cpu": 0.0,
            "rss": 0,
            "workers": len(cluster.workers),
            "slots": 0,
            "busy": sum(worker.busy for worker in cluster.workers.values()),
            "clients": len(cluster.clients),
            "tasks": cluster.tasks,
            "rates": {name: round(rate, 1) for name, rate in rates.items()},
            "waiting_reasons": cluster.waiting_reasons,
            "unit_notes": cluster.unit_notes,
            "status_share": 0.0,
        }
        if scheduler is not None:
            head.update(
                address=scheduler.address,
                scheduler_id=scheduler.scheduler_id.hex(),
                version=scheduler.implementation.version,
                python=scheduler.implementation.language,
                uptime_seconds=round(scheduler.uptime_seconds, 1),
                is_protected=scheduler.is_protected,
                is_insecure=scheduler.is_insecure,
                cpu=scheduler.cpu_permille / 10,
                rss=scheduler.resident_bytes,
                slots=scheduler.slots,
                status_share=round(scheduler.status_share, 4),
            )
        return head

    def function_name(self, number: int) -> str:
        function = self.cluster.functions.get(number)
        return function.name if function is not None else f"function {number}" if number else ""

    def client_name(self, session: int) -> str:
        client = self.cluster.clients.get(session)
        return client.name if client is not None else ""


def resident_bytes(worker: WorkerRecord) -> int:
    """The sum over the agent and its processors."""
    return worker.resident_bytes + sum([processor.resident_bytes for processor in worker.processors])


def cpu_permille(worker: WorkerRecord) -> int:
    """Likewise."""
    return worker.cpu_permille + sum([processor.cpu_permille for processor in worker.processors])


def hosts(state: UiState, limit: int) -> List[Dict[str, Any]]:
    """Workers grouped by host, those with the most slots first."""
    by_host: Dict[str, Dict[str, Any]] = {}
    for worker in state.cluster.workers.values():
        host = by_host.get(worker.host)
        if host is None:
            host = by_host[worker.host] = {
                "host": worker.host, "workers": 0, "slots": 0, "busy": 0, "cpu": 0, "rss": 0, "free": 0,
            }  # fmt: skip
        host["workers"] += 1
        host["slots"] += worker.slots
        host["busy"] += worker.busy
        host["cpu"] += cpu_permille(worker)
        host["rss"] += resident_bytes(worker)
        host["free"] = max(host["free"], worker.free_bytes)
    shown = sorted(by_host.values(), key=lambda host: (-host["slots"], host["host"]))[:limit]
    for host in shown:
        host["cpu"] = round(host["cpu"] / 10, 1)
    return shown
