"""Credentials that a command makes, such as `aws eks get-token`: the exec plugins of a kubeconfig file.

Rules:
- What a command has made is used until it expires, or for a minute if it does not say when.
- A command may make a token, a certificate with its key, or both.
- It cannot ask questions: its input is empty.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from scaler.provision.kubernetes.api_errors import KubernetesAccessError
from scaler.provision.unit_adapters import last_line

COMMAND_SECONDS = 30.0
_EXPIRY_MARGIN_SECONDS = 60.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXTENSION = "client.authentication.k8s.io/exec"
_CLUSTER_FIELDS = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url"),
    "disable-compression",
)


class Credential(NamedTuple):
    """
    Attributes:
        token: empty: none.
        certificate: PEM, with its chain; empty: none.
        key: of the certificate, PEM.
        ends: until when it is used, in seconds since 1970.
    """

    token: str
    certificate: str
    key: str
    ends: float


class ExecPlugin:
    """
    Parameters:
        path: of the kubeconfig file.
        given: what it says of the command.
        cluster: what it says of the cluster, for commands that want to know.
    Raises KubernetesAccessError.
    """

    def __init__(self, path: Path, given: Mapping[str, Any], cluster: Mapping[str, Any]) -> None:
        self._version = str(given.get("apiVersion", ""))
        if self._version not in _VERSIONS:
            text = f"{path}: exec plugins of {self._version!r} are not supported: use {' or '.join(_VERSIONS)}"
            raise KubernetesAccessError(text)
        if given.get("interactiveMode") == "Always":
            raise KubernetesAccessError(
                f"{path}: the exec plugin has interactiveMode Always, and scaler_provision cannot ask:"
                " use IfAvailable or Never, or sign in by a token or a certificate"
            )
        command = str(given["command"])
        if os.sep in command:
            command = str(path.parent / command)  # which is the command if that is absolute
        self._command: List[str] = [command, *map(str, given.get("args") or [])]
        self._variables = {each["name"]: str(each["value"]) for each in given.get("env") or []}
        spec: Dict[str, Any] = {"interactive": False}
        if given.get("provideClusterInfo"):
            spec["cluster"] = _cluster_info(path, cluster)
        self._info = json.dumps({"apiVersion": self._version, "kind": "ExecCredential", "spec": spec})
        self._lock = threading.Lock()
        self._made: Optional[Credential] = None

    def credential(self) -> Credential:
        """The one of now. Raises KubernetesAccessError."""
        with self._lock:
            if self._made is None or time.time() >= self._made.ends:
                self._made = self._make()
            return self._made

    def _make(self) -> Credential:
        variables = {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": self._info}
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_SECONDS,
                env=variables,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubernetesAccessError(f"the exec plugin has failed: {error}") from error
        if done.returncode:
            said = f"{self._command[0]} has ended with exit code {done.returncode}: {last_line(done.stderr)}"
            raise KubernetesAccessError(f"the exec plugin has failed: {said}")
        try:
            status = json.loads(done.stdout)["status"]
            token, certificate, key = [
                str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
            ]
            ends = _end_of(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError, AttributeError):
            token = certificate = key = ""
        if not (token or certificate) or bool(certificate) != bool(key):
            raise KubernetesAccessError(
                f"the exec plugin {self._command[0]} printed no ExecCredential with a token, or with a certificate and"
                " its key"
            )
        return Credential(token, certificate, key, ends)


def _cluster_info(path: Path, cluster: Mapping[str, Any]) -> Dict[str, Any]:
    info = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    authority = cluster.get("certificate-authority")
    if authority and "certificate-authority-data" not in info:
        try:
            info["certificate-authority-data"] = base64.b64encode((path.parent / authority).read_bytes()).decode()
        except OSError as error:
            raise KubernetesAccessError(f"{path}: a certificate or key cannot be read: {error}") from error
    for each in cluster.get("extensions") or []:
        if each.get("name") == _EXTENSION:
            info["config"] = each.get("extension")
    return info


def _end_of(expires: Optional[str]) -> float:
    """Until when a credential is used, in seconds since 1970."""
    if not expires:
        return time.time() + _EXPIRY_MARGIN_SECONDS
    return datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp() - _EXPIRY_MARGIN_SECONDS
