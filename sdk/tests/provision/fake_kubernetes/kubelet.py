"""Nodes for the API server of the tests: each pod is a real process of this host.

Rules:
- A pod gets a node with enough CPUs left, or waits and says so as the scheduler of pods does.
- To delete a pod is SIGTERM, and SIGKILL when its grace period is over; then the pod is gone.
- A pod whose activeDeadlineSeconds are over, since it has a node, is ended likewise, and has failed.
- One thread per pod waits for its process: no time is spent on looking.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import Any, Callable, Dict, List, Sequence

from provision.fake_kubernetes.api_server import FakeApiServer
from provision.fake_kubernetes.pod_rules import amount_of

Json = Dict[str, Any]


class FakeKubelet:
    """
    Parameters:
        cpus: of each node.
        entry_point: of the images: runs with the arguments of the container.
    Attributes:
        killed: names of pods whose grace period was over.
        overdue: names of pods whose deadline was over.
    """

    def __init__(self, server: FakeApiServer, cpus: Sequence[float], entry_point: Callable[[Json], List[str]]) -> None:
        self._server, self._entry_point = server, entry_point
        self._free = {f"node-{number}": amount for number, amount in enumerate(cpus, 1)}
        self._lock = threading.RLock()
        self._waiting: List[Json] = []
        self._processes: Dict[str, subprocess.Popen[bytes]] = {}  # by uid
        self._threads: List[threading.Thread] = []
        self._is_closed = False
        self.killed: List[str] = []
        self.overdue: List[str] = []
        self.started = 0
        server.on_created, server.on_deleting = self._on_created, self._on_deleting

    def close(self) -> None:
        """End what runs."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            processes = list(self._processes.values())
        for process in processes:
            process.kill()
        for thread in self._threads:
            thread.join()

    def _on_created(self, pod: Json) -> None:
        with self._lock:
            self._waiting.append(pod)
            self._schedule()

    def _schedule(self) -> None:
        """Give nodes to pods that wait."""
        for pod in list(self._waiting):
            needed = _cpus_of(pod)
            node = next((name for name, free in self._free.items() if free >= needed), None)
            name = pod["metadata"]["name"]
            if node is None:
                count = len(self._free)
                text = f"0/{count} nodes are available: {count} Insufficient cpu."
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
                self._server.set_status(name, {"phase": "Pending", "conditions": [condition]})
                continue
            self._waiting.remove(pod)
            self._free[node] -= needed
            scheduled = [{"type": "PodScheduled", "status": "True"}]
            self._server.set_status(name, {"phase": "Pending", "conditions": scheduled}, node)
            self._run(pod, node, needed)

    def _run(self, pod: Json, node: str, cpus: float) -> None:
        (container,) = pod["spec"]["containers"]
        variables = {each["name"]: _value_of(each, pod) for each in container.get("env") or []}
        process = subprocess.Popen(
            [*self._entry_point(pod), *container["args"]],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self._processes[pod["metadata"]["uid"]] = process
        self.started += 1
        running = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        self._server.set_status(pod["metadata"]["name"], running)
        thread = threading.Thread(target=self._wait, args=(pod, process, node, cpus), daemon=True)
        self._threads.append(thread)
        thread.start()
        if "activeDeadlineSeconds" in pod["spec"]:
            threading.Thread(target=self._watch_deadline, args=(pod, process), daemon=True).start()

    def _watch_deadline(self, pod: Json, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pod["spec"]["activeDeadlineSeconds"])
            return
        self.overdue.append(pod["metadata"]["name"])
        self._end(pod["metadata"]["name"], process, pod["spec"]["terminationGracePeriodSeconds"])

    def _wait(self, pod: Json, process: subprocess.Popen[bytes], node: str, cpus: float) -> None:
        code = process.wait()
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        exit_code = code if code >= 0 else 128 - code
        terminated = {"exitCode": exit_code, "reason": "Error" if code else "Completed"}
        container = {
            "name": "worker",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
        is_overdue = name in self.overdue
        reason = {"reason": "DeadlineExceeded"} if is_overdue else {}
        phase = "Failed" if code or is_overdue else "Succeeded"
        self._server.set_status(name, {"phase": phase, "containerStatuses": [container], **reason})
        with self._lock:
            del self._processes[uid]
            self._free[node] += cpus
            if self._server.is_being_deleted(uid):
                self._server.remove_pod(name, uid)
            if not self._is_closed:
                self._schedule()

    def _on_deleting(self, pod: Json) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        with self._lock:
            self._waiting = [each for each in self._waiting if each["metadata"]["uid"] != uid]
            process = self._processes.get(uid)
        if process is None:
            self._server.remove_pod(name, uid)
            return
        self._end(name, process, pod["metadata"]["deletionGracePeriodSeconds"])

    def _end(self, name: str, process: subprocess.Popen[bytes], grace_seconds: float) -> None:
        process.terminate()

        def kill() -> None:
            try:
                process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self.killed.append(name)
                process.kill()

        threading.Thread(target=kill, daemon=True).start()


def _value_of(variable: Json, pod: Json) -> str:
    path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    return str(pod["metadata"]["name"] if path == "metadata.name" else variable["value"])


def _cpus_of(pod: Json) -> float:
    return sum(amount_of(each["resources"]["requests"]["cpu"]) for each in pod["spec"]["containers"])
