"""Functions that workers serve by name, in codecs that any language reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, Tuple, Type

import pytest
from sdk_tasks import wait_for

from scaler import Client, NamedFunction, SchedulerClusterCombo
from scaler.exceptions import (
    DeserializeObjectError,
    NamedFunctionError,
    ProcessorDiedError,
    ResultNotSerializableError,
    ScalerError,
    SerializeObjectError,
)

CONFORMANCE = "scaler.conformance/*=scaler.conformance"
MODULE = '''
"""A user's module."""
from os import getpid
import time

def reverse(data):
    return bytes(reversed(data))

def describe(value, *more):
    return {"value": value, "more": list(more)}

def unwritable():
    return {1, 2}

def _hidden():
    return "seen"
'''


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of a worker that serves nothing but what can be imported, and one that serves named functions."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "images.py").write_text(MODULE)
    served = [CONFORMANCE, "example.org/reverse=images:reverse", "example.org/images/*=images"]
    options = [word for each in served for word in ("--functions", each)]
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
        command = [sys.executable, "-m", "scaler.worker", combo.get_address(), "-n", "2", "--exit-when-stdin-closes"]
        environment = {"PYTHONPATH": str(folder)}
        worker = subprocess.Popen([*command, *options], stdin=subprocess.PIPE, env=environment)
        try:
            yield combo.get_address()
        finally:
            worker.communicate(timeout=30)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address=address) as client:
        yield client


def conformance(name: str, codec: str = "json") -> NamedFunction:
    return NamedFunction(f"scaler.conformance/{name}", codec=codec)


def test_json_arguments_and_results(client: Client) -> None:
    value = {"a": [1, None, True, 2.5], "ä": "ö"}
    assert client.submit(conformance("echo"), value).result() == value
    assert client.submit(conformance("sum"), 1, 2, 39).result() == 42
    assert client.submit(conformance("sum")).result() == 0
    assert client.submit(NamedFunction("example.org/images/describe"), 1, "x").result() == {"value": 1, "more": ["x"]}


def test_raw_bytes(client: Client) -> None:
    assert client.submit(conformance("echo", "raw"), b"\x00\xff").result() == b"\x00\xff"
    assert client.submit(conformance("echo", "raw"), b"").result() == b""
    assert client.submit(conformance("size", "raw"), b"3").result() == b"xxx"
    assert client.submit(NamedFunction("example.org/reverse", codec="raw"), b"abc").result() == b"cba"


@pytest.mark.parametrize("size", [64 * 1024, 3_000_000])
def test_large_arguments_and_results_travel_as_objects(client: Client, size: int) -> None:
    data = bytes(range(256)) * (size // 256)
    assert client.submit(conformance("echo", "raw"), data).result() == data
    assert client.submit(conformance("echo"), "y" * size).result() == "y" * size
    assert client.submit(conformance("size"), size).result() == "x" * size


def test_functions_that_python_can_import(client: Client) -> None:
    assert client.submit(NamedFunction("python:math:hypot"), 3, 4).result() == 5.0
    assert client.submit(NamedFunction("python:binascii:hexlify", codec="raw"), b"\x01").result() == b"01"


def test_map_and_options(client: Client) -> None:
    assert client.map(conformance("sum"), range(200)) == list(range(200))
    assert client.starmap(conformance("sum"), [(1, 2), (3, 4)]) == [3, 7]
    assert list(client.map(conformance("sum"), iter(range(50)), buffersize=7)) == list(range(50))
    assert sorted(client.imap_unordered(conformance("sum"), range(50))) == list(range(50))
    profiled = client.options(profiling=True).submit(conformance("busy"), 5)
    profiled.result()
    assert profiled.profiling_info().duration_us >= 5_000


def test_an_item_of_map_that_fails_is_named(client: Client) -> None:
    with pytest.raises(DeserializeObjectError) as caught:
        client.map(conformance("sum"), [1, 2, "three", 4])
    assert caught.value.__dict__["__notes__"] == ["(raised by item 2 of map)"]
    with pytest.raises(SerializeObjectError) as unwritable:
        client.map(conformance("echo"), [1, {2}, 3])
    assert unwritable.value.__dict__["__notes__"] == ["(item 1 of map)"]


def test_failures_are_readable_without_python(client: Client) -> None:
    text = r"task scaler\.conformance/fail, .*: it raised scaler\.conformance\.Failure: out of cheese"
    with pytest.raises(NamedFunctionError, match=text) as caught:
        client.submit(conformance("fail"), "out of cheese").result()
    assert "conformance.py" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("function", "arguments", "error", "text"),
    [
        (conformance("sum"), ("a",), DeserializeObjectError, "sum takes numbers"),
        (conformance("echo"), (), DeserializeObjectError, "missing a required argument"),
        (conformance("sum", "raw"), (b"1",), ScalerError, "takes codec 'json', not 'raw'"),
        (NamedFunction("scaler.conformance/os"), (), DeserializeObjectError, "has no public function 'os'"),
        (NamedFunction("example.org/images/_hidden"), (), DeserializeObjectError, "has no public function '_hidden'"),
        (NamedFunction("example.org/images/getpid"), (), DeserializeObjectError, "has no public function 'getpid'"),
        (NamedFunction("python:math:pi"), (), DeserializeObjectError, "is not callable"),
        (NamedFunction("python:no.such:function"), (), DeserializeObjectError, "No module named 'no'"),
        (NamedFunction("example.org/images/unwritable"), (), ResultNotSerializableError, "not JSON serializable"),
        (conformance("exit"), (3,), ProcessorDiedError, "3"),
        (conformance("crash"), (), ProcessorDiedError, "SIGKILL"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_says_why(
    client: Client, function: NamedFunction, arguments: Tuple[Any, ...], error: Type[BaseException], text: str
) -> None:
    with pytest.raises(error, match=text):
        client.submit(function, *arguments).result()


def test_a_function_that_no_worker_serves_is_explained(client: Client) -> None:
    future = client.submit(NamedFunction("example.org/unserved"))
    wait_for(lambda: client.info().slots, "a worker to be connected")
    assert "no connected worker serves the function 'example.org/unserved' in codec 'json'" in client.explain(future)
    assert future.cancel()


def test_a_named_function_that_calls_another(client: Client, address: str) -> None:
    call = client.submit(conformance("nested"), address, "scaler.conformance/sum", [20, 22])
    assert call.result() == 42


def test_arguments_that_the_codec_cannot_write(client: Client) -> None:
    with pytest.raises(SerializeObjectError, match=r"scaler\.conformance/echo .*codec 'json'"):
        client.submit(conformance("echo"), object())
    with pytest.raises(SerializeObjectError, match="Out of range float"):
        client.submit(conformance("echo"), float("nan"))
    with pytest.raises(SerializeObjectError, match="one argument"):
        client.submit(conformance("echo", "raw"), b"a", b"b")
    with pytest.raises(TypeError, match="no keyword arguments: value"):
        untyped: Any = client
        untyped.submit(conformance("echo"), value=1)


def test_names_and_codecs_that_are_none() -> None:
    for name in ("", "a\nb", "ä" * 128):
        with pytest.raises(ValueError, match=r"the function name .* is invalid"):
            NamedFunction(name)
    with pytest.raises(ValueError, match="'json', 'raw'"):
        NamedFunction("a", codec="yaml")
    with pytest.raises(TypeError, match=r"submit\(function"):
        NamedFunction("a")()


def test_nodes_of_graphs_are_not_called_by_name(client: Client) -> None:
    with pytest.raises(TypeError, match="graph nodes"):
        client.get({"a": (conformance("sum"), 1)}, ["a"])


def test_named_tasks_survive_their_worker(client: Client, tmp_path: Path) -> None:
    """A function's name is sent again with its tasks: nothing of it was registered anywhere."""
    assert client.options(retries=0).map(conformance("echo"), ["a"] * 50) == ["a"] * 50
    with pytest.raises(ProcessorDiedError):
        client.submit(conformance("crash")).result()
    assert client.submit(conformance("echo"), "still here").result() == "still here"


@pytest.mark.parametrize("text", ["name", "=m:f", "a=m", "a/*=m:f", "a*b=m:f", "*=m", "python:x=m:f"])
def test_what_the_command_line_does_not_serve(text: str) -> None:
    command = [sys.executable, "-m", "scaler.worker", "tcp://127.0.0.1:1", "--functions", text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--functions" in ended.stderr and repr(text) in ended.stderr
