"""`scaler_provision` with pods: a real scheduler, the real program and real workers; the API server is the tests' own.

Rule: what ran where and when is what tasks themselves have written, one line for each run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import as_completed
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Set

import pytest
from provision.fake_kubernetes.api_server import NAMESPACE, FakeApiServer, Fault, api_server
from provision.fake_kubernetes.kubelet import FakeKubelet
from sdk_tasks import logged, wait_for

from scaler import Client, Scheduler
from scaler.provision.kubernetes.pods import pod_name_of

PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
WORKER = "from scaler.programs.worker_host import main; import sys; sys.exit(main())"
IDLE_SECONDS = 0.5
QUICK = ("--idle-seconds", str(IDLE_SECONDS), "--sustain-seconds", "0", "--list-interval-seconds", "0.3")
TIMEOUT_SECONDS = 120.0
SCALE_DOWNS = int(os.environ.get("SCALER_SCALE_DOWNS", "1000"))
PODS, BUSY = 12, 3
_CHOSEN = re.compile(r"unit (\S+) is idle and leaves")


class Run(NamedTuple):
    """A run of a task.

    Attributes:
        begin, end: in seconds since 1970.
    """

    task: int
    pod: str
    begin: float
    end: float


def work(folder: str, task: int, seconds: float = 0.0, until: str = "") -> int:
    """Take so long, or until a file exists, and write down where and when."""
    pod, begin = os.environ["POD"], time.time()
    Path(folder, f"{task}.new").write_text(pod)
    os.rename(Path(folder, f"{task}.new"), Path(folder, f"{task}.begun"))
    time.sleep(seconds)
    while until and not os.path.exists(until):
        time.sleep(0.02)
    with open(Path(folder, "runs"), "a") as file:
        file.write(f"{task} {pod} {begin} {time.time()}\n")
    return task


class Cluster(NamedTuple):
    """What the tests start."""

    address: str
    server: FakeApiServer
    kubelet: FakeKubelet
    folder: Path
    start: Callable[..., subprocess.Popen[bytes]]

    def runs(self) -> List[Run]:
        lines = (self.folder / "runs").read_text().splitlines()
        return [Run(int(task), pod, float(begin), float(end)) for task, pod, begin, end in map(str.split, lines)]

    def chosen(self) -> Dict[str, float]:
        """When units were chosen to leave, from a log in JSON: the scheduler has chosen them a little before."""
        lines = [json.loads(line) for line in self.log().splitlines()]
        found = [(_CHOSEN.match(each["message"]), each["time"]) for each in lines]
        return {match[1]: datetime.fromisoformat(at).timestamp() for match, at in found if match is not None}

    def has_chosen_more_than(self, units: int) -> bool:
        return len(self.chosen()) > units

    def log(self) -> str:
        return logged(self.folder / "log")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A scheduler that wants work to be done soon, and a namespace with two nodes of a CPU each."""
    monkeypatch.setenv("SCALER_SCHEDULER_DEMAND_TARGET_SECONDS", "1")
    pod = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    variables = [pod, {"name": "PYTHONPATH", "value": os.pathsep.join(sys.path)}]
    template = {"spec": {"containers": [{"name": "worker", "env": variables}]}}
    (tmp_path / "pod.json").write_text(json.dumps(template))
    started: List[subprocess.Popen[bytes]] = []
    with Scheduler(logging_level="WARNING") as scheduler, api_server() as server:
        config: Dict[str, Any] = {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}}],
            "clusters": [{"name": "fake", "cluster": {"server": server.url}}],
            "users": [{"name": "fake", "user": {"token": "secret"}}],
        }
        server.token = "secret"
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        kubelet = FakeKubelet(server, [1.0, 1.0], lambda pod: [sys.executable, "-c", WORKER])

        def start(*options: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", PROGRAM, scheduler.get_address(), "--adapter", "kubernetes", *QUICK]
            command += ["--image", "workers:1", "--kubeconfig", str(tmp_path / "kubeconfig"), *options]
            command += ["--pod-template", str(tmp_path / "pod.json"), "--logging-paths", str(tmp_path / "log")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment))
            return started[-1]

        yield Cluster(scheduler.get_address(), server, kubelet, tmp_path, start)
        for each in started:
            if each.poll() is None:
                each.send_signal(signal.SIGTERM)
                each.wait(TIMEOUT_SECONDS)
        kubelet.close()


@pytest.mark.slow  # the only test of the whole program with pods: four starts of Python, and seconds of waiting
def test_pods_come_with_tasks_and_go_without_and_tasks_of_a_deleted_one_end_there(cluster: Cluster) -> None:
    cluster.server.faults += [Fault("GET", 503, "starting"), Fault("POST", 429, "busy", retry_after="0")]
    program = cluster.start("--maximum", "3")
    with Client(cluster.address) as client:
        go = cluster.folder / "go"
        futures = [client.submit(work, str(cluster.folder), task, 0.5, until=str(go)) for task in range(12)]
        waits = "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu."

        def others_are_there() -> bool:
            text = client.explain(futures[-1])
            return waits in text and " starting" not in text

        wait_for(others_are_there, "the pod without a node to be seen, and the others to be known to have workers")
        go.touch()
        wait_for((cluster.folder / "2.begun").exists, "a task to begin")
        busy = (cluster.folder / "2.begun").read_text()
        cluster.server.delete_pod(busy)  # as `kubectl delete pod` does

        assert sorted(future.result(TIMEOUT_SECONDS) for future in as_completed(futures)) == list(range(12))
        wait_for(lambda: cluster.server.pods() == [], "pods to leave and to be deleted")
        assert program.poll() is None

        runs = cluster.runs()
        assert sorted(run.task for run in runs) == list(range(12)), "each task ran once"
        assert next(run.pod for run in runs if run.task == 2) == busy and cluster.kubelet.killed == []
        assert {run.pod for run in runs} >= {busy} and len({run.pod for run in runs}) >= 2
        log = cluster.log()
        assert "cannot be listed: cannot list pods in the namespace team (status 503): starting" in log
        assert "is idle and leaves" in log and "has failed" not in log


@pytest.mark.slow  # workers that live for seconds, and their end is waited for
def test_pods_with_an_end_get_no_task_that_would_outlive_them_and_leave_before_their_deadline(cluster: Cluster) -> None:
    cluster.start("--maximum", "1", "--lifetime-seconds", "8", "--idle-seconds", "60")
    folder = str(cluster.folder)
    with Client(cluster.address) as client:
        long = client.options(time_request=8.0).submit(work, folder, 1000)
        pods: Set[str] = set()
        task = 0
        while len(pods) < 2:  # until another one has come in the place of the first
            assert client.options(time_request=0.5).submit(work, folder, task, 0.5).result(TIMEOUT_SECONDS) == task
            pods |= {run.pod for run in cluster.runs()}
            task += 1
        wait_for(lambda: "for 8 s" in client.explain(long), "the reason to be told")
        assert "no pool has units for tasks that need no capabilities for 8 s" in client.explain(long)
        long.cancel()
    assert sorted(run.task for run in cluster.runs()) == list(range(task)), (
        "a task ran twice, or where it could not end"
    )
    assert cluster.kubelet.overdue == [] and cluster.kubelet.killed == []
    (pod, *_) = cluster.server.pods()
    assert pod["spec"]["activeDeadlineSeconds"] == 608
    assert "has failed" not in cluster.log()


@pytest.mark.slow  # a second until the deadline
def test_a_pod_that_hangs_is_ended_by_its_deadline_also_without_the_program(cluster: Cluster) -> None:
    kubelet = FakeKubelet(cluster.server, [1.0], lambda pod: ["sh", "-c", "exec sleep 1000"])
    program = cluster.start("--minimum", "1", "--lifetime-seconds", "1", "--start-timeout-seconds", "2")
    wait_for(lambda: kubelet.started == 1, "a pod to start")
    program.send_signal(signal.SIGTERM)
    assert program.wait(TIMEOUT_SECONDS) == 0

    wait_for(lambda: kubelet.overdue != [], "its deadline")

    (pod,) = cluster.server.pods()
    wait_for(lambda: cluster.server.pods()[0]["status"].get("reason") == "DeadlineExceeded", "its end")
    assert kubelet.overdue == [pod["metadata"]["name"]]
    kubelet.close()


@pytest.mark.slow
@pytest.mark.exhaustive  # minutes: each scale-down is a worker that starts and ends
@pytest.mark.timeout(7200)
def test_only_idle_pods_are_chosen_and_no_task_is_lost_in_many_scale_downs(cluster: Cluster) -> None:
    """Bursts of tasks, after which the pods leave that have none, while the others go on; again and again."""
    kubelet = FakeKubelet(cluster.server, [float(PODS)], lambda pod: [sys.executable, "-c", WORKER])
    cluster.start("--maximum", str(PODS), "--logging-format", "json")
    folder, submitted = str(cluster.folder), 0
    with Client(cluster.address) as client:
        while len(cluster.chosen()) < SCALE_DOWNS:
            before, may_end = len(cluster.chosen()), cluster.folder / f"{submitted}.may-end"
            long = [client.submit(work, folder, submitted + n, until=str(may_end)) for n in range(BUSY)]
            short = [client.submit(work, folder, submitted + n, 0.25) for n in range(BUSY, 5 * PODS)]
            submitted += 5 * PODS
            for future in as_completed(short):
                future.result()
            wait_for(partial(cluster.has_chosen_more_than, before), "the first idle pod to leave")
            wait_for(lambda: len(cluster.server.pods()) == BUSY, "the others to leave, too", 300.0)
            may_end.touch()
            assert len([future.result(TIMEOUT_SECONDS) for future in long]) == BUSY
        wait_for(lambda: cluster.server.pods() == [], "pods to leave and to be deleted", 300.0)
    kubelet.close()
    runs, chosen = cluster.runs(), cluster.chosen()
    busy = [
        (name, run)
        for name, at in chosen.items()
        for run in runs
        if run.pod == pod_name_of(name, cluster.address) and run.begin <= at < run.end + IDLE_SECONDS / 2
    ]
    deletions = [each for each in cluster.server.requests if each.startswith("DELETE")]
    print(f"{len(chosen)} scale-downs, {kubelet.started} pods, {len(runs)} runs of {submitted} tasks, {len(busy)} busy")
    assert sorted(run.task for run in runs) == list(range(submitted)), "each task ran once"
    assert busy == [] and kubelet.killed == []
    assert len(deletions) == kubelet.started and "has failed" not in cluster.log()
