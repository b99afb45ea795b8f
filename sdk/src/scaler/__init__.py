"""Scaler: submit functions to a cluster, get standard futures back.

    from scaler import Client, SchedulerClusterCombo

    cluster = SchedulerClusterCombo(n_workers=4)
    with Client(address=cluster.get_address()) as client:
        print(client.map(lambda x: x * x, range(10)))
    cluster.shutdown()

Names are loaded on first use, so that a worker process does not load the modules of clients.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from scaler.version import __version__

if sys.version_info < (3, 11):
    # With it, tracebacks of these Pythons show notes, too, and the links of our errors are among them.
    with contextlib.suppress(ImportError):
        import exceptiongroup as exceptiongroup

if TYPE_CHECKING:
    from scaler import aio as aio
    from scaler.actors.actor_handle import Actor
    from scaler.client import Client, ScalerFuture
    from scaler.cluster import Cluster, Scheduler, SchedulerClusterCombo
    from scaler.executor.executor import ScalerExecutor
    from scaler.process_state import worker_state
    from scaler.serializer import Serializer
    from scaler.task_functions import task
    from scaler.values.named_functions import NamedFunction
    from scaler.values.payload import ObjectReference

__all__ = [
    "Actor",
    "Client",
    "Cluster",
    "NamedFunction",
    "ObjectReference",
    "ScalerExecutor",
    "ScalerFuture",
    "Scheduler",
    "SchedulerClusterCombo",
    "Serializer",
    "__version__",
    "aio",
    "task",
    "worker_state",
]

_MODULES = {
    "Actor": "scaler.actors.actor_handle",
    "Client": "scaler.client",
    "Cluster": "scaler.cluster",
    "NamedFunction": "scaler.values.named_functions",
    "ObjectReference": "scaler.values.payload",
    "ScalerExecutor": "scaler.executor.executor",
    "ScalerFuture": "scaler.client",
    "Scheduler": "scaler.cluster",
    "SchedulerClusterCombo": "scaler.cluster",
    "Serializer": "scaler.serializer",
    "aio": "scaler.aio",
    "task": "scaler.task_functions",
    "worker_state": "scaler.process_state",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'scaler' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(_MODULES[name])
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


class _EarlierModules:
    """Finds modules by the names of earlier generations, if no other finder does (see `scaler.compat`)."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        if not name.startswith("scaler."):
            return None
        from scaler.compat.modules import find_spec

        return find_spec(name)


sys.meta_path.append(_EarlierModules)
