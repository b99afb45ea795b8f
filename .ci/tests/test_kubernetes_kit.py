"""The kit for Kubernetes, as kubectl renders it.

Rules: what is judged is what `kubectl kustomize` prints, so that it is what `kubectl apply -k` applies. Command lines
are read by the programs' own parsers, pods of pools are made by scaler_provision's own code, and schemas are those of
Kubernetes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set

import pytest
import yaml
from kubernetes_validate import validate
from kubernetes_validate.utils import latest_version
from quiet_addresses import quiet_address

from scaler.provision.kubernetes.pod_options import pod_settings
from scaler.provision.kubernetes.pods import pod_of
from scaler.provision.provision_options import PROVISION, fault_of_pools, pool_of, read_options
from scaler.worker.worker_options import CLUSTER
from scaler_appliance.checks.ping import PING
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_appliance.ui.ui_options import UI
from scaler_protocol.programs.options import Program

KIT = Path(__file__).resolve().parents[2] / "packaging/kubernetes"
FOLDERS = ("kit", "pools", "workers", "jobs", "example")
PROGRAMS = Path(sys.executable).parent
DEADLINE_SECONDS = 30.0
CLIENT = {"scaler/client": "true"}  # the label of pods with clients

Json = Dict[str, Any]


def _kustomize_fault() -> str:
    """Why kubectl cannot render the kit; empty if it can."""
    if shutil.which("kubectl") is None:
        return "no kubectl here (Debian 13: apt-get install kubernetes-client)"
    found = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True)
    version = json.loads(found.stdout).get("kustomizeVersion", "v0") if found.returncode == 0 else "v0"
    return "" if int(version[1:].split(".")[0]) >= 4 else "this kubectl is older than 1.22, and has another kustomize"


@cache
def rendered(folder: str) -> List[Json]:
    """The objects that `kubectl apply -k` would apply."""
    fault = _kustomize_fault()
    if fault:
        pytest.skip(fault)
    command = ["kubectl", "kustomize", str(KIT / folder)]
    return list(yaml.safe_load_all(subprocess.run(command, capture_output=True, check=True).stdout))


def everything() -> List[Json]:
    return [each for folder in ("kit", "pools", "workers", "jobs") for each in rendered(folder)]


def of_kind(kind: str, documents: Optional[List[Json]] = None) -> Dict[str, Json]:
    found = everything() if documents is None else documents
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


class Pod(NamedTuple):
    """A pod of the cluster, with its one container."""

    name: str
    labels: Mapping[str, str]
    spec: Json

    @property
    def container(self) -> Json:
        (container,) = self.spec["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def ports(self) -> Dict[str, int]:
        return {each["name"]: each["containerPort"] for each in self.container.get("ports", ())}

    @property
    def variables(self) -> Dict[str, str]:
        return {each["name"]: each["value"] for each in self.container.get("env", ()) if "value" in each}


def pools(folder: str, tmp_path: Path) -> List[argparse.Namespace]:
    """The options of the pools, read as scaler_provision reads them in its pod."""
    deployment = of_kind("Deployment", rendered(folder))["scaler-provision"]
    (mount,) = [each for each in deployment_pod(deployment).container["volumeMounts"] if each["name"] == "config"]
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "config"]
    files = of_kind("ConfigMap", rendered(folder))[volume["configMap"]["name"]]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace(mount["mountPath"], str(tmp_path)))
    words = [word.replace(mount["mountPath"], str(tmp_path)) for word in deployment_pod(deployment).container["args"]]
    return read_options(words)


def unit_pod(options: argparse.Namespace) -> Json:
    return pod_of(pod_settings(options), pool_of(options), f"{options.name}-ab12cd-1")


def deployment_pod(deployment: Json) -> Pod:
    template = deployment["spec"]["template"]
    return Pod(deployment["metadata"]["name"], template["metadata"]["labels"], template["spec"])


@pytest.fixture
def pods(tmp_path: Path) -> List[Pod]:
    """One pod of each deployment, of each job, and of each pool."""
    units = {options.name: unit_pod(options) for options in pools("pools", tmp_path)}
    return [
        *map(deployment_pod, of_kind("Deployment").values()),
        *map(deployment_pod, of_kind("Job").values()),
        *(Pod(f"pool {name}", each["metadata"]["labels"], each["spec"]) for name, each in units.items()),
    ]


def program_of(pod: Pod) -> Program:
    """The program that a container runs: what its command says, else the entry point of the image."""
    programs = {
        "scaler_provision": PROVISION,
        "scaler-scheduler": SCHEDULER,
        "scaler-ui": UI,
        "scaler-workers": CLUSTER,
    }
    (command,) = pod.container.get("command") or [pod.container["image"].rpartition(":")[0]]
    return programs[command]


def options_of(pod: Pod) -> argparse.Namespace:
    """What the program reads from a container's arguments."""
    values = {"CPUS": "2", "POD": "scaler-workers-abc"}
    words = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in pod.container.get("args", ())]
    return program_of(pod).parser().parse_args(words)


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a selector of Kubernetes selects what has these labels."""
    unknown = selector.keys() - {"matchLabels", "matchExpressions"}
    assert not unknown and all(each["operator"] == "In" for each in selector.get("matchExpressions", ()))
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ())
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_kubectl_renders_is_what_kubernetes_accepts(folder: str) -> None:
    assert rendered(folder)
    for each in rendered(folder):
        validate(each, latest_version(), strict=True)


def test_pods_of_pools_are_what_kubernetes_accepts(tmp_path: Path) -> None:
    found = pools("pools", tmp_path)
    assert [each.name for each in found] == ["cpu", "gpu"] and fault_of_pools(found) == ""
    for options in found:
        validate(unit_pod(options), latest_version(), strict=True)


def test_services_lead_to_pods_that_listen(pods: List[Pod]) -> None:
    for service in of_kind("Service").values():
        (target,) = [pod for pod in pods if service["spec"]["selector"].items() <= pod.labels.items()]
        for port in service["spec"]["ports"]:
            assert target.ports[port["targetPort"]] == port["port"]


def test_programs_listen_where_their_containers_say(pods: List[Pod]) -> None:
    listening: Dict[str, Dict[str, int]] = {}
    for pod in pods:
        options = options_of(pod)
        addresses = {
            "scaler": options.address if program_of(pod) is SCHEDULER else None,
            "monitor": getattr(options, "monitor_address", None) if program_of(pod) is SCHEDULER else None,
            "data": getattr(options, "data_address", None) or pod.variables.get("SCALER_CLUSTER_DATA_ADDRESS"),
            "http": f":{options.port}" if program_of(pod) is UI else None,
        }
        listening[pod.name] = {name: int(text.rpartition(":")[2]) for name, text in addresses.items() if text}
        assert pod.ports == listening[pod.name]
    assert sum(map(len, listening.values())) == 7


def test_programs_find_what_they_connect_to(pods: List[Pod]) -> None:
    services = {
        f"tcp://{name}:{port['port']}" for name, each in of_kind("Service").items() for port in each["spec"]["ports"]
    }
    reached = {
        pod.name: vars(options_of(pod)).get("monitor_address" if program_of(pod) is UI else "address")
        for pod in pods
        if program_of(pod) in (UI, CLUSTER)
    }
    assert set(reached) == {"scaler-ui", "scaler-workers", "scaler-jobs", "pool cpu", "pool gpu"}
    assert set(reached.values()) < services


def test_variables_are_those_that_the_programs_read(pods: List[Pod]) -> None:
    shared = {"SCALER_KEY_FILE", "SCALER_KEY_DIRECTORY", "SCALER_UI_TOKEN"}
    for pod in pods:
        program = program_of(pod)
        known = {variable for option in program.options for variable in program.variables(option)}
        words = " ".join(pod.container.get("args", ()))
        used = {name for name in (each["name"] for each in pod.container.get("env", ())) if f"$({name})" in words}
        assert {each["name"] for each in pod.container.get("env", ())} - used <= known | shared, pod.name


def test_pods_of_the_scheduler_that_are_replaced_leave_their_cluster_running(pods: List[Pod]) -> None:
    (pod,) = [pod for pod in pods if pod.name == "scaler-scheduler"]
    (option,) = [each for each in SCHEDULER.options if each.key == "expect_restart"]

    assert option.kind.from_environment(pod.variables[SCHEDULER.variables(option)[0]]) is True
    for name in ("scaler-scheduler", "scaler-provision"):  # two of these would be two clusters, or twice the pods
        specification = of_kind("Deployment")[name]["spec"]
        assert specification["replicas"] == 1 and specification["strategy"] == {"type": "Recreate"}


def test_workers_take_the_cpus_that_they_are_given(pods: List[Pod]) -> None:
    (pod,) = [pod for pod in pods if pod.name == "scaler-workers"]
    given = {each["name"]: each["valueFrom"] for each in pod.container["env"] if "valueFrom" in each}

    assert (
        given["CPUS"]["resourceFieldRef"]["resource"] == "limits.cpu" and "cpu" in pod.container["resources"]["limits"]
    )
    assert given["POD"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert options_of(pod).num_of_workers == 2


def test_workers_have_more_time_to_leave_than_their_tasks_have_to_end(pods: List[Pod]) -> None:
    workers = [pod for pod in pods if program_of(pod) is CLUSTER]
    assert len(workers) == 4
    for pod in workers:
        # 5 s: what docs/how-to/workers-that-come-and-go.md asks for, for results and the goodbye.
        assert pod.spec["terminationGracePeriodSeconds"] >= options_of(pod).drain_timeout_seconds + 5


def test_workers_leave_before_the_deadline_of_their_pods(pods: List[Pod]) -> None:
    (pod,) = [pod for pod in pods if "activeDeadlineSeconds" in pod.spec]
    assert 0 < options_of(pod).lifetime_seconds <= pod.spec["activeDeadlineSeconds"] - 600
    assert all("activeDeadlineSeconds" not in job["spec"] for job in of_kind("Job").values())


def test_probes_ask_for_what_there_is(pods: List[Pod]) -> None:
    for pod in pods:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = pod.container.get(name, {})
            asked = probe.get("tcpSocket") or probe.get("httpGet")
            assert asked is None or asked["port"] in pod.ports
    (scheduler,) = [pod for pod in pods if pod.name == "scaler-scheduler"]
    program, word, *words = scheduler.container["livenessProbe"]["exec"]["command"]
    assert (Path(program).name, word) == ("scaler_scheduler", "ping")
    asked = PING.parser().parse_args(words)
    assert asked.address == f"tcp://127.0.0.1:{scheduler.ports['scaler']}"
    (option,) = [each for each in PING.options if each.key == "timeout_seconds"]
    assert scheduler.container["livenessProbe"]["timeoutSeconds"] > option.default


def test_pods_keep_to_the_strictest_profile_of_kubernetes(pods: List[Pod]) -> None:
    """What `restricted` of the Pod Security Standards asks for, and a root file system that cannot be written."""
    for pod in pods:
        security, container = pod.spec["securityContext"], pod.container
        assert security["runAsNonRoot"] and security["runAsUser"] != 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any(pod.spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
        kinds = {kind for each in pod.spec["volumes"] for kind in each.keys() - {"name"}}
        assert kinds <= {"emptyDir", "secret", "configMap"}
        assert container["resources"]["requests"]["cpu"] and container["resources"]["limits"]["memory"]
        writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert ("/var/lib/scaler" if program_of(pod) is SCHEDULER else "/tmp") in writable
        assert ("/dev/shm" in writable) == (program_of(pod) in (SCHEDULER, CLUSTER))
        has_token = pod.spec.get("automountServiceAccountToken", True)
        assert has_token == (program_of(pod) is PROVISION)


def documented_secrets() -> Dict[str, Set[str]]:
    """The entries of each secret that the page makes."""
    commands = re.findall(r"create secret generic (\S+) (.*)", (KIT / "README.md").read_text())
    return {name: set(re.findall(r"--from-\w+=(?:\S*/)?([\w.]+)", words)) for name, words in commands}


def test_secrets_are_those_that_the_page_makes(pods: List[Pod]) -> None:
    documented = documented_secrets()
    used: Dict[str, Set[str]] = {}
    for pod in pods:
        volumes = {each["name"]: each["secret"] for each in pod.spec["volumes"] if "secret" in each}
        for mount in pod.container["volumeMounts"]:
            if mount["name"] not in volumes:
                continue
            secret = volumes[mount["name"]]
            # What `read_private` accepts of a file of root, and `KeyDirectory` of a folder.
            assert secret["defaultMode"] == 0o440 and mount["readOnly"]
            assert pod.spec["securityContext"]["fsGroup"] == pod.spec["securityContext"]["runAsGroup"]
            named = [pod.variables.get("SCALER_KEY_FILE"), getattr(options_of(pod), "key_file", None)]
            files = {Path(each).name for each in named if each and str(Path(each).parent) == mount["mountPath"]}
            if pod.variables.get("SCALER_KEY_DIRECTORY") == mount["mountPath"]:
                files = {"scheduler.key", "authorized_keys"}
            assert files, f"{pod.name} reads nothing of {secret['secretName']}"
            used.setdefault(secret["secretName"], set()).update(files)
        for variable in pod.container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                used.setdefault(reference["name"], set()).add(reference["key"])
    assert used == documented


def test_budgets_are_for_pods_of_deployments(pods: List[Pod]) -> None:
    budgets = of_kind("PodDisruptionBudget")
    found = {
        name: [pod.name for pod in pods if selects(budget["spec"]["selector"], pod.labels)]
        for name, budget in budgets.items()
    }
    assert found == {"scaler-scheduler": ["scaler-scheduler"], "scaler-workers": ["scaler-workers"]}


# Who may reach whom.


def policy_allows(policies: List[Json], direction: str, of: Pod, peer: Optional[Pod], port: int) -> bool:
    """Whether the policies that select a pod let it be reached by, or reach, another one at a port.

    Parameters:
        direction: ingress or egress.
        peer: None: what is no pod of this namespace.
    """
    chosen = [
        each["spec"]
        for each in policies
        if selects(each["spec"]["podSelector"], of.labels) and direction.capitalize() in each["spec"]["policyTypes"]
    ]
    if not chosen:
        return True
    for rule in (rule for each in chosen for rule in each.get(direction, ())):
        peers = rule.get("from" if direction == "ingress" else "to")
        assert peers is None or all(list(each) == ["podSelector"] for each in peers)
        is_peer = peers is None or (
            peer is not None and any(selects(each["podSelector"], peer.labels) for each in peers)
        )
        if is_peer and ("ports" not in rule or port in [each["port"] for each in rule["ports"]]):
            return True
    return False


def reachable(policies: List[Json], caller: Pod, called: Pod, port: int) -> bool:
    return policy_allows(policies, "egress", caller, called, port) and policy_allows(
        policies, "ingress", called, caller, port
    )


def test_each_pod_is_reached_by_those_that_need_it_and_by_no_others(pods: List[Pod]) -> None:
    policies = list(of_kind("NetworkPolicy").values())
    client, viewer = Pod("client", CLIENT, {}), Pod("viewer", {"scaler/viewer": "true"}, {})
    other = Pod("another pod", {"app.kubernetes.io/name": "other"}, {})
    ports = sorted({port for pod in pods for port in pod.ports.values()} | {22, 53, 443})
    kinds = {pod.name: "worker" if program_of(pod) is CLUSTER else pod.name for pod in pods}

    reached = {
        (kinds.get(caller.name, caller.name), kinds[called.name], port)
        for caller in [*pods, client, viewer, other]
        for called in pods
        for port in ports
        if reachable(policies, caller, called, port) and port in called.ports.values()
    }
    assert reached == {
        ("worker", "scaler-scheduler", 2345),
        ("scaler-provision", "scaler-scheduler", 2345),
        ("client", "scaler-scheduler", 2345),
        ("scaler-ui", "scaler-scheduler", 2346),
        ("worker", "worker", 2347),
        ("viewer", "scaler-ui", 8081),
    }
    for called in pods:
        assert not any(policy_allows(policies, "ingress", called, None, port) for port in ports), "from outside"
    fetching = {kinds[pod.name] for pod in pods if policy_allows(policies, "egress", pod, client, 40_000)}
    assert fetching == {"worker"}, "from a port that the client's system has chosen"


def test_pods_reach_names_and_the_api_outside_of_the_cluster_and_nothing_else(pods: List[Pod]) -> None:
    policies = list(of_kind("NetworkPolicy").values())
    ports = [22, 53, 80, 443, 2345, 5432, 6443, 8081]
    outside = {pod.name: [p for p in ports if policy_allows(policies, "egress", pod, None, p)] for pod in pods}
    assert outside == {
        "scaler-scheduler": [],
        "scaler-ui": [53],
        "scaler-provision": [53, 443, 6443],
        "scaler-workers": [53],
        "scaler-jobs": [53],
        "pool cpu": [53],
        "pool gpu": [53],
    }


def test_ports_of_policies_are_ports_of_the_pods_that_they_are_for(pods: List[Pod]) -> None:
    for policy in of_kind("NetworkPolicy").values():
        chosen = [pod for pod in pods if selects(policy["spec"]["podSelector"], pod.labels)]
        assert chosen, policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", ()):
            assert {each["port"] for each in rule["ports"]} <= {port for pod in chosen for port in pod.ports.values()}
        for rule in policy["spec"].get("egress", ()):
            called = [
                pod for pod in pods if any(selects(each["podSelector"], pod.labels) for each in rule.get("to", ()))
            ]
            open_ports = {port for pod in called for port in pod.ports.values()}
            # Clients are pods of the user's, and their systems choose a port.
            is_to_clients = rule.get("to") == [{"podSelector": {"matchLabels": CLIENT}}]
            assert "to" not in rule or is_to_clients or {each["port"] for each in rule["ports"]} <= open_ports


# The provisioner.


def test_the_provisioner_is_allowed_what_it_needs(tmp_path: Path) -> None:
    """In what is rendered: kustomize changes names, also where they are meant otherwise."""
    for folder in ("pools", "example"):
        role, binding = of_kind("Role", rendered(folder)), of_kind("RoleBinding", rendered(folder))["scaler-provision"]
        deployment = of_kind("Deployment", rendered(folder))["scaler-provision"]
        (named,) = [rule["resourceNames"] for rule in role["scaler-provision"]["rules"] if "resourceNames" in rule]
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]

        assert binding["roleRef"]["name"] in role and binding["subjects"][0]["name"] == account
        assert account in of_kind("ServiceAccount", rendered(folder))
        for options in pools(folder, tmp_path):
            assert [options.owner_deployment] == named == [deployment["metadata"]["name"]]


def test_the_example_names_all_images_and_its_namespace(tmp_path: Path) -> None:
    documents = rendered("example")
    images = {
        container["image"]
        for each in of_kind("Deployment", documents).values()
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    images |= {options.image for options in pools("example", tmp_path)}
    (namespace,) = of_kind("Namespace", documents)

    assert images == {f"registry.example.org/scaler-{name}:1" for name in ("scheduler", "workers", "ui")}
    assert {each["metadata"].get("namespace", namespace) for each in documents} == {namespace}
    assert of_kind("RoleBinding", documents)["scaler-provision"]["subjects"][0].get("namespace", namespace) == namespace


# The programs themselves, as the kit starts them, on this host.


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: List[subprocess.Popen[bytes]] = []

    def begin(pod: Pod, words: List[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCALER_", "XDG_"))}
        folder = tmp_path / pod.name
        folder.mkdir(mode=0o700)
        command = [str(PROGRAMS / program_of(pod).name), *words]
        with open(tmp_path / f"{pod.name}.log", "wb") as log:
            environment = {**kept, "TMPDIR": str(folder), "HOME": str(folder), **variables}
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        return started[-1]

    yield begin
    for process in reversed(started):
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0


def until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


@pytest.mark.exhaustive
def test_the_kits_command_lines_and_keys_make_a_cluster(
    pods: List[Pod], run: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Each program has only the key files of its secrets, as the page makes them; addresses are of this host."""
    from scaler import Client

    by_name = {pod.name: pod for pod in pods}
    scheduler, ui, workers = (by_name[f"scaler-{name}"] for name in ("scheduler", "ui", "workers"))
    ports = dict(zip((2345, 2346, 2347, 8081), (quiet_address().rpartition(":")[2] for _ in range(4))))

    def here(words: List[str]) -> List[str]:
        text = "\n".join(words).replace("0.0.0.0", "127.0.0.1").replace("scaler-scheduler", "127.0.0.1")
        text = text.replace("$(CPUS)", "1").replace("$(POD)", "pod")
        return re.sub(r"\b(2345|2346|2347|8081)\b", lambda match: ports[int(match[1])], text).split("\n")

    for command in re.findall(r"scaler (keys new .*)", (KIT / "README.md").read_text()):
        subprocess.run([str(PROGRAMS / "scaler"), *command.split()], cwd=tmp_path, check=True, capture_output=True)
    for name, files in documented_secrets().items():
        (tmp_path / "secrets" / name).mkdir(parents=True)
        os.chmod(tmp_path / "secrets" / name, 0o700)
        for file in files - {"token"}:
            source = next(each for each in (tmp_path / file, tmp_path / "keys" / file) if each.exists())
            shutil.copy(source, tmp_path / "secrets" / name / file)
    secrets = tmp_path / "secrets"

    variables = {**scheduler.variables, "SCALER_KEY_DIRECTORY": str(secrets / "scaler-scheduler")}
    process = run(scheduler, here(scheduler.container["args"]), variables)
    until(lambda: listens(int(ports[2345])), process)
    question = here(scheduler.container["livenessProbe"]["exec"]["command"])
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "scaler-scheduler"), **variables}
    asked = subprocess.run(
        [str(PROGRAMS / Path(question[0]).name), *question[1:]], env=environment, capture_output=True
    )
    assert asked.returncode == 0, asked.stderr

    process = run(
        workers, here(workers.container["args"]), {"SCALER_KEY_FILE": str(secrets / "scaler-worker/worker.key")}
    )
    until(lambda: listens(int(ports[2347])), process)
    token = {"SCALER_UI_TOKEN": "0123456789abcdef0123"}
    process = run(ui, here(ui.container["args"]), {"SCALER_KEY_FILE": str(secrets / "scaler-ui/monitor.key"), **token})
    until(lambda: listens(int(ports[8081])), process)
    page = f"http://127.0.0.1:{ports[8081]}"
    path = ui.container["livenessProbe"]["httpGet"]["path"]
    assert urllib.request.urlopen(f"{page}{path}", timeout=DEADLINE_SECONDS).status == 200

    with Client(f"tcp://127.0.0.1:{ports[2345]}", key_file=str(tmp_path / "client.key")) as client:
        assert client.submit(pow, 2, 5).result(DEADLINE_SECONDS) == 32
    until(lambda: healthz(page), process)


def healthz(page: str) -> bool:
    """Whether the page has what the scheduler publishes."""
    try:
        return bool(urllib.request.urlopen(f"{page}/healthz", timeout=DEADLINE_SECONDS).status == 200)
    except OSError:
        return False
