"""The checks of a soak find what they are for: a lost or doubled run, a leak, an error or a repeated line in a log."""

from __future__ import annotations

import itertools
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest
from soak import stalling_forwarder
from soak.fault_injection import AFTERMATH_SECONDS, FaultInjector, Struck
from soak.fault_plan import Window, names_without, scheduler_kill_interval_seconds, windows
from soak.log_watch import BadLine, LogWatch
from soak.rest_levels import Levels, differences
from soak.soak_verdict import Verdict
from soak.soaked_cluster import SLOTS, End, SoakedCluster
from soak.trends import trend_of

MEANS = frozenset({"namespaces", "file systems"})
MEGABYTE = 1e6


# The plan -------------------------------------------------------------------------------------------------------------


def first_windows(seed: int, count: int = 30, means: frozenset[str] = MEANS) -> List[Window]:
    return list(itertools.islice(windows(seed, 10.0, means), count))


def test_a_seed_determines_the_plan() -> None:
    assert first_windows(7) == first_windows(7)
    assert first_windows(7) != first_windows(8)


def test_what_a_machine_cannot_do_is_not_planned() -> None:
    names = {fault.name for window in first_windows(7, means=frozenset()) for fault in window.faults}
    assert {"kill processor", "stall up link"} <= names
    assert not {"unplug network", "fill memory", "fill disk", "fill memory and disk"} & names


def test_a_scheduler_lives_long_enough_to_watch_its_memory() -> None:
    began, kills = 0.0, [0.0]
    for window in first_windows(7):
        kills += [began + fault.at_seconds for fault in window.faults if fault.name == "kill scheduler"]
        began += window.seconds
    lives = [after - before for before, after in zip(kills, kills[1:])]
    assert len(lives) > 2 and all(life >= scheduler_kill_interval_seconds(10.0) for life in lives)


def test_some_faults_are_left_out() -> None:
    assert "kill scheduler" not in names_without(["scheduler"]) and "kill agent" in names_without(["scheduler"])
    only = frozenset({"pause monitor"})
    planned = [fault.name for window in itertools.islice(windows(7, 10.0, MEANS, only), 20) for fault in window.faults]
    assert planned and set(planned) == only


# The forwarder --------------------------------------------------------------------------------------------------------


@pytest.fixture
def link() -> Iterator[Tuple[socket.socket, socket.socket, subprocess.Popen[str]]]:
    """A caller's connection through a forwarder, its other end, and the forwarder."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = stalling_forwarder.__file__
        command = [sys.executable, script, "127.0.0.1", "127.0.0.1", str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forwarder:
            assert forwarder.stdout is not None
            with socket.create_connection(("127.0.0.1", int(forwarder.stdout.readline()))) as caller:
                target, _ = server.accept()
                with target:
                    yield caller, target, forwarder
            forwarder.kill()


def tell(forwarder: subprocess.Popen[str], word: str) -> None:
    assert forwarder.stdin is not None and forwarder.stdout is not None
    forwarder.stdin.write(word + "\n")
    forwarder.stdin.flush()
    assert forwarder.stdout.readline() == word + "\n"


@pytest.mark.parametrize("stalled", ["up", "down"])
def test_a_link_is_stalled_in_one_direction_only(
    link: Tuple[socket.socket, socket.socket, subprocess.Popen[str]], stalled: str
) -> None:
    caller, target, forwarder = link
    slow, quick = (caller, target) if stalled == "up" else (target, caller)
    tell(forwarder, f"stall {stalled}")
    slow.sendall(b"late")
    for _ in range(10):  # the forwarder turns ten times
        quick.sendall(b"early")
        assert slow.recv(100) == b"early"
    assert not select.select([quick], [], [], 0)[0]
    tell(forwarder, "pass")
    assert quick.recv(100) == b"late"


def test_a_link_is_broken(link: Tuple[socket.socket, socket.socket, subprocess.Popen[str]]) -> None:
    caller, target, forwarder = link
    tell(forwarder, "break")
    for stream in (caller, target):
        with pytest.raises(ConnectionResetError):
            stream.recv(1)


# The verdict ----------------------------------------------------------------------------------------------------------


def verdict_when(*faults: str) -> Verdict:
    """A verdict on a run in which these faults have just happened."""

    def explains(began: float, ended: float, words: Tuple[str, ...]) -> bool:
        return any(word in fault for word in words for fault in faults)

    return Verdict(explains, lambda text: None)


def test_a_task_that_ran_twice_is_found() -> None:
    verdict = verdict_when("kill agent")
    verdict.on_runs("steady-1", [1, 2, 3])
    verdict.on_runs("far-2", [1])
    assert verdict.violations == []
    verdict.on_runs("steady-1", [4, 2])
    assert len(verdict.violations) == 1 and "task 2 of steady-1" in verdict.violations[0]


def test_a_result_of_a_task_that_has_not_run_is_found(tmp_path: Path) -> None:
    report = {"counts": {}, "ran": [1, 2], "longest_seconds": {}}
    verdict = verdict_when()
    verdict.on_report("client steady", 1, "steady-1", report)
    (tmp_path / "steady-1").write_text("1\n")
    verdict.check_ledgers(tmp_path)
    assert len(verdict.violations) == 1 and "1 tasks of steady-1 have results and have not run" in verdict.violations[0]


def lost_once() -> dict[str, object]:
    return {"excused": "WorkerDiedError: lost", "kind": "at most once", "began": 1.0, "ended": 2.0}


def test_an_error_counts_as_explained_only_by_a_fault_that_may_cause_it() -> None:
    verdict = verdict_when("kill agent")
    verdict.on_report("client steady", 1, "steady-1", lost_once())
    assert verdict.violations == [] and verdict.excused == {"at most once: WorkerDiedError": 1}
    verdict = verdict_when("fill disk")
    verdict.on_report("client steady", 1, "steady-1", lost_once())
    assert len(verdict.violations) == 1


class NoCluster(SoakedCluster):
    """Without programs."""

    def __init__(self) -> None:
        pass


def test_what_a_fault_causes_comes_later_if_the_machine_stops() -> None:
    injector = FaultInjector(NoCluster())
    injector.struck.append(Struck("kill fork server", "process 1", 100.0, 100.0))
    late = 100.0 + AFTERMATH_SECONDS + 5.0
    assert not injector.explains(late, late, ("kill",))
    injector.note_stop(101.0, 111.0)
    assert injector.explains(late, late, ("kill",))
    assert not injector.explains(late + 6.0, late + 6.0, ("kill",))
    assert injector.explains(112.0, 113.0, ("pause",)) and not injector.explains(90.0, 100.5, ("pause",))


def test_a_wrong_outcome_is_a_violation_whatever_happened() -> None:
    verdict = verdict_when("kill agent", "kill scheduler")
    verdict.on_report("client steady", 1, "l", {"wrong": "result 3", "kind": "small", "began": 1.0, "ended": 2.0})
    assert len(verdict.violations) == 1


def test_a_program_that_ends_by_itself_is_found() -> None:
    verdict = verdict_when("kill agent")
    verdict.judge_ends([End("worker plain", -9, 1.0), End("client comer", 0, 1.0)])
    assert verdict.violations == []
    verdict = verdict_when("kill agent")
    verdict.judge_ends([End("scheduler", 70, 1.0)])
    assert len(verdict.violations) == 1 and "ended with code 70" in verdict.violations[0]


# Logs -----------------------------------------------------------------------------------------------------------------


def line(text: str, level: str = "INFO") -> str:
    return f"[{level}]2026-03-19 12:16:10-0400: {text}\n"


def test_error_lines_and_tracebacks_are_found_once(tmp_path: Path) -> None:
    logs = LogWatch(tmp_path)
    (tmp_path / "scheduler.log").write_text(line("all is well") + line("it broke", "ERROR") + "Traceback (most rec")
    assert [(found.program, found.explained_by) for found in logs.read(0.0)] == [("scheduler", ())]
    with open(tmp_path / "scheduler.log", "a") as file:
        file.write("ent call last):\n")
    assert [found.text for found in logs.read(1.0)] == ["Traceback (most recent call last):"]
    assert logs.read(2.0) == []


def test_an_error_line_is_explained_by_the_fault_that_causes_it() -> None:
    found = BadLine("worker-plain", "[CRITICAL]", ("kill fork server",))
    verdict = verdict_when("kill fork server")
    verdict.on_bad_line(found, 1.0)
    assert verdict.violations == []
    verdict = verdict_when("kill agent")
    verdict.on_bad_line(found, 1.0)
    assert len(verdict.violations) == 1


@pytest.mark.parametrize(
    "text",
    [
        "... and 2 more like it in 60 seconds: Scheduler: 2 objects of 70 bytes could not be stored: no room for it",
        "Scheduler: 2 objects of 70 bytes could not be stored in the last 60 seconds: no room for it",
    ],
)
def test_an_error_line_that_stands_for_others_is_explained_by_what_was_up_to_then(tmp_path: Path, text: str) -> None:
    (tmp_path / "scheduler.log").write_text(line(text, "ERROR"))
    [found] = LogWatch(tmp_path).read(0.0)
    assert found.explained_by == ("disk",) and found.seconds == 60.0
    verdict = verdict_when("fill disk")
    verdict.on_bad_line(found, 60.0)
    assert verdict.violations == []


def test_a_result_that_is_lost_with_its_scheduler_is_explained_by_that(tmp_path: Path) -> None:
    text = "a large result is lost: /dev/shm/scaler-0-x/7: its directory is gone, as after the end of its scheduler"
    (tmp_path / "worker-plain.log").write_text(line(text, "ERROR"))
    [found] = LogWatch(tmp_path).read(0.0)
    assert found.explained_by == ("kill scheduler",)


def test_a_line_that_is_repeated_within_a_minute_is_found(tmp_path: Path) -> None:
    logs = LogWatch(tmp_path)
    few = "".join(line(f"client {number} connected") for number in range(100))
    (tmp_path / "scheduler.log").write_text(few + line("trying again") * 7)
    logs.read(0.0)
    assert logs.repeated() == [("scheduler", "trying again", 7)]


def test_the_same_lines_over_many_minutes_are_no_repetition(tmp_path: Path) -> None:
    logs = LogWatch(tmp_path)
    for minute in range(1, 20):
        with open(tmp_path / "scheduler.log", "a") as file:
            file.write(line("trying again"))
        logs.read(60.0 * minute)
    assert logs.repeated() == []


# Memory and other levels ----------------------------------------------------------------------------------------------


def samples(seconds: int, bytes_per_second: float) -> List[Tuple[float, float]]:
    """Of a process that uses 50 MB, and up to 10 MB more for the load of the moment."""
    return [(float(at), 50 * MEGABYTE + at * bytes_per_second + at * 7 % 11 * MEGABYTE) for at in range(0, seconds, 2)]


def test_memory_that_varies_is_flat() -> None:
    trend = trend_of(samples(600, 0))
    assert trend is not None and trend.is_flat()


def test_a_leak_is_found() -> None:
    trend = trend_of(samples(600, 0.1 * MEGABYTE))
    assert trend is not None and not trend.is_flat()
    assert trend.bytes_per_hour == pytest.approx(360 * MEGABYTE, rel=0.05)


def test_a_burst_at_first_is_no_leak_yet() -> None:
    short = trend_of(samples(120, 0.8 * MEGABYTE))
    assert short is not None and short.is_flat()
    fast = trend_of(samples(120, 3 * MEGABYTE))
    assert fast is not None and not fast.is_flat()


def test_a_slow_leak_is_found_by_a_long_run() -> None:
    trend = trend_of(samples(7200, 60 * MEGABYTE / 3600))
    assert trend is not None and not trend.is_flat()


def test_a_short_life_has_no_trend() -> None:
    assert trend_of(samples(90, MEGABYTE)) is None
    assert trend_of([]) is None


QUIET = Levels(0, len(SLOTS), 0, 0, 1, 3, 0, {"scheduler": 20}, {"scheduler": 2})


def test_levels_that_are_back_differ_in_nothing() -> None:
    assert differences(QUIET, None) == differences(QUIET, QUIET) == []


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": 1},
        {"workers": len(SLOTS) - 1},
        {"object_files": 1},
        {"abandoned_directories": 1},
        {"run_files": 10},
        {"temporary_files": 10},
        {"shared_memory_files": 20},
        {"descriptors": {"scheduler": 30}},
        {"threads": {"scheduler": 9}},
    ],
    ids=str,
)
def test_a_level_that_is_not_back_is_found(change: dict[str, object]) -> None:
    assert len(differences(QUIET._replace(**change), QUIET)) == 1  # type: ignore[arg-type]  # as the fields' types are
