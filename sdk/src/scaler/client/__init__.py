"""The client: hands functions to a scheduler and gets futures back."""

from __future__ import annotations

from scaler.client.client import Client
from scaler.client.future import ScalerFuture
from scaler.client.info import ActorInfo, ClusterInfo, WorkerInfo
from scaler.client.profiling import ProfileResult
from scaler.client.shell.output import TaskOutput
from scaler.client.submitter import SubmitterWithOptions

__all__ = [
    "ActorInfo",
    "Client",
    "ClusterInfo",
    "ProfileResult",
    "ScalerFuture",
    "SubmitterWithOptions",
    "TaskOutput",
    "WorkerInfo",
]
