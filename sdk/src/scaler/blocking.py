"""A place where a processor learns that the task it runs is about to wait for other tasks.

Rules: clients wait for outcomes inside `with blocking.announced():`. In a processor that gives the slot to others for
the time being; elsewhere it does nothing.
"""

from __future__ import annotations

import contextlib
from typing import Callable, ContextManager, Iterator, Optional

_before: Optional[Callable[[], None]] = None
_after: Optional[Callable[[], None]] = None
_nothing = contextlib.nullcontext()


def set_hooks(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have `before` and `after` called around every wait of a client in this process."""
    global _before, _after
    _before, _after = before, after


def announced() -> ContextManager[None]:
    """Around a wait for the outcome of tasks."""
    return _nothing if _before is None or _after is None else _announced(_before, _after)


@contextlib.contextmanager
def _announced(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    before()
    try:
        yield
    finally:
        after()
