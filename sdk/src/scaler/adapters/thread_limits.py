"""How many threads numeric libraries use inside a task: the tasks of a host share its CPUs.

    ThreadLimits ──a task's arguments──▶ loaded: environment variables ─▶ in use: threadpoolctl ─▶ both restored

Rules:
- Libraries read the variables when they are loaded, so these are set before the rest of the arguments is loaded, which
  may import such a library. Those that are loaded already are limited by threadpoolctl, if it is installed.
- What the user sets explicitly comes first, then the variables of the user's process, then those of the worker. By
  default a task may use the host's CPUs divided by the number of tasks at once.
- Afterwards the process has the variables and limits that it had before: it also runs tasks of others.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import lru_cache
from types import TracebackType
from typing import Any, ContextManager, Dict, Mapping, Optional, Sequence, Tuple, Type

from scaler.cpus import usable_cpus

OPENMP, BLAS = "OMP_NUM_THREADS", ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


_cpus = lru_cache(maxsize=None)(usable_cpus)  # reads files, and takes longer than a short call


class ThreadLimits:
    """The environment variables of a task that limit threads; loading it from a pickle sets them, leaving restores.

    Parameters:
        names: of the variables.
        given: the values of those that the user has set.
        tasks: how many run at once.
        others: variables that are set unless the worker has them, whatever the number of threads.
    """

    def __init__(
        self, names: Sequence[str], given: Mapping[str, str], tasks: int, others: Optional[Mapping[str, str]] = None
    ) -> None:
        self._names = tuple(names)
        self._given = dict(given)
        self._tasks = tasks
        self._others = dict(others or {})
        self._before: Dict[str, Optional[str]] = {}
        self._pools: ContextManager[Any] = contextlib.nullcontext()

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_in_effect, (self._names, self._given, self._tasks, self._others))

    def set_variables(self) -> None:
        """Set the environment variables."""
        default = str(max(_cpus() // self._tasks, 1))
        wanted = {name: self._given.get(name) or os.environ.get(name) or default for name in self._names}
        wanted.update({name: os.environ.get(name, value) for name, value in self._others.items()})
        self._before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)

    def restore_variables(self) -> None:
        """Give the environment variables the values from before `set_variables`. Idempotent."""
        before, self._before = self._before, {}
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def __enter__(self) -> ThreadLimits:
        self._pools = _pools.limited()
        self._pools.__enter__()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._pools.__exit__(kind, error, traceback)
        self.restore_variables()


_latest: Optional[ThreadLimits] = None


def _in_effect(names: Sequence[str], given: Mapping[str, str], tasks: int, others: Mapping[str, str]) -> ThreadLimits:
    global _latest
    if _latest is not None:
        _latest.restore_variables()  # the rest of its arguments could not be loaded
    _latest = ThreadLimits(names, given, tasks, others)
    _latest.set_variables()
    return _latest


class _Pools:
    """The pools of threads of the libraries that this process has loaded."""

    def __init__(self) -> None:
        self._controller: Any = None
        self._modules = 0  # how many were imported when the pools were looked for

    def limited(self) -> ContextManager[Any]:
        """Limit them as the environment variables say."""
        limits: Dict[str, int] = {}
        _add(limits, "openmp", [OPENMP])
        _add(limits, "blas", [*BLAS, OPENMP])
        if not limits or "numpy" not in sys.modules:
            return contextlib.nullcontext()
        if self._modules != len(sys.modules):
            try:
                from threadpoolctl import ThreadpoolController
            except ImportError:
                return contextlib.nullcontext()
            self._controller = ThreadpoolController()  # takes a millisecond
            self._modules = len(sys.modules)
        limited: ContextManager[Any] = self._controller.limit(limits=limits)
        return limited


_pools = _Pools()


def _add(limits: Dict[str, int], kind: str, names: Sequence[str]) -> None:
    for name in names:
        # OpenMP's may list numbers by the depth of nesting.
        value = os.environ.get(name, "").split(",")[0]
        if value.isdigit() and int(value) > 0:
            limits[kind] = int(value)
            return
