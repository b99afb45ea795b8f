"""The rights and the pools of the kit for Kubernetes, and what the documentation shows of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Set, Tuple

import pytest
import yaml
from provision.fake_kubernetes.api_server import NAMESPACE, FakeApiServer, api_server

from scaler.provision.kubernetes.api_access import ApiAccess
from scaler.provision.kubernetes.api_errors import KubernetesForbiddenError
from scaler.provision.kubernetes.pod_options import pod_settings
from scaler.provision.kubernetes.pod_units import KubernetesUnits
from scaler.provision.provision_options import pool_of, read_options

TREE = Path(__file__).resolve().parents[3]
FOLDER = TREE / "packaging/kubernetes/pools"
PAGE = TREE / "docs/how-to/kubernetes.md"


def document(kind: str) -> Dict[str, Any]:
    documents = yaml.safe_load_all((FOLDER / "provisioner.yaml").read_text())
    (found,) = [each for each in documents if each["kind"] == kind]
    return dict(found)


def rights() -> Set[Tuple[str, str]]:
    """What the Role of the manifest allows."""
    rules = document("Role")["rules"]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def options_of(name: str, folder: Path) -> Any:
    """The options of a pool of the kit."""
    file = folder / "scaler.toml"
    file.write_text((FOLDER / "scaler.toml").read_text().replace("/etc/scaler/pools", str(FOLDER)))
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
