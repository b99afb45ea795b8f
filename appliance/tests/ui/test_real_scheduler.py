"""scaler_ui beside a real scheduler, with a client and a worker that are sockets of the test."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest
from quiet_addresses import quiet_address
from scheduler_process import SchedulerProcess
from ui.running import Program, event

from scaler_protocol import encode_struct
from scaler_protocol import messages as m

FAILURE = m.Failure(type_name="builtins.KeyError", message="'colour'", traceback="Traceback: here\nKeyError: 'colour'")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SchedulerProcess]:
    scheduler = SchedulerProcess(sys.executable, tmp_path / "address", quiet_address(), "--no-protected")
    scheduler.wait_until_ready()
    yield scheduler
    scheduler.close()


@pytest.fixture
def program(scheduler: SchedulerProcess, tmp_path: Path) -> Iterator[Program]:
    program = Program(sys.executable, tmp_path, scheduler.monitor_address, "--port", "0", "--allow-actions")
    program.headers = {"Authorization": f"Bearer {program.link.rpartition('=')[2]}"}
    program.wait_for("/api/head", lambda found: found["head"]["is_connected"])
    yield program
    program.close()


def test_a_task_that_fails_is_shown_with_its_traceback(scheduler: SchedulerProcess, program: Program) -> None:
    worker, client = scheduler.worker(slots=2), scheduler.client()
    client.submit(4711)
    ids = worker.take_task_ids()
    payload = encode_struct(FAILURE)
    statuses = bytes([m.TaskStatus.FAILED])
    worker.send(m.TaskResult(ids=ids, statuses=statuses, payload_sizes=[len(payload)], busy_microseconds=1500), payload)

    found = program.wait_for("/api/tasks?search=colour", lambda found: found["body"]["matching"])

    (row,) = found["body"]["rows"]
    assert (row["task"], row["state"], row["error"]) == ("4711", "failed", "KeyError: 'colour'")
    assert row["worker"] == worker.welcome.session
    told = json.loads(program.get(f"/api/tasks/{row['client']}/4711")[1])
    assert told["traceback"] == FAILURE.traceback
    head = program.wait_for("/api/head", lambda found: found["head"]["tasks"]["failed"])["head"]
    assert (head["workers"], head["slots"], head["clients"]) == (1, 2, 1)
    assert head["address"] == scheduler.address
    lanes = json.loads(program.get("/api/stream")[1])["body"]["runs"]["task"]
    assert lanes == ["4711"]
    assert b'scaler_tasks_total{outcome="failed"} 1.0' in program.get("/metrics")[1]


@pytest.mark.exhaustive_on_pypy
def test_a_worker_is_asked_to_leave_or_the_scheduler_says_that_it_cannot(
    scheduler: SchedulerProcess, program: Program
) -> None:
    session = scheduler.worker().welcome.session
    program.wait_for("/api/workers", lambda found: found["body"]["total"] == 1)
    request = urllib.request.Request(
        f"{program.link.partition('?')[0]}api/workers/{session}/drain", method="POST", headers={"X-Scaler-UI": "1"}
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)

    request.headers.update(program.headers)
    try:
        with urllib.request.urlopen(request) as answer:
            told: Any = json.loads(answer.read())
        assert told["accepted"]
    except urllib.error.HTTPError as error:
        assert error.code == 502
        assert "WorkerShutdown" in json.loads(error.read())["error"]


@pytest.mark.exhaustive_on_pypy
def test_another_scheduler_at_the_same_address_is_another_generation(
    scheduler: SchedulerProcess, program: Program, tmp_path: Path
) -> None:
    stream = program.open_events("/events?page=workers")
    assert event(stream)["head"]["generation"] == 1
    scheduler.close()
    another = SchedulerProcess(
        sys.executable,
        tmp_path / "another",
        scheduler.address,
        "--monitor-address",
        scheduler.monitor_address,
    )
    try:
        another.wait_until_ready()
        while event(stream)["head"]["generation"] != 2:
            pass
    finally:
        another.close()
