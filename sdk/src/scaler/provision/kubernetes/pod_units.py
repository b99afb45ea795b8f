"""Units as pods of Kubernetes, by its API.

Rules:
- Only pods with the labels of this pool and this scheduler are listed, and only pods that were listed are deleted, each
  by its uid: another one that has got its name meanwhile is left alone.
- Pods are deleted with their grace period and never by force: a worker drains, and one on a node that is unreachable
  may still run.
- A pod that has ended as it should is deleted at the next listing. One that has failed stays for a while, so that
  people can see its log, and does not count.
- A pod whose container cannot start is given up after START_ERROR_SECONDS: a registry may have had a bad moment. It is
  told to be a failure before it is deleted, so that the reason is known.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.kubernetes.api_access import ApiAccess
from scaler.provision.kubernetes.api_client import ApiClient
from scaler.provision.kubernetes.pod_listing import PodState, state_of
from scaler.provision.kubernetes.pods import UNIT_LABEL, PodSettings, labels_of, pod_of, selector_of
from scaler.provision.unit_adapters import UnitAdapter
from scaler_protocol import messages as m

START_ERROR_SECONDS = 60.0
FAILED_SECONDS = 600.0  # that a pod which has failed stays
FAILED_PODS = 10  # that stay, of each pool

Json = Dict[str, Any]


class KubernetesUnits(UnitAdapter):
    """Units as pods: one pod is one worker.

    Parameters:
        pool: of which these are the units.
        settings: of the pods.
        find_access: to the API; called until it succeeds. Raises UnitError.
        timeout_seconds: for each request.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        pool: PoolSettings,
        settings: PodSettings,
        find_access: Callable[[], ApiAccess],
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._settings, self._find_access = pool, settings, find_access
        self._timeout_seconds, self._clock = timeout_seconds, clock
        self._labels = labels_of(pool.name, settings.address)
        self.place = f"Kubernetes, namespace {settings.namespace}" if settings.namespace else "Kubernetes"
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._client: Optional[ApiClient] = None
        self._namespace = settings.namespace
        # Of the last listing, by uid. Only one listing of a pool runs at a time.
        self._since: Dict[str, float] = {}  # when an end or an error was seen first
        self._removable: Dict[str, str] = {}  # names of pods that go before the next listing

    def start(self, unit: str) -> None:
        client = self._connected()
        client.create_pod(self._namespace, pod_of(self._settings, self._pool, unit, self._owners_of(client)))

    def list(self) -> Dict[str, ListedUnit]:
        client = self._connected()
        for uid, name in list(self._removable.items()):
            client.delete_pod(self._namespace, name, uid)
            del self._removable[uid]
        pods = {each["metadata"]["uid"]: each for each in self._pods(client, self._labels)}
        states = {uid: state_of(pod) for uid, pod in pods.items()}
        self._note_times(states)
        found: Dict[str, ListedUnit] = {}
        for uid, state in states.items():
            unit = pods[uid]["metadata"]["labels"].get(UNIT_LABEL)
            listed = state.listed
            if state.start_error and self._has_been_since(uid, START_ERROR_SECONDS):
                listed = ListedUnit(m.UnitState.FAILED, state.start_error)
                self._removable[uid] = pods[uid]["metadata"]["name"]
            elif state.has_ended and listed is None:
                self._removable[uid] = pods[uid]["metadata"]["name"]
            if unit is not None and listed is not None:
                found[unit] = listed
        for uid in self._failed_long_ago(states):
            self._removable[uid] = pods[uid]["metadata"]["name"]
        return found

    def stop(self, unit: str) -> None:
        client = self._connected()
        for pod in self._pods(client, {**self._labels, UNIT_LABEL: unit}):
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp") and not state_of(pod).has_ended:
                client.delete_pod(self._namespace, metadata["name"], metadata["uid"])

    def close(self) -> None:
        """Pods go on: another run of this program finds them."""

    def hurry(self) -> None:
        self._hurry.set()

    def described(self) -> str:
        unit = f"{self._pool.name}-0-1"
        namespace = f" --namespace {self._settings.namespace}" if self._settings.namespace else ""
        lines = [
            f"# list: kubectl get pods{namespace} --selector {selector_of(self._labels)}",
            f"# stop: kubectl delete pods{namespace} --selector {selector_of({**self._labels, UNIT_LABEL: unit})}",
            f"# start: kubectl create{namespace} -f MANIFEST",
            "# MANIFEST:",
            json.dumps(pod_of(self._settings, self._pool, unit), indent=2),
        ]
        return "\n".join(lines)

    def _connected(self) -> ApiClient:
        with self._lock:
            if self._client is None:
                access = self._find_access()
                self._client = ApiClient(access, self._timeout_seconds, self._hurry)
                self._namespace = self._settings.namespace or access.namespace
            return self._client

    def _owners_of(self, client: ApiClient) -> List[Json]:
        name = self._settings.owner_deployment
        if not name:
            return []
        uid = client.deployment_uid(self._namespace, name)
        return [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid}]

    def _pods(self, client: ApiClient, labels: Mapping[str, str]) -> List[Json]:
        """The pods with these labels, whatever else the server may have answered."""
        pods = client.list_pods(self._namespace, selector_of(labels))
        return [each for each in pods if labels.items() <= (each["metadata"].get("labels") or {}).items()]

    def _note_times(self, states: Mapping[str, PodState]) -> None:
        noted = [uid for uid, state in states.items() if state.has_ended or state.start_error]
        self._since = {uid: self._since.get(uid, self._clock()) for uid in noted}

    def _has_been_since(self, uid: str, seconds: float) -> bool:
        return self._clock() >= self._since[uid] + seconds

    def _failed_long_ago(self, states: Mapping[str, PodState]) -> List[str]:
        """Pods that have failed, but for the last ones."""
        failed = [uid for uid, state in states.items() if state.has_ended and state.listed is not None]
        failed.sort(key=lambda uid: -self._since[uid])
        return [
            uid for place, uid in enumerate(failed) if place >= FAILED_PODS or self._has_been_since(uid, FAILED_SECONDS)
        ]
