"""The kit's folders for KEDA and for a HorizontalPodAutoscaler: workers whose number others set.

Rules: as in `test_kubernetes_kit`. KEDA's own kinds have no schema here; what they name is compared with what there is,
and what KEDA would ask is asked of the page itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes_validate import validate
from kubernetes_validate.utils import latest_version
from quiet_addresses import quiet_address
from test_kubernetes_kit import DEADLINE_SECONDS, KIT, Json, deployment_pod, of_kind, rendered, until

from scaler import Client, Scheduler

AUTOSCALERS = ("keda", "hpa")
KEDA_KINDS = ("ScaledObject", "TriggerAuthentication")
TOKEN = "0123456789abcdef0123"


def trigger() -> Json:
    (found,) = of_kind("ScaledObject", rendered("keda"))["scaler-workers"]["spec"]["triggers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("folder", AUTOSCALERS)
def test_what_kubectl_renders_is_what_kubernetes_accepts(folder: str) -> None:
    for each in rendered(folder):
        if each["kind"] in KEDA_KINDS:
            assert each["apiVersion"] == "keda.sh/v1alpha1"
        else:
            validate(each, latest_version(), strict=True)


@pytest.mark.parametrize("folder", AUTOSCALERS)
def test_the_deployment_is_that_of_the_workers_without_their_number(folder: str) -> None:
    scaled = of_kind("Deployment", rendered(folder))["scaler-workers"]
    plain = of_kind("Deployment", rendered("workers"))["scaler-workers"]
    assert "replicas" not in scaled["spec"]
    assert {**scaled["spec"], "replicas": plain["spec"]["replicas"]} == plain["spec"]


def test_each_autoscaler_scales_that_deployment_by_the_slots_of_its_pods() -> None:
    scaled = of_kind("ScaledObject", rendered("keda"))["scaler-workers"]["spec"]
    scaler = of_kind("HorizontalPodAutoscaler", rendered("hpa"))["scaler-workers"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == scaler["scaleTargetRef"]["name"] == "scaler-workers"
    pod = deployment_pod(of_kind("Deployment", rendered("keda"))["scaler-workers"])
    slots = pod.container["resources"]["limits"]["cpu"]  # see `test_workers_take_the_cpus_that_they_are_given`
    (metric,) = scaler["metrics"]
    assert trigger()["metadata"]["targetValue"] == metric["external"]["target"]["averageValue"] == slots
    assert scaled["maxReplicaCount"] == scaler["maxReplicas"]
    assert scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == scaler["behavior"]


def test_keda_presents_the_token_of_the_page() -> None:
    name = trigger()["authenticationRef"]["name"]
    (given,) = of_kind("TriggerAuthentication", rendered("keda"))[name]["spec"]["secretTargetRef"]
    page = deployment_pod(of_kind("Deployment", rendered("kit"))["scaler-ui"])
    (wanted,) = [each["valueFrom"]["secretKeyRef"] for each in page.container["env"] if "valueFrom" in each]
    assert (given["parameter"], given["name"], given["key"]) == ("token", wanted["name"], wanted["key"])


@pytest.mark.parametrize(("folder", "namespace"), [("keda", "keda"), ("hpa", "monitoring")])
def test_a_policy_lets_another_namespace_reach_the_page_and_no_other_pod(folder: str, namespace: str) -> None:
    (policy,) = of_kind("NetworkPolicy", rendered(folder)).values()
    page = deployment_pod(of_kind("Deployment", rendered("kit"))["scaler-ui"])
    workers = deployment_pod(of_kind("Deployment", rendered(folder))["scaler-workers"])
    chosen = policy["spec"]["podSelector"]["matchLabels"].items()
    assert chosen <= page.labels.items() and not chosen <= workers.labels.items()
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    assert [each["port"] for each in rule["ports"]] == list(page.ports.values())


def test_the_url_leads_to_the_page() -> None:
    url = urlsplit(trigger()["metadata"]["url"])
    (service,) = [each for name, each in of_kind("Service", rendered("kit")).items() if name == "scaler-ui"]
    (namespace,) = of_kind("Namespace", rendered("example"))
    assert url.hostname == f"{service['metadata']['name']}.{namespace}"
    assert url.port in [each["port"] for each in service["spec"]["ports"]]


class Page(NamedTuple):
    """A page with a token, and its scheduler."""

    url: str
    scheduler: str
    process: subprocess.Popen[bytes]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    monitor = f"ipc://{tmp_path}/monitor"
    port = quiet_address().rpartition(":")[2]
    with Scheduler(logging_level="WARNING", monitor_address=monitor) as scheduler:
        command = [sys.executable, "-m", "scaler_appliance.ui", monitor, "--port", port]
        command += ["--exit-when-stdin-closes"]
        token = tmp_path / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(
                [*command, "--token-file", str(token)], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        try:
            yield Page(f"http://127.0.0.1:{port}", scheduler.get_address(), process)
        finally:
            process.communicate(timeout=DEADLINE_SECONDS)


def answer(url: str, token: str) -> Dict[str, Any]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as opened:
        found: Dict[str, Any] = json.load(opened)
        return found


def test_what_keda_asks_is_answered_by_a_number(page: Page) -> None:
    given = trigger()["metadata"]
    parts = urlsplit(given["url"])
    url = f"{page.url}{parts.path}?{parts.query}"
    assert given["authMode"] == "bearer"

    def wanted() -> Any:
        try:
            return answer(url, TOKEN)[given["valueLocation"]]
        except (urllib.error.URLError, ConnectionError):  # it starts, or the scheduler has published nothing yet
            return None

    with Client(page.scheduler) as client:
        waiting = [client.options(time_request="1h").submit(pow, 2, each) for each in range(5)]
        until(lambda: bool(wanted() == len(waiting)), page.process)
        with pytest.raises(urllib.error.HTTPError) as error:
            answer(url, "")
        assert error.value.code == 401
        for each in waiting:
            each.cancel()
        until(lambda: bool(wanted() == 0), page.process)


def test_the_page_of_the_documentation_has_the_same_trigger_for_other_pods() -> None:
    text = (KIT.parents[1] / "docs/how-to/workers-that-come-and-go.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(triggers:.*?)```", text, re.DOTALL)
    (shown,) = yaml.safe_load(block)["triggers"]
    kept = trigger()
    assert {**shown, "metadata": {**shown["metadata"], "targetValue": kept["metadata"]["targetValue"]}} == kept
