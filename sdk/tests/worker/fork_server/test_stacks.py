"""How a processor is asked for its stack, with processes of this system."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Iterator

import pytest

from scaler.worker.fork_server import stacks


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


def halt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_process_that_was_asked_ends_by_that_signal(process: subprocess.Popen[bytes]) -> None:
    stacks.ask_for_stack(process.pid)
    assert process.wait(30) == -stacks.STACK_SIGNAL
    assert not stacks.has_not_run(process.pid), "it is gone"


def test_a_halted_process_can_not_act_on_the_signal(process: subprocess.Popen[bytes]) -> None:
    assert not stacks.has_not_run(process.pid)
    halt(process)
    assert stacks.has_not_run(process.pid), "also if it had taken the signal just before"
    stacks.ask_for_stack(process.pid)
    assert stacks.has_not_run(process.pid)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == -stacks.STACK_SIGNAL


def test_a_process_that_is_gone_gets_no_signal(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(30)
    with pytest.raises(ProcessLookupError):
        stacks.ask_for_stack(process.pid)
