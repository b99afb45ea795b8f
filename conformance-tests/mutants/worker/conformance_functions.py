"""The conformance functions, as a reference peer runs them: on threads, with processes that are only played.

Rule: a function that waits does so in a way that `Execution.stop` ends.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

PREFIX = "scaler.conformance/"


class TaskFailed(Exception):
    """The function fails: the kind, the type's name and the message of its Failure."""

    def __init__(self, kind: str, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.type_name = type_name


class ProcessDied(Exception):
    """The process of the task, which is only played, has ended."""


class Execution:
    """One run of a function: what it may use, and how it is stopped."""

    def __init__(self, on_output: Callable[[int, str], None]) -> None:
        self.on_output = on_output
        self.stopped = threading.Event()
        self._connection: List[socket.socket] = []

    def stop(self) -> None:
        """End what the function waits for."""
        self.stopped.set()
        for each in self._connection:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def connect(self, host: str, port: int) -> socket.socket:
        connection = socket.create_connection((host, port))
        self._connection.append(connection)
        if self.stopped.is_set():
            self.stop()
        return connection


def run(name: str, codec: str, arguments: bytes, execution: Execution) -> bytes:
    """The result of a function that FUNCTIONS has, in the codec of its arguments.

    Raises TaskFailed or ProcessDied.
    """
    function = FUNCTIONS[name]
    if codec == "raw":
        return _run_raw(name, arguments)
    try:
        values = json.loads(arguments or b"[]")
        if not isinstance(values, list):
            raise ValueError("the arguments are no array")
    except ValueError as error:
        raise TaskFailed("argumentNotLoaded", str(error)) from None
    try:
        result = function(execution, *values)
    except (TypeError, ValueError) as error:
        raise TaskFailed("argumentNotLoaded", str(error)) from None
    return json.dumps(result).encode()


def _run_raw(name: str, arguments: bytes) -> bytes:
    if name == "echo":
        return arguments
    if not arguments.isdigit():
        raise TaskFailed("argumentNotLoaded", "the count is no number")
    return b"x" * int(arguments)


def _echo(execution: Execution, value: Any) -> Any:
    return value


def _sum(execution: Execution, *numbers: Any) -> Any:
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in numbers):
        raise ValueError("only numbers have a sum")
    return sum(numbers)


def _fail(execution: Execution, message: str) -> None:
    raise TaskFailed("taskRaised", message, f"{PREFIX.rstrip('/')}.Failure")


def _sleep(execution: Execution, milliseconds: float) -> None:
    execution.stopped.wait(milliseconds / 1000)


def _busy(execution: Execution, milliseconds: float) -> None:
    end = time.monotonic() + milliseconds / 1000
    while time.monotonic() < end and not execution.stopped.is_set():
        pass


def _size(execution: Execution, count: Any) -> str:
    if not isinstance(count, int) or count < 0:
        raise ValueError("the count is none")
    return "x" * count


def _log(execution: Execution, stream: int, text: str) -> None:
    execution.on_output(stream, text)


def _exit(execution: Execution, code: int) -> None:
    raise ProcessDied(f"exited with code {code}")


def _crash(execution: Execution) -> None:
    raise ProcessDied("was ended by signal 9")


def _hang(execution: Execution) -> None:
    execution.stopped.wait()


def _wait(execution: Execution, host: str, port: int, tag: str) -> str:
    connection = execution.connect(host, port)
    with connection:
        connection.sendall(tag.encode() + b"\n")
        heard = b""
        while b"\n" not in heard:
            more = connection.recv(4096)
            if not more:
                raise TaskFailed("taskRaised", "the connection ended", f"{PREFIX.rstrip('/')}.Failure")
            heard += more
    return heard.partition(b"\n")[0].decode()


def _fill(execution: Execution, count: Any, milliseconds: float) -> None:
    if not isinstance(count, int) or count < 0:
        raise ValueError("the count is none")
    execution.stopped.wait(milliseconds / 1000)


def _actor(execution: Execution) -> Dict[str, str]:
    return {"codec": "json", "object": _base64("the conformance actor")}


def _call(execution: Execution, name: str, *arguments: Any) -> str:
    return _base64([name, *arguments])


def _base64(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "echo": _echo,
    "sum": _sum,
    "fail": _fail,
    "sleep": _sleep,
    "busy": _busy,
    "size": _size,
    "log": _log,
    "exit": _exit,
    "crash": _crash,
    "hang": _hang,
    "wait": _wait,
    "fill": _fill,
    "actor": _actor,
    "call": _call,
}
CODECS: Dict[str, Tuple[str, ...]] = {
    name: ("json", "raw") if name in ("echo", "size") else ("json",) for name in FUNCTIONS
}
