"""How `scaler_provision` reaches the API of Kubernetes: service accounts and kubeconfig files."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml
from provision.fake_kubernetes.api_server import NAMESPACE, api_server
from provision.fake_kubernetes.http_proxy import http_proxy

from scaler.provision.core.pool import PoolSettings
from scaler.provision.kubernetes.api_access import ApiAccess, access_of_pod, find_access
from scaler.provision.kubernetes.api_errors import (
    KubernetesAccessError,
    KubernetesForbiddenError,
    KubernetesUnavailableError,
)
from scaler.provision.kubernetes.pod_units import KubernetesUnits
from scaler.provision.kubernetes.pods import PodSettings

POOL = PoolSettings("cpu", slots=2, maximum=4)
SETTINGS = PodSettings("tcp://scaler-scheduler:2345", "workers:1")
UNIT = "cpu-ab12cd-1"
EXEC_VERSION = "client.authentication.k8s.io/v1"


def kubeconfig(folder: Path, cluster: Dict[str, Any], user: Dict[str, Any], **context: str) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_kubeconfig_file_names_the_server_the_namespace_and_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    file = kubeconfig(tmp_path, {"server": "http://10.0.0.1:8080/"}, {"tokenFile": "token"}, namespace="team")
    access = find_access(str(file))
    assert (access.url, access.namespace, access.token(), access.tls) == ("http://10.0.0.1:8080", "team", "first", None)
    (tmp_path / "token").write_text("second\n")
    assert access.token() == "second"
    for environment in ({"KUBECONFIG": str(file)}, {"HOME": str(tmp_path), "KUBECONFIG": f":{file}:"}):
        assert find_access(environment=environment).url == access.url
    file.write_text(json.dumps(yaml.safe_load(file.read_text())))
    assert find_access(str(file), "here").url == access.url
    (tmp_path / "token").unlink()
    with pytest.raises(KubernetesAccessError, match="the token cannot be read"):
        access.token()


def test_a_command_makes_a_token_which_is_kept_until_it_expires(tmp_path: Path) -> None:
    counter = tmp_path / "calls"
    script = (
        f'echo . >> "{counter}"; echo "{{\\"status\\": {{\\"token\\": \\"$PREFIX-$(wc -l < "{counter}" | tr -d " ")\\"'
        ', \\"expirationTimestamp\\": \\"$1\\"}}"'
    )
    given = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script, "sh", "2100-01-01T00:00:00Z"],
        "env": [{"name": "PREFIX", "value": "t"}],
    }
    token = find_access(str(kubeconfig(tmp_path, {"server": "http://a"}, {"exec": given}))).token
    assert [token(), token()] == ["t-1", "t-1"]
    given["args"] = ["-c", script, "sh", "2020-01-01T00:00:00Z"]
    token = find_access(str(kubeconfig(tmp_path, {"server": "http://a"}, {"exec": given}))).token
    assert [token(), token()] == ["t-2", "t-3"]
    for args, part in ((["-c", "echo sign in first >&2; exit 1"], "sign in first"), (["-c", "echo"], "printed no")):
        given["args"] = args
        with pytest.raises(KubernetesAccessError, match=part):
            find_access(str(kubeconfig(tmp_path, {"server": "http://a"}, {"exec": given}))).token()


@pytest.mark.parametrize(
    ("cluster", "user", "part"),
    [
        ({"server": "10.0.0.1"}, {}, "must be an http"),
        ({"server": "https://a", "proxy-url": "socks5://u:secret@p"}, {}, "an http:// proxy, got 'socks5://p'"),
        ({"server": "https://a", "proxy-url": "http://"}, {}, "proxy-url must be a URL such as http://proxy:3128"),
        ({"server": "https://a", "proxy-url": "http://p:no"}, {}, "proxy-url must be a URL such as http://proxy:3128"),
        ({"server": "https://a"}, {"as": "admin"}, "as is not supported"),
        ({"server": "http://a"}, {"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
        (
            {"server": "http://a"},
            {"exec": {"apiVersion": EXEC_VERSION, "command": "x", "interactiveMode": "Always"}},
            "scaler_provision cannot ask",
        ),
        (
            {"server": "http://a", "certificate-authority": "none.crt"},
            {"exec": {"apiVersion": EXEC_VERSION, "command": "x", "provideClusterInfo": True}},
            "a certificate or key cannot be read",
        ),
        ({"server": "http://a"}, {"exec": {"apiVersion": "v1alpha1", "command": "x"}}, "exec plugins of 'v1alpha1'"),
        ({"server": "https://a", "certificate-authority": "none.crt"}, {}, "a certificate or key cannot be read"),
        ({"server": "https://a", "certificate-authority-data": "AAAA"}, {}, "a certificate or key cannot be read"),
    ],
)
def test_what_a_kubeconfig_file_has_and_cannot_be_used_is_said(
    cluster: Dict[str, Any], user: Dict[str, Any], part: str, tmp_path: Path
) -> None:
    with pytest.raises(KubernetesAccessError, match=part):
        find_access(str(kubeconfig(tmp_path, cluster, user)))


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://api:6443", {}, None),
        ("https://api:6443", {"HTTPS_PROXY": "http://p:3128"}, "p:3128"),
        ("https://api:6443", {"https_proxy": "p:3128", "HTTP_PROXY": "http://q"}, "p:3128"),
        ("http://api:6443", {"HTTP_PROXY": "http://q", "HTTPS_PROXY": "http://p"}, "q:80"),
        ("https://api:6443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "other, api"}, None),
        ("https://api:6443", {"HTTPS_PROXY": "http://p", "no_proxy": "*"}, None),
        ("https://api:6443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api:443"}, "p:80"),
        ("https://api", {"HTTPS_PROXY": "http://p", "NO_PROXY": "api:443"}, None),
        ("https://api.far.org", {"HTTPS_PROXY": "http://p", "NO_PROXY": "FAR.org"}, None),
        ("https://far.org", {"HTTPS_PROXY": "http://p", "NO_PROXY": ".far.org"}, "p:80"),
        ("https://api.far.org", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*.far.org"}, None),
        ("https://notfar.org", {"HTTPS_PROXY": "http://p", "NO_PROXY": "far.org,,"}, "p:80"),
        ("https://10.96.0.1", {"HTTPS_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.96.0.1", {"HTTPS_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8,nonsense/8"}, "p:80"),
        ("https://[fd00::1]:6443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "fd00::1"}, None),
        ("https://[fd00::1]:6443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "[fd00::1]:443"}, "p:80"),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p"}, None),
        ("https://localhost", {"HTTPS_PROXY": "http://p"}, None),
    ],
)
def test_variables_name_a_proxy_and_servers_without_one(
    url: str, environment: Dict[str, str], proxy: str, tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, {"server": url}, {})

    found = find_access(str(file), environment=environment).proxy

    assert (None if found is None else str(found)) == proxy


@pytest.mark.parametrize("is_named", [True, False])
def test_an_http_server_is_asked_through_the_proxy_which_is_signed_in_to(is_named: bool, tmp_path: Path) -> None:
    with api_server() as server, http_proxy("user:pass/word") as proxy:
        url = f"http://user:pass%2Fword@{proxy.address}" if is_named else f"http://{proxy.address}"
        file = kubeconfig(tmp_path, {"server": server.url, "proxy-url": url}, {}, namespace=NAMESPACE)
        units = KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(file)), 20.0)
        if not is_named:
            with pytest.raises(KubernetesAccessError, match=f"name it as http://user:password@{proxy.address}"):
                units.start(UNIT)
            return
        units.start(UNIT)

        assert list(units.list()) == [UNIT]
        assert [line.split("?")[0] for line in proxy.requests] == [
            f"POST {server.url}/api/v1/namespaces/{NAMESPACE}/pods",
            f"GET {server.url}/api/v1/namespaces/{NAMESPACE}/pods",
        ]


def test_access_that_is_missing_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubernetesAccessError, match="give --kubeconfig"):
        find_access(environment={}, account_folder=tmp_path)
    with pytest.raises(KubernetesAccessError, match="KUBECONFIG names 2 files"):
        find_access(environment={"KUBECONFIG": "/a:/b"})
    with pytest.raises(KubernetesAccessError, match="cannot be read"):
        find_access(str(tmp_path / "none"))
    file = kubeconfig(tmp_path, {"server": "http://a"}, {})
    with pytest.raises(KubernetesAccessError, match="has no context 'there'"):
        find_access(str(file), "there")
    file.write_text("{}")
    with pytest.raises(KubernetesAccessError, match="has no current-context"):
        find_access(str(file))


def test_access_is_looked_for_until_it_is_found() -> None:
    found: List[ApiAccess] = []

    def find() -> ApiAccess:
        if not found:
            raise KubernetesAccessError("no access to Kubernetes")
        return found[0]

    units = KubernetesUnits(POOL, SETTINGS, find, 20.0)
    with api_server() as server:
        with pytest.raises(KubernetesAccessError):
            units.start(UNIT)
        found.append(ApiAccess(server.url, None, lambda: "", NAMESPACE))
        units.start(UNIT)
        assert list(units.list()) == [UNIT]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The folder of a service account, whose authority has also signed `server.crt`."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here (Debian: apt-get install openssl)")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    subprocess.run(
        [*command, *names, "-keyout", "key", "-out", "ca.crt"], cwd=tmp_path, check=True, capture_output=True
    )
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "token").write_text("first")
    return tmp_path


def test_a_pod_uses_its_service_account_and_the_newest_token(account: Path, tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(account / "ca.crt", account / "key")
    with api_server(tls) as server:
        host, _, port = server.url.partition("//")[2].partition(":")
        variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        access = find_access(environment=variables, account_folder=account)
        units = KubernetesUnits(POOL, SETTINGS, lambda: access, 20.0)
        server.token = "first"
        units.start(UNIT)
        server.token = "second"
        with pytest.raises(KubernetesForbiddenError, match="status 401"):
            units.list()
        (account / "token").write_text("second")
        assert list(units.list()) == [UNIT]

        untrusted = kubeconfig(account, {"server": server.url}, {"token": "second"})
        other = KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(untrusted)), 20.0)
        with pytest.raises(KubernetesAccessError, match=r"is not trusted .* needs the certificate-authority"):
            other.list()
        trusted = kubeconfig(
            account,
            {"server": server.url, "certificate-authority": "ca.crt"},
            {"token": "second", "client-certificate": "ca.crt", "client-key": "key"},
            namespace=NAMESPACE,
        )
        assert list(KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(trusted)), 20.0).list()) == [UNIT]
        (account / "ca.crt").unlink()
        with pytest.raises(KubernetesAccessError, match="the service account of this pod cannot be read"):
            access_of_pod(variables, account)


def test_an_https_server_is_asked_through_a_tunnel_and_by_the_name_of_its_certificate(
    account: Path, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(account / "ca.crt", account / "key")
    with api_server(tls) as server, http_proxy("user:word") as proxy:
        elsewhere = server.url.replace("127.0.0.1", "localhost")  # a name that the certificate does not have
        cluster = {"server": elsewhere, "certificate-authority": "ca.crt", "tls-server-name": "127.0.0.1"}

        def units_of(proxy_url: str, **fields: str) -> KubernetesUnits:
            file = kubeconfig(account, {**cluster, **fields, "proxy-url": proxy_url}, {}, namespace=NAMESPACE)
            return KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(file)), 20.0)

        units_of(f"http://user:word@{proxy.address}").start(UNIT)

        assert proxy.requests == [f"CONNECT {elsewhere.partition('//')[2]}"]
        with pytest.raises(KubernetesAccessError, match="is not trusted"):
            units_of(f"http://user:word@{proxy.address}", **{"tls-server-name": ""}).list()
        with pytest.raises(KubernetesUnavailableError, match=f"by the proxy {proxy.address} .*407"):
            units_of(f"http://{proxy.address}").list()


def test_a_command_makes_a_certificate_which_is_replaced_when_it_expires(account: Path, tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(account / "ca.crt", account / "key")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(account / "ca.crt")
    made = {"clientCertificateData": (account / "ca.crt").read_text(), "clientKeyData": (account / "key").read_text()}
    (tmp_path / "make").write_text('#!/bin/sh\ncd "${0%/*}"; echo . >> calls; cat made\n')
    (tmp_path / "make").chmod(0o755)
    plugin = {"apiVersion": EXEC_VERSION, "command": "./make"}

    def say(**status: str) -> None:
        (tmp_path / "made").write_text(json.dumps({"status": status}))

    with api_server(tls) as server:
        cluster = {"server": server.url, "certificate-authority": "ca.crt"}
        file = kubeconfig(account, cluster, {"exec": plugin}, namespace=NAMESPACE)
        units = KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(file)), 20.0)
        say(**made, expirationTimestamp="2020-01-01T00:00:00Z")
        units.start(UNIT)
        say(token="only a token", expirationTimestamp="2020-01-01T00:00:00Z")
        with pytest.raises(KubernetesUnavailableError):
            units.list()
        say(**made, expirationTimestamp="2100-01-01T00:00:00Z")
        assert list(units.list()) == [UNIT]
        count = (tmp_path / "calls").read_text()
        assert list(units.list()) == [UNIT] and (tmp_path / "calls").read_text() == count
        say(clientCertificateData=made["clientCertificateData"])
        with pytest.raises(KubernetesAccessError, match="a token, or with a certificate and its key"):
            KubernetesUnits(POOL, SETTINGS, lambda: find_access(str(file)), 20.0).list()


def test_a_command_that_wants_to_know_the_cluster_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("an authority")
    script = 'printf %s "$KUBERNETES_EXEC_INFO" > "$0"; echo "{\\"status\\": {\\"token\\": \\"t\\"}}"'
    plugin: Dict[str, Any] = {
        "apiVersion": EXEC_VERSION,
        "command": "sh",
        "args": ["-c", script, str(tmp_path / "info")],
    }
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "here"}}]
    cluster = {"server": "http://a", "certificate-authority": "ca.crt", "extensions": extensions}
    for is_told in (False, True):
        plugin["provideClusterInfo"] = is_told
        assert find_access(str(kubeconfig(tmp_path, cluster, {"exec": plugin}))).token() == "t"

        spec = json.loads((tmp_path / "info").read_text())["spec"]

        authority = base64.b64encode(b"an authority").decode()
        told = {"server": "http://a", "certificate-authority-data": authority, "config": {"audience": "here"}}
        assert spec == ({"interactive": False, "cluster": told} if is_told else {"interactive": False})
