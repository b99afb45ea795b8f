"""How `scaler_provision` reaches the API of Kubernetes: service accounts and kubeconfig files."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml
from provision.fake_kubernetes.api_server import NAMESPACE, api_server

from scaler.provision.core.pool import PoolSettings
from scaler.provision.kubernetes.api_access import ApiAccess, access_of_pod, find_access
from scaler.provision.kubernetes.api_errors import KubernetesAccessError, KubernetesForbiddenError
from scaler.provision.kubernetes.pod_units import KubernetesUnits
from scaler.provision.kubernetes.pods import PodSettings

POOL = PoolSettings("cpu", slots=2, maximum=4)
SETTINGS = PodSettings("tcp://scaler-scheduler:2345", "workers:1")
UNIT = "cpu-ab12cd-1"


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
        ({"server": "https://a", "proxy-url": "http://p"}, {}, "proxy-url is not supported"),
        ({"server": "http://a"}, {"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
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
