"""Where the API server is, and how to sign in: the pod's service account, or a kubeconfig file.

Rules:
- The token of a service account is read for each request: the kubelet replaces it before it expires.
- What a kubeconfig file asks for and this module cannot do is an error that says so: nothing is left out in silence.
- Keys that OpenSSL reads from files only are in one for as long as that takes, for this user alone.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from scaler.provision.kubernetes.api_errors import KubernetesAccessError
from scaler.provision.kubernetes.manifest_files import ManifestError, read_manifest
from scaler.provision.unit_adapters import last_line

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
COMMAND_SECONDS = 30.0
_EXPIRY_MARGIN_SECONDS = 60.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ApiAccess(NamedTuple):
    """How the API is reached.

    Attributes:
        url: of the server.
        tls: None for `http:`.
        token: makes the token of a request; empty: none is needed. Raises KubernetesAccessError.
        namespace: the one to use if no other one is named.
    """

    url: str
    tls: Optional[ssl.SSLContext]
    token: Callable[[], str]
    namespace: str = "default"


def find_access(
    kubeconfig: str = "",
    context: str = "",
    environment: Mapping[str, str] = os.environ,
    account_folder: Path = ACCOUNT_FOLDER,
) -> ApiAccess:
    """The access to use: of the kubeconfig file that is named, of the pod, or of the user's kubeconfig file.

    Parameters:
        kubeconfig: a path; empty: none is named.
        context: of the kubeconfig file; empty: its current one.
    Raises KubernetesAccessError.
    """
    if kubeconfig:
        return access_of_kubeconfig(Path(kubeconfig).expanduser(), context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context and (account_folder / "token").exists():
        return access_of_pod(environment, account_folder)
    named = [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    if len(named) > 1:
        raise KubernetesAccessError(f"KUBECONFIG names {len(named)} files: name one of them with --kubeconfig")
    path = Path(named[0] if named else "~/.kube/config").expanduser()
    if not named and not path.exists():
        raise KubernetesAccessError(
            f"no access to Kubernetes: this is no pod with a service account, and there is no {path};"
            " give --kubeconfig, or see docs/how-to/kubernetes.md for running it in the cluster"
        )
    return access_of_kubeconfig(path, context)


def access_of_pod(environment: Mapping[str, str], folder: Path = ACCOUNT_FOLDER) -> ApiAccess:
    """The access that a pod has by its service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise KubernetesAccessError(f"the service account of this pod cannot be read: {folder}: {error}") from error
    return ApiAccess(f"https://{address}:{port}", tls, _token_file(folder / "token"), namespace or "default")


def access_of_kubeconfig(path: Path, context_name: str = "") -> ApiAccess:
    """The access that a kubeconfig file describes."""
    try:
        config = read_manifest(path)
    except ManifestError as error:
        raise KubernetesAccessError(f"the kubeconfig file cannot be read: {error}") from error
    name = context_name or config.get("current-context") or ""
    if not name:
        raise KubernetesAccessError(f"{path} has no current-context: kubectl config use-context, or --kube-context")
    context = _entry(path, config, "contexts", "context", name)
    cluster = _entry(path, config, "clusters", "cluster", context.get("cluster", ""))
    user = _entry(path, config, "users", "user", context["user"]) if context.get("user") else {}
    url = str(cluster.get("server", ""))
    if urlsplit(url).scheme not in ("http", "https"):
        raise KubernetesAccessError(f"{path}: the server of the context {name} must be an http(s) URL, got {url!r}")
    for where, field in ((cluster, "proxy-url"), (cluster, "tls-server-name"), (user, "auth-provider")):
        if where.get(field):
            raise KubernetesAccessError(f"{path}: {field} is not supported; use an exec plugin, or kubectl proxy")
    tls = _tls_of(path, cluster, user) if url.startswith("https:") else None
    return ApiAccess(url.rstrip("/"), tls, _token_of(path, user), context.get("namespace") or "default")


def _entry(path: Path, config: Mapping[str, Any], section: str, field: str, name: str) -> Dict[str, Any]:
    for each in config.get(section) or []:
        if isinstance(each, dict) and each.get("name") == name:
            return dict(each.get(field) or {})
    raise KubernetesAccessError(f"{path} has no {field} {name!r}: kubectl config get-contexts")


def _tls_of(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    with ExitStack() as files:
        try:
            authority = _file_of(files, path, cluster, "certificate-authority")
            tls = ssl.create_default_context(cafile=authority)
            if cluster.get("insecure-skip-tls-verify"):
                tls.check_hostname = False
                tls.verify_mode = ssl.CERT_NONE
            certificate = _file_of(files, path, user, "client-certificate")
            if certificate:
                tls.load_cert_chain(certificate, _file_of(files, path, user, "client-key"))
            return tls
        except (OSError, ValueError) as error:
            raise KubernetesAccessError(f"{path}: a certificate or key cannot be read: {error}") from error


def _file_of(files: ExitStack, path: Path, entry: Mapping[str, Any], name: str) -> Optional[str]:
    """The path of a certificate or key, which the file has in it or names."""
    data = entry.get(f"{name}-data")
    if data:
        file = files.enter_context(tempfile.NamedTemporaryFile())  # which only its owner can read
        file.write(base64.b64decode(data))
        file.flush()
        return file.name
    return str(path.parent / entry[name]) if entry.get(name) else None


def _token_of(path: Path, user: Mapping[str, Any]) -> Callable[[], str]:
    if user.get("tokenFile"):
        return _token_file(path.parent / user["tokenFile"])
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    if user.get("exec"):
        return _ExecToken(path, user["exec"])
    return lambda: ""


def _token_file(path: Path) -> Callable[[], str]:
    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise KubernetesAccessError(f"the token cannot be read: {error}") from error

    return read


class _ExecToken:
    """A token that a command makes, such as `aws eks get-token`; kept until it expires."""

    def __init__(self, path: Path, given: Mapping[str, Any]) -> None:
        self._version = str(given.get("apiVersion", ""))
        if self._version not in _EXEC_VERSIONS:
            text = f"{path}: exec plugins of {self._version!r} are not supported: use {' or '.join(_EXEC_VERSIONS)}"
            raise KubernetesAccessError(text)
        self._command: List[str] = [str(given["command"]), *map(str, given.get("args") or [])]
        self._variables = {each["name"]: str(each["value"]) for each in given.get("env") or []}
        self._lock = threading.Lock()
        self._token, self._ends = "", 0.0

    def __call__(self) -> str:
        with self._lock:
            if time.time() >= self._ends:
                self._token, self._ends = self._make()
            return self._token

    def _make(self) -> Tuple[str, float]:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        variables = {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_SECONDS,
                env=variables,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubernetesAccessError(f"the command that makes a token has failed: {error}") from error
        if done.returncode:
            said = f"{self._command[0]} has ended with exit code {done.returncode}: {last_line(done.stderr)}"
            raise KubernetesAccessError(f"the command that makes a token has failed: {said}")
        try:
            status = json.loads(done.stdout)["status"]
            return str(status["token"]), _end_of(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError):
            text = f"{self._command[0]} printed no ExecCredential with a token (client certificates are not supported)"
            raise KubernetesAccessError(text) from None


def _end_of(expires: Optional[str]) -> float:
    """Until when a token is used, in seconds since 1970."""
    if not expires:
        return time.time() + _EXPIRY_MARGIN_SECONDS
    return datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp() - _EXPIRY_MARGIN_SECONDS
