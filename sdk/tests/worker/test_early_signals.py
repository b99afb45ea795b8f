"""A worker that is asked to end while it starts: it leaves with exit code 0, wherever it is then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import List

import pytest

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
