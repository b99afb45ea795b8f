"""Progress bars for calls that wait for many tasks.

Rules:
- A bar counts tasks at a cost per batch: outcomes are counted where they arrive, and the waiting thread draws.
- Without a bar, this module costs nothing.
- tqdm draws, in terminals and notebooks; it is imported when a bar is shown. Without ipywidgets, a notebook's bar
  is text.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future
from types import TracebackType
from typing import Any, Dict, Iterable, NamedTuple, Optional, Set, Type, Union

from scaler.client.shell.future_internals import add_waiter, forget_waiter
from scaler.client.shell.waiting import Waiter
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError, MissingPackageError

Wanted = Union[bool, str]
ALWAYS = "always"


class DoneAndNotDone(NamedTuple):
    """What `concurrent.futures.wait` returns."""

    done: Set[Future[Any]]
    not_done: Set[Future[Any]]


def checked(wanted: Any) -> Wanted:
    """The value of an option `progress`.

    Raises ArgumentTypeError if it is invalid, MissingPackageError if bars are wanted and tqdm is missing.
    """
    if not isinstance(wanted, bool) and wanted != ALWAYS:
        raise ArgumentTypeError(f"progress must be True, False or {ALWAYS!r}, not {wanted!r}")
    if wanted and importlib.util.find_spec("tqdm") is None:
        raise MissingPackageError("progress bars need tqdm: pip install 'scaler-sdk[progress]', or leave out progress")
    return wanted  # type: ignore[no-any-return]  # one of these two


class Bar:
    """A progress bar, as a context manager; shows nothing if no bar is wanted, or if no terminal or notebook would show
    it.

    Parameters:
        wanted: True shows it in terminals and notebooks, "always" wherever standard error leads to.
        total: how many tasks there are; None if that is unknown.
        name: what they do.
    """

    def __init__(self, wanted: Wanted, total: Optional[int], name: str) -> None:
        self._bar: Any = None
        if wanted and (wanted == ALWAYS or _is_seen()):
            self._bar = _drawing_class()(total=total, desc=name, unit="task", dynamic_ncols=True)

    @property
    def is_shown(self) -> bool:
        return self._bar is not None

    def add(self, count: int) -> None:
        """Count more tasks as done."""
        if self._bar is not None:
            self._bar.update(count)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is counted. Idempotent."""
        if self._bar is not None:
            self._bar.close()


def _is_seen() -> bool:
    """Whether standard error leads to a terminal, or this is a notebook."""
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _drawing_class() -> Any:
    """tqdm's widget in a notebook that can show it; `tqdm.auto` warns in one that cannot."""
    has_widgets = _is_notebook() and importlib.util.find_spec("ipywidgets") is not None
    return importlib.import_module("tqdm.notebook" if has_widgets else "tqdm").tqdm


NO_BAR = Bar(False, 0, "")


class _Counter(Waiter):
    """A waiter for many futures: records each future that is done once, and wakes the waiting thread."""

    __slots__ = ("done", "has_failed")

    def __init__(self) -> None:
        super().__init__()
        self.done: Dict[Future[Any], None] = {}
        self.has_failed = False

    def add_result(self, future: Future[Any]) -> None:
        self.done[future] = None
        self.wake()

    add_cancelled = add_result

    def add_exception(self, future: Future[Any]) -> None:
        self.has_failed = True
        self.add_result(future)


def wait(
    futures: Iterable[Future[Any]],
    bar: Bar,
    timeout_seconds: Optional[float] = None,
    return_when: str = ALL_COMPLETED,
) -> DoneAndNotDone:
    """As `concurrent.futures.wait`, with a bar."""
    if return_when not in (FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED):
        raise InvalidArgumentError(f"return_when must be a constant of concurrent.futures, got {return_when!r}")
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    wanted = set(futures)
    counter = _Counter()
    seen = 0
    try:
        for future in wanted:
            add_waiter(future, counter)
        while True:
            count = len(counter.done)
            bar.add(count - seen)
            seen = count
            left = None if deadline is None else deadline - time.monotonic()
            if _is_enough(counter, seen, len(wanted), return_when) or (left is not None and left <= 0):
                break
            counter.wait(left)
    finally:
        done = set(list(counter.done)[:seen])
        for future in wanted:
            forget_waiter(future, counter)
        counter.done = {}  # those that are done refer to the counter, and must not keep each other alive
    return DoneAndNotDone(done, wanted - done)


def _is_enough(counter: _Counter, done: int, total: int, return_when: str) -> bool:
    if done == total:
        return True
    return (return_when == FIRST_COMPLETED and done > 0) or (return_when == FIRST_EXCEPTION and counter.has_failed)
