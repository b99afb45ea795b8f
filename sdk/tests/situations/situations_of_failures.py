"""Situations in which something fails, or that are about asyncio, threads, processes and modules."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, List

from situation_engines import Engine
from situations import ERROR, add, situation

# Exceptions -----------------------------------------------------------------------------------------------------------


class CodeError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"failed with {code}")
        self.code = code
        self.detail = detail


class UserError(Exception):
    def __init__(self, user: str) -> None:
        super().__init__(f"no user {user}")


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def fail_with_code() -> None:
    raise CodeError(5, detail="here")


def fail_with_user() -> None:
    raise UserError("me")


def fail_frozen() -> None:
    raise FrozenError(code=5)


def fail_from() -> None:
    raise ValueError("bad") from KeyError("why")


def fail_with_lock() -> None:
    error = ValueError("bad")
    error.lock = threading.Lock()  # type: ignore[attr-defined]  # users set what they like
    raise error


def fail_with_note() -> None:
    error = ValueError("bad")
    error.__notes__ = ["a note"]  # type: ignore[attr-defined]  # as Python 3.11 has it
    raise error


def fail_in_group() -> None:
    group: Any = vars(builtins)["ExceptionGroup"]  # from Python 3.11 on
    raise group("group", [CodeError(5, detail="here"), ValueError(1)])


def fail_with(error: BaseException) -> None:
    raise error


def _raised(engine: Engine, kind: Any, function: Any, *args: Any) -> Any:
    """What a task raises; raises it here if it is of another class."""
    try:
        engine.run(function, *args)
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


@situation("Exceptions", ["failed with 5", 5, "here"])
def _(engine: Engine) -> Any:
    """a class whose constructor has required and keyword-only parameters"""
    error = _raised(engine, CodeError, fail_with_code)
    return [str(error), error.code, error.detail]


@situation("Exceptions", "no user me")
def _(engine: Engine) -> Any:
    """a class whose constructor builds its message from its argument"""
    return str(_raised(engine, UserError, fail_with_user))


@situation("Exceptions", 5)
def _(engine: Engine) -> Any:
    """a class that is a frozen data class"""
    return _raised(engine, FrozenError, fail_frozen).code


@situation("Exceptions", "KeyError")
def _(engine: Engine) -> Any:
    """an exception that was raised `from` another one"""
    return type(_raised(engine, ValueError, fail_from).__cause__).__name__


@situation("Exceptions", "bad")
def _(engine: Engine) -> Any:
    """an exception with an attribute that cannot be pickled"""
    return str(_raised(engine, ValueError, fail_with_lock))


@situation("Exceptions", ["a note"])
def _(engine: Engine) -> Any:
    """an exception with a note"""
    return _raised(engine, ValueError, fail_with_note).__notes__


@situation("Exceptions", [["CodeError", "ValueError"], 5], needs="tomllib")  # which 3.11 brought, too
def _(engine: Engine) -> Any:
    """a group, and the attributes of its members"""
    group = _raised(engine, vars(builtins)["ExceptionGroup"], fail_in_group)
    return [[type(each).__name__ for each in group.exceptions], group.exceptions[0].code]


@situation("Exceptions", [3, 3])
def _(engine: Engine) -> Any:
    """a task calls `sys.exit()`; the next one runs"""
    return [_raised(engine, SystemExit, sys.exit, 3).code, engine.run(add, 1, 2)]


@situation("Exceptions", [1, ()])
def _(engine: Engine) -> Any:
    """a task raises `StopIteration`, or `KeyboardInterrupt`"""
    stop = _raised(engine, StopIteration, fail_with, StopIteration(1))
    return [stop.value, _raised(engine, KeyboardInterrupt, fail_with, KeyboardInterrupt()).args]


@situation("Exceptions", 3)
def _(engine: Engine) -> Any:
    """the process of a task dies; the next task runs"""
    with contextlib.suppress(Exception):
        engine.run(os._exit, 3)
    return engine.run(add, 1, 2)


# Generators and asyncio -----------------------------------------------------------------------------------------------


def generate() -> Iterator[int]:
    yield 1


async def add_later(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@situation("Generators and asyncio", ERROR)
def _(engine: Engine) -> Any:
    """a generator function as a task"""
    return engine.run(generate)


@situation("Generators and asyncio", 3)
def _(engine: Engine) -> Any:
    """an `async def` function as a task"""
    return engine.run(add_later, 1, 2)


@situation("Generators and asyncio", [1, 2])
def _(engine: Engine) -> Any:
    """`map` with an `async def` function"""
    return engine.map(add_later, [0, 1])


@situation("Generators and asyncio", [3, 5])
def _(engine: Engine) -> Any:
    """results are awaited in an event loop, by `run_in_executor`"""

    async def main() -> List[int]:
        loop = asyncio.get_running_loop()
        futures = [engine.submit(add, 1, 2), engine.submit(add, 2, 3)]
        waits = [loop.run_in_executor(None, future.result, engine.wait_seconds) for future in futures]
        return list(await asyncio.gather(*waits))

    return asyncio.run(main())


# Threads, processes, modules ------------------------------------------------------------------------------------------


@situation("Threads, processes, modules", list(range(100)))
def _(engine: Engine) -> Any:
    """eight threads submit"""
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda number: engine.run(add, number, 0), range(100)))


def squares_in_threads(numbers: List[int]) -> List[int]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda number: number * number, numbers))


@situation("Threads, processes, modules", [1, 4, 9])
def _(engine: Engine) -> Any:
    """a task starts threads"""
    return engine.run(squares_in_threads, [1, 2, 3])


def in_processes(numbers: List[int]) -> List[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, numbers)


@situation("Threads, processes, modules", [1, 2])
def _(engine: Engine) -> Any:
    """a task starts a `multiprocessing.Pool`"""
    return engine.run(in_processes, [-1, -2])


@situation("Threads, processes, modules", [True, 3])
def _(engine: Engine) -> Any:
    """this process forks and continues"""
    child = os.fork()
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return [status == 0, engine.run(add, 1, 2)]


def draw_plainly(_: int) -> float:
    time.sleep(0.05)
    return random.random()


@situation("Threads, processes, modules", 8)
def _(engine: Engine) -> Any:
    """random numbers of the module `random` differ: how many of 8"""
    return len(set(engine.map(draw_plainly, range(8))))


@situation("Threads, processes, modules", 2)
def _(engine: Engine) -> Any:
    """the same call twice runs twice"""
    futures = [engine.submit(uuid.uuid4) for _ in range(2)]  # both are kept: an engine may reuse what is not let go of
    return len({future.result(engine.wait_seconds) for future in futures})


def recursion(depth: int) -> int:
    return 0 if depth == 0 else 1 + recursion(depth - 1)


@situation("Threads, processes, modules", [True, 3])
def _(engine: Engine) -> Any:
    """recursion without end; the next task runs"""
    error = _raised(engine, RecursionError, recursion, -1)
    return ["recursion depth" in str(error), engine.run(add, 1, 2)]


@situation("Threads, processes, modules", math.pi)
def _(engine: Engine) -> Any:
    """a function of the standard library"""
    return engine.run(math.atan2, 0, -1)
