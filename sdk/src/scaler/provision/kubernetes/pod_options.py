"""The options of pools whose units are pods; see `scaler_protocol.programs.options` for option tables.

Rule: nothing here imports what requests need: all programs of other adapters read this table too.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List

from scaler.provision.core.pool import PoolSettings
from scaler.provision.kubernetes.manifest_files import ManifestError, read_manifest
from scaler.provision.kubernetes.pods import PodSettings, template_fault
from scaler.provision.unit_adapters import UnitAdapter, UnitError
from scaler_protocol.programs.options import ExistingFile, Kind, Option, Seconds
from scaler_protocol.programs.options.kinds import comma_separated, toml_of

_GROUP = "Kubernetes"
_LABEL = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)"
_LABEL_NAME = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?{_LABEL}", re.ASCII)
_QUANTITY = re.compile(r"(?:\d+|\d+\.\d*|\.\d+)(?:[EPTGMk]i?|Ki|[mun]|[eE]-?\d+)?", re.ASCII)
_GRACE_SECONDS = float(PodSettings._field_defaults["grace_seconds"])
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class _Pairs(Kind):
    """NAME=VALUE, separated by commas; in TOML also a table.

    Parameters:
        expects: the expected form.
        value: the form of values.
    """

    metavar = "NAME=VALUE[,...]"

    def __init__(self, expects: str, value: re.Pattern[str]) -> None:
        self.expects = expects
        self._value = value

    def parse(self, text: str) -> Any:
        pairs: Dict[str, str] = {}
        for part in comma_separated(text):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name in pairs:
                raise ValueError(f"{part!r}: write each name once")
            pairs[name] = value
        return self._checked(pairs, text)

    def from_toml(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return super().from_toml(value)
        numbers_too = (str, int, float)
        if not all(isinstance(each, numbers_too) and not isinstance(each, bool) for each in value.values()):
            raise self._wrong(value)
        return self._checked({name: str(each) for name, each in value.items()}, value)

    def _checked(self, pairs: Dict[str, str], given: Any) -> Dict[str, str]:
        if not all(_LABEL_NAME.fullmatch(name) and self._value.fullmatch(each) for name, each in pairs.items()):
            raise self._wrong(given)
        return pairs


class _Tolerations(Kind):
    """KEY[=VALUE][:EFFECT], separated by commas; in TOML also an array of tables, as in a manifest."""

    expects = f"taints such as gpu=a100:NoSchedule, with an effect of {', '.join(_EFFECTS)} or none for all"
    metavar = "KEY[=VALUE][:EFFECT][,...]"

    def parse(self, text: str) -> Any:
        found = []
        for part in comma_separated(text):
            taint, has_effect, effect = part.partition(":")
            key, has_value, value = taint.partition("=")
            if not _LABEL_NAME.fullmatch(key) or (has_effect and effect not in _EFFECTS):
                raise self._wrong(text)
            toleration = {"key": key, "operator": "Equal" if has_value else "Exists"}
            if has_value:
                toleration["value"] = value
            if effect:
                toleration["effect"] = effect
            found.append(toleration)
        return found

    def from_toml(self, value: Any) -> Any:
        if not isinstance(value, list):
            return super().from_toml(value)
        tables = all(isinstance(each, dict) and all(isinstance(v, str) for v in each.values()) for each in value)
        if not tables:
            raise self._wrong(value)
        return value

    def to_toml(self, value: Any) -> str:
        return toml_of(value)


KUBERNETES_OPTIONS: List[Option] = [
    Option(
        "--image",
        Kind(),
        "of the pods' container, with Scaler and what tasks import; its entry point is scaler_cluster, unless"
        " --worker-command is given",
        metavar="IMAGE",
        group=_GROUP,
    ),
    Option(
        "--namespace",
        Kind(),
        "of the pods",
        default_text="the one of this program's pod, or of the kubeconfig context",
        metavar="NAME",
        group=_GROUP,
    ),
    Option(
        "--service-account", Kind(), "of the pods", default_text="none: they get no token", metavar="NAME", group=_GROUP
    ),
    Option(
        "--resources",
        _Pairs("quantities such as cpu=4,memory=8Gi,nvidia.com/gpu=1", _QUANTITY),
        "that each pod requests, and its limits; nvidia.com/gpu=1 is also the capability gpu=1, unless --capabilities"
        " says something else",
        default={},
        default_text="as many CPUs as slots",
        group=_GROUP,
    ),
    Option(
        "--node-selector",
        _Pairs("labels such as disk=ssd,topology.kubernetes.io/zone=a", re.compile(rf"{_LABEL}?", re.ASCII)),
        "labels that the nodes must have",
        default={},
        default_text="none",
        group=_GROUP,
    ),
    Option(
        "--tolerations",
        _Tolerations(),
        "taints of nodes that the pods tolerate",
        default=[],
        default_text="none",
        group=_GROUP,
    ),
    Option(
        "--worker-secret",
        Kind(),
        "a secret whose worker.key is the key that workers connect with, of the role worker",
        default_text="none: the template says where a key is, or --insecure",
        metavar="NAME",
        group=_GROUP,
    ),
    Option(
        "--grace-seconds",
        Seconds(0),
        "from SIGTERM, which drains a worker, to SIGKILL: running tasks may take 5 s less",
        default=_GRACE_SECONDS,
        group=_GROUP,
    ),
    Option(
        "--pod-template",
        ExistingFile(),
        "a pod in YAML or JSON with everything else: volumes, variables, affinity; its container named worker is the"
        " worker's",
        group=_GROUP,
    ),
    Option(
        "--owner-deployment",
        Kind(),
        "a Deployment of the namespace, such as that of this program: when it is deleted, the pods are deleted too",
        default_text="none: pods end when they are idle, or have lost the scheduler",
        metavar="NAME",
        group=_GROUP,
    ),
    Option(
        "--kubeconfig",
        ExistingFile(),
        "how to reach the API",
        default_text="the service account of this program's pod, else $KUBECONFIG, else ~/.kube/config",
        group=_GROUP,
    ),
    Option(
        "--kube-context",
        Kind(),
        "of the kubeconfig file",
        default_text="its current context",
        metavar="NAME",
        group=_GROUP,
    ),
]

NAMES = tuple(each.names.lstrip("-").replace("-", "_") for each in KUBERNETES_OPTIONS)


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Whether an option has another value than its default."""
    value = getattr(options, name)
    return bool(value) and not (name == "grace_seconds" and value == _GRACE_SECONDS)


def kubernetes_faults(options: argparse.Namespace) -> List[str]:
    """What is wrong with the options of a pool whose units are pods."""
    faults = []
    if not options.image:
        faults.append("--adapter kubernetes needs --image, an image with Scaler and what tasks import")
    if not options.name[-1].isalnum():
        faults.append(f"--name {options.name}: with --adapter kubernetes, the last character is a letter or a digit")
    return faults


def kubernetes_units(options: argparse.Namespace, pool: PoolSettings) -> UnitAdapter:
    """The adapter of a pool. Raises UnitError if its template cannot be used."""
    from scaler.provision.kubernetes.api_access import find_access
    from scaler.provision.kubernetes.pod_units import KubernetesUnits

    return KubernetesUnits(
        pool,
        pod_settings(options),
        lambda: find_access(options.kubeconfig or "", options.kube_context or ""),
        options.command_timeout_seconds,
    )


def pod_settings(options: argparse.Namespace) -> PodSettings:
    """What a pool's pods are made of. Raises UnitError if its template cannot be used."""
    return PodSettings(
        address=options.address,
        image=options.image,
        namespace=options.namespace or "",
        worker=shlex.split(options.worker_command or ""),
        service_account=options.service_account or "",
        resources=options.resources,
        node_selector=options.node_selector,
        tolerations=options.tolerations,
        template=_template(options.pod_template) if options.pod_template else {},
        worker_secret=options.worker_secret or "",
        grace_seconds=options.grace_seconds,
        owner_deployment=options.owner_deployment or "",
        insecure=bool(options.insecure),
    )


def _template(path: str) -> Dict[str, Any]:
    try:
        template = read_manifest(Path(path))
    except ManifestError as error:
        raise UnitError(f"--pod-template: {error}") from error
    fault = template_fault(template)
    if fault:
        raise UnitError(f"--pod-template {path}: {fault}")
    return template
