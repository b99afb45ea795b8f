"""A worker's agent over a simulated system: each fault at each of its calls, one at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Type

import pytest
from fault_injection.agent_scenario import EXPECTED, AgentRun, SchedulerOfWorker, is_as_expected, run_agent
from fault_injection.peer_scenario import SchedulerOfPeers
from fault_injection.simulated_system import Fault, distinct_calls, faults_at, others_of, some_of

from scaler.worker.exit_codes import EXIT_ERROR, EXIT_OK
from scaler_protocol import messages as m

REPETITIONS = 2
"""How many of the calls that are made from the same lines get faults: a waiting agent repeats the same ones."""

FILE_CALLS = ("open", "close", "statvfs", "symlink", "pwrite", "pread", "preadv", "rename", "write", "flock", "listdir")


class Life(NamedTuple):
    """What the worker is beside.

    Parameters:
        is_shared: it shares the scheduler's directory.
        calls: some that it makes.
    """

    is_shared: bool
    play: Type[SchedulerOfWorker]
    calls: List[str]

    def run(self, folder: Path, fault: Optional[Fault] = None) -> AgentRun:
        return run_agent(folder, fault, self.is_shared, play=self.play)


LIVES: Dict[str, Life] = {
    "files": Life(True, SchedulerOfWorker, ["flock", "rename"]),
    "chunks": Life(False, SchedulerOfWorker, ["pwrite", "pread", "statvfs"]),
    "peers": Life(False, SchedulerOfPeers, ["pwrite", "preadv", "statvfs", "bind", "listen", "accept", "getsockname"]),
}


def problems(run: AgentRun, fault: Fault) -> List[str]:
    """What is wrong after a fault: a missing or wrong outcome, an error that the fault does not explain, something that
    is left."""
    call = run.system.calls[fault.position]
    found = list(run.problems)
    if run.sessions == 0 and fault.kind not in ("stop", "short"):
        return []  # the worker did not start: its supervisor starts another one
    if fault.kind == "EPIPE" and run.exit_code == EXIT_ERROR and call in ("send", "send_fds", "recv"):
        return found  # its fork server has gone: likewise
    if run.exit_code != EXIT_OK:
        found.append(f"exit code {run.exit_code}")
    for name, expected in EXPECTED.items():
        outcome = run.outcomes.get(name)
        is_explained = (
            outcome == m.FailureKind.OBJECT_MISSING
            and name in ("object", "large")
            and call in FILE_CALLS
            and fault.kind not in ("stop", "short")
        )
        if outcome != expected and not is_explained:
            found.append(f"{name}: {outcome!r}")
    if fault.kind in ("stop", "short") and run.sessions != 1:
        found.append(f"{run.sessions} sessions")
    return [f"{fault.kind} at call {fault.position}, {call}: {each}" for each in found]


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_without_a_fault_all_is_well(tmp_path: Path, life: Life) -> None:
    run = life.run(tmp_path)
    assert run.problems == [] and is_as_expected(run) and run.sessions == 1
    assert run.system.calls == life.run(tmp_path).system.calls, "runs are repeatable"
    used = {"epoll", "socket", "connect_ex", "socketpair", "send_fds", "poll", "recv", "send", "open", *life.calls}
    assert used <= set(run.system.calls)


def test_without_a_fault_the_bytes_go_from_worker_to_worker(tmp_path: Path) -> None:
    schedulers: List[SchedulerOfWorker] = []
    run = run_agent(tmp_path, None, False, lambda agent, scheduler: schedulers.append(scheduler), SchedulerOfPeers)
    (scheduler,) = schedulers
    assert isinstance(scheduler, SchedulerOfPeers) and is_as_expected(run)
    assert scheduler.direct_fetches == scheduler.copies == 1


def check(folder: Path, life: Life, chosen: Callable[[List[Fault]], List[Fault]]) -> None:
    system = life.run(folder).system
    found: List[str] = []
    for fault in chosen(faults_at(system, distinct_calls(system, REPETITIONS))):
        found += problems(life.run(folder, fault), fault)
    assert found == []


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_some_faults_cost_a_worker_what_they_concern(tmp_path: Path, life: Life) -> None:
    check(tmp_path, life, some_of)


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("part", range(4))
def test_every_other_fault_at_every_call_costs_a_worker_what_it_concerns(tmp_path: Path, life: Life, part: int) -> None:
    check(tmp_path, life, partial(others_of, part=part, parts=4))


def test_a_worker_whose_control_socket_cannot_be_watched_ends_with_an_error(tmp_path: Path) -> None:
    calls = run_agent(tmp_path).system.calls
    run = run_agent(tmp_path, Fault(calls.index("register"), "ENOMEM"))
    assert run.exit_code == EXIT_ERROR and run.problems == []
