"""The plugin for pytest, as the tests of a user see it: each is run by a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

TESTS = """
import os
import threading

import pytest
import scaler

@scaler.task
def double(value):
    return 2 * value

def code_under_test():
    with scaler.Client() as client:
        return client.submit(os.getpid).result()

def test_client(scaler_client, scaler_cluster):
    assert scaler_client.submit(abs, -1).result() == 1
    assert scaler_client.info().slots == SLOTS
    assert code_under_test() != os.getpid()
    assert double.submit(4).result() == 8

def test_synchronous(scaler_synchronous):
    assert scaler_synchronous.submit(threading.get_ident).result() == threading.get_ident()
    assert code_under_test() == os.getpid()
    assert double.submit(4).done()

def test_nothing_is_left_behind():
    with pytest.raises(scaler.exceptions.SchedulerNotFoundError):
        double.submit(4)
"""

UNFINISHED = """
import time

def test_left(scaler_client):
    scaler_client.submit(time.sleep, 60)

def test_failed(scaler_client):
    scaler_client.submit(time.sleep, 60)
    assert False

def test_next(scaler_client):
    assert scaler_client.submit(abs, -1).result() == 1
"""


def run(folder: Path, text: str, *arguments: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    """Run pytest on a file of tests."""
    (folder / "test_of_a_user.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_the_distribution_has_the_plugin() -> None:
    found = [each for each in metadata.distribution("scaler-sdk").entry_points if each.group == "pytest11"]
    assert [each.value for each in found] == ["scaler.pytest_plugin"]


def test_fixtures_give_clients_of_a_cluster_and_of_this_process(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS.replace("SLOTS", "3"), settings="scaler_workers = 3")
    assert "3 passed" in done.stdout, done.stdout


def test_each_process_of_tests_has_a_cluster(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS.replace("SLOTS", "1"), "--scaler-workers=1", "-n", "2")
    assert "3 passed" in done.stdout, done.stdout


def test_all_tasks_run_in_the_process_of_the_tests_if_asked(tmp_path: Path) -> None:
    text = "import os\ndef test_here(scaler_client): assert scaler_client.submit(os.getpid).result() == os.getpid()"
    assert "1 passed" in run(tmp_path, text, "--scaler-synchronous").stdout


def test_a_test_that_passes_must_leave_no_unfinished_tasks(tmp_path: Path) -> None:
    done = run(tmp_path, UNFINISHED, "--scaler-workers=1")
    assert "1 failed, 2 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_of_a_user.py::test_left - Failed: the test left 1 task unfinished" in done.stdout


def test_an_invalid_number_of_workers_is_named(tmp_path: Path) -> None:
    text = "def test_client(scaler_client): pass"
    assert "got 'many'" in run(tmp_path, text, settings="scaler_workers = many").stdout
    assert "at least 1, got 0" in run(tmp_path, text, "--scaler-workers=0").stdout


def test_the_options_are_explained_and_nothing_of_scaler_is_imported_for_others(tmp_path: Path) -> None:
    shown = run(tmp_path, "", "--help").stdout
    assert "--scaler-workers" in shown and "--scaler-synchronous" in shown and "scaler_workers (string)" in shown
    loaded = "{each for each in sys.modules if each.startswith('scaler')}"
    expected = {"scaler", "scaler.version", "scaler.pytest_plugin"}
    done = run(tmp_path, f"import sys\ndef test_nothing(): assert {loaded} == {expected}")
    assert "1 passed" in done.stdout, done.stdout
