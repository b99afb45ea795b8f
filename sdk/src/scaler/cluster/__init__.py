"""A scheduler and workers on this machine, as child processes that never outlive their parent."""

from __future__ import annotations

from scaler.cluster.cluster import Cluster
from scaler.cluster.combo import SchedulerClusterCombo
from scaler.cluster.scheduler import Scheduler

__all__ = ["Cluster", "Scheduler", "SchedulerClusterCombo"]
