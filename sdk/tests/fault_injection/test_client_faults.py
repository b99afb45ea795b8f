"""A client over a simulated system: each fault at each of its calls, one at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable, List

import pytest
from fault_injection.client_scenario import ClientRun, run_client, run_in_loop
from fault_injection.simulated_system import Fault, distinct_calls, faults_at, others_of, some_of

from scaler.exceptions import ObjectStorageFullError, SchedulerUnreachableError

REPETITIONS = 3
"""How many of the calls that are made from the same lines get faults; in `make test-all`, all of them."""

WITHOUT_LOSS = ("recv", "send", "sendmsg", "poll", "modify", "unregister", "link", "mmap", "unlink", "readlink")
"""Calls whose faults cost a client that is connected no outcome: it tries again, connects again, or fetches."""


def problems(run: ClientRun, fault: Fault) -> List[str]:
    """What is wrong after a fault: a missing or wrong outcome, an error that the fault does not explain, something that
    is left."""
    call = run.system.calls[fault.position]
    found = list(run.problems)
    for name, outcome in run.outcomes.items():
        if name in run.expected and outcome == run.expected[name]:
            continue
        if not _is_explained(name, outcome, fault, call):
            found.append(f"{name}: {outcome!r}")
    if fault.kind in ("stop", "short") and run.sessions != 1:
        found.append(f"{run.sessions} sessions")
    if "client" not in run.outcomes and len(run.outcomes) != 8:
        found.append(f"outcomes of {list(run.outcomes)}")
    return [f"{fault.kind} at call {fault.position}, {call}: {each}" for each in found]


def _is_explained(name: str, outcome: Any, fault: Fault, call: str) -> bool:
    if fault.kind in ("stop", "short"):
        return False
    if call in WITHOUT_LOSS:
        return False
    if name == "client":  # it was never connected: its user gets the error
        return isinstance(outcome, (OSError, MemoryError))
    return name == "object" and isinstance(outcome, (OSError, MemoryError, ObjectStorageFullError))


@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
def test_without_a_fault_all_is_well(tmp_path: Path, is_shared: bool) -> None:
    run = run_client(tmp_path, None, is_shared)
    assert run.problems == [] and run.outcomes == run.expected
    assert run.sessions == 1 and len(run.outcomes) == 8
    assert run.system.calls == run_client(tmp_path, None, is_shared).system.calls, "runs are repeatable"
    used = {"files": {"writev", "link", "mmap", "unlink"}, "chunks": {"sendmsg"}}["files" if is_shared else "chunks"]
    assert used | {"pipe", "socket", "connect_ex", "poll", "recv", "send", "read", "write"} <= set(run.system.calls)


def check(
    folder: Path,
    is_shared: bool,
    chosen: Callable[[List[Fault]], List[Fault]],
    run: Callable[..., ClientRun] = run_client,
    are_repeated: bool = False,
) -> None:
    """Inject some faults.

    Parameters:
        are_repeated: at the calls beyond REPETITIONS, and not at those up to it.
    """
    system = run(folder, None, is_shared).system
    distinct = set(distinct_calls(system, REPETITIONS))
    indexes = [index for index in range(len(system.calls)) if (index in distinct) is not are_repeated]
    found: List[str] = []
    for fault in chosen(faults_at(system, indexes)):
        found += problems(run(folder, fault, is_shared), fault)
    assert found == []


@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
def test_without_a_fault_all_is_well_in_a_loop(tmp_path: Path, is_shared: bool) -> None:
    run = run_in_loop(tmp_path, None, is_shared)
    assert run.problems == [] and run.outcomes == run.expected
    assert run.sessions == 1 and len(run.outcomes) == 8
    assert not {"pipe", "poll"} & set(run.system.calls), "there is no thread to wake"


@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
def test_some_faults_cost_a_client_in_a_loop_what_they_concern(tmp_path: Path, is_shared: bool) -> None:
    check(tmp_path, is_shared, some_of, run_in_loop)


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
@pytest.mark.parametrize("part", range(4))
def test_every_other_fault_costs_a_client_in_a_loop_what_it_concerns(
    tmp_path: Path, is_shared: bool, part: int
) -> None:
    check(tmp_path, is_shared, partial(others_of, part=part, parts=4), run_in_loop)


@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
def test_some_faults_cost_a_client_what_they_concern(tmp_path: Path, is_shared: bool) -> None:
    check(tmp_path, is_shared, some_of)


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
@pytest.mark.parametrize("part", range(4))
def test_every_other_fault_at_every_call_costs_a_client_what_it_concerns(
    tmp_path: Path, is_shared: bool, part: int
) -> None:
    check(tmp_path, is_shared, partial(others_of, part=part, parts=4))


@pytest.mark.slow
@pytest.mark.exhaustive  # what comes from the same lines is tried three times in any case
@pytest.mark.parametrize("is_shared", [True, False], ids=["files", "chunks"])
@pytest.mark.parametrize("run", [run_client, run_in_loop])
def test_faults_at_calls_that_repeat_earlier_ones_cost_a_client_what_they_concern(
    tmp_path: Path, is_shared: bool, run: Callable[..., ClientRun]
) -> None:
    check(tmp_path, is_shared, list, run, are_repeated=True)


def test_a_fault_before_there_is_a_scheduler_is_named(tmp_path: Path) -> None:
    calls = run_client(tmp_path).system.calls
    run = run_client(tmp_path, Fault(calls.index("pipe"), "EMFILE"))
    error = run.outcomes["client"]
    assert isinstance(error, OSError) and not isinstance(error, SchedulerUnreachableError)
    assert "Too many open files" in str(error)
