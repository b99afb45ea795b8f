"""A dictionary for what the tasks of a process share: a model, a connection, a cache.

Rules:
- It travels by name: a task that refers to it, or gets it as an argument, has that of its own process, whether its
  function travels by name or by value.
- The process keeps it until it ends. Other processes do not see it, so results must not depend on where a task runs.
"""

from __future__ import annotations

from typing import Any, Dict

__all__ = ["worker_state"]


class WorkerState(Dict[str, Any]):
    """The type of `worker_state`."""

    def __reduce__(self) -> str:
        return "worker_state"

    def __reduce_ex__(self, protocol: Any) -> str:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"worker_state({dict(self)!r})"


worker_state = WorkerState()
"""Of this process."""
