"""What people do every day, as a program: it prints what came of it, and ends with "done".

everyday.py cluster             with a local cluster of this system
everyday.py client ADDRESS      with a cluster at this address
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, List

import numpy

from scaler import Client, SchedulerClusterCombo
from scaler.exceptions import TaskMemoryLimitError, TaskTimeoutError

LARGE = 400_000  # numbers: more than travels in a message


def double(number: int) -> int:
    return 2 * number


def fail(text: str) -> None:
    raise ValueError(text)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def hold(megabytes: int) -> int:
    held = bytearray(megabytes << 20)
    for position in range(0, len(held), 4096):
        held[position] = 1
    time.sleep(20)
    return len(held)


def nest(client: Client, depth: int) -> int:
    return 1 if depth == 0 else client.submit(nest, client, depth - 1).result() + 1


def start_a_program() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def raised_by(call: Callable[[], Any]) -> str:
    try:
        return f"nothing: {call()!r}"
    except Exception as error:
        return type(error).__name__


def use(client: Client) -> None:
    """Print what comes of each use."""
    print("map", client.map(double, range(20)) == [2 * number for number in range(20)])
    numbers = numpy.arange(LARGE)
    print("large", (client.submit(numpy.add, numbers, 1).result() == numbers + 1).all())
    reference = client.send_object(numbers)
    print("object", int(client.submit(numpy.sum, reference).result()) == LARGE * (LARGE - 1) // 2)
    graph = {"a": 1, "b": (double, "a"), "c": (double, "b")}
    print("graph", client.get(graph, ["c"]))
    print("nested", client.submit(nest, client, 3).result())
    print("error", raised_by(lambda: client.submit(fail, "no").result()))
    slow = client.submit(sleep, 600)
    print("cancelled", slow.cancel(10), slow.cancelled())
    limited = client.options(timeout=0.5)
    print("limit", raised_by(lambda: limited.submit(sleep, 600).result(60)), TaskTimeoutError.__name__)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shipped.py").write_text("def value(): return 42")
        with Client(client._address, modules=[Path(folder, "shipped.py")]) as shipping:
            print("shipped", shipping.submit(eval, "__import__('shipped').value()").result())
    printed: List[Any] = []
    with Client(client._address, stream_output=printed.append) as talkative:
        talkative.submit(print, "hello").result()
    print("output", [each.text for each in printed])
    info = client.info()
    print("info", info.slots, info.worker_count)


def use_cluster() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)
    with Client(address=cluster.get_address()) as client:
        use(client)
        small = client.options(memory_limit="100MB")
        print("memory", raised_by(lambda: small.submit(hold, 300).result(60)), TaskMemoryLimitError.__name__)
        program = client.submit(start_a_program).result()
        print("started", program > 0)
    cluster.shutdown()
    print("program", program)


if __name__ == "__main__":
    if sys.argv[1] == "cluster":
        use_cluster()
    else:
        with Client(address=sys.argv[2]) as connected:
            use(connected)
    print("done")
