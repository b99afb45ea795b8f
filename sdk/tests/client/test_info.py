"""`Client.info`: what the scheduler says of its cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List

import pytest

from scaler import Client, Scheduler
from scaler.client.info import ActorInfo, ClusterInfo, WorkerInfo
from scaler.exceptions import DisconnectedError


def hold(running: str, go: str) -> None:
    Path(running).touch()
    while not os.path.exists(go):
        time.sleep(0.01)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_an_idle_cluster(client: Client, address: str) -> None:
    client.submit(abs, -1).result()
    info = client.info()
    assert info.address == address
    assert info.scheduler == "scaler-appliance" and info.version and "Python" in info.language
    assert info.uptime_seconds > 0 and info.clients >= 1
    assert (info.worker_count, info.slots, len(info.workers)) == (1, 4, 1)
    assert info.tasks_waiting == 0
    assert info.workers[0].slots == 4 and info.workers[0].host
    assert str(info).splitlines()[1].startswith("4 slots on 1 worker, 4 free, ")


def test_a_task_that_runs_is_counted(client: Client, done_files: List[Path]) -> None:
    running, go = done_files
    future = client.submit(hold, str(running), str(go))
    wait_for(running)
    info = client.info()
    assert info.tasks_running == 1 and info.slots_free == 3
    assert info.workers[0].tasks == 1
    go.touch()
    future.result()
    assert client.info().slots_free == 4


def test_no_more_workers_are_listed_than_asked_for(any_client: Client) -> None:
    any_client.submit(abs, -1).result()
    info = any_client.info(maximum_workers=0)
    assert info.workers == () and info.worker_count == info.workers_not_listed == 1
    assert str(info).endswith("  and 1 more")
    with pytest.raises(ValueError, match="maximum_workers must be >= 0, got -1"):
        any_client.info(maximum_workers=-1)
    with pytest.raises(TypeError):
        any_client.info(maximum_workers=1.5)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("workers", "slots", "tasks", "said"),
    [
        (1, 1, 1, ["1 slot on 1 worker, 1 free, 1 client", "1 task waiting, 1 at workers", "  w on h: 1 slot, 1 task"]),
        (2, 4, 0, ["8 slots on 2 workers, 8 free, 2 clients", "0 tasks waiting, 0 at workers"]),
    ],
)
def test_one_is_not_said_in_the_plural(workers: int, slots: int, tasks: int, said: List[str]) -> None:
    worker = WorkerInfo(7, "w", "h", 4711, slots, tasks)
    total = workers * slots
    counts = (workers, total, total, tasks, tasks, (worker,) * workers)
    lines = str(ClusterInfo("tcp://h:1", "scaler-appliance", "1", "Python", 5.0, workers, *counts)).splitlines()
    assert lines[1 : 1 + len(said)] == said


def test_an_end_is_said() -> None:
    with Scheduler(logging_level="WARNING") as scheduler:
        with Client(address=scheduler.get_address()) as client:
            assert client.info().worker_count == 0
            scheduler._process.kill()  # type: ignore[union-attr]  # it has one
            with pytest.raises(DisconnectedError, match=r"has not answered for 0\.2 s"):
                client.info(timeout_seconds=0.2)
        with pytest.raises(DisconnectedError, match="make a new Client"):
            client.info()


def described_actor(number: int, why_lost: str = "") -> ActorInfo:
    worker, session = ("", 0) if why_lost else ("w", 7)
    state = "lost" if why_lost else "alive"
    return ActorInfo(f"Counter '{number}'", 1, worker, session, state, why_lost, 3, 2, 10, 1)


def test_actors_are_listed_with_their_calls_and_why_they_are_lost() -> None:
    actors = (described_actor(1), described_actor(2, "<b>its worker died</b>"))
    info = ClusterInfo("a", "s", "1", "P", 1.0, 1, 1, 1, 1, 0, 0, (), 3, actors)
    assert info.actors_not_listed == 1
    assert str(info).splitlines()[-4:] == [
        "3 actors",
        "  Counter '1' alive on w, calls: 3 waiting, 2 running, 10 finished",
        "  Counter '2' lost, calls: 3 waiting, 2 running, 10 finished: <b>its worker died</b>",
        "  and 1 more",
    ]
    html = info._repr_html_()
    assert "actor Counter &#x27;1&#x27;" in html and "&lt;b&gt;its worker died" in html and "other actors" in html
