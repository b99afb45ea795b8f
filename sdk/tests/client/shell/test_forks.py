"""Programs that fork while a client is open, as `multiprocessing` does on Linux unless it is told otherwise."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Callable, List

import pytest
from sdk_tasks import logged, wait_for_file

from scaler import Client, SchedulerClusterCombo
from scaler.exceptions import DisconnectedError

TIMEOUT_SECONDS = 30.0
FORKS = 60

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_a_fork(function: Callable[[], Any]) -> Any:
    """What the function returns in a fork of this process; fails when that does not come to an end."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process: ForkProcess = context.Process(target=lambda: answers.put(function()))
    process.start()
    process.join(TIMEOUT_SECONDS)
    if process.is_alive():
        process.kill()
        raise AssertionError("the fork hangs")
    assert process.exitcode == 0
    return answers.get()


def test_forks_of_a_busy_client_end_without_disturbing_the_client(any_client: Client) -> None:
    """Whatever locks the client's threads hold at that moment, a fork has no threads that would release them."""
    is_over = threading.Event()
    sums: List[int] = []

    def submit() -> None:
        while not is_over.is_set():
            futures = [any_client.submit(abs, -1) for _ in range(100)]
            sums.append(sum(future.result(TIMEOUT_SECONDS) for future in futures))

    submitters = [threading.Thread(target=submit) for _ in range(2)]
    for submitter in submitters:
        submitter.start()
    try:
        assert [in_a_fork(os.getppid) for _ in range(FORKS)] == [os.getpid()] * FORKS
    finally:
        is_over.set()
        for submitter in submitters:
            submitter.join(TIMEOUT_SECONDS)
    assert sums and set(sums) == {100}
    assert any_client.submit(abs, -7).result(TIMEOUT_SECONDS) == 7


def test_the_parents_client_is_disconnected_in_a_fork(any_client: Client, done_files: List[Path]) -> None:
    running, gate = done_files
    future = any_client.submit(wait_for_file, str(gate), str(running), TIMEOUT_SECONDS)
    future.add_done_callback(lambda done: called.append(os.getpid()))
    called: List[int] = []

    def use() -> List[str]:
        texts = [str(future.exception(TIMEOUT_SECONDS))]
        for use_of in (lambda: any_client.submit(abs, -1), lambda: any_client.map(abs, [1]), any_client.clear):
            with pytest.raises(DisconnectedError) as caught:
                use_of()
            texts.append(str(caught.value))
        any_client.disconnect()
        return texts if not called else ["a callback was run"]

    texts = in_a_fork(use)
    assert len(texts) == 4 and all("a fork" in text and "make a new Client" in text for text in texts)
    assert not future.done()
    gate.touch()
    assert future.result(TIMEOUT_SECONDS) == str(gate)


_before_fork: List[Callable[[], None]] = []  # what to call before a fork, ahead of what the client does
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: [function() for function in _before_fork])


def test_a_future_that_is_being_sent_ends_in_a_fork_too(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    core = any_client._shell.core
    apply, has_taken, may_go_on = core.apply, threading.Event(), threading.Event()

    def apply_later(commands: List[Any]) -> None:
        has_taken.set()
        may_go_on.wait(TIMEOUT_SECONDS)
        apply(commands)

    monkeypatch.setattr(core, "apply", apply_later)
    future = any_client.submit(len, "abc")
    second = any_client.submit(len, "abcd")
    assert has_taken.wait(TIMEOUT_SECONDS)
    monkeypatch.setattr(sys.modules[__name__], "_before_fork", [may_go_on.set])
    keeps_running = sys.getswitchinterval()
    sys.setswitchinterval(TIMEOUT_SECONDS)  # this thread goes on to the fork unless it has to wait

    try:
        texts = in_a_fork(lambda: [str(each.exception(TIMEOUT_SECONDS)) for each in (future, second)])
    finally:
        sys.setswitchinterval(keeps_running)

    with_result = str(None)  # which has come before the fork, if this thread was slow
    assert [text for text in texts if text != with_result and "a fork" not in text] == []
    assert [future.result(TIMEOUT_SECONDS), second.result(TIMEOUT_SECONDS)] == [3, 4]


def test_a_fork_may_have_a_client_of_its_own(any_client: Client, any_address: str) -> None:
    def submit() -> int:
        with Client(address=any_address) as client:
            return client.submit(abs, -3).result(TIMEOUT_SECONDS)

    assert in_a_fork(submit) == 3
    assert any_client.submit(abs, -4).result(TIMEOUT_SECONDS) == 4


KILLED_PARENT = """
import os, signal, sys
from scaler import Client

client = Client(address=sys.argv[1])
client.send_object(bytes(1_000_000))
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def test_a_client_ends_with_its_process_though_forks_of_it_live_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with SchedulerClusterCombo(n_workers=1, logging_paths=[str(log)]) as combo:
        command = [sys.executable, "-c", KILLED_PARENT, combo.get_address()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            try:
                parent.kill()
                deadline = time.monotonic() + TIMEOUT_SECONDS
                while f"process {parent.pid}) is gone: its connection was lost" not in logged(log):
                    assert time.monotonic() < deadline, "the scheduler takes the fork for its client"
                    time.sleep(0.01)
            finally:
                os.kill(child, signal.SIGKILL)
