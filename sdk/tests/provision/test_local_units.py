"""Units as processes of this host: they are asked once to drain, and leave well whenever that is."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator, List, Sequence

import pytest
from sdk_tasks import logged, wait_for, wait_for_file

from scaler import Client, Scheduler
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.unit_adapters import DRAIN_SIGNAL, LocalUnits, UnitError
from scaler_protocol import messages as m

RUNNING = ListedUnit(m.UnitState.STARTING)
TIMEOUT_SECONDS = 60.0
SLEEPER = """
import signal, sys, time
from scaler.worker.early_signals import EARLY
number = int(sys.argv[1])
if number and sys.argv[3].startswith("b"):
    signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
if sys.argv[3].startswith("fail"):
    sys.exit(7)
time.sleep(0.0 if sys.argv[3].startswith("done") else 100.0)
"""
DRAINS_AS_LONG_AS_ITS_PIPE_IS_OPEN = """
import signal, sys
from scaler.worker.early_signals import EARLY
for number in EARLY:
    signal.signal(number, lambda number, _: print(number, file=open(sys.argv[1], "a"), flush=True))
signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
open(sys.argv[1], "a").close()
sys.stdin.read()
"""
SIGNALLED_AT_AN_IMPORT = """
import os, runpy, signal, sys
count, mark, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
own = os.getpid()

def note(event, arguments):
    global count
    if count >= 0 and event in ("import", "socket.connect") and os.getpid() == own:
        if not count or event == "socket.connect":
            count = 0
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY))
            os.kill(own, number)
        count -= 1

sys.addaudithook(note)
sys.argv = ["scaler.worker", *sys.argv[4:]]
runpy.run_module("scaler.worker", run_name="__main__", alter_sys=True)
"""
MOMENTS, IMPORTS_BETWEEN = 100, 3.2  # there are 320 until it connects, which is the last moment
CLOSE_MOMENTS = [each for each in range(MOMENTS) if each % 4 in (1, 2)]  # half of them get each of the two signals


@pytest.fixture
def sleepers(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalUnits]:
    """Units that do nothing for a while, or whatever their name says."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    units = LocalUnits([sys.executable, "-c", SLEEPER, "0"])
    yield units
    units.close()
    assert units.list().keys() <= {"a", "b"}


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with Scheduler(logging_level="WARNING") as started:
        yield started


def wait_for_end(units: LocalUnits, unit: str) -> List[ListedUnit]:
    """Wait until a unit is not listed any more; how it was listed at last, unless it has left well."""
    failed: List[ListedUnit] = []

    def has_ended() -> bool:
        listed = units.list()
        failed.extend(each for name, each in listed.items() if name == unit and each.state == m.UnitState.FAILED)
        return listed.get(unit) != RUNNING

    wait_for(has_ended, f"{unit} to end")
    return failed


def test_processes_are_listed_while_they_run_and_once_with_the_reason_if_they_fail(sleepers: LocalUnits) -> None:
    for unit in ("a", "fail", "done"):
        sleepers.start(unit)
    found = {}

    def have_ended() -> bool:
        listed = sleepers.list()
        found.update(listed)
        return listed == {"a": RUNNING}

    wait_for(have_ended, "the others to end")
    assert found["fail"].state == m.UnitState.FAILED and "exit code 7" in found["fail"].reason


def test_a_process_that_is_stopped_is_asked_to_drain(sleepers: LocalUnits) -> None:
    sleepers.start("b")
    sleepers.stop("b")
    sleepers.stop("unknown")
    (listed,) = wait_for_end(sleepers, "b")
    assert "SIGTERM" in listed.reason


def drainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalUnits:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    units = LocalUnits([sys.executable, "-c", DRAINS_AS_LONG_AS_ITS_PIPE_IS_OPEN, str(tmp_path / "signals")])
    units.start("a")
    wait_for((tmp_path / "signals").exists, "it to start")
    return units


def test_a_second_signal_lets_processes_stop_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = drainers(tmp_path, monkeypatch)
    units.hurry()
    assert wait_for_end(units, "a") == []
    units.close()


def test_a_process_that_was_asked_to_drain_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = drainers(tmp_path, monkeypatch)
    units.stop("a")
    units.stop("a")
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(units.close)
        wait_for(lambda: (tmp_path / "signals").read_text() != "", "the signal")
        units.hurry()
        closed.result(TIMEOUT_SECONDS)
    signals = (tmp_path / "signals").read_text().split()
    assert signals in ([str(DRAIN_SIGNAL)], 2 * [str(DRAIN_SIGNAL)]), "the second one may meet no process"


def test_a_program_that_does_not_exist_cannot_be_started() -> None:
    with pytest.raises(UnitError, match="/no/such cannot be started"):
        LocalUnits(["/no/such"]).start("a")


def note_and_wait(folder: str, number: int) -> int:
    """Note that it runs, and go on when told to."""
    with open(os.path.join(folder, "runs"), "a") as file:
        file.write(f"{number}\n")
    wait_for_file(os.path.join(folder, "go"), seconds=TIMEOUT_SECONDS)
    return number


@pytest.mark.parametrize("own", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_gets_the_signal_itself_as_well_finishes_its_task(
    own: signal.Signals, scheduler: Scheduler, tmp_path: Path
) -> None:
    address, log = scheduler.get_address(), tmp_path / "worker.log"
    units = LocalUnits([sys.executable, "-m", "scaler.worker", address, "-n", "1", "--logging-paths", str(log)])
    units.start("both")
    with Client(address) as client, ThreadPoolExecutor(1) as pool:
        future = client.submit(note_and_wait, str(tmp_path), 1)
        wait_for(lambda: (tmp_path / "runs").exists() or future.done(), "the task to run")
        assert not future.done() or future.result()
        (worker,) = client.info().workers
        os.kill(worker.process_id, own)
        wait_for(lambda: f"asked to stop by {own.name}" in logged(log), "it to drain")
        closed = pool.submit(units.close)
        wait_for(lambda: bool(units._draining), "the other signal to be sent")
        (tmp_path / "go").touch()

        assert future.result(TIMEOUT_SECONDS) == 1
        closed.result(TIMEOUT_SECONDS)
        assert units.list() == {}, "it has left well"
    assert (tmp_path / "runs").read_text() == "1\n"
    assert "asked to stop again" not in logged(log)


def asked_at(moment: int, address: str, folder: Path) -> List[ListedUnit]:
    """Start a worker that is asked to leave when it has imported so many modules, or connects; how it failed, if it
    did."""
    mark = folder / f"mark-{moment}"
    words = [str(int(moment * IMPORTS_BETWEEN)), str(mark), str(int(DRAIN_SIGNAL if moment % 2 else signal.SIGTERM))]
    units = LocalUnits([sys.executable, "-c", SIGNALLED_AT_AN_IMPORT, *words, address, "-n", "1"])
    units.start(f"unit-{moment}")
    try:
        failed = wait_for_end(units, f"unit-{moment}")
    finally:
        units.close()
    assert mark.exists()
    return failed


@pytest.mark.parametrize(
    "moments",
    [
        range(0, MOMENTS, 20),
        pytest.param(CLOSE_MOMENTS, marks=pytest.mark.slow),
        # Twice as many moments, of which each is a start of a worker.
        pytest.param(range(MOMENTS), marks=[pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(300)]),
    ],
    ids=["some", "many", "all"],
)
def test_a_worker_that_is_asked_to_leave_while_it_starts_leaves_well_at_any_moment(
    moments: Sequence[int], scheduler: Scheduler, tmp_path: Path
) -> None:
    address = scheduler.get_address()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda moment: asked_at(moment, address, tmp_path), moments))

    assert found == [[]] * len(moments)
    with Client(address) as client:
        assert client.info().worker_count == 0


def test_one_that_is_asked_before_its_interpreter_has_begun_is_no_exception(scheduler: Scheduler) -> None:
    units = LocalUnits([sys.executable, "-m", "scaler.worker", scheduler.get_address(), "-n", "1"])
    units.start("early")
    units.stop("early")

    assert wait_for_end(units, "early") == []
    units.close()
