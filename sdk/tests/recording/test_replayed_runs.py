"""A real run is recorded by scheduler, worker and client, and `scaler replay` repeats each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from sdk_tasks import identity

from scaler import Client, Cluster, NamedFunction, Scheduler
from scaler_protocol.recording.recording_file import Digest, Recording
from scaler_protocol.recording.replay_command import EXIT_UNREADABLE

REPLAY = [sys.executable, "-m", "scaler.programs", "replay"]
LARGE_BYTES = 300_000
SECRET = "a secret that no recording shows"


def use(address: str) -> None:
    """Some hundred tasks of all kinds."""
    with Client(address, stream_output=True) as client:
        assert client.map(identity, range(1000)) == list(range(1000))
        assert [each.result() for each in [client.submit(identity, n) for n in range(300)]] == list(range(300))
        first = client.submit(identity, 40)
        assert client.submit(pow, first, 2).result() == 1600  # it needs the result of another task
        assert [each.result() for each in [client.submit(abs, -each) for each in range(50)]] == list(range(50))
        graph = {"a": 2, "b": (pow, "a", 5), "c": (pow, "b", "a"), "d": (sum, ["b", "c"])}
        assert client.get(graph, ["c", "d"]) == {"c": 1024, "d": 1056}
        content = os.urandom(LARGE_BYTES)
        reference = client.send_object(content)
        assert client.submit(len, reference).result() == LARGE_BYTES
        assert client.submit(identity, content).result() == content  # a large argument, and a large result
        assert client.submit(identity, SECRET).result() == SECRET
        client.submit(print, SECRET).result()
        with pytest.raises(ZeroDivisionError):
            client.submit(divmod, 1, 0).result()
        assert client.submit(NamedFunction("python:math:gcd"), 12, 18).result() == 6
        sleeping = [client.submit(time.sleep, 60) for _ in range(6)]
        assert all(each.cancel() for each in sleeping)
        assert client.info().slots == 2
        client.submit(time.sleep, 60)
        client.clear()
        del reference


@pytest.fixture(scope="module", params=["without payloads", "with payloads"])
def recordings(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the recordings of a scheduler, a worker and a client."""
    folder = tmp_path_factory.mktemp("recordings")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SCALER_SCHEDULER_RECORD", "SCALER_CLUSTER_RECORD", "SCALER_RECORD"):
            part = name.lower().replace("scaler_record", "client").replace("scaler_", "").replace("_record", "")
            patch.setenv(name, str(folder / f"{part}-%p"))
            patch.setenv(f"{name}_PAYLOADS", "true" if request.param == "with payloads" else "false")
        with Scheduler(logging_level="WARNING") as scheduler:
            with Cluster(scheduler.get_address(), n_workers=2, logging_level="WARNING"):
                use(scheduler.get_address())
    yield folder


def replay(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REPLAY, str(path), *options], capture_output=True, text=True, timeout=60)


def tables(path: Path, *options: str) -> Dict[str, Any]:
    finished = replay(path, "--json", *options)
    assert finished.returncode == 0, finished.stderr
    found: Dict[str, Any] = json.loads(finished.stdout)
    return found


def path_of(folder: Path, core: str) -> Path:
    """The recording of a core."""
    (path,) = (each for each in folder.iterdir() if each.name.startswith(f"{core}-"))
    return path


def digests(path: Path) -> List[Digest]:
    with open(path, "rb") as file:
        return [entry for _, entry in Recording(file).records() if isinstance(entry, Digest)]


@pytest.mark.parametrize("core", ["scheduler", "cluster", "client"])
def test_each_core_decides_again_what_it_decided(recordings: Path, core: str) -> None:
    path = path_of(recordings, core)
    found = tables(path)
    assert found["replay"]["core"] == {"cluster": "worker"}.get(core, core)
    assert found["replay"]["digests_compared"] == len(digests(path)) >= 1  # a short run has few
    assert found["replay"]["effects"] > 40


def test_the_state_at_the_end_is_that_of_the_run(recordings: Path) -> None:
    client = tables(path_of(recordings, "client"))
    assert client["unfinished tasks"] == [] and client["client"][0]["ended"] > 350 and client["client"][0]["is_closed"]
    worker = tables(path_of(recordings, "cluster"))
    assert worker["worker"][0]["state"] == "ended" and worker["worker"][0]["queued"] == 0
    scheduler = tables(path_of(recordings, "scheduler"))
    assert scheduler["clients"] == [] and scheduler["scheduler"][0]["succeeded"] > 100


def test_a_replay_stops_at_an_input_or_a_time(recordings: Path) -> None:
    for core in ("cluster", "client"):
        path = path_of(recordings, core)
        assert tables(path, "--event", "40")["replay"]["inputs"] == 40
        assert tables(path, "--until", "0.2")["replay"]["seconds"] <= 0.2
    lines = replay(path_of(recordings, "client"), "--list").stdout.splitlines()
    assert any("SubmitGraph" in line for line in lines) and any("TaskResult of" in line for line in lines)
    lines = replay(path_of(recordings, "cluster"), "--list").stdout.splitlines()
    assert "start" in lines[0] and any("on_message" in line and "Task of" in line for line in lines)


def test_payloads_are_there_only_if_they_were_asked_for(recordings: Path) -> None:
    for core in ("cluster", "client"):
        with open(path_of(recordings, core), "rb") as file:
            recording = Recording(file)
            bodies = b"".join(each for _, _, each in recording._records())
        assert (SECRET.encode() in bodies) is recording.header.has_payloads, core


def test_what_cannot_be_repeated_is_said(tmp_path: Path) -> None:
    finished = replay(tmp_path / "missing")
    assert finished.returncode == EXIT_UNREADABLE and "No such file" in finished.stderr
    (tmp_path / "text").write_text("something else")
    finished = replay(tmp_path / "text")
    assert finished.returncode == EXIT_UNREADABLE and "not a recording" in finished.stderr


def test_clients_of_one_process_have_a_recording_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scheduler(logging_level="WARNING") as scheduler:
        script = f"import scaler; [scaler.Client({scheduler.get_address()!r}).disconnect() for _ in range(3)]"
        run = [sys.executable, "-c", script]
        for pattern, names in (
            ("a", ["a.{}", "a.{}.2", "a.{}.3"]),
            ("b-%p.rec", ["b-{}.rec", "b-{}.rec.2", "b-{}.rec.3"]),
        ):
            process = subprocess.Popen(run, env={**os.environ, "SCALER_RECORD": str(tmp_path / pattern)})
            assert process.wait(60) == 0
            found = sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(pattern[0]))
            assert found == [name.format(process.pid) for name in names]


def test_a_fork_leaves_the_recording_to_its_parent(tmp_path: Path) -> None:
    with Scheduler(logging_level="WARNING") as scheduler:
        with Cluster(scheduler.get_address(), n_workers=1, logging_level="WARNING"):
            script = (
                "import os, scaler; "
                f"client = scaler.Client({scheduler.get_address()!r}); "
                "first = client.submit(abs, -1).result(); "
                "child = os.fork(); "
                "child or os._exit(0 if client._shell.core.recorder.is_open is False else 1); "
                "assert os.waitpid(child, 0)[1] == 0; "
                "assert client.submit(abs, -2).result() == 2; client.disconnect()"
            )
            variables = {**os.environ, "SCALER_RECORD": str(tmp_path / "%p")}
            subprocess.run([sys.executable, "-c", script], env=variables, check=True, timeout=60)
    (path,) = tmp_path.iterdir()
    assert tables(path)["client"][0]["ended"] == 2


def test_a_client_that_cannot_record_works_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scheduler(logging_level="WARNING") as scheduler:
        monkeypatch.setenv("SCALER_RECORD", str(tmp_path / "missing" / "file"))
        script = f"import scaler; scaler.Client({scheduler.get_address()!r}).disconnect(); print('works')"
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout == "works\n"
    assert "Client: nothing is recorded: SCALER_RECORD" in run.stderr and "No such file" in run.stderr


def test_a_worker_that_cannot_record_says_why(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "file"
    command = [sys.executable, "-m", "scaler.worker", "tcp://127.0.0.1:1", "--record", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and f"--record {path}: No such file" in run.stdout
