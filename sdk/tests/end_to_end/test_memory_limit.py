"""A scheduler keeps to its memory limit, wherever it comes from, and serves others meanwhile."""

from __future__ import annotations

import os
import shlex
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from sdk_tasks import wait_for, wait_for_file, wait_until

from scaler import Client, SchedulerClusterCombo
from scaler.cluster.appliance import PROGRAM_VARIABLE, scheduler_command
from scaler.exceptions import TaskRejectedError

PYPY = Path(__file__).resolve().parents[3] / ".venv-pypy/bin/pypy3"
TIMEOUT_SECONDS = 60.0

LIMIT_MIB = {"cpython": 110, "pypy": 200}
ADDRESSES_MIB = 220
GROUP_MIB = 150  # three quarters of it are the limit
CONTENT = os.urandom(50_000)
NODES = 21
GRAPH_BYTES = NODES * len(CONTENT)


@pytest.fixture(params=["option", pytest.param("option-pypy", marks=pytest.mark.exhaustive), "addresses", "group"])
def limited(
    request: pytest.FixtureRequest, make_group: Callable[[int], Path]
) -> Iterator[Tuple[SchedulerClusterCombo, int]]:
    """A cluster whose scheduler may use little memory, and how much that is."""
    kind, _, interpreter = request.param.partition("-")
    interpreter = interpreter or "cpython"
    if interpreter == "pypy" and not PYPY.exists():
        pytest.skip("no PyPy here (make test says why)")
    program = [str(PYPY), "-m", "scaler_appliance"] if interpreter == "pypy" else scheduler_command()
    before, limit_mib = "", LIMIT_MIB[interpreter]
    if kind == "option":
        program += ["--memory-limit", f"{limit_mib}MiB"]
    elif kind == "addresses":
        limit_mib = ADDRESSES_MIB
        before = f"ulimit -v {limit_mib << 10}; "
    else:
        limit_mib = GROUP_MIB
        before = f"echo $$ > {make_group(GROUP_MIB)}/cgroup.procs; "
    # The scheduler's options follow.
    os.environ[PROGRAM_VARIABLE] = shlex.join(["sh", "-c", before + 'exec "$@"', "sh", *program])
    try:
        with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
            yield combo, limit_mib << 20
    finally:
        del os.environ[PROGRAM_VARIABLE]


def peak_bytes(process_id: int) -> int:
    """The most memory a process has had, without files."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process_id}/status").read_text().splitlines())
    return (int(lines["VmHWM"].split()[0]) - int(lines["RssFile"].split()[0])) << 10


def is_served(combo: SchedulerClusterCombo) -> bool:
    with Client(address=combo.get_address()) as client:
        return client.submit(abs, -1).result(TIMEOUT_SECONDS) == 1


def graph_of(number: int) -> Dict[str, Any]:
    """A node that needs all others, each of which brings a content of its own."""
    leaves = {f"{number}-{node}": (len, CONTENT + bytes([number % 251, node])) for node in range(1, NODES)}
    return {**leaves, f"{number}-0": (count_of, *leaves)}


def count_of(*values: Any) -> int:
    return len(values) + 1


def test_objects_beyond_the_limit_go_to_disk(limited: Tuple[SchedulerClusterCombo, int]) -> None:
    combo, limit_bytes = limited
    process_id = combo.scheduler.pid
    assert process_id is not None
    with Client(address=combo.get_address()) as client:
        count = limit_bytes * 5 // 4 // len(CONTENT)
        objects = [client.send_object(CONTENT + number.to_bytes(4, "big")) for number in range(count)]
        assert is_served(combo)
        for number in (0, count // 2, count - 1):
            assert client.submit(len, objects[number]).result(TIMEOUT_SECONDS) == len(CONTENT) + 4
        assert peak_bytes(process_id) < limit_bytes
    assert is_served(combo) and combo.scheduler.pid == process_id


def test_tasks_are_rejected_when_memory_is_full_and_taken_again_later(
    limited: Tuple[SchedulerClusterCombo, int], done_files: List[Path]
) -> None:
    combo, limit_bytes = limited
    process_id = combo.scheduler.pid
    assert process_id is not None
    running, gate = done_files
    with Client(address=combo.get_address()) as client:
        client.submit(wait_for_file, str(gate), str(running), 10 * TIMEOUT_SECONDS)
        wait_until(running)
        waiting: List[Future[int]] = []
        for number in range(2 * limit_bytes // GRAPH_BYTES):
            waiting += client.get(graph_of(number), [f"{number}-0"], block=False).values()
            if any(future.done() for future in waiting):
                break
        wait_for(lambda: any(future.done() for future in waiting), "a graph to be rejected")
        gate.touch()
        errors = [future.exception(TIMEOUT_SECONDS) for future in waiting]
        rejected = [error for error in errors if isinstance(error, TaskRejectedError)]
        assert "--memory-limit" in str(rejected[0])
        results = [future.result() for future in waiting if future.exception() is None]
        assert len(results) + len(rejected) == len(waiting) and set(results) == {NODES}
        assert peak_bytes(process_id) < limit_bytes
        wait_for(lambda: takes_a_graph(client), "graphs to be taken again")
    assert is_served(combo) and combo.scheduler.pid == process_id


def takes_a_graph(client: Client) -> bool:
    future = client.get(graph_of(0), ["0-0"], block=False)["0-0"]
    return not isinstance(future.exception(TIMEOUT_SECONDS), TaskRejectedError)
