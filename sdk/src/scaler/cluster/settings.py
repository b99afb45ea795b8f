"""Settings of local programs: a field for each option of `scaler_scheduler` and `scaler_cluster` that applies here.

    Cluster(address, n_workers=4, preload="numpy") ─▶ ClusterSettings ─▶ command line of scaler_cluster

Rules:
- Fields are named for the options that they become, and have their defaults. A test compares them with the table.
- A constructor takes what its settings class takes: users pass keyword arguments, which `help` and type checkers show.
- Durations are seconds or texts such as "30s", sizes are bytes or texts such as "1GB".
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Type, TypeVar

from scaler.arguments import Duration, Size

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

S = TypeVar("S")


@dataclass(frozen=True)
class CommonOptions:
    """Options of both programs."""

    per_worker_queue_size: int = 1000
    heartbeat_interval_seconds: Duration = 2
    event_loop: str = "builtin"
    logging_paths: Sequence[str] = ("/dev/stdout",)
    logging_level: str = "INFO"
    logging_config_file: Optional[str] = None


@dataclass(frozen=True)
class SchedulerOptions(CommonOptions):
    """Options of `scaler_scheduler`."""

    max_number_of_tasks_waiting: int = -1
    client_timeout_seconds: Duration = 300
    worker_timeout_seconds: Duration = 60
    object_directory: Optional[str] = None
    memory_limit: Optional[Size] = None
    object_memory_limit: Optional[Size] = None
    object_spill_directory: Optional[str] = None
    protected: bool = True


@dataclass(frozen=True)
class ClusterOptions(CommonOptions):
    """Options of `scaler_cluster`."""

    task_timeout_seconds: Duration = 0
    death_timeout_seconds: Duration = 300
    garbage_collect_interval_seconds: Duration = 30
    trim_memory_threshold_bytes: Size = 1024 * 1024 * 1024
    object_retention_seconds: Duration = 3600
    drain_timeout_seconds: Duration = 25
    idle_timeout_seconds: Duration = 0
    lifetime_seconds: Optional[Duration] = None
    drain_file: Optional[str] = None
    unit: Optional[str] = None
    preload: Optional[str] = None
    per_worker_capabilities: Optional[Mapping[str, float]] = None
    capabilities: Optional[Mapping[str, float]] = None


@dataclass(frozen=True)
class _WhereSchedulerListens:
    address: Optional[str] = None
    monitor_address: Optional[str] = None
    announce: bool = False


@dataclass(frozen=True)
class _WhereClusterIs:
    address: str
    n_workers: Optional[int] = None
    worker_names: Optional[Sequence[str]] = None


@dataclass(frozen=True)
class _WhatComboStarts:
    n_workers: Optional[int] = None
    address: Optional[str] = None
    monitor_address: Optional[str] = None


# Of several bases, the fields of the last come first.


@dataclass(frozen=True)
class SchedulerSettings(SchedulerOptions, _WhereSchedulerListens):
    """What `Scheduler` takes."""


@dataclass(frozen=True)
class ClusterSettings(ClusterOptions, _WhereClusterIs):
    """What `Cluster` takes."""


@dataclass(frozen=True)
class ComboSettings(ClusterOptions, SchedulerOptions, _WhatComboStarts):
    """What `SchedulerClusterCombo` takes."""

    @property
    def of_scheduler(self) -> Dict[str, Any]:
        """Arguments of its `Scheduler`."""
        own = {"address": self.address, "monitor_address": self.monitor_address}
        return {**own, **_values(self, SchedulerOptions)}

    def of_cluster(self, address: str) -> Dict[str, Any]:
        """Arguments of its `Cluster`, for a scheduler at this address."""
        return {"address": address, "n_workers": self.n_workers, **_values(self, ClusterOptions)}


def _values(settings: Any, options: Type[Any]) -> Dict[str, Any]:
    """The fields that settings have in common with a class of options."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(options)}


def option_values(settings: Any, options: Type[Any]) -> Dict[str, Any]:
    """Options by name, as `option_arguments` takes them."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in _values(settings, options).items()
    }


def takes(
    settings_class: Callable[P, S],
) -> Callable[[Callable[[Any, S], None]], Callable[Concatenate[Any, P], None]]:
    """Let an `__init__` with a settings parameter take the arguments of the settings' class instead."""

    def decorate(function: Callable[[Any, S], None]) -> Callable[Concatenate[Any, P], None]:
        def construct(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            function(self, settings_class(*args, **kwargs))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(settings_class).parameters.values()
        construct.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
        construct.__annotations__ = typing.get_type_hints(settings_class)
        construct.__doc__, construct.__module__ = function.__doc__, function.__module__
        construct.__name__, construct.__qualname__ = function.__name__, function.__qualname__
        settings_class.__init__.__qualname__ = function.__qualname__  # errors name what the user has called
        return construct

    return decorate
