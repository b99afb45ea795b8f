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
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import pytest
from provision.fake_kubernetes.api_server import NAMESPACE, FakeApiServer, Fault, api_server
from provision.fake_kubernetes.kubelet import FakeKubelet
from sdk_tasks import wait_for

from scaler import Client, Scheduler

PROGRAM = "from scaler.programs.provision_host import main; import sys; sys.exit(main())"
WORKER = "from scaler.programs.worker_host import main; import sys; sys.exit(main())"
QUICK = ("--idle-seconds", "0.5", "--sustain-seconds", "0", "--list-interval-seconds", "0.3")
TIMEOUT_SECONDS = 120.0
SCALE_DOWNS = int(os.environ.get("SCALER_SCALE_DOWNS", "1000"))
_CHOSEN = re.compile(r"^.*unit (\S+) is idle and leaves", re.MULTILINE)


class Run(NamedTuple):
    """A run of a task.

    Attributes:
        begin, end: in seconds since 1970.
    """

    task: int
    pod: str
    begin: float
    end: float


def work(folder: str, task: int, seconds: float) -> int:
    """Take so long, and write down where and when."""
    pod, begin = os.environ["POD"], time.time()
    begun = Path(folder, f"{task}.begun")
    begun.write_text(pod)
    time.sleep(seconds)
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

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler, and a namespace with two nodes of a CPU each."""
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
        futures = [client.submit(work, str(cluster.folder), task, 0.5) for task in range(12)]
        wait_for(
            lambda: "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu." in client.explain(futures[-1]),
            "the pod without a node to be seen",
        )
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


@pytest.mark.slow
@pytest.mark.exhaustive  # minutes: each scale-down is a worker that starts and ends
@pytest.mark.timeout(7200)
def test_only_idle_pods_are_chosen_and_no_task_is_lost_in_many_scale_downs(cluster: Cluster) -> None:
    """Bursts of short tasks, and pauses in which most pods leave while long tasks go on."""
    kubelet = FakeKubelet(cluster.server, [8.0], lambda pod: [sys.executable, "-c", WORKER])
    cluster.start("--maximum", "8", "--idle-seconds", "0")
    submitted = 0
    with Client(cluster.address) as client:
        while len(_CHOSEN.findall(cluster.log() if (cluster.folder / "log").exists() else "")) < SCALE_DOWNS:
            futures = []
            for seconds in [0.2] * 24 + [1.5] * 2:
                futures.append(client.submit(work, str(cluster.folder), submitted, seconds))
                submitted += 1
            assert len([future.result(TIMEOUT_SECONDS) for future in futures]) == len(futures)
            count = len(_CHOSEN.findall(cluster.log()))
            wait_for(lambda seen=count: len(_CHOSEN.findall(cluster.log())) > seen + 3, "units to leave")  # type: ignore[misc]
        wait_for(lambda: cluster.server.pods() == [], "pods to leave", 120.0)
    runs, units = cluster.runs(), {}
    for line in cluster.log().splitlines():
        found = _CHOSEN.match(line)
        if found:
            units[found[1]] = line
    kubelet.close()
    assert len(runs) == submitted and len({run.task for run in runs}) == submitted
    assert kubelet.killed == []
