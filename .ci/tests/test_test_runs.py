"""What every run of tests can do: run in the background of a shell, and end and say why a test has failed although a
process of tests has crashed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable, Optional

TREE = Path(__file__).resolve().parents[2]

INTERRUPTING_TEST = """
import signal, subprocess, sys

PROGRAM = '''
import time
try:
    print("here", flush=True)
    time.sleep(60)
    print("slept")
except KeyboardInterrupt:
    print("interrupted")
'''

def test_a_program_is_interrupted():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "here\\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate()[0] == "interrupted\\n"
"""
QUICK_TESTS = """
def test_first(): pass
def test_second(): pass
def test_third(): pass
"""
CRASHING_TEST = """
import os, signal

def test_that_crashes(): os.kill(os.getpid(), signal.SIGKILL)
def test_last(): pass
"""

TEST_THAT_IS_A_SEGMENTATION_FAULT = """
import os, signal

def crash_here(): os.kill(os.getpid(), signal.SIGSEGV)
def test_that_crashes(): crash_here()
"""
TEST_WHOSE_REPORT_CRASHES = """
import os, signal
import pytest

def test_that_fails():
    pytest.ExceptionInfo.getrepr = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("for this reason")
"""


def run_tests(
    folder: Path, *arguments: str, before: Optional[Callable[[], object]] = None
) -> subprocess.CompletedProcess[str]:
    """Runs all tests in a folder, as those of this tree run.

    Parameters:
        before: what their process does first.
    """
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_a_program_of_a_test_is_interrupted_although_the_tests_ignore_it(tmp_path: Path) -> None:
    (tmp_path / "test_interrupting.py").write_text(INTERRUPTING_TEST)

    finished = run_tests(tmp_path, before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))

    assert finished.returncode == 0, finished.stdout


def test_a_run_ends_and_names_the_test_in_which_a_process_has_crashed(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text(QUICK_TESTS)
    # Of two files that a process has at once it has finished the first: a replacement would wait for more of that.
    (tmp_path / "test_6.py").write_text(QUICK_TESTS + CRASHING_TEST)
    (tmp_path / "test_7.py").write_text(QUICK_TESTS)

    finished = run_tests(tmp_path, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")

    assert finished.returncode == 1, finished.stdout
    assert "crashed while running 'test_6.py::test_that_crashes'" in finished.stdout
    assert "1 failed" in finished.stdout


def test_a_run_ends_with_where_the_process_was_that_crashed_and_with_what_it_had_run(tmp_path: Path) -> None:
    (tmp_path / "test_1.py").write_text(QUICK_TESTS)
    (tmp_path / "test_2.py").write_text(TEST_THAT_IS_A_SEGMENTATION_FAULT)

    finished = run_tests(tmp_path, "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")

    assert finished.returncode == 1, finished.stdout
    report = finished.stdout.partition("where gw0 was when it crashed")[2]
    assert "Segmentation fault" in report
    assert "in crash_here" in report
    assert report.index("  test_1.py\n") < report.index("  test_2.py\n") < report.index("1 failed")
    assert "Extension modules" not in report


def test_a_run_says_why_a_test_has_failed_although_its_process_crashes_while_it_reports_that(tmp_path: Path) -> None:
    (tmp_path / "test_reporting.py").write_text(TEST_WHOSE_REPORT_CRASHES)

    finished = run_tests(tmp_path, "-n", "1")

    assert finished.returncode == 1, finished.stdout
    assert "test_reporting.py::test_that_fails failed (call): ValueError: for this reason" in finished.stderr
