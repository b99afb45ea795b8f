"""`scaler_top` in a real terminal, watching a real cluster at work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from quiet_addresses import quiet_address
from scheduler_process import INTERPRETERS, SchedulerProcess, unavailable
from top.terminal import PROMPT, Load, Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here (Debian: apt-get install tmux)"),
]

WORKERS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """A scheduler whose three workers have tasks every second."""
    pytest.importorskip("scaler")
    folder = tmp_path_factory.mktemp("cluster")
    scheduler = start_scheduler(folder, quiet_address(), 0)
    with Load(scheduler.address, WORKERS, pause_seconds=1.0):
        yield scheduler
    scheduler.close()


def start_scheduler(folder: Path, address: str, number: int) -> SchedulerProcess:
    monitor = f"ipc://{folder}/monitor"
    scheduler = SchedulerProcess(
        INTERPRETERS["cpython"], folder / f"address{number}", address, "--monitor-address", monitor
    )
    scheduler.wait_until_ready()
    return scheduler


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(tmp_path) as terminal:
        yield terminal


@pytest.fixture
def top(request: pytest.FixtureRequest) -> List[str]:
    """The command, on CPython or the interpreter that the test names."""
    interpreter = getattr(request, "param", "cpython")
    reason = unavailable(interpreter)
    if reason:
        pytest.skip(reason)
    return [INTERPRETERS[interpreter], "-m", "scaler_appliance.top"]


on_all_interpreters = pytest.mark.parametrize("top", INTERPRETERS, indirect=True)


def rows_of(screen: List[str]) -> List[List[str]]:
    """The cells of the table's rows."""
    (heading,) = (index for index, line in enumerate(screen) if "agt_rss" in line and "ITL" in line)
    return [line.split("|", 3)[2].split()[0:9] for line in screen[heading + 1 :] if line.count("|") >= 3]


def has_rows(number: int) -> Callable[[List[str]], bool]:
    return lambda screen: any("ITL" in line for line in screen) and len(rows_of(screen)) == number


def is_sorted_by_rss(screen: List[str]) -> bool:
    """Whether the frame is whole, and has the largest worker first."""
    if not (any("[rss]" in line for line in screen) and has_rows(WORKERS)(screen)):
        return False
    found = [re.fullmatch(r"([\d.]+)\w", "".join(cells[4:5])) for cells in rows_of(screen)]
    resident = [float(each[1]) for each in found if each is not None]
    return len(resident) == WORKERS and resident == sorted(resident, reverse=True)


def results_in(screen: List[str]) -> int:
    """How many messages with results the scheduler has sent."""
    found = re.search(r"TaskResult +([\d,]+)", "\n".join(screen))
    return int(found[1].replace(",", "")) if found else 0


def seconds_told(screen: List[str], words: str) -> int:
    """How long something has lasted, as the screen says after these words; they change with each second."""
    found = re.search(rf"{words} (\d+) s", "\n".join(screen))
    return int(found[1]) if found else 0


@on_all_interpreters
def test_it_shows_a_cluster_at_work(cluster: SchedulerProcess, terminal: Terminal, top: List[str]) -> None:
    terminal.run(*top, cluster.monitor_address)
    screen = terminal.wait_for(has_rows(WORKERS), "three workers")
    assert screen[0].startswith("scheduler ")
    assert "[cpu]" in "\n".join(screen)
    first = results_in(screen)
    terminal.wait_for(lambda now: results_in(now) > first, "more results, without a key")
    assert terminal.modes() == "1 0 0"

    terminal.press("m")
    terminal.wait_for(is_sorted_by_rss, "the largest first")  # the heading may be painted before the rows
    terminal.press("m")
    terminal.wait_for_text("[^rss]")

    terminal.press("/")
    terminal.type("no such worker")
    terminal.wait_for(has_rows(0), "no rows")
    terminal.press("Enter")
    terminal.wait_for_text("(Esc clears it)")
    terminal.press("Escape")
    terminal.wait_for(has_rows(WORKERS), "all rows again")

    terminal.press("?")
    terminal.wait_for_text("press any key to go back")
    terminal.press("Space")
    terminal.wait_for_text("Shortcuts: ")
    terminal.press("Space")
    terminal.wait_for(lambda now: seconds_told(now, "paused for") >= 2, "a pause of 2 s")


def test_it_follows_the_size_of_the_terminal(cluster: SchedulerProcess, terminal: Terminal, top: List[str]) -> None:
    terminal.run(*top, cluster.monitor_address)
    terminal.wait_for(has_rows(WORKERS), "three workers")
    assert any("client_manager" in line for line in terminal.screen())
    for columns, lines in ((60, 20), (30, 10), (16, 4), (200, 50)):
        terminal.resize(columns, lines)
        screen = terminal.wait_for(
            lambda now, columns=columns, lines=lines: (  # type: ignore[misc]  # no type is inferred for a default
                len(now) == lines and any("Total 1 work" in line for line in now)
            ),
            f"a frame of {columns} columns",
        )
        assert len(screen) == lines
    terminal.wait_for(has_rows(WORKERS), "three workers")
    terminal.wait_for_text("quit[q]")


def test_it_survives_a_restart_of_the_scheduler(tmp_path: Path, terminal: Terminal, top: List[str]) -> None:
    pytest.importorskip("scaler")
    address = quiet_address()
    terminal.run(*top, f"ipc://{tmp_path}/monitor")
    terminal.wait_for_text(f"waiting for ipc://{tmp_path}/monitor")
    scheduler = start_scheduler(tmp_path, address, 1)
    with Load(address, WORKERS):
        try:
            terminal.wait_for(has_rows(WORKERS), "three workers")
            scheduler.close()
            terminal.wait_for(lambda now: seconds_told(now, "silent for") >= 5, "5 s of silence")
            assert has_rows(WORKERS)(terminal.screen())
            scheduler = start_scheduler(tmp_path, address, 2)
            terminal.wait_for(
                lambda screen: has_rows(WORKERS)(screen) and "silent" not in "\n".join(screen), "the workers again"
            )
        finally:
            scheduler.close()


RAISING = """
import sys
from scaler_appliance.top import watch
from scaler_appliance.top import top_program
sys.argv[0] = "scaler_top"
frames = iter(range(2))
whole = watch.Viewer.frame
def frame(self, size):
    next(frames)
    return whole(self, size)
watch.Viewer.frame = frame
top_program.main()
"""


@pytest.mark.parametrize("how", ["q", "C-c", "SIGTERM", "SIGHUP", "an error"])
def test_the_terminal_is_left_as_it_was(
    how: str, cluster: SchedulerProcess, terminal: Terminal, top: List[str], tmp_path: Path
) -> None:
    terminal.resize(120, 60)  # what is above a traceback shall not scroll away
    terminal.run_to_its_end(f"stty -g > {tmp_path}/before")
    before, modes = terminal.screen(), terminal.modes()
    command = [top[0], "-c", RAISING] if how == "an error" else top
    terminal.run(*command, cluster.monitor_address)
    if how.startswith("SIG"):
        terminal.wait_for(has_rows(WORKERS), "three workers")
        terminal_child_signal(cluster.monitor_address, how)
    elif how != "an error":
        terminal.wait_for(has_rows(WORKERS), "three workers")
        terminal.press(how)

    def is_over(screen: List[str]) -> bool:  # the prompt alone may also be what is there before the command
        return screen.count(PROMPT) == 1 and ("StopIteration" in "\n".join(screen)) == (how == "an error")

    after = terminal.wait_for(is_over, "the prompt")

    assert after[: len([line for line in before if line]) - 1] == [line for line in before if line][:-1]
    assert terminal.modes() == modes == "0 1 1"
    terminal.run_to_its_end(f"clear; stty -g > {tmp_path}/after")
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


def terminal_child_signal(address: str, name: str) -> None:
    """Send a signal to the one process that has this monitor address on its command line."""
    import os
    import signal

    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"scaler_appliance.top" in words and address.encode() in words:
            os.kill(int(folder.name), getattr(signal, name))


@on_all_interpreters
def test_it_can_be_suspended_and_continued(cluster: SchedulerProcess, terminal: Terminal, top: List[str]) -> None:
    terminal.run_to_its_end("set -m")
    terminal.run(*top, cluster.monitor_address)
    terminal.wait_for(has_rows(WORKERS), "three workers")
    terminal.press("C-z")
    terminal.wait_for_text("Stopped")
    assert terminal.modes() == "0 1 1"
    terminal.run("fg")
    terminal.wait_for(has_rows(WORKERS), "three workers")
    assert terminal.modes() == "1 0 0"
    terminal.press("q")
    terminal.wait_for_text(PROMPT)


@pytest.mark.parametrize("without_colors", [False, True])
def test_colors_are_left_out_on_request(
    cluster: SchedulerProcess, terminal: Terminal, top: List[str], without_colors: bool
) -> None:
    terminal.run(*(["env", "NO_COLOR=1"] if without_colors else []), *top, cluster.monitor_address)
    terminal.wait_for(has_rows(WORKERS), "three workers")
    colors = re.findall(r"\x1b\[[\d;]*\b(3[1-7]|9[1-7])m", "\n".join(terminal.screen(with_colors=True)))
    assert bool(colors) != without_colors


def test_a_terminal_without_capabilities_is_reported_once(
    cluster: SchedulerProcess, terminal: Terminal, top: List[str]
) -> None:
    terminal.run("env", "TERM=dumb", *top, cluster.monitor_address)
    terminal.wait_for_text("--once prints")
