"""A fork server over a simulated system: each fault at each of its calls, one at a time, also those of processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Callable, List

import pytest
from fault_injection.fork_server_scenario import EXPECTED, ForkServerRun, run_fork_server
from fault_injection.simulated_processes import PROCESS_CALLS, faults_of
from fault_injection.simulated_system import Fault, others_of, some_of


def problems(run: ForkServerRun, fault: Fault) -> List[str]:
    """What is wrong after a fault: an end that the agent does not learn, a process or descriptor that is left."""
    call = run.system.calls[fault.position]
    found = list(run.problems)
    is_of_start = run.exit_code is None and not run.statuses
    if is_of_start and not found:
        return []  # the agent learns that it has no fork server, and ends: its supervisor starts another one
    if fault.kind == "EPIPE" and call in ("send", "recv", "recv_fds"):  # the agent is gone
        explained = ["it ended before the agent", "the fork server has closed its socket"]
        explained += ["a file is left"] * ("fork" not in run.system.calls)  # the order for it has not arrived
        found = [each for each in found if each not in explained]
        return [f"{fault.kind} at call {fault.position}, {call}: {each}" for each in found]
    for number, expected in EXPECTED.items():
        status = run.statuses.get(number)
        is_stopped_late = number == 3 and status == signal.SIGKILL and call in ("kill", "select", "recv_fds", "recv")
        is_unknown = fault.kind == "ECHILD" and status == 255 << 8
        if status != expected and not (is_stopped_late or is_unknown):
            found.append(f"processor {number} ended with {status}")
    if run.exit_code != 0:
        found.append(f"exit code {run.exit_code}")
    return [f"{fault.kind} at call {fault.position}, {call}: {each}" for each in found]


def test_without_a_fault_all_is_well(tmp_path: Path) -> None:
    run = run_fork_server(tmp_path)
    assert (run.problems, run.exit_code, run.statuses) == ([], 0, EXPECTED)
    assert run.system.calls == run_fork_server(tmp_path).system.calls, "runs are repeatable"
    assert {*PROCESS_CALLS, "select", "recv_fds", "recv", "send", "close", "memfd_create"} <= set(run.system.calls)


def check(folder: Path, chosen: Callable[[List[Fault]], List[Fault]]) -> None:
    system = run_fork_server(folder).system
    found: List[str] = []
    for fault in chosen(faults_of(system, list(range(len(system.calls))))):
        found += problems(run_fork_server(folder, fault), fault)
    assert found == []


def test_some_faults_cost_a_fork_server_nothing(tmp_path: Path) -> None:
    check(tmp_path, some_of)


@pytest.mark.slow
def test_every_other_fault_at_every_call_costs_a_fork_server_nothing(tmp_path: Path) -> None:
    check(tmp_path, others_of)
