"""Which client a task function uses that was decorated without one.

    with Client(…) as client:      the innermost block of this thread or asyncio task, else the one entered last here
        function.submit(…) ──────▶ client
    function.submit(…) ──────────▶ Client(), as it finds its scheduler: one for the whole process

Rules:
- Clients are referred to weakly, and only open ones count: a context that outlives a block keeps no client alive.
- A thread that runs none of its own blocks uses those of others, because threads of a pool have no context of their
  caller.
- This module imports no client, so that clients can import it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Dict, Iterable, List, Optional, Tuple

from scaler import nesting

_of_context: ContextVar[Tuple[Any, ...]] = ContextVar("scaler_clients", default=())
_of_process: List[Any] = []
_found: Dict[str, Any] = {}  # the client of the process, if there is one
_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def enter(client: Any) -> None:
    """A `with` block of the client begins."""
    reference = weakref.ref(client)
    _of_context.set((*_of_context.get(), reference))
    _of_process.append(reference)


def leave(client: Any) -> None:
    """A `with` block of the client ends, maybe in another context than it began in."""
    _of_context.set(_without(_of_context.get(), client))
    with contextlib.suppress(ValueError):
        _of_process.remove(weakref.ref(client))


def _without(references: Iterable[Any], client: Any) -> Tuple[Any, ...]:
    return tuple(each for each in references if each() not in (client, None))


def _open(references: Iterable[Any]) -> Optional[Any]:
    """The last of these clients that is open."""
    for reference in reversed(list(references)):
        client = reference()
        if client is not None and client.is_open:
            return client
    return None


def current() -> Any:
    """The client to use here.

    Raises what `Client()` raises, if there is none yet.
    """
    client = _open(_of_context.get()) or _open(_of_process)
    return _client_of_process() if client is None else client


def _client_of_process() -> Any:
    # By its public name, which loads it on first use.
    make: Any = sys.modules["scaler"].Client
    if nesting.this_thread.is_in_synchronous_task:
        return make()
    with _lock:
        client = _found.get("client")
        if client is None or not client.is_open:
            client = _found["client"] = make()
        return client
