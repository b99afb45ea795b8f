"""Locks in the nodes of Dask graphs: nodes with the same lock run one after the other.

    node with a SerializableLock ──▶ the pickler notes its token ──▶ the next node with this token waits for the node

Rules:
- Such a lock excludes the threads of one process, and the nodes of a graph run in many. `dask.array.store` uses one by
  default, so that writes to the same part of a file do not overwrite each other. A node that waited for a lock of the
  whole cluster would take a slot meanwhile, so none does: it waits in the scheduler, in the order of the graph.
- Of what several nodes share, a pickler sees only the first occurrence. So all later nodes of the same layer are taken
  to have the lock, too.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, Hashable, List, Optional, Tuple

from scaler.values.pickling import Pickler

_noting = threading.local()


def _reduce_lock(lock: Any) -> Tuple[Any, ...]:
    tokens: Optional[List[Hashable]] = getattr(_noting, "tokens", None)
    if tokens is not None:
        tokens.append(lock.token)
    return type(lock), (lock.token,)


class LockOrder:
    """Which nodes of a graph have which locks; notes what this thread pickles within its `with` block.

    Attributes:
        after: the positions of further nodes that a node waits for, by its own.
    """

    def __init__(self) -> None:
        from dask.utils import SerializableLock

        Pickler.dispatch_table[SerializableLock] = _reduce_lock
        self.after: Dict[int, List[int]] = {}
        self._noted: List[Hashable] = []
        self._of_layer: Dict[str, Dict[Hashable, None]] = {}
        self._last: Dict[Hashable, int] = {}  # positions by lock

    def __enter__(self) -> LockOrder:
        _noting.tokens = self._noted
        return self

    def __exit__(self, *_: object) -> None:
        _noting.tokens = None

    @property
    def has_locks(self) -> bool:
        """Whether any node that was pickled has one."""
        return bool(self._noted or self._of_layer)

    def add(self, position: int, layer: str) -> None:
        """The node at a position was pickled; positions ascend."""
        locks = self._of_layer.setdefault(layer, {}) if self._noted else self._of_layer.get(layer, {})
        locks.update(dict.fromkeys(self._noted))
        self._noted.clear()
        for token in locks:
            if token in self._last:
                self.after.setdefault(position, []).append(self._last[token])
            self._last[token] = position
