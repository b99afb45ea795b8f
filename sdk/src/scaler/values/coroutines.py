"""`async def` functions as tasks: their coroutines run in an event loop to completion.

Rules:
- As with `asyncio.run`: when a call ends, its remaining tasks are cancelled, asynchronous generators and the default
  executor are shut down, and the next call starts clean. No event loop stays set in the thread.
- The calls of a chunk of `map` run one after the other in one loop, each in its own context: creating a loop costs
  several times as much as running a coroutine.
- The return value of a plain function is its result, awaitable or not.
"""

from __future__ import annotations

import functools
import inspect
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional, Type

if TYPE_CHECKING:
    import asyncio

OWN_FILES = (__file__, os.path.join("asyncio", "base_events.py"))
"""The file name suffixes of the frames between the runner of a coroutine and the coroutine."""


def is_async(function: Any) -> bool:
    """Whether a call of the function creates a coroutine. Never fails, whatever the function's attributes do."""
    try:
        while isinstance(function, functools.partial):
            function = function.func
        if getattr(type(function), "_is_task_function", False):
            function = function.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    except Exception:
        return False


class Runner:
    """An event loop for several calls, one after the other; created for the first of them."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, and return its result."""
        if self._loop is None:
            import asyncio  # slow, and rarely needed in a processor

            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            _cancel_all(self._loop)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of a call, and wait until they have ended."""
    import asyncio

    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            context = {"message": "a task failed after its coroutine had ended", "exception": task.exception()}
            loop.call_exception_handler({**context, "task": task})


class Awaited:
    """Wraps an `async def` function as a plain function that returns its result."""

    __slots__ = ("function", "__weakref__")

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with Runner() as runner:
            return runner.run(self.function(*args, **kwargs))


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or an `async def` function as a plain one that returns its result."""
    return Awaited(function) if is_async(function) else function


def in_loop(function: Callable[..., Any], runner: Runner) -> Callable[..., Any]:
    """The function itself, or an `async def` function as a plain one that runs in the runner's loop."""
    if not is_async(function):
        return function
    return lambda *args: runner.run(function(*args))
