"""`scaler_scheduler --self-test` finds what does not work, says what to do, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from scheduler_process import INTERPRETERS, unavailable

from scaler_appliance.checks import self_test

TIMEOUT_SECONDS = 60
WITHOUT_LIBSODIUM = """
import sys
sys.modules["nacl._sodium"] = sys.modules["scaler_protocol.host.sodium_functions"] = None
from scaler_appliance.checks.self_test import main
sys.exit(main())
"""
WITH_ANOTHER_ADDRESS = """
import sys
from scaler_appliance.checks import self_test
self_test.ADDRESS = "tcp://192.0.2.1:1"
sys.exit(self_test.main())
"""
WITH_A_WORKER_THAT_IS_WRONG = """
import sys
from scaler_appliance.checks import self_test
self_test.json.dumps = lambda value: "[1]"
sys.exit(self_test.main())
"""
WITH_A_TASK_FOR_NO_WORKER = """
import sys, time
from scaler_appliance.checks import self_test

def join(peer, role, codecs, functions, original=self_test.WaitingPeer.join):
    original(peer, role, codecs, ["another"])
    peer._deadline = time.monotonic() + 0.2

self_test.WaitingPeer.join = join
sys.exit(self_test.main())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "tmp").mkdir(parents=True)
    return home


def run(home: Path, *arguments: str, program: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PATH": os.environ["PATH"], **more}
    return subprocess.run(
        [program, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


def files_in(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if not path.is_dir() or path.name.startswith("scaler")]


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_sound_installation_runs_tasks_prints_versions_and_leaves_nothing(interpreter: str, home: Path) -> None:
    if unavailable(interpreter):
        pytest.skip(unavailable(interpreter))
    finished = run(home, "-m", "scaler_appliance", "--self-test", program=INTERPRETERS[interpreter])

    assert (finished.returncode, finished.stderr) == (0, "")
    versions, program, library, local_socket, network, stopped, last = finished.stdout.splitlines()
    assert versions.startswith("scaler_scheduler ") and ", libzmq " in versions
    assert program.startswith("program: /") and library.startswith("libsodium: ")
    assert local_socket.startswith("local socket: a task took ")
    assert network.startswith("tcp://127.0.0.1:") and ", encrypted by CURVE: a task took " in network
    assert (stopped, last) == ("stopped when asked to", "ok")
    assert files_in(home) == []


def test_what_is_set_for_other_schedulers_does_not_apply(home: Path) -> None:
    others = {
        "SCALER_SCHEDULER_MAXIMUM_PEERS": "1",
        "SCALER_SCHEDULER_INSECURE": "1",
        "SCALER_KEY_DIRECTORY": str(home / "keys"),
        "NOTIFY_SOCKET": str(home / "notify"),
    }
    finished = run(home, "-m", "scaler_appliance", "--self-test", **others)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert files_in(home) == []


@pytest.mark.parametrize(
    ("program", "what_failed"),
    [
        pytest.param(WITHOUT_LIBSODIUM, "need libsodium, which was not found; install it: pip install", id="libsodium"),
        pytest.param(WITH_ANOTHER_ADDRESS, "cannot listen at tcp://192.0.2.1:1: ", id="address"),
        pytest.param(WITH_A_WORKER_THAT_IS_WRONG, "the task returned b'[1]' instead of b'[\"Scaler\", ", id="result"),
        pytest.param(WITH_A_TASK_FOR_NO_WORKER, "the scheduler did not answer in time\nthe end of the", id="deadline"),
    ],
)
def test_what_does_not_work_is_named_and_the_exit_code_is_1(program: str, what_failed: str, home: Path) -> None:
    finished = run(home, "-c", program)
    assert finished.returncode == 1
    assert "scaler_scheduler: the self-test failed: " in finished.stderr and what_failed in finished.stderr
    assert "Traceback" not in finished.stderr and not finished.stdout.endswith("ok\n")
    assert files_in(home) == []


def test_without_a_loopback_interface_it_says_so(home: Path) -> None:
    alone = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace here")
    finished = run(home, *alone[1:], sys.executable, "-m", "scaler_appliance", "--self-test", program=alone[0])
    assert finished.returncode == 1
    assert "cannot be reached (Network is unreachable)" in finished.stderr
    assert "see whether the loopback interface is up" in finished.stderr
    assert files_in(home) == []


def test_it_needs_no_standard_input(home: Path) -> None:
    script = 'exec "$0" -m scaler_appliance --self-test <&-'
    finished = run(home, "-c", script, sys.executable, program="/bin/sh")
    assert finished.returncode == 0, finished.stderr


def test_without_a_place_for_files_it_asks_for_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(self_test, "MEMORY_FOLDER", str(tmp_path))
    with self_test._own_folder() as folder:
        assert Path(folder).parent == tmp_path
    monkeypatch.setattr(self_test, "MEMORY_FOLDER", str(tmp_path / "missing"))
    with pytest.raises(self_test.SelfTestError, match="name one that can be written to in TMPDIR"):
        with self_test._own_folder():
            raise AssertionError


def test_with_an_address_it_says_that_it_is_given_alone(home: Path) -> None:
    finished = run(home, "-m", "scaler_appliance", "tcp://127.0.0.1:0", "--self-test")
    assert finished.returncode == 2
    assert "--self-test is given alone, without an address and other options" in finished.stderr
