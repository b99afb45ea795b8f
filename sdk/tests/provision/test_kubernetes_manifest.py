"""The manifests for Kubernetes, and what the documentation shows of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest
import yaml
from kubernetes_validate import validate
from kubernetes_validate.utils import latest_version
from provision.fake_kubernetes.api_server import NAMESPACE, FakeApiServer, api_server

from scaler.provision.kubernetes.api_access import ApiAccess
from scaler.provision.kubernetes.api_errors import KubernetesForbiddenError
from scaler.provision.kubernetes.pod_options import pod_settings
from scaler.provision.kubernetes.pod_units import KubernetesUnits
from scaler.provision.provision_options import pool_of, read_options

TREE = Path(__file__).resolve().parents[3]
FOLDER = TREE / "packaging/kubernetes"
PAGE = TREE / "docs/how-to/kubernetes.md"
MANIFESTS = ("provisioner.yaml", "scaler.yaml")


def documents(name: str) -> List[Dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def document(kind: str) -> Dict[str, Any]:
    (found,) = [each for each in documents("provisioner.yaml") if each["kind"] == kind]
    return found


def rights() -> Set[Tuple[str, str]]:
    """What the Role of the manifest allows."""
    rules = document("Role")["rules"]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_what_kubernetes_accepts(name: str) -> None:
    for each in documents(name):
        validate(each, latest_version(), strict=True)


def options_of(name: str, folder: Path) -> Any:
    """The options of a pool of the manifest."""
    file = folder / "scaler.toml"
    file.write_text(document("ConfigMap")["data"]["scaler.toml"])
    return next(each for each in read_options(["--config", str(file)]) if each.name == name)


def run_a_unit(server: FakeApiServer, options: Any) -> None:
    access = ApiAccess(server.url, None, lambda: "", NAMESPACE)
    units = KubernetesUnits(pool_of(options), pod_settings(options), lambda: access, 20.0)
    units.start(f"{options.name}-ab12cd-1")
    assert len(units.list()) == 1
    units.stop(f"{options.name}-ab12cd-1")
    assert units.list() == {}


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_role_has_the_verbs_that_units_need_and_no_others(name: str, tmp_path: Path) -> None:
    options = options_of(name, tmp_path)
    with api_server() as server:
        server.add_deployment(options.owner_deployment)
        server.rights = rights()
        run_a_unit(server, options)
        for missing in rights():
            server.rights = rights() - {missing}
            with pytest.raises(KubernetesForbiddenError, match=f"the verb {missing[0]} for {missing[1]}"):
                run_a_unit(server, options)
            server.rights = rights()
            for pod in server.pods():
                server.delete_pod(pod["metadata"]["name"])


def test_the_parts_of_the_manifest_name_each_other(tmp_path: Path) -> None:
    deployment, role = document("Deployment"), document("Role")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    account = document("ServiceAccount")["metadata"]["name"]
    binding = document("RoleBinding")
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}

    assert pod["serviceAccountName"] == account == binding["subjects"][0]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"]["type"] == "Recreate"
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert mounted[container["args"][1]]["configMap"]["name"] == document("ConfigMap")["metadata"]["name"]
    (key,) = [each["value"] for each in container["env"] if each["name"] == "SCALER_KEY_FILE"]
    secret = mounted[str(Path(key).parent)]["secret"]["secretName"]
    assert f"create secret generic {secret} --from-file={Path(key).name}" in (FOLDER / "README.md").read_text()
    for name in ("cpu", "gpu"):
        options = options_of(name, tmp_path)
        assert options.owner_deployment == deployment["metadata"]["name"] == role["rules"][1]["resourceNames"][0]
        assert f"create secret generic {options.worker_secret} --from-file=worker.key" in PAGE.read_text()
        (service,) = [each for each in documents("scaler.yaml") if each["kind"] == "Service"]
        assert options.address == f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


def test_the_page_shows_the_role_of_the_manifest() -> None:
    blocks = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    assert [each for each in blocks if each.get("kind") == "Role"] == [document("Role")]


def test_the_template_of_the_page_is_accepted(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (template,) = [each for each in blocks if "kind: Pod\n" in each]
    (tmp_path / "pod.yaml").write_text(template)
    words = ["--adapter", "kubernetes", "--image", "w", "--pod-template", str(tmp_path / "pod.yaml")]
    (options,) = read_options(["tcp://scaler-scheduler:2345", *words])
    with api_server() as server:
        run_a_unit(server, options)
