"""A worker that is asked to end while it starts leaves with exit code 0, wherever it is; nothing disturbs its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import List, Sequence

import pytest

from scaler.worker.early_signals import EARLY
from scaler.worker.exit_codes import EXIT_NO_SCHEDULER

DEADLINE_SECONDS = 60.0
SIGNALLED_WHEN_IMPORTED = """
import os, runpy, signal, sys
module, number, target, program, *arguments = sys.argv[1:]

class Finder:
    def find_spec(self, name, path=None, target_module=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getppid() if target == "parent" else os.getpid(), int(number))

sys.meta_path.insert(0, Finder())
sys.argv = [program, *arguments]
if program == "scaler.worker":
    runpy.run_module(program, run_name="__main__", alter_sys=True)
from scaler.programs.worker_host import main
sys.exit(main())
"""
IN_THE_SUPERVISOR = ("scaler_protocol.programs.startup", "scaler.worker.supervisor", "scaler.worker.worker_program")
IN_THE_AGENT = ("scaler.worker.agent.shell.agent_shell", "scaler.worker.agent.core.agent_core")


def exit_code_of(module: str, number: int, target: str, program: str, *options: str) -> int:
    words: List[str] = [module, str(int(number)), target, program, "tcp://127.0.0.1:9", "--insecure", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SIGNALLED_WHEN_IMPORTED, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    try:
        return process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("module", IN_THE_SUPERVISOR)
def test_a_worker_that_is_asked_to_end_while_it_is_imported_leaves(module: str) -> None:
    assert exit_code_of(module, signal.SIGTERM, "itself", "scaler_cluster") == 0


@pytest.mark.parametrize("module", IN_THE_AGENT)
@pytest.mark.parametrize("target", ["itself", "parent"])
def test_one_whose_agent_is_being_imported_leaves_whichever_process_is_asked(module: str, target: str) -> None:
    assert exit_code_of(module, signal.SIGTERM, target, "scaler_cluster") == 0


def test_a_hang_up_and_a_worker_without_a_supervisor_are_no_exception() -> None:
    assert exit_code_of("scaler.worker.supervisor", signal.SIGHUP, "itself", "scaler_cluster") == 0
    module = "scaler.worker.agent.shell.agent_shell"
    assert exit_code_of(module, signal.SIGTERM, "itself", "scaler.worker") == 0
    assert exit_code_of(module, signal.SIGTERM, "itself", "scaler_cluster", "--exit-when-stdin-closes") == 0


SIGNALLED_WHEN_IT_ENDS = """
import os, signal, sys

class Late:
    def __del__(self, kill=os.kill, own=os.getpid(), number=int(sys.argv[1]), note=sys.argv[2], creating=os.open):
        if own == os.getpid():
            creating(note, os.O_CREAT)
            kill(own, number)

late = Late()  # goes when the interpreter has taken its handlers back
from scaler.worker.supervisor import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, *EARLY[2:3]], ids=str)
@pytest.mark.parametrize("options", [(), ("--exit-when-stdin-closes",)], ids=["supervisor", "worker"])
def test_a_signal_that_comes_when_it_has_ended_changes_nothing(
    number: int, options: Sequence[str], tmp_path: Path
) -> None:
    note = tmp_path / "ends"
    words = [str(int(number)), str(note), "tcp://127.0.0.1:9", "--insecure", "--death-timeout-seconds", "0.1", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SIGNALLED_WHEN_IT_ENDS, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
        code = process.wait(DEADLINE_SECONDS)
    assert code == EXIT_NO_SCHEDULER
    assert note.exists()
