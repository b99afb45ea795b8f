"""Units as pods, with an API server that answers as Kubernetes does: requests, and what errors become."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Type

import pytest
from provision.fake_kubernetes.api_server import NAMESPACE, FakeApiServer, Fault, api_server

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.kubernetes import api_client
from scaler.provision.kubernetes.api_access import ApiAccess
from scaler.provision.kubernetes.api_errors import (
    ConflictError,
    KubernetesAccessError,
    KubernetesForbiddenError,
    KubernetesRefusedError,
    KubernetesUnavailableError,
    NotFoundError,
    ThrottledError,
)
from scaler.provision.kubernetes.pod_units import FAILED_PODS, FAILED_SECONDS, START_ERROR_SECONDS, KubernetesUnits
from scaler.provision.kubernetes.pods import CLUSTER_LABEL, POOL_LABEL, PodSettings, pod_of
from scaler.provision.unit_adapters import UnitError
from scaler_protocol import messages as m

ADDRESS = "tcp://scaler-scheduler:2345"
POOL = PoolSettings("cpu", slots=2, maximum=4)
SETTINGS = PodSettings(ADDRESS, "workers:1")
WAITS = ListedUnit(m.UnitState.PENDING, "it waits for the scheduler of pods")
RUNS = ListedUnit(m.UnitState.STARTING)
SCHEDULED = [{"type": "PodScheduled", "status": "True"}]
RUNNING = {"phase": "Running", "conditions": SCHEDULED}
UNIT, SECOND = "cpu-ab12cd-1", "cpu-ab12cd-2"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with api_server() as it:
        yield it


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def units_at(
    server: FakeApiServer, pool: PoolSettings = POOL, settings: PodSettings = SETTINGS, seconds: float = 20.0
) -> KubernetesUnits:
    access = ApiAccess(server.url, None, lambda: server.token, NAMESPACE)
    return KubernetesUnits(pool, settings, lambda: access, seconds, Clock())


@pytest.fixture
def units(server: FakeApiServer) -> KubernetesUnits:
    return units_at(server)


def clock_of(units: KubernetesUnits) -> Clock:
    clock = units._clock
    assert isinstance(clock, Clock)
    return clock


def name_of(server: FakeApiServer, unit: str = UNIT) -> str:
    (name,) = [each["metadata"]["name"] for each in server.pods() if each["metadata"]["labels"]["scaler/unit"] == unit]
    return str(name)


def waiting(reason: str) -> Dict[str, Any]:
    container = {"name": "worker", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    state = {"waiting": {"reason": reason}}
    return {"phase": "Pending", "conditions": SCHEDULED, "containerStatuses": [{**container, "state": state}]}


# What is asked of the server.


def test_a_unit_is_created_listed_and_deleted(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    assert units.list() == {UNIT: WAITS}
    server.set_status(name_of(server), RUNNING, node="node-1")
    assert units.list() == units_at(server).list() == {UNIT: RUNS}, "another run of the program finds it"

    units.stop(UNIT)

    (pod,) = server.pods()
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert units.list() == {UNIT: ListedUnit(m.UnitState.STARTING, "it is being deleted")}
    server.remove_pod(pod["metadata"]["name"], pod["metadata"]["uid"])
    assert units.list() == {}


def test_a_pod_that_waits_is_gone_at_once_and_one_that_is_gone_may_be_stopped(
    server: FakeApiServer, units: KubernetesUnits
) -> None:
    units.start(UNIT)
    units.stop(UNIT)
    assert server.pods() == []
    units.stop(UNIT)


def test_a_unit_that_is_stopped_again_is_not_hurried(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    server.set_status(name_of(server), RUNNING, node="node-1")
    for _ in range(2):
        units.stop(UNIT)
    assert [each.partition(" ")[0] for each in server.requests].count("DELETE") == 1


def test_pods_of_others_are_neither_listed_nor_deleted(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    units_at(server, settings=SETTINGS._replace(address="tcp://x:1")).start(UNIT)
    units_at(server, POOL._replace(name="cpu-ab12cd")).start("cpu-ab12cd-ab12cd-1")
    server.add_pod({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": _any_spec()})

    assert list(units.list()) == [UNIT]
    units.stop(UNIT)
    assert len(server.pods()) == 3 and units.list() == {}


def test_a_server_that_answers_with_pods_of_others_is_not_believed(
    server: FakeApiServer, units: KubernetesUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    units_at(server, settings=SETTINGS._replace(address="tcp://x:1")).start(UNIT)
    monkeypatch.setattr("scaler.provision.kubernetes.pod_units.selector_of", lambda labels: "")
    assert units.list() == {}
    units.stop(UNIT)
    assert len(server.pods()) == 1


def test_a_pod_that_has_got_the_name_meanwhile_is_left_alone(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    name = name_of(server)
    server.set_status(name, {"phase": "Succeeded"})
    assert units.list() == {}  # and goes before the next listing
    server.delete_pod(name)
    units.start(UNIT)  # another one with this name

    assert units.list() == {UNIT: WAITS}


def _any_spec() -> Dict[str, Any]:
    return {"containers": [{"name": "a", "image": "b"}]}


def test_long_lists_come_in_pages_of_one_moment(
    server: FakeApiServer, units: KubernetesUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "PAGE", 2)
    names = [f"cpu-ab12cd-{number}" for number in range(5)]
    for unit in names:
        units.start(unit)
    server.requests.clear()

    assert sorted(units.list()) == names
    assert len(server.requests) == 3 and "continue=" in server.requests[2]
    assert not any("resourceVersion" in each for each in server.requests), "a list from a cache may lack a new pod"


def test_a_list_whose_rest_has_expired_is_begun_again(
    server: FakeApiServer, units: KubernetesUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "PAGE", 1)
    for unit in (UNIT, SECOND):
        units.start(unit)
    answer, times = server.answer, [1, 99]

    def expiring(method: str, target: str, token: str, body: bytes) -> Any:
        if "continue=" in target and times[0]:
            times[0] -= 1
            server.expire_lists()
        return answer(method, target, token, body)

    monkeypatch.setattr(server, "answer", expiring)
    assert sorted(units.list()) == [UNIT, SECOND]
    times[0] = 99
    with pytest.raises(KubernetesUnavailableError, match="too old to display"):
        units.list()


def test_pods_end_with_the_deployment_that_owns_them(server: FakeApiServer) -> None:
    units = units_at(server, settings=SETTINGS._replace(owner_deployment="scaler-provision"))
    with pytest.raises(NotFoundError, match=r'get deployments .* "scaler-provision" not found; .*--owner-deployment'):
        units.start(UNIT)
    uid = server.add_deployment("scaler-provision")
    units.start(UNIT)
    (owner,) = server.pods()[0]["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaler-provision", "uid": uid}

    server.delete_deployment("scaler-provision")
    assert units.list() == {}


# Pods that have ended, and pods that cannot start.


def test_a_pod_that_has_ended_as_it_should_is_deleted(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    server.set_status(name_of(server), {"phase": "Succeeded"})
    assert units.list() == {} and len(server.pods()) == 1
    assert units.list() == {} and server.pods() == []


def test_a_pod_that_has_failed_stays_for_a_while(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    server.set_status(name_of(server), {"phase": "Failed", "reason": "Evicted", "message": "disk"}, node="node-1")
    for seconds in (0.0, FAILED_SECONDS - 1.0, 1.0):
        clock_of(units).now += seconds
        (found,) = units.list().values()
        assert found.state == m.UnitState.FAILED and "(Evicted): disk" in found.reason
    assert units.list() == {} and server.pods() == []


def test_only_the_last_pods_that_have_failed_stay(server: FakeApiServer, units: KubernetesUnits) -> None:
    for number in range(FAILED_PODS + 2):
        units.start(f"cpu-ab12cd-{number}")
        server.set_status(name_of(server, f"cpu-ab12cd-{number}"), {"phase": "Failed"}, node="node-1")
        units.list()
        clock_of(units).now += 1.0
    units.list()
    left = {each["metadata"]["labels"]["scaler/unit"] for each in server.pods()}
    assert left == {f"cpu-ab12cd-{number}" for number in range(2, FAILED_PODS + 2)}


def test_a_pod_whose_image_cannot_be_pulled_fails_and_is_deleted_then(
    server: FakeApiServer, units: KubernetesUnits
) -> None:
    units.start(UNIT)
    server.set_status(name_of(server), waiting("ErrImagePull"), node="node-1")
    assert units.list()[UNIT].state == m.UnitState.STARTING
    clock_of(units).now += START_ERROR_SECONDS
    assert units.list()[UNIT].state == m.UnitState.FAILED and len(server.pods()) == 1

    server.rights.remove(("delete", "pods"))
    with pytest.raises(KubernetesForbiddenError, match="verb delete for pods"):
        units.list()
    server.rights.add(("delete", "pods"))
    server.set_status(name_of(server), waiting("ImagePullBackOff"))
    units.list()
    (pod,) = server.pods()
    assert pod["metadata"]["deletionTimestamp"]


def test_an_image_that_comes_after_all_is_no_failure(server: FakeApiServer, units: KubernetesUnits) -> None:
    units.start(UNIT)
    server.set_status(name_of(server), waiting("ErrImagePull"), node="node-1")
    units.list()
    server.set_status(name_of(server), RUNNING)
    clock_of(units).now += START_ERROR_SECONDS
    assert units.list() == {UNIT: RUNS}
    server.set_status(name_of(server), waiting("ErrImagePull"))
    assert units.list()[UNIT].state == m.UnitState.STARTING, "its time begins again"


# Errors.


@pytest.mark.parametrize(
    ("status", "text", "error", "part"),
    [
        (400, "strict decoding error", KubernetesRefusedError, "see --pod-template, --resources and --dry-run"),
        (401, "Unauthorized", KubernetesForbiddenError, "sign in again"),
        (403, "pods is forbidden: User", KubernetesForbiddenError, "a Role with the verb create for pods"),
        (403, 'violates PodSecurity "restricted:latest": ...', KubernetesRefusedError, "change securityContext in"),
        (403, "maximum cpu usage per Pod is 2", KubernetesRefusedError, "describe limitrange"),
        (
            403,
            'error looking up service account team/x: serviceaccount "x" not found',
            KubernetesRefusedError,
            "change --service-account",
        ),
        (404, 'namespaces "tame" not found', NotFoundError, "see --namespace"),
        (409, 'pods "x" already exists', ConflictError, "already exists"),
        (422, 'Pod "x" is invalid: spec', KubernetesRefusedError, "see --pod-template"),
        (
            500,
            "etcdserver: request timed out",
            KubernetesUnavailableError,
            "etcdserver: request timed out; it is tried",
        ),
        (503, "apiserver is shutting down", KubernetesUnavailableError, "kubectl get --raw /readyz"),
        (302, "elsewhere", KubernetesAccessError, "is the address that of"),
    ],
)
def test_an_error_says_what_failed_and_what_to_do(
    server: FakeApiServer, units: KubernetesUnits, status: int, text: str, error: Type[UnitError], part: str
) -> None:
    server.faults.append(Fault("POST", status, text))
    with pytest.raises(error) as raised:
        units.start(UNIT)
    assert type(raised.value) is error
    assert f"cannot create pods in the namespace {NAMESPACE} (status {status}): {text}" in str(raised.value)
    assert part in str(raised.value)
    assert units.list() == {}, "the next request is answered"


@pytest.mark.parametrize("verb", ["create", "list", "delete"])
def test_a_missing_right_is_named(server: FakeApiServer, units: KubernetesUnits, verb: str) -> None:
    calls: Dict[str, Callable[[], object]] = {
        "create": lambda: units.start(UNIT),
        "list": units.list,
        "delete": lambda: units.stop(SECOND),
    }
    units.start(SECOND)
    server.rights.remove((verb, "pods"))
    with pytest.raises(KubernetesForbiddenError, match=f"the verb {verb} for pods"):
        calls[verb]()


def test_a_quota_and_an_unknown_namespace_refuse_units(server: FakeApiServer, units: KubernetesUnits) -> None:
    server.most_pods = 1
    units.start(UNIT)
    with pytest.raises(KubernetesRefusedError, match=r"exceeded quota: most, .* limited: pods=1; kubectl describe"):
        units.start(SECOND)
    with pytest.raises(NotFoundError, match='namespaces "tame" not found'):
        units_at(server, settings=SETTINGS._replace(namespace="tame")).start(UNIT)


def test_a_misspelt_template_is_refused_by_the_server(server: FakeApiServer) -> None:
    units = units_at(server, settings=SETTINGS._replace(template={"spec": {"dnsPolizy": "None"}}))
    with pytest.raises(KubernetesRefusedError, match=r"status 400.*dnsPolizy.*see --pod-template"):
        units.start(UNIT)
    units = units_at(server, settings=SETTINGS._replace(resources={"nvidia.com/gpu": "500m"}))
    with pytest.raises(KubernetesRefusedError, match=r"status 422.*must be an integer"):
        units.start(UNIT)


def test_a_pause_that_the_server_asks_for_is_made(server: FakeApiServer, units: KubernetesUnits) -> None:
    pauses: List[float] = []

    class NoPause(threading.Event):
        def wait(self, timeout: Optional[float] = None) -> bool:
            pauses.append(timeout or 0.0)
            return False

    units._hurry = NoPause()
    server.faults += [Fault("POST", 429, "too many requests", retry_after="7"), Fault("POST", 429, "again")]
    units.start(UNIT)
    assert pauses == [7.0, 1.0] and len(server.pods()) == 1

    server.faults.append(Fault("POST", 429, "too many requests", retry_after="3600"))
    with pytest.raises(ThrottledError, match="too many requests; the API server is busy"):
        units.start(SECOND)
    assert len(pauses) == 2


def test_a_second_signal_ends_a_pause(server: FakeApiServer, units: KubernetesUnits) -> None:
    server.faults.append(Fault("GET", 429, retry_after="10"))
    units.hurry()
    with pytest.raises(ThrottledError):
        units.list()


def test_an_answer_that_does_not_come_is_an_error_and_the_pod_is_found_later(
    server: FakeApiServer, units: KubernetesUnits
) -> None:
    server.faults.append(Fault("POST", 0, is_done=True))
    with pytest.raises(KubernetesUnavailableError, match="no Kubernetes API server at"):
        units.start(UNIT)
    assert units.list() == {UNIT: WAITS}


def test_a_server_that_hangs_costs_its_time_limit(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer = threading.Event()
    answer = server.answer

    def slow(*arguments: Any) -> Any:
        may_answer.wait(60.0)
        return answer(*arguments)

    monkeypatch.setattr(server, "answer", slow)
    with pytest.raises(KubernetesUnavailableError, match=r"within 0\.05 s \(command_timeout_seconds\)"):
        units_at(server, seconds=0.05).list()
    may_answer.set()


def test_a_server_that_is_not_there_and_one_of_another_kind_are_told_apart(
    server: FakeApiServer, units: KubernetesUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "answer", lambda *arguments: (200, ["no", "objects"], ""))
    with pytest.raises(KubernetesAccessError, match="is no Kubernetes API server: it sends no JSON objects"):
        units.list()
    server.close()
    with pytest.raises(KubernetesUnavailableError, match="Connection refused"):
        units.list()


def test_the_fake_refuses_what_kubernetes_refuses(server: FakeApiServer) -> None:
    from provision.fake_kubernetes.pod_rules import InvalidError

    def refused(change: Callable[[Dict[str, Any]], object]) -> str:
        pod = pod_of(SETTINGS, POOL, UNIT)
        change(pod)
        with pytest.raises(InvalidError) as error:
            server._create({"fieldValidation": "Strict"}, pod)
        return f"{error.value.status} {error.value}"

    assert "dnsPolizy" in refused(lambda pod: pod["spec"].update(dnsPolizy="None"))
    assert refused(lambda pod: pod["spec"].update(terminationGracePeriodSeconds="30")).startswith("400")
    assert refused(lambda pod: pod["metadata"].update(name="Upper_case")).startswith("422")
    assert "valid label" in refused(lambda pod: pod["metadata"]["labels"].update({POOL_LABEL: "-x"}))
    assert "name part" in refused(lambda pod: pod["metadata"]["labels"].update({"a b": CLUSTER_LABEL}))
    assert "must be unique" in refused(
        lambda pod: pod["spec"]["containers"][0]["volumeMounts"].append(
            {"name": "scaler-shared-memory", "mountPath": "/dev/shm"}
        )
    )
    assert "Not found" in refused(lambda pod: pod["spec"].update(volumes=[]))
    assert "Required value" in refused(lambda pod: pod["spec"]["containers"][0].pop("image"))
