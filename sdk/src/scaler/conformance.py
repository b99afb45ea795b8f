"""The conformance functions of the protocol, with which a test controls workers in any language.

    scaler_worker tcp://127.0.0.1:8516 --functions 'scaler.conformance/*=scaler.conformance'

Rules:
- The protocol's specification defines each of them in "The conformance functions" (SCL-COD-009); nothing else is public
  here.
- Wrong arguments are rejected before the function does anything (SCL-COD-008).
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import socket
import sys
import time
from typing import Any, Dict, Union

from scaler.exceptions import WrongArgumentsError
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.named_functions import NamedFunction, takes_codecs
from scaler.values.payload import PROTOCOL, dump_function, join

__all__ = [
    "echo",
    "sum",
    "fail",
    "sleep",
    "busy",
    "size",
    "log",
    "exit",
    "crash",
    "hang",
    "wait",
    "nested",
    "fill",
    "actor",
    "call",
]

Number = Union[int, float]


class Failure(Exception):
    """The exception that `fail` raises."""


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise WrongArgumentsError(what)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@takes_codecs("json", "raw")
def echo(value: Any) -> Any:
    return value


@takes_codecs("json")
def sum(*numbers: Number) -> Number:  # noqa: A001
    _check(all(map(_is_number, numbers)), "sum takes numbers")
    total: Number = 0
    for number in numbers:
        total += number
    return total


@takes_codecs("json")
def fail(message: str) -> None:
    _check(isinstance(message, str), "fail takes a message")
    raise Failure(message)


@takes_codecs("json")
def sleep(milliseconds: Number) -> None:
    _check(_is_number(milliseconds) and milliseconds >= 0, "sleep takes milliseconds")
    time.sleep(milliseconds / 1000)


@takes_codecs("json")
def busy(milliseconds: Number) -> None:
    _check(_is_number(milliseconds) and milliseconds >= 0, "busy takes milliseconds")
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        pass


@takes_codecs("json", "raw")
def size(count: Union[int, bytes]) -> Union[str, bytes]:
    if isinstance(count, bytes):
        _check(count.isdigit(), "size takes a count in decimals")
        return b"x" * int(count)
    _check(_is_count(count), "size takes a count")
    return "x" * count


@takes_codecs("json")
def log(stream: Any, text: Any) -> None:
    _check(stream in (1, 2) and isinstance(text, str), "log takes 1 or 2, and a text")
    file = sys.stdout if stream == 1 else sys.stderr
    file.write(text)
    file.flush()


@takes_codecs("json")
def exit(code: int) -> None:  # noqa: A001
    _check(_is_count(code) and code <= 255, "exit takes a code from 0 to 255")
    os._exit(code)


@takes_codecs("json")
def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@takes_codecs("json")
def hang() -> None:
    while True:
        signal.pause()


@takes_codecs("json")
def wait(host: Any, port: Any, tag: Any) -> str:
    _check(isinstance(host, str) and _is_count(port) and isinstance(tag, str), "wait takes a host, a port and a tag")
    received = b""
    try:
        with socket.create_connection((host, port)) as connection:
            connection.sendall(f"{tag}\n".encode())
            while b"\n" not in received:
                chunk = connection.recv(4096)
                if not chunk:
                    raise Failure("the connection ended")
                received += chunk
    except OSError:
        raise Failure("the connection ended") from None
    return received.partition(b"\n")[0].decode()


@takes_codecs("json")
def fill(count: Any, milliseconds: Any) -> None:
    right = _is_count(count) and _is_number(milliseconds) and milliseconds >= 0
    _check(right, "fill takes a count of bytes and milliseconds")
    filled = b"x" * count
    time.sleep(milliseconds / 1000)
    del filled


@takes_codecs("json")
def nested(address: Any, name: Any, arguments: Any) -> Any:
    _check(
        isinstance(address, str) and isinstance(name, str) and isinstance(arguments, list),
        "nested takes an address, a name and an array",
    )
    from scaler.client import Client

    with Client(address) as client:
        return client.submit(NamedFunction(name), *arguments).result()


class _Actor:
    """The conformance actor: a call does what a conformance function does; `wait` adds the call's number to its tag."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, name: str, *arguments: Any) -> Any:
        self._count += 1
        if name == "wait":
            host, port, tag = arguments
            return wait(host, port, f"{tag} {self._count}")
        return globals()[name](*arguments)


@takes_codecs("json")
def actor() -> Dict[str, str]:
    content = join(dump_function(_Actor(), None))
    return {"codec": PYTHON_CODEC, "object": base64.b64encode(content).decode()}


@takes_codecs("json")
def call(name: Any, *arguments: Any) -> str:
    _check(name in __all__, "call takes the name of a conformance function, and its arguments")
    return base64.b64encode(pickle.dumps((name, *arguments), PROTOCOL)).decode()
