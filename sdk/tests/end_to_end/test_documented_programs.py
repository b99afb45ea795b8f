"""Programs as users have written them since the first generation, each run as a script of its own.

`tcp://127.0.0.1:2345` in them stands for the address of a running cluster, or, where the program starts its own, for a
free port.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from quiet_addresses import quiet_address

ADDRESS = "tcp://127.0.0.1:2345"
TIMEOUT_SECONDS = 60.0

SQUARE_ROOTS = """
import math
from scaler import Client

with Client(address="tcp://127.0.0.1:2345") as client:
    futures = [client.submit(math.sqrt, i) for i in range(0, 100)]
    print(round(sum(future.result() for future in futures), 2))
"""

ONE_TASK = """
from scaler import Client


def foobar(foo: int):
    return foo


client = Client(address="tcp://127.0.0.1:2345")
future = client.submit(foobar, 1)
print(future.result())
"""

STANDARD_FUTURE = """
from scaler import Client


def square(value: int):
    return value * value


with Client(address="tcp://127.0.0.1:2345") as client:
    future = client.submit(square, 4)
    print(future.result())
"""

MAP_OF_ARGUMENT_TUPLES = """
from scaler import Client


def calculate(sec: int):
    return sec * 1


tasks = list(range(100))
with Client(address="tcp://127.0.0.1:2345") as client:
    results = client.map(calculate, [(i,) for i in tasks])
    assert results == tasks
print(len(results))
"""

OWN_CLUSTER = """
import random

from scaler import Client, SchedulerClusterCombo


def calculate(sec: int):
    return sec * 1


def main():
    address = "tcp://127.0.0.1:2345"

    cluster = SchedulerClusterCombo(address=address, n_workers=10, event_loop="uvloop")
    client = Client(address=address)

    tasks = [random.randint(0, 100) for _ in range(100000)]
    futures = [client.submit(calculate, i) for i in tasks]

    results = [future.result() for future in futures]

    assert results == tasks

    client.disconnect()
    cluster.shutdown()
    print("done")


if __name__ == "__main__":
    main()
"""

OLD_IMPORT_PATHS = """
from scaler.client.client import Client
from scaler.client.future import ScalerFuture
from scaler.cluster.combo import SchedulerClusterCombo

cluster = SchedulerClusterCombo(n_workers=1)
with Client(address=cluster.get_address()) as client:
    future = client.submit(len, "four")
    assert isinstance(future, ScalerFuture)
    print(future.result())
cluster.shutdown()
"""

HEAVY_FUNCTION = """
import functools
import random

from scaler import Client, SchedulerClusterCombo


def lookup(heavy_map: bytes, index: int):
    return index * 1


def main():
    address = "tcp://127.0.0.1:2345"

    cluster = SchedulerClusterCombo(address=address, n_workers=3)

    big_func = functools.partial(lookup, b"1" * 50_000_000)
    arguments = [random.randint(0, 100) for _ in range(100)]

    with Client(address=address) as client:
        futures = [client.submit(big_func, i) for i in arguments]
        assert [fut.result() for fut in futures] == arguments

    cluster.shutdown()
    print("done")


if __name__ == "__main__":
    main()
"""

SEND_OBJECT = """
from scaler import Client
from scaler.cluster.combo import SchedulerClusterCombo

large_object = [1, 2, 3, 4, 5]


def query(object_reference, idx):
    return object_reference[idx]


def main():
    cluster = SchedulerClusterCombo(n_workers=1)

    with Client(address=cluster.get_address()) as client:
        large_object_ref = client.send_object(large_object, name="large_object")
        fut1 = client.submit(query, large_object_ref, 0)
        fut2 = client.submit(query, large_object_ref, 1)
        print(fut1.result())
        print(fut2.result())

    cluster.shutdown()


if __name__ == "__main__":
    main()
"""

CLEAR_AND_DISCONNECT = """
from scaler import Client
from scaler.cluster.combo import SchedulerClusterCombo


def main():
    cluster = SchedulerClusterCombo(n_workers=10)
    client = Client(address=cluster.get_address())
    client.clear()
    client.disconnect()
    cluster.shutdown()
    print("done")


if __name__ == "__main__":
    main()
"""

NESTED = """
from scaler import Client


def fibonacci(clnt: Client, n: int):
    if n == 0:
        return 0
    elif n == 1:
        return 1
    else:
        a = clnt.submit(fibonacci, clnt, n - 1)
        b = clnt.submit(fibonacci, clnt, n - 2)
        return a.result() + b.result()


with Client(address="tcp://127.0.0.1:2345") as client:
    result = client.submit(fibonacci, client, 8).result()
    print(result)
"""

CUSTOM_SERIALIZER = """
import enum
import pickle
import struct
from io import BytesIO
from typing import Any

import pandas as pd
from cloudpickle import cloudpickle

from scaler import Client, Serializer


class ObjType(enum.Enum):
    General = b"G"
    Integer = b"I"
    DataFrame = b"D"


class CustomSerializer(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        if isinstance(obj, pd.DataFrame):
            buf = BytesIO()
            obj.to_parquet(buf)
            return ObjType.DataFrame.value + buf.getvalue()

        if isinstance(obj, int):
            return ObjType.Integer.value + struct.pack("I", obj)

        return ObjType.General.value + cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        obj_type = ObjType(payload[:1])
        payload = payload[1:]

        if obj_type == ObjType.DataFrame:
            buf = BytesIO(payload)
            return pd.read_parquet(buf)

        if obj_type == ObjType.Integer:
            return struct.unpack("I", payload)[0]

        return cloudpickle.loads(payload)


def add(a, b):
    return a + b


def total(frame):
    return int(frame["value"].sum())


with Client(address="tcp://127.0.0.1:2345", serializer=CustomSerializer()) as client:
    print(client.submit(add, 1, 2).result())
    print(client.submit(total, pd.DataFrame({"value": [1, 2, 3]})).result())
    print(client.submit(add, pd.DataFrame({"value": [1]}), 1).result()["value"][0])
"""


ENDS_OF_ARROW = [(0, ""), (-signal.SIGABRT, "terminate called without an active exception\n")]
"""Of a program that has read Parquet from an object of Python: a thread of Arrow may still want to close that when the
interpreter has ended, https://github.com/apache/arrow/issues/34314."""


def output_of(program: str, address: str, folder: Path, ends: Sequence[tuple[int, str]] = ((0, ""),)) -> list[str]:
    """Run a program as a script; returns what it printed, but for the log lines of a cluster that it started.

    Parameters:
        ends: its exit code may be one of these, with what it prints as errors.
    """
    script = folder / "program.py"
    script.write_text(program.replace(ADDRESS, address))
    finished = subprocess.run(
        [sys.executable, str(script)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert (finished.returncode, finished.stderr) in ends
    return [line for line in finished.stdout.splitlines() if not line.startswith("[")]


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (SQUARE_ROOTS, ["661.46"]),
        (ONE_TASK, ["1"]),
        (STANDARD_FUTURE, ["16"]),
        (MAP_OF_ARGUMENT_TUPLES, ["100"]),
        (NESTED, ["21"]),
    ],
    ids=["square roots", "one task", "standard future", "map of argument tuples", "nested"],
)
def test_with_a_running_cluster(program: str, printed: list[str], address: str, tmp_path: Path) -> None:
    assert output_of(program, address, tmp_path) == printed


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (OWN_CLUSTER, ["done"]),
        (OLD_IMPORT_PATHS, ["4"]),
        (HEAVY_FUNCTION, ["done"]),
        (SEND_OBJECT, ["1", "2"]),
        (CLEAR_AND_DISCONNECT, ["done"]),
    ],
    ids=["own cluster", "old import paths", "heavy function", "send object", "clear and disconnect"],
)
def test_that_starts_its_own(program: str, printed: list[str], tmp_path: Path) -> None:
    assert output_of(program, quiet_address(), tmp_path) == printed


def test_with_a_custom_serializer(any_address: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert output_of(CUSTOM_SERIALIZER, any_address, tmp_path, ENDS_OF_ARROW) == ["3", "6", "2"]
