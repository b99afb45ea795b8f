"""The second generation's configuration classes, and the workers that are started from them.

    NativeWorkerManager(NativeWorkerManagerConfig(WorkerManagerConfig("tcp://…", "any id"))).run()

Rules:
- They hold the given values; `NativeWorkerManager` turns them into a `Cluster`. Values without effect are not checked.
"""

from __future__ import annotations

import dataclasses
import enum
import signal
import sys
from typing import Any, Dict, List, Optional, Tuple

from scaler.compat import names


@dataclasses.dataclass
class LoggingConfig:
    paths: Tuple[str, ...] = names.DEFAULT_LOGGING_PATHS
    config_file: Optional[str] = None
    level: str = names.DEFAULT_LOGGING_LEVEL


@dataclasses.dataclass
class SecurityConfig:
    """TLS files, which have no effect: connections are encrypted with keys."""

    tls_cert: Optional[str] = None
    tls_key: Optional[str] = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must be provided together")

    def has_credentials(self) -> bool:
        return self.tls_cert is not None

    __bool__ = has_credentials


@dataclasses.dataclass
class PolicyConfig:
    """The scheduler's policy for placing tasks and starting workers, which has no effect."""

    policy_engine_type: str = "simple"
    policy_content: str = "allocate=even_load; scaling=vanilla"


@dataclasses.dataclass
class WorkerNames:
    names: List[str] = dataclasses.field(default_factory=list)

    @classmethod
    def from_string(cls, value: str) -> WorkerNames:
        return cls([name.strip() for name in value.split(",")] if value else [])

    def __str__(self) -> str:
        return ",".join(self.names) or "<empty>"

    def __len__(self) -> int:
        return len(self.names)


@dataclasses.dataclass
class WorkerCapabilities:
    capabilities: Dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_string(cls, value: str) -> WorkerCapabilities:
        """Raises ValueError unless the value is `NAME` or `NAME=WHOLE NUMBER` items, separated by commas."""
        capabilities: Dict[str, int] = {}
        for part in filter(None, value.split(",")):
            name, separator, amount = (piece.strip() for piece in part.partition("="))
            if not name:
                raise ValueError(f"Invalid capability {part!r}: capability name cannot be an empty string.")
            try:
                capabilities[name] = int(amount) if separator else -1
            except ValueError:
                raise ValueError(
                    f"Invalid capability value for {name!r}: expected an integer, got {amount!r}"
                ) from None
        return cls(capabilities)

    def __str__(self) -> str:
        amounts = self.capabilities.items()
        return ",".join(name if amount == -1 else f"{name}={amount}" for name, amount in amounts) or "<empty>"


@dataclasses.dataclass
class WorkerConfig:
    per_worker_capabilities: WorkerCapabilities = dataclasses.field(default_factory=WorkerCapabilities)
    per_worker_task_queue_size: int = names.DEFAULT_PER_WORKER_QUEUE_SIZE
    heartbeat_interval_seconds: float = names.DEFAULT_HEARTBEAT_INTERVAL_SECONDS
    task_timeout_seconds: float = names.DEFAULT_TASK_TIMEOUT_SECONDS
    death_timeout_seconds: float = names.DEFAULT_WORKER_DEATH_TIMEOUT
    garbage_collect_interval_seconds: float = names.DEFAULT_GARBAGE_COLLECT_INTERVAL_SECONDS
    trim_memory_threshold_bytes: int = names.DEFAULT_TRIM_MEMORY_THRESHOLD_BYTES
    hard_processor_suspend: bool = False
    io_threads: int = names.DEFAULT_IO_THREADS
    event_loop: str = "builtin"
    preload: Optional[str] = None


@dataclasses.dataclass
class WorkerManagerConfig:
    scheduler_address: str
    worker_manager_id: str
    worker_scheduler_address: Optional[str] = None
    object_storage_address: Optional[str] = None
    max_task_concurrency: int = names.DEFAULT_MAX_TASK_CONCURRENCY

    @property
    def effective_worker_scheduler_address(self) -> str:
        return self.worker_scheduler_address or self.scheduler_address


class NativeWorkerManagerMode(enum.Enum):
    """When workers start. In either mode they start at once."""

    DYNAMIC = "dynamic"
    FIXED = "fixed"


@dataclasses.dataclass
class NativeWorkerManagerConfig:
    worker_manager_config: WorkerManagerConfig
    worker_config: WorkerConfig = dataclasses.field(default_factory=WorkerConfig)
    logging_config: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)
    security: SecurityConfig = dataclasses.field(default_factory=SecurityConfig)
    mode: NativeWorkerManagerMode = NativeWorkerManagerMode.DYNAMIC
    worker_type: Optional[str] = None


class NativeWorkerManager:
    """Workers on this machine, `max_task_concurrency` of them; -1 is as many as there are CPUs."""

    def __init__(self, config: NativeWorkerManagerConfig) -> None:
        self.config = config

    def run(self) -> None:
        """Start the workers and wait until they end, or this process is asked to."""
        from scaler.cluster.cluster import Cluster

        with Cluster(**self._arguments()) as cluster:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            cluster.join()

    def _arguments(self) -> Dict[str, Any]:
        manager, worker, log = self.config.worker_manager_config, self.config.worker_config, self.config.logging_config
        count = manager.max_task_concurrency
        return {
            "address": manager.effective_worker_scheduler_address,
            "n_workers": count if count > 0 else names.DEFAULT_MAX_TASK_CONCURRENCY,
            "heartbeat_interval_seconds": worker.heartbeat_interval_seconds,
            "task_timeout_seconds": worker.task_timeout_seconds,
            "death_timeout_seconds": worker.death_timeout_seconds,
            "garbage_collect_interval_seconds": worker.garbage_collect_interval_seconds,
            "trim_memory_threshold_bytes": worker.trim_memory_threshold_bytes,
            "per_worker_queue_size": worker.per_worker_task_queue_size,
            "event_loop": worker.event_loop,
            "preload": worker.preload,
            "logging_paths": log.paths,
            "logging_level": log.level,
            "logging_config_file": log.config_file,
            "per_worker_capabilities": worker.per_worker_capabilities.capabilities,
        }
