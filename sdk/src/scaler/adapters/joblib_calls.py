"""What runs in a worker for joblib: a batch of calls, as its process would find the world under joblib's own engines.

Rules:
- The limits of threads come first in the arguments, and nothing here imports joblib or numpy before they are in effect.
- Calls of joblib inside a call use the same cluster, or run one after the other if they do not ask for more jobs.
- An initializer runs once in each process that runs calls for it, before the first of these.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from scaler.adapters.thread_limits import ThreadLimits

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


class Calls:
    """The function of the task that runs a batch, named as the user's function for monitors."""

    __slots__ = ("__qualname__", "__weakref__")

    def __init__(self, name: str) -> None:
        self.__qualname__ = name

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Calls, (self.__qualname__,))

    def __call__(
        self, limits: ThreadLimits, nested: Any, initializer: Optional[Initializer], calls: Sequence[Call]
    ) -> List[Any]:
        """Returns the results, in order. Raises what the first call that fails raises.

        Parameters:
            nested: the backend of joblib's calls inside these.
            calls: at least one.
        """
        from joblib import parallel_config  # by now, the limits are in effect

        with limits, parallel_config(backend=nested, n_jobs=None):
            if initializer is not None and initializer.token not in _initialized:
                function, arguments = initializer.content
                function(*arguments)
                _initialized.add(initializer.token)
            return [function(*arguments, **named) for function, arguments, named in calls]


_initialized: Set[bytes] = set()
