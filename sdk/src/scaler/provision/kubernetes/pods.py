"""A unit as a pod: its name, its labels, and its manifest.

Rules:
- A pod is one worker, and is not restarted: a worker that has ended is a unit that has ended.
- What the template of a user says goes before defaults, and after options. What would break a unit is refused.
- Names may be shortened and changed for Kubernetes; the labels have the id as it is, and pods are found by them.
"""

from __future__ import annotations

import hashlib
import re
from math import ceil
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from scaler.provision.core.pool import PoolSettings
from scaler.provision.unit_commands import digest_of, number_text, worker_arguments

Json = Dict[str, Any]

CONTAINER = "worker"
"""The container of the worker; a template may say more of it."""

MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "scaler-provision"
POOL_LABEL, CLUSTER_LABEL, UNIT_LABEL = "scaler/pool", "scaler/cluster", "scaler/unit"

KEY_FOLDER = "/etc/scaler/key"
KEY_NAME = "worker.key"

DRAIN_MARGIN_SECONDS = 5.0
"""Of the grace period: for results, after the last task."""

_USER = 65532  # of the images in packaging/oci
_LONGEST_NAME = 63  # of a host, which has the pod's name
_DIGEST_CHARACTERS = 6
_RESERVED_IN_SPEC = {
    "terminationGracePeriodSeconds": "use --grace-seconds, from which workers know how long tasks may take",
    "activeDeadlineSeconds": "use --lifetime-seconds, from which tasks with a time_request are placed",
}
_RESERVED_IN_CONTAINER = {
    "args": "they name the scheduler and the unit; set SCALER_CLUSTER_... in env",
    "command": "use --worker-command",
}


class PodSettings(NamedTuple):
    """What a user says of a pool's pods.

    Attributes:
        address: of the scheduler, as workers reach it.
        image: of the worker's container.
        namespace: of the pods; empty: that of the access to the API.
        worker: words of the command of a worker; empty: the entry point of the image.
        service_account: of the pods; empty: they get no token of one.
        resources: quantities by name, which are both requested and the limit.
        node_selector: labels of nodes.
        tolerations: of taints, as in a manifest.
        template: a pod with everything else; see `template_fault`.
        worker_secret: a secret with the key of workers; empty: there is none.
        grace_seconds: from SIGTERM to SIGKILL.
        owner_deployment: pods end with it; empty: they end by themselves.
        insecure: workers connect without keys.
    """

    address: str
    image: str
    namespace: str = ""
    worker: Sequence[str] = ()
    service_account: str = ""
    resources: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    tolerations: Sequence[Mapping[str, str]] = ()
    template: Mapping[str, Any] = {}
    worker_secret: str = ""
    grace_seconds: float = 30.0
    owner_deployment: str = ""
    insecure: bool = False


def labels_of(pool: str, address: str) -> Dict[str, str]:
    """The labels that all pods of a pool have, and that no others have."""
    return {MANAGER_LABEL: MANAGER, POOL_LABEL: pool, CLUSTER_LABEL: digest_of(address)}


def selector_of(labels: Mapping[str, str]) -> str:
    """The selector of pods that have these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())


def pod_name_of(unit: str, address: str) -> str:
    """The name of a unit's pod: the id as far as a name can have it, and a few characters of its own."""
    digest = hashlib.sha256(f"{address} {unit}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    readable = re.sub(r"[^a-z0-9]+", "-", unit.lower()).strip("-")
    return f"{readable[: _LONGEST_NAME - _DIGEST_CHARACTERS - 1]}-{digest}"


def capabilities_of_resources(resources: Mapping[str, str]) -> Dict[str, float]:
    """What a pod with such extended resources offers: `nvidia.com/gpu=2` is gpu=2."""
    amounts: Dict[str, float] = {}
    for name, quantity in resources.items():
        if "/" in name and quantity.isdigit():
            short = name.rpartition("/")[2]
            amounts[short] = amounts.get(short, 0.0) + float(quantity)
    return amounts


def drain_seconds_of(grace_seconds: float) -> float:
    """How long tasks may take after SIGTERM, of a grace period."""
    return max(grace_seconds - DRAIN_MARGIN_SECONDS, grace_seconds / 2)


def template_fault(template: object) -> str:
    """Why a template cannot be used; empty if it can."""
    if not isinstance(template, dict) or not isinstance(template.get("spec", {}), dict):
        return "expected a pod: a mapping with metadata and spec"
    if template.get("kind", "Pod") not in ("Pod", "PodTemplate"):
        return f"expected the kind Pod, got {template['kind']!r}"
    unknown = sorted(template.keys() - {"apiVersion", "kind", "metadata", "spec"})
    if unknown:
        return f"unknown field {unknown[0]}: a pod has apiVersion, kind, metadata and spec"
    spec = template.get("spec", {})
    if spec.get("restartPolicy", "Never") != "Never":
        return "restartPolicy must be Never: the pool decides whether a worker is started again"
    for field in ("containers", "volumes", "tolerations"):
        value = spec.get(field, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            return f"expected a list of mappings as spec.{field}"
    for field, why in _RESERVED_IN_SPEC.items():
        if field in spec:
            return f"spec.{field} cannot be used: {why}"
    for field, why in _RESERVED_IN_CONTAINER.items():
        if field in _container_of(spec):
            return f"{field} of the container {CONTAINER} cannot be used: {why}"
    return ""


def pod_of(settings: PodSettings, pool: PoolSettings, unit: str, owners: Sequence[Json] = ()) -> Json:
    """The manifest of a unit.

    Parameters:
        owners: references to what the pod ends with.
    """
    template = settings.template
    metadata = dict(template.get("metadata", {}))
    metadata["name"] = pod_name_of(unit, settings.address)
    metadata["labels"] = {
        **metadata.get("labels", {}),
        **labels_of(pool.name, settings.address),
        UNIT_LABEL: unit,
    }
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    if owners:
        metadata["ownerReferences"] = [*metadata.get("ownerReferences", []), *owners]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec_of(settings, pool, unit)}


def _spec_of(settings: PodSettings, pool: PoolSettings, unit: str) -> Json:
    given = settings.template.get("spec", {})
    spec: Json = {"enableServiceLinks": False, "securityContext": _pod_security(), **given}
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    elif "serviceAccountName" not in given:
        spec.setdefault("automountServiceAccountToken", False)
    if settings.node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **settings.node_selector}
    if settings.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", []), *map(dict, settings.tolerations)]
    spec["restartPolicy"] = "Never"
    spec["terminationGracePeriodSeconds"] = ceil(settings.grace_seconds)
    if pool.lifetime_seconds:
        # The worker leaves before, by itself: this is for one that hangs.
        spec["activeDeadlineSeconds"] = ceil(pool.lifetime_seconds + pool.start_timeout_seconds)
    others = [each for each in spec.get("containers", []) if each.get("name") != CONTAINER]
    container = _worker_of(settings, pool, unit, _container_of(given))
    volumes: List[Json] = list(spec.get("volumes", []))
    if not any(each.get("mountPath") == "/dev/shm" for each in container.get("volumeMounts", [])):
        volumes.append({"name": "scaler-shared-memory", "emptyDir": {"medium": "Memory"}})
        _mount(container, {"name": "scaler-shared-memory", "mountPath": "/dev/shm"})
    if settings.worker_secret:
        secret = {"secretName": settings.worker_secret, "defaultMode": 0o440}
        volumes.append({"name": "scaler-key", "secret": secret})
        _mount(container, {"name": "scaler-key", "mountPath": KEY_FOLDER, "readOnly": True})
    return {**spec, "containers": [container, *others], "volumes": volumes}


def _worker_of(settings: PodSettings, pool: PoolSettings, unit: str, given: Json) -> Json:
    cpus = {"cpu": str(pool.slots)}
    container: Json = {
        "name": CONTAINER,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": cpus, "limits": dict(cpus)},
        **given,
        "image": settings.image,
    }
    if settings.resources:
        quantities = {**({} if "resources" in given else cpus), **settings.resources}
        before = given.get("resources", {})
        container["resources"] = {
            **before,
            "requests": {**before.get("requests", {}), **quantities},
            "limits": {**before.get("limits", {}), **quantities},
        }
    if settings.worker:
        container["command"] = list(settings.worker)
    key_file = f"{KEY_FOLDER}/{KEY_NAME}" if settings.worker_secret else None
    arguments = worker_arguments(pool, unit, settings.address, key_file, settings.insecure)
    arguments += ["--drain-timeout-seconds", f"{drain_seconds_of(settings.grace_seconds):g}"]
    if pool.lifetime_seconds:
        arguments += ["--lifetime-seconds", number_text(pool.lifetime_seconds)]
    container["args"] = arguments
    return container


def _mount(container: Json, mount: Json) -> None:
    container["volumeMounts"] = [*container.get("volumeMounts", []), mount]


def _container_of(spec: Mapping[str, Any]) -> Json:
    """What a template says of the worker's container."""
    return next((each for each in spec.get("containers", []) if each.get("name") == CONTAINER), {})


def _pod_security() -> Json:
    ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _USER)
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}
