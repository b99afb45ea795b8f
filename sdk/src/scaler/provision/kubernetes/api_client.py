"""The requests to Kubernetes' API that units need: four of them.

Rules:
- Each request is a connection of its own: there are few, and none is found to be stale.
- A list is of one moment (`resourceVersion` is not given, pages go on with `continue`): a pod that was created before
  is in it.
- Requests that are throttled (429) are repeated after the pause that the server asks for, for a while. No other ones
  are: the pool's delays do that.
- The server checks manifests strictly (`fieldValidation=Strict`): a misspelt field of a template is an error.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode, urlsplit

from scaler.provision.kubernetes.api_access import ApiAccess
from scaler.provision.kubernetes.api_errors import (
    ConflictError,
    ExpiredError,
    KubernetesAccessError,
    KubernetesUnavailableError,
    NotFoundError,
    ThrottledError,
    error_of,
)
from scaler.version import __version__

PAGE = 500  # pods of a list at a time
THROTTLED_SECONDS = 15.0  # at most, that a request waits because the server asks for it
SHORTEST_PAUSE_SECONDS = 0.1
_LISTS = 3  # begun, before one that expires again and again is an error

Json = Dict[str, Any]


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str


class ApiClient:
    """
    Parameters:
        timeout_seconds: for each request.
        hurry: set: pauses end.
    """

    def __init__(self, access: ApiAccess, timeout_seconds: float, hurry: Optional[threading.Event] = None) -> None:
        self._access, self._timeout_seconds = access, timeout_seconds
        self._hurry = hurry or threading.Event()

    def create_pod(self, namespace: str, pod: Json) -> None:
        """Create a pod. Raises UnitError."""
        options = {"fieldValidation": "Strict", "fieldManager": "scaler-provision"}
        self._request("POST", _pods(namespace), "create", "pods", namespace, options, pod)

    def list_pods(self, namespace: str, selector: str) -> List[Json]:
        """All pods with these labels, at one moment. Raises UnitError."""
        for _ in range(_LISTS - 1):
            try:
                return self._list(namespace, selector)
            except ExpiredError:
                continue
        return self._list(namespace, selector)

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete this very pod, with its grace period; it may be gone. Raises UnitError."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        path = f"{_pods(namespace)}/{quote(name)}"
        try:
            self._request("DELETE", path, "delete", "pods", namespace, {}, options)
        except (NotFoundError, ConflictError):  # it is gone, or another one has its name
            pass

    def deployment_uid(self, namespace: str, name: str) -> str:
        """The id of a Deployment. Raises UnitError."""
        path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(name)}"
        answer = self._request("GET", path, "get", "deployments", namespace)
        return str(answer["metadata"]["uid"])

    def _list(self, namespace: str, selector: str) -> List[Json]:
        found: List[Json] = []
        query = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            page = self._request("GET", _pods(namespace), "list", "pods", namespace, query)
            found += page.get("items") or []
            rest = (page.get("metadata") or {}).get("continue")
            if not rest:
                return found
            query["continue"] = rest

    def _request(
        self,
        method: str,
        path: str,
        verb: str,
        resource: str,
        namespace: str,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[Json] = None,
    ) -> Json:
        target = f"{path}?{urlencode(query)}" if query else path
        deadline = time.monotonic() + THROTTLED_SECONDS
        while True:
            answer = self._exchange(method, target, body)
            if answer.status < 300:
                return self._json(answer.body)
            if answer.status == http.client.PROXY_AUTHENTICATION_REQUIRED:
                proxy = self._access.proxy
                text = (
                    f"the proxy {proxy} does not accept who asks (status 407): name it as http://user:password@{proxy}"
                )
                raise KubernetesAccessError(text)
            error = error_of(answer.status, answer.body, verb, resource, namespace)
            pause_seconds = _seconds_of(answer.retry_after)
            if not isinstance(error, ThrottledError) or time.monotonic() + pause_seconds > deadline:
                raise error
            if self._hurry.wait(pause_seconds):
                raise error

    def _exchange(self, method: str, target: str, body: Optional[Json]) -> _Answer:
        url = urlsplit(self._access.url)
        headers = {"Accept": "application/json", "User-Agent": f"scaler_provision/{__version__}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        token = self._access.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connection()
        if self._access.proxy is not None and self._access.tls is None:
            target = f"{self._access.url.rstrip('/')}{target}"
            if self._access.proxy.authorization:
                headers["Proxy-Authorization"] = self._access.proxy.authorization
        else:
            target = url.path + target
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, target, content, headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.read(), answer.getheader("Retry-After", ""))
        except ssl.SSLCertVerificationError as error:
            raise KubernetesAccessError(
                f"the certificate of {self._access.url} is not trusted ({error.verify_message}): the kubeconfig file"
                " needs the certificate-authority of this cluster"
            ) from error
        except socket.timeout:  # which is TimeoutError since Python 3.10
            raise KubernetesUnavailableError(
                f"no answer from {self._access.url} within {self._timeout_seconds:g} s (command_timeout_seconds):"
                " it is tried again later; kubectl get --raw /readyz says more"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            way = f" by the proxy {self._access.proxy}" if self._access.proxy is not None else ""
            raise KubernetesUnavailableError(
                f"no Kubernetes API server at {self._access.url}{way} ({str(error) or type(error).__name__}): it is"
                " tried again later; kubectl cluster-info says whether it can be reached"
            ) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        url, proxy, timeout_seconds = urlsplit(self._access.url), self._access.proxy, self._timeout_seconds
        host, port = (url.hostname or "", url.port) if proxy is None else (proxy.host, proxy.port)
        if self._access.tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        tls = self._access.tls if self._access.signed_tls is None else self._access.signed_tls()
        name = self._access.server_name or url.hostname or ""
        connection = _TlsConnection(host, port or http.client.HTTPS_PORT, tls, name, timeout_seconds)
        if proxy is not None:
            authorization = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
            server = url.hostname or ""
            connection.set_tunnel(f"[{server}]" if ":" in server else server, url.port or 443, authorization)
        return connection

    def _json(self, body: bytes) -> Json:
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise KubernetesAccessError(f"{self._access.url} is no Kubernetes API server: it sends no JSON objects")
        return content


class _TlsConnection(http.client.HTTPConnection):
    """A connection by TLS, perhaps through the tunnel of a proxy, to a server whose certificate has this name."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, server_name: str, timeout_seconds: float) -> None:
        super().__init__(host, port, timeout=timeout_seconds)
        self._tls, self._server_name = tls, server_name

    def connect(self) -> None:
        super().connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods"


def _seconds_of(retry_after: str) -> float:
    """The pause that a server asks for; a second if it does not say."""
    return max(float(retry_after), SHORTEST_PAUSE_SECONDS) if retry_after.isdigit() else 1.0
