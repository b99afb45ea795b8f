"""An API server of Kubernetes, as far as pods of units need it: real HTTP, real schemas, pods in memory.

    requests ──▶ faults that a test asks for ──▶ token, rights ──▶ pods ──events──▶ kubelet

Rules:
- It answers as the real one does: statuses, messages, defaults, snapshots of lists, grace periods, preconditions and
  quota.
- It runs nothing: a pod stays pending until a kubelet or a test changes its status, which must fit the schema too.
- Listeners are called without the lock, in the thread of the request.
"""

from __future__ import annotations

import copy
import json
import threading
import uuid
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple
from urllib.parse import parse_qs, urlsplit

from provision.fake_kubernetes.pod_rules import InvalidError, check_pod, check_schema

Json = Dict[str, Any]

NAMESPACE = "team"
ALL_RIGHTS = frozenset({("create", "pods"), ("list", "pods"), ("delete", "pods"), ("get", "deployments")})
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Fault(NamedTuple):
    """An answer in the place of the real one.

    Attributes:
        method: of the requests that get it.
        status: 0: the connection is closed without an answer.
        is_done: the request is carried out, and only its answer is another one.
    """

    method: str
    status: int
    text: str = "a fault"
    retry_after: str = ""
    is_done: bool = False


class _Refused(Exception):
    def __init__(self, status: int, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.status, self.reason = status, reason


class FakeApiServer:
    """
    Attributes:
        faults: answers to come, each used once.
        token: that requests must have; empty: any.
        rights: of users who have the token.
        most_pods: a quota of pods that have not ended; None: there is none.
        requests: method and path of all that came, in order.
        on_created, on_deleting: are called with each such pod.
    """

    def __init__(self, tls: Any = None) -> None:
        self.faults: List[Fault] = []
        self.token = ""
        self.rights: Set[Tuple[str, str]] = set(ALL_RIGHTS)
        self.most_pods: Optional[int] = None
        self.requests: List[str] = []
        self.on_created: Callable[[Json], None] = lambda pod: None
        self.on_deleting: Callable[[Json], None] = lambda pod: None
        self._lock = threading.RLock()
        self._pods: Dict[str, Json] = {}  # of the one namespace, by name
        self._deployments: Dict[str, str] = {}
        self._snapshots: Dict[str, List[Json]] = {}
        self._version = 100
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Handler,), {"server_of_pods": self}))
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    # For tests and kubelets -------------------------------------------------------------------------------------------

    def pods(self) -> List[Json]:
        """Copies of all pods."""
        with self._lock:
            return [copy.deepcopy(each) for each in self._pods.values()]

    def add_pod(self, pod: Json) -> Json:
        """Another user creates a pod."""
        return self._create({}, pod)

    def set_status(self, name: str, status: Json, node: str = "") -> None:
        """A kubelet or the scheduler of pods reports; the pod may be gone."""
        with self._lock:
            pod = self._pods.get(name)
            if pod is None:
                return
            changed = {**pod, "spec": {**pod["spec"], **({"nodeName": node} if node else {})}, "status": status}
            check_schema(changed, "io.k8s.api.core.v1.Pod")
            self._pods[name] = changed
            self._touch(changed)

    def remove_pod(self, name: str, uid: str) -> None:
        """A kubelet has ended a pod that is being deleted."""
        with self._lock:
            if name in self._pods and self._pods[name]["metadata"]["uid"] == uid:
                del self._pods[name]

    def is_being_deleted(self, uid: str) -> bool:
        with self._lock:
            return any(
                each["metadata"]["uid"] == uid and "deletionTimestamp" in each["metadata"]
                for each in self._pods.values()
            )

    def delete_pod(self, name: str, grace_seconds: Optional[int] = None) -> None:
        """Another user deletes a pod: `kubectl delete pod`."""
        self._delete(name, {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds})

    def add_deployment(self, name: str) -> str:
        self._deployments[name] = str(uuid.uuid4())
        return self._deployments[name]

    def delete_deployment(self, name: str) -> None:
        """And what it owns, as the garbage collector does."""
        uid = self._deployments.pop(name)
        for pod in self.pods():
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences", [])):
                self._delete(pod["metadata"]["name"], {})

    # Requests ---------------------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, token: str, body: bytes) -> Tuple[int, Json, str]:
        """Status, body and Retry-After. Raises ConnectionAbortedError for a fault that closes the connection."""
        self.requests.append(f"{method} {target}")
        fault = self._next_fault(method)
        try:
            if fault is not None and not fault.is_done:
                raise _Refused(fault.status, fault.text)
            result = self._carry_out(method, target, token, body)
            if fault is not None:
                raise _Refused(fault.status, fault.text)
            return result[0], result[1], ""
        except _Refused as error:
            if not error.status:
                raise ConnectionAbortedError from None
            return error.status, _status(error), fault.retry_after if fault is not None else ""
        except InvalidError as error:
            return error.status, _status(_Refused(error.status, str(error))), ""

    def _next_fault(self, method: str) -> Optional[Fault]:
        with self._lock:
            for fault in self.faults:
                if fault.method == method:
                    self.faults.remove(fault)
                    return fault
        return None

    def _carry_out(self, method: str, target: str, token: str, body: bytes) -> Tuple[int, Json]:
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if self.token and token != f"Bearer {self.token}":
            raise _Refused(401, "Unauthorized")
        if parts[:5] == ["apis", "apps", "v1", "namespaces", NAMESPACE] and parts[5:6] == ["deployments"]:
            self._authorize("get", "deployments", "apps")
            if parts[6] not in self._deployments:
                raise _Refused(404, f'deployments.apps "{parts[6]}" not found')
            return 200, {"metadata": {"name": parts[6], "uid": self._deployments[parts[6]]}}
        if parts[:3] != ["api", "v1", "namespaces"] or parts[4:5] != ["pods"]:
            raise _Refused(404, "the server could not find the requested resource")
        verb = {"POST": "create", "DELETE": "delete"}.get(method, "list" if len(parts) == 5 else "get")
        self._authorize(verb, "pods", "", parts[3])
        if verb == "create":
            if parts[3] != NAMESPACE:
                raise _Refused(404, f'namespaces "{parts[3]}" not found')
            return 201, self._create(query, _object(body))
        if verb == "delete":
            options = _object(body) if body else {}
            check_schema(options, "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
            return 200, self._delete(parts[5], options)
        if verb == "list":
            return 200, self._list(query, parts[3])
        raise _Refused(405, "the server does not allow this method on the requested resource")

    def _authorize(self, verb: str, resource: str, group: str, namespace: str = NAMESPACE) -> None:
        if (verb, resource) not in self.rights:
            raise _Refused(
                403,
                f'{resource} is forbidden: User "system:serviceaccount:{namespace}:scaler-provision" cannot {verb}'
                f' resource "{resource}" in API group "{group}" in the namespace "{namespace}"',
            )

    def _create(self, query: Json, pod: Json) -> Json:
        check_pod(pod, query.get("fieldValidation") == "Strict")
        pod = copy.deepcopy(pod)
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata.get("namespace", NAMESPACE) != NAMESPACE:
            raise _Refused(400, "the namespace of the provided object does not match the namespace sent on the request")
        with self._lock:
            if metadata["name"] in self._pods:
                raise _Refused(409, f'pods "{metadata["name"]}" already exists')
            used = sum(each["status"]["phase"] in ("Pending", "Running") for each in self._pods.values())
            if self.most_pods is not None and used >= self.most_pods:
                raise _Refused(
                    403,
                    f'pods "{metadata["name"]}" is forbidden: exceeded quota: most, requested: pods=1,'
                    f" used: pods={used}, limited: pods={self.most_pods}",
                )
            metadata.update(namespace=NAMESPACE, uid=str(uuid.uuid4()), creationTimestamp=_time(0))
            spec.setdefault("restartPolicy", "Always")
            spec.setdefault("terminationGracePeriodSeconds", 30)
            spec.setdefault("serviceAccountName", "default")
            pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
            self._pods[metadata["name"]] = pod
            self._touch(pod)
            created = copy.deepcopy(pod)
        self.on_created(created)
        return created

    def _list(self, query: Json, namespace: str) -> Json:
        with self._lock:
            if query.get("continue"):
                if query["continue"] not in self._snapshots:
                    raise _Refused(
                        410, "The provided continue parameter is too old to display a consistent list result."
                    )
                rest = self._snapshots.pop(query["continue"])
            else:
                here = self._pods.values() if namespace == NAMESPACE else []
                chosen = [each for each in here if _is_selected(each, query.get("labelSelector", ""))]
                rest = [copy.deepcopy(each) for each in sorted(chosen, key=lambda each: each["metadata"]["name"])]
            limit = int(query.get("limit", 0)) or len(rest)
            metadata = {"resourceVersion": str(self._version)}
            if rest[limit:]:
                metadata["continue"] = str(uuid.uuid4())
                self._snapshots[metadata["continue"]] = rest[limit:]
            items = [{name: each for name, each in pod.items() if name not in ("apiVersion", "kind")} for pod in rest]
            return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def expire_lists(self) -> None:
        """What is left of lists cannot be had any more."""
        self._snapshots.clear()

    def _delete(self, name: str, options: Json) -> Json:
        with self._lock:
            pod = self._pods.get(name)
            if pod is None:
                raise _Refused(404, f'pods "{name}" not found')
            metadata = pod["metadata"]
            uid = options.get("preconditions", {}).get("uid", metadata["uid"])
            if uid != metadata["uid"]:
                text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
                raise _Refused(409, f'Operation cannot be fulfilled on pods "{name}": {text}', "Conflict")
            grace_seconds = options.get("gracePeriodSeconds", pod["spec"]["terminationGracePeriodSeconds"])
            if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
                grace_seconds = 0
            if grace_seconds and metadata.get("deletionGracePeriodSeconds", float("inf")) <= grace_seconds:
                return copy.deepcopy(pod)
            metadata.update(deletionTimestamp=_time(grace_seconds), deletionGracePeriodSeconds=grace_seconds)
            self._touch(pod)
            deleted = copy.deepcopy(pod)
            if not grace_seconds:
                del self._pods[name]
        self.on_deleting(deleted)
        return deleted

    def _touch(self, pod: Json) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)


class _Handler(BaseHTTPRequestHandler):
    server_of_pods: FakeApiServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers.get("Authorization", "")
        try:
            status, answer, retry_after = self.server_of_pods.answer(self.command, self.path, token, body)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 (their names)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (its name)
        """Tests read `requests`."""


@contextmanager
def api_server(tls: Any = None) -> Iterator[FakeApiServer]:
    server = FakeApiServer(tls)
    try:
        yield server
    finally:
        server.close()


def _object(body: bytes) -> Json:
    try:
        content = json.loads(body)
    except ValueError:
        raise _Refused(400, "couldn't get version/kind; json parse error") from None
    if not isinstance(content, dict):
        raise _Refused(400, "couldn't get version/kind; json parse error")
    return content


def _status(error: _Refused) -> Json:
    reason = error.reason or _REASONS.get(error.status, "")
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**status, "message": str(error), "reason": reason, "code": error.status}


def _is_selected(pod: Json, selector: str) -> bool:
    """Whether a pod has the labels of a selector, of `name=value` with commas in between."""
    labels = pod["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        name, has_value, value = part.partition("=")
        if not has_value or "!" in part or " " in part:
            raise _Refused(400, f"unable to parse requirement: {part}")
        if labels.get(name) != value:
            return False
    return True


def _time(seconds: float) -> str:
    """The time in so many seconds."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
