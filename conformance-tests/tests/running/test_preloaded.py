"""Programs that start without importing are to the suite as if they had started by themselves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest
from preloaded_programs import PreloadedPrograms

from scaler_conformance.benches import implementation

TELLS = """
import os, sys, wave
print(__name__, sys.argv[1:], os.getcwd(), len(os.environ["LARGE"]), sys.stdin.read(), os.getsid(0) == os.getpid())
print("complaint", file=sys.stderr)
sys.exit(3)
"""
LEAVES_ONE_BEHIND = """
import os, time
started, starts = os.pipe()
if not os.fork():
    os.setsid()
    os.write(starts, b".")
    time.sleep(600)
os.read(started, 1)
"""


@pytest.fixture(scope="module")
def programs() -> Iterator[PreloadedPrograms]:
    with PreloadedPrograms(["wave"]) as programs:
        yield programs


@pytest.fixture
def launched_so(programs: PreloadedPrograms, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(Popen=programs.start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(implementation, "subprocess", stand_in)


def test_it_does_what_it_does_by_itself(programs: PreloadedPrograms, tmp_path: Path) -> None:
    program = tmp_path / "tells.py"
    program.write_text(TELLS)
    command, environment = [sys.executable, str(program), "one", "two"], {**os.environ, "LARGE": "x" * 100_000}
    by_itself = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    preloaded = programs.run(command, environment, tmp_path)
    assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == (3, by_itself.stdout, by_itself.stderr)
    assert "['one', 'two']" in preloaded.stdout and preloaded.stderr == "complaint\n"


def test_a_module_is_run_and_has_what_was_imported(programs: PreloadedPrograms) -> None:
    assert programs.run([sys.executable, "-m", "calendar", "2024", "2"]).stdout.startswith("   February 2024")


@pytest.mark.usefixtures("launched_so")
def test_a_signal_is_seen_and_pipes_are_pipes(tmp_path: Path) -> None:
    program = tmp_path / "echoes.py"
    program.write_text("import sys; sys.stdout.write(sys.stdin.readline()); sys.stdout.flush(); sys.stdin.read()")
    running = implementation.CommandLauncher([sys.executable, str(program)]).start({}, pipes=True)
    assert running.stdin is not None and running.stdout is not None
    running.stdin.write(b"said\n")
    assert running.stdout.readline() == b"said\n" and running.exit_code() is None
    running.terminate()
    assert running.wait(60.0) == -signal.SIGTERM
    running.kill()


def test_a_signal_to_a_program_that_has_just_ended_is_no_error(
    programs: PreloadedPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ends.py"
    program.write_text("")
    command = [sys.executable, str(program)]
    with tempfile.TemporaryFile() as errors:
        ending = programs.start(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True, env=os.environ
        )
    assert select.select([ending._end], [], [], 60.0)[0], "it does not end"
    monkeypatch.setattr(ending, "poll", lambda: None)  # as it was a moment before
    ending.terminate()
    assert ending.wait(60.0) == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes by /proc")
@pytest.mark.usefixtures("launched_so")
def test_a_process_that_it_leaves_behind_is_found_and_killed(tmp_path: Path) -> None:
    program = tmp_path / "leaves.py"
    program.write_text(LEAVES_ONE_BEHIND)
    running = implementation.CommandLauncher([sys.executable, str(program)]).start({})
    assert running.wait(60.0) == 0
    assert len(running.left_behind()) == 1
    running.kill()
    assert running.wait_until_gone(60.0) == []
