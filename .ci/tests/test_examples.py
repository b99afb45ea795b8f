"""The programs in examples/ run as they are, and print what they say they print.

Rule: the opening docstring of an example ends with `Prints:` and the lines that it prints, indented.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Callable, List

import pytest
from preloaded_programs import PreloadedPrograms

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "demo.py"
STUDY = EXAMPLES / "vaccination_study"
PAGE_OF_STUDY = EXAMPLES.parent / "docs/tutorial/a-whole-project.md"
CPP_WORKER = EXAMPLES.parent / "build/cpp-worker/cpp_worker"
SHORT_EXAMPLES = sorted(path.name for path in EXAMPLES.glob("*.py") if path != DEMO)


def promised_output(example: Path) -> List[str]:
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    _, found, promised = docstring.partition("Prints:\n")
    assert found, f"{example.name} does not say what it prints"
    return textwrap.dedent(promised).strip().splitlines()


@pytest.mark.parametrize("name", SHORT_EXAMPLES)
def test_example_prints_what_it_says(
    name: str, lines_but_log_lines: Callable[[str], List[str]], programs_with_scaler: PreloadedPrograms
) -> None:
    if name == "cpp_worker_client.py" and not CPP_WORKER.exists():
        pytest.skip("there is no worker in C++ here (make cpp-worker says why)")
    finished = programs_with_scaler.run([sys.executable, str(EXAMPLES / name)])

    assert finished.returncode == 0, finished.stderr
    assert lines_but_log_lines(finished.stdout) == promised_output(EXAMPLES / name)


def test_the_whole_project_gives_the_answer_that_its_page_shows(cluster_address: str, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "vaccination", "--results", str(results), "--address", cluster_address]

    def run(runs: int) -> str:
        return subprocess.run(
            [*command, "--runs", str(runs)],
            cwd=STUDY,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    assert run(20).startswith(f"0 runs are in {results}, 200 are left\n")
    continued = run(100)

    assert continued.startswith(f"200 runs are in {results}, 800 are left\n")
    table = continued.partition("\n")[2]
    assert table.count("\n") == 11
    assert table in PAGE_OF_STUDY.read_text(encoding="utf-8")


def test_demo_checks_its_own_answers() -> None:
    finished = subprocess.run(
        [sys.executable, str(DEMO), "--workers", "2"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert finished.returncode == 0, finished.stderr
    assert "148,933 primes; 400 tasks in" in finished.stdout
    assert "100,000 tasks in" in finished.stdout
    assert "The cluster has stopped." in finished.stdout


def test_interrupted_demo_leaves_no_process_behind() -> None:
    with subprocess.Popen(
        [sys.executable, str(DEMO), "--workers", "2"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background makes them, and so their children, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("Counting the primes"):
                break

        # As the terminal does at Ctrl-C: to every process of the group.
        os.killpg(demo.pid, signal.SIGINT)
        # The pipes end when the last process that holds them has ended.
        _, errors = demo.communicate(timeout=30)

    assert demo.returncode == 130
    assert errors.strip() == "interrupted, stopping the cluster"
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)
