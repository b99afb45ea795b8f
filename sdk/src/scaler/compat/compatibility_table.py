"""The mapping from earlier generations to this one. `docs/migrating/scaler.md` shows this table to users.

Rules:
- Each name of a module has its location now, as `module:name`. Names that exist here under the same name and module
  need no entry.
- An argument has either a new name, or a reason why it has no effect.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

_NAMES = "scaler.compat.names"
_SETTINGS = "scaler.compat.earlier_settings"


def _same(module: str, *names: str) -> Dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


_DEFAULTS = _same(
    _NAMES,
    "CAPNP_DATA_SIZE_LIMIT",
    "CAPNP_MESSAGE_SIZE_LIMIT",
    "CLEANUP_INTERVAL_SECONDS",
    "DEFAULT_CLIENT_TIMEOUT_SECONDS",
    "DEFAULT_GARBAGE_COLLECT_INTERVAL_SECONDS",
    "DEFAULT_HARD_PROCESSOR_SUSPEND",
    "DEFAULT_HEARTBEAT_INTERVAL_SECONDS",
    "DEFAULT_IO_THREADS",
    "DEFAULT_LOAD_BALANCE_SECONDS",
    "DEFAULT_LOAD_BALANCE_TRIGGER_TIMES",
    "DEFAULT_LOGGING_LEVEL",
    "DEFAULT_LOGGING_PATHS",
    "DEFAULT_MAX_NUMBER_OF_TASKS_WAITING",
    "DEFAULT_MAX_TASK_CONCURRENCY",
    "DEFAULT_NUMBER_OF_WORKER",
    "DEFAULT_OBJECT_RETENTION_SECONDS",
    "DEFAULT_PER_WORKER_QUEUE_SIZE",
    "DEFAULT_PROCESSOR_KILL_DELAY_SECONDS",
    "DEFAULT_TASK_TIMEOUT_SECONDS",
    "DEFAULT_TRIM_MEMORY_THRESHOLD_BYTES",
    "DEFAULT_WORKER_DEATH_TIMEOUT",
    "DEFAULT_WORKER_TIMEOUT_SECONDS",
    "PROFILING_INTERVAL_SECONDS",
    "STATUS_REPORT_INTERVAL_SECONDS",
)

MODULES: Dict[str, Dict[str, str]] = {
    "scaler.about": {"__version__": "scaler:__version__"},
    "scaler.client.object_reference": _same("scaler", "ObjectReference"),
    "scaler.client.serializer": {},
    "scaler.client.serializer.default": {
        **_same(_NAMES, "DefaultSerializer"),
        **_same("scaler", "Serializer"),
    },
    "scaler.client.serializer.mixins": _same("scaler", "Serializer"),
    "scaler.config": {},
    "scaler.config.common": {},
    "scaler.config.common.logging": _same(_SETTINGS, "LoggingConfig"),
    "scaler.config.common.security": _same(_SETTINGS, "SecurityConfig"),
    "scaler.config.common.worker": _same(_SETTINGS, "WorkerConfig"),
    "scaler.config.common.worker_manager": _same(_SETTINGS, "WorkerManagerConfig"),
    "scaler.config.defaults": _DEFAULTS,
    "scaler.config.section": {},
    "scaler.config.section.native_worker_manager": _same(
        _SETTINGS, "NativeWorkerManagerConfig", "NativeWorkerManagerMode"
    ),
    "scaler.config.section.scheduler": _same(_SETTINGS, "PolicyConfig"),
    "scaler.config.types": {},
    "scaler.config.types.address": _same(_NAMES, "AddressConfig", "SocketType"),
    "scaler.config.types.worker": _same(_SETTINGS, "WorkerCapabilities", "WorkerNames"),
    "scaler.entry_points": {},
    "scaler.entry_points.cluster": {"main": "scaler.programs.worker_host:main"},
    "scaler.entry_points.scaler": {"main": "scaler.programs.__main__:main"},
    "scaler.entry_points.scheduler": {"main": "scaler.compat.names:run_scheduler"},
    "scaler.entry_points.top": {"main": "scaler.compat.names:run_top"},
    "scaler.entry_points.webgui": {"main": "scaler.compat.names:run_ui"},
    "scaler.entry_points.webui": {"main": "scaler.compat.names:run_ui"},
    "scaler.entry_points.worker_manager": {"main": "scaler.compat.worker_manager:main"},
    "scaler.io": {},
    "scaler.io.config": _DEFAULTS,
    "scaler.utility": {},
    "scaler.utility.exceptions": {
        **_same(
            "scaler.exceptions",
            "ClientShutdownException",
            "DeserializeObjectError",
            "DisconnectedError",
            "MissingObjects",
            "NoWorkerError",
            "ProcessorDiedError",
            "TaskExceptionNotSerializableError",
            "WorkerDiedError",
        ),
        "ClientQuitException": "scaler.exceptions:DisconnectedError",
        "ObjectStorageException": "scaler.exceptions:ObjectStorageFullError",
        **_same(_NAMES, "CapnpDeserializationError", "ClientCancelledException", "TaskNotFoundError"),
    },
    "scaler.utility.graph": {},
    "scaler.utility.graph.optimization": _same(_NAMES, "cull_graph"),
    "scaler.utility.identifiers": _same(_NAMES, "ClientID", "Identifier", "ObjectID", "TaskID", "WorkerID"),
    "scaler.utility.logging": {},
    "scaler.utility.logging.scoped_logger": _same(_NAMES, "ScopedLogger", "TimedLogger"),
    "scaler.utility.logging.utility": _same(_NAMES, "LoggingLevel", "setup_logger"),
    "scaler.utility.metadata": {},
    "scaler.utility.metadata.profile_result": {"ProfileResult": "scaler.client:ProfileResult"},
    "scaler.utility.network_util": _same(_NAMES, "get_available_tcp_port"),
    "scaler.utility.zmq_config": _same(_NAMES, "ZMQConfig", "ZMQType"),
    "scaler.worker.agent.processor": {},
    "scaler.worker.agent.processor.processor": _same(_NAMES, "Processor"),
    "scaler.worker_manager_adapter": {},
    "scaler.worker_manager_adapter.baremetal": {},
    "scaler.worker_manager_adapter.baremetal.native": _same(_SETTINGS, "NativeWorkerManager"),
}
"""Modules that programs of earlier generations import: the location now of each of their names."""

_INTERNAL = "it was an internal module of an earlier generation, and has no counterpart here"

WITHOUT_COUNTERPART: Dict[str, str] = {
    "scaler.client.agent": _INTERNAL,
    "scaler.client.object_buffer": _INTERNAL,
    "scaler.cluster.object_storage_server": "the scheduler stores objects itself, so there is no such program",
    "scaler.compat.ray": "programs written for Ray run on Ray; submit their functions with Client.submit instead",
    "scaler.config": "options are arguments here; docs/configuration.md lists those of programs and files",
    "scaler.io": "messages use another transport, which protocol-spec/ describes",
    "scaler.object_storage": "the scheduler stores objects itself",
    "scaler.protocol": "messages have another format: see protocol-spec/ and the package scaler_protocol",
    "scaler.scheduler": "the scheduler is a separate program, in the package scaler_appliance",
    "scaler.ui": "the user interface is a separate program, scaler_ui",
    "scaler.utility": _INTERNAL,
    "scaler.worker.agent.processor": _INTERNAL,
    "scaler.worker.symphony": "there is no Symphony worker; scaler_provision starts workers by commands of yours",
    "scaler.worker.worker": "a worker is the program scaler_cluster; scaler.Cluster starts it",
    "scaler.worker_manager_adapter": "only baremetal_native workers exist; scaler_provision starts others",
}
"""Modules that are missing on purpose, including all below them, with the reason that an import reports."""


class Argument(NamedTuple):
    """An argument of an earlier generation.

    Parameters:
        becomes: its name now.
        why: why it has no effect, if it has none.
    """

    becomes: str = ""
    why: str = ""


_OBJECTS = Argument(why="the scheduler stores objects itself, at its own address")
_MANAGER = Argument(why="workers connect to the scheduler themselves, without a manager")
_BALANCING = Argument(why="the scheduler balances continuously, by the measured durations of tasks")
_POLICY = Argument(why="tasks are placed by capabilities and measured durations; scaler_provision starts workers")
_SUSPENDING = Argument(why="a task that waits for nested tasks is never suspended by a signal")
_SECURITY = Argument(
    why="connections are encrypted with keys, not by TLS, so an address cannot begin with tls://: see docs/security.md"
)
_QUEUE_SIZE = Argument(becomes="per_worker_queue_size")
_IO_THREADS = Argument(why="the network needs no threads")

ARGUMENTS: Dict[str, Dict[str, Argument]] = {
    "Client": {
        "object_storage_address": _OBJECTS,
        "security_config": _SECURITY,
    },
    "SchedulerClusterCombo": {
        "scheduler_io_threads": _IO_THREADS,
        "worker_io_threads": _IO_THREADS,
        "hard_processor_suspend": _SUSPENDING,
        "load_balance_seconds": _BALANCING,
        "load_balance_trigger_times": _BALANCING,
        "object_storage_address": _OBJECTS,
        "per_worker_task_queue_size": _QUEUE_SIZE,
        "scaler_policy": _POLICY,
        "security_config": _SECURITY,
        "worker_manager_id": _MANAGER,
    },
    "Cluster": {
        "worker_io_threads": _IO_THREADS,
        "hard_processor_suspend": _SUSPENDING,
        "per_worker_task_queue_size": _QUEUE_SIZE,
        "security_config": _SECURITY,
    },
    "Scheduler": {
        "advertised_object_storage_address": _OBJECTS,
        "bind_address": Argument(becomes="address"),
        "io_threads": _IO_THREADS,
        "load_balance_seconds": _BALANCING,
        "load_balance_trigger_times": _BALANCING,
        "object_retention_seconds": Argument(why="workers decide how long they keep objects: see Cluster"),
        "object_storage_address": _OBJECTS,
        "policy": _POLICY,
        "security_config": _SECURITY,
        "shutdown_event": Argument(why="shutdown() stops the process"),
    },
    "Program.join": {"timeout": Argument(becomes="timeout_seconds")},
    "ScalerFuture.cancel": {"timeout": Argument(becomes="timeout_seconds")},
}
"""Arguments of earlier generations without a parameter here, by the class or method that accepted them."""
