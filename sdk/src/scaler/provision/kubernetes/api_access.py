"""Where the API server is, and how to sign in: the pod's service account, or a kubeconfig file.

Rules:
- The token of a service account is read for each request: the kubelet replaces it before it expires.
- What a kubeconfig file asks for and this module cannot do is an error that says so: nothing is left out in silence.
- Keys that OpenSSL reads from files only are in one for as long as that takes, for this user alone.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from scaler.provision.kubernetes.api_errors import KubernetesAccessError
from scaler.provision.kubernetes.api_proxy import Proxy, proxy_of
from scaler.provision.kubernetes.exec_plugin import ExecPlugin
from scaler.provision.kubernetes.manifest_files import ManifestError, read_manifest

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ApiAccess(NamedTuple):
    """How the API is reached.

    Attributes:
        url: of the server.
        tls: None for `http:`.
        token: makes the token of a request; empty: none is needed. Raises KubernetesAccessError.
        namespace: the one to use if no other one is named.
        proxy: that requests go through; None: they go to the server.
        server_name: that its certificate has; empty: that of its URL.
        signed_tls: makes the `tls` of a request, with the certificate of an exec plugin; None: it is always the same.
            Raises KubernetesAccessError.
    """

    url: str
    tls: Optional[ssl.SSLContext]
    token: Callable[[], str]
    namespace: str = "default"
    proxy: Optional[Proxy] = None
    server_name: str = ""
    signed_tls: Optional[Callable[[], ssl.SSLContext]] = None


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
        return access_of_kubeconfig(Path(kubeconfig).expanduser(), context, environment)
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
    return access_of_kubeconfig(path, context, environment)


def access_of_pod(environment: Mapping[str, str], folder: Path = ACCOUNT_FOLDER) -> ApiAccess:
    """The access that a pod has by its service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise KubernetesAccessError(f"the service account of this pod cannot be read: {folder}: {error}") from error
    url = f"https://{address}:{port}"
    proxy = proxy_of(url, "", environment)
    return ApiAccess(url, tls, _token_file(folder / "token"), namespace or "default", proxy)


def access_of_kubeconfig(path: Path, context_name: str = "", environment: Mapping[str, str] = os.environ) -> ApiAccess:
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
    for field in ("auth-provider", "username", "as"):
        if user.get(field):
            raise KubernetesAccessError(f"{path}: {field} is not supported; use an exec plugin, or kubectl proxy")
    is_secure = url.startswith("https:")
    plugin = ExecPlugin(path, user["exec"], cluster) if user.get("exec") else None
    return ApiAccess(
        url.rstrip("/"),
        _tls_of(path, cluster, user) if is_secure else None,
        _token_of(path, user, plugin),
        context.get("namespace") or "default",
        proxy_of(url, str(cluster.get("proxy-url") or ""), environment),
        str(cluster.get("tls-server-name") or ""),
        _SignedTls(path, cluster, user, plugin) if plugin is not None and is_secure else None,
    )


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


def _token_of(path: Path, user: Mapping[str, Any], plugin: Optional[ExecPlugin]) -> Callable[[], str]:
    if user.get("tokenFile"):
        return _token_file(path.parent / user["tokenFile"])
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    return (lambda: "") if plugin is None else (lambda: plugin.credential().token)


def _token_file(path: Path) -> Callable[[], str]:
    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise KubernetesAccessError(f"the token cannot be read: {error}") from error

    return read


class _SignedTls:
    """The TLS of a request, with the certificate that an exec plugin has made last, if it makes some."""

    def __init__(self, path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], plugin: ExecPlugin) -> None:
        self._path, self._cluster, self._user, self._plugin = path, cluster, user, plugin
        self._certificate = ""
        self._tls = _tls_of(path, cluster, user)

    def __call__(self) -> ssl.SSLContext:
        credential = self._plugin.credential()
        if credential.certificate != self._certificate:
            data = {
                "client-certificate-data": base64.b64encode(credential.certificate.encode()),
                "client-key-data": base64.b64encode(credential.key.encode()),
            }
            # Another context, because connections of other threads may use this one.
            self._tls = _tls_of(self._path, self._cluster, data if credential.certificate else self._user)
            self._certificate = credential.certificate
        return self._tls
