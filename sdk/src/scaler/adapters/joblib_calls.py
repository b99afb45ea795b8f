"""What runs in a worker for joblib: a batch of calls, as its process would find the world under joblib's own engines.

Rules:
- The limits of threads come first in the arguments, and nothing here imports joblib or numpy before they are in effect.
- Calls of joblib inside a call use the same cluster, or run one after the other if they do not ask for more jobs.
- An initializer runs once in each process that runs calls for it, before the first of these.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler.adapters.thread_limits import Limits
from scaler.client.client_options import Options

Call = Tuple[Callable[..., Any], Sequence[Any], Dict[str, Any]]
"""A function, its arguments, and its named arguments."""


class Initializer(NamedTuple):
    """What each process runs once.

    Parameters:
        token: different for each use.
        content: the function and its arguments.
    """

    token: bytes
    content: Tuple[Callable[..., Any], Sequence[Any]]


class Surroundings(NamedTuple):
    """What the calls of one `joblib.Parallel` find in their process.

    Parameters:
        nesting_level: of the calls of joblib inside them.
        options: of the tasks that those submit.
        inner_threads: what the user has set for those.
    """

    nesting_level: int
    options: Options
    inner_threads: Optional[int]


class Calls:
    """The function of the task that runs a batch, named as the user's function for monitors."""

    __slots__ = ("__qualname__", "__weakref__")

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Calls, (self.__qualname__,))

    def __call__(
        self, limits: Limits, surroundings: Surroundings, initializer: Optional[Initializer], calls: Sequence[Call]
    ) -> List[Any]:
        """The results, in order. Raises what the first call that fails raises."""
        with limits, _nested(surroundings):
            if initializer is not None and initializer.token not in _initialized:
                function, arguments = initializer.content
                function(*arguments)
                _initialized.add(initializer.token)
            return [function(*arguments, **named) for function, arguments, named in calls]


_initialized: Set[bytes] = set()


def _nested(surroundings: Surroundings) -> ContextManager[Any]:
    try:
        import joblib
    except ImportError:  # the calls can do without, or say so
        return contextlib.nullcontext()
    from scaler.adapters.joblib_backend import ScalerBackend

    backend = ScalerBackend(
        nesting_level=surroundings.nesting_level,
        inner_max_num_threads=surroundings.inner_threads,
        options=surroundings.options,
    )
    context: ContextManager[Any] = joblib.parallel_config(backend=backend, n_jobs=None)
    return context
