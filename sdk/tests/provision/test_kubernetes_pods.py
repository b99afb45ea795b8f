"""Units as pods of Kubernetes, without requests: manifests, templates, options, and what a status means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from provision.fake_kubernetes.pod_rules import check_pod

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.kubernetes.pod_listing import state_of
from scaler.provision.kubernetes.pod_options import pod_settings
from scaler.provision.kubernetes.pods import (
    UNIT_LABEL,
    PodSettings,
    capabilities_of_resources,
    drain_seconds_of,
    labels_of,
    pod_name_of,
    pod_of,
    selector_of,
    template_fault,
)
from scaler.provision.provision_options import pool_of, read_options
from scaler.provision.provision_program import main
from scaler.worker.worker_options import CLUSTER
from scaler_protocol import messages as m

ADDRESS = "tcp://scaler-scheduler:2345"
POOL = PoolSettings("gpu", slots=4, capabilities={"gpu": 2.0})
UNIT = "gpu-ab12cd-7"
RUNNING = ListedUnit(m.UnitState.STARTING)


def pod(pool: PoolSettings = POOL, unit: str = UNIT, **fields: Any) -> Dict[str, Any]:
    """The manifest of a unit, which Kubernetes accepts."""
    made = pod_of(PodSettings(ADDRESS, "workers:1", **fields), pool, unit)
    check_pod(made, is_strict=True)
    return made


def container_of(made: Dict[str, Any]) -> Dict[str, Any]:
    return next(each for each in made["spec"]["containers"] if each["name"] == "worker")


def test_a_pod_is_one_worker_of_its_unit_that_is_not_started_again() -> None:
    made = pod(worker_secret="scaler-worker", grace_seconds=60.0)
    container = container_of(made)
    options = CLUSTER.parser().parse_args(container["args"])

    assert made["spec"]["restartPolicy"] == "Never" and made["spec"]["terminationGracePeriodSeconds"] == 60
    assert (options.address, options.unit, options.num_of_workers) == (ADDRESS, UNIT, 4)
    assert options.capabilities == {"gpu": 2.0} and options.drain_timeout_seconds == 55.0
    assert options.key_file == "/etc/scaler/key/worker.key" and "command" not in container
    assert {"name": "scaler-key", "mountPath": "/etc/scaler/key", "readOnly": True} in container["volumeMounts"]
    assert container["resources"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}


def test_what_a_pool_says_is_in_its_pods() -> None:
    pool = POOL._replace(lifetime_seconds=3600.0, start_timeout_seconds=600.0)
    made = pod(
        pool,
        worker=["python", "-m", "scaler.worker"],
        namespace="team",
        service_account="tasks",
        resources={"memory": "8Gi", "nvidia.com/gpu": "2"},
        node_selector={"disk": "ssd"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        insecure=True,
    )
    spec, container = made["spec"], container_of(made)

    assert container["command"] == ["python", "-m", "scaler.worker"] and "--insecure" in container["args"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert spec["nodeSelector"] == {"disk": "ssd"} and spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["serviceAccountName"] == "tasks" and "automountServiceAccountToken" not in spec
    assert made["metadata"]["namespace"] == "team"
    assert (
        spec["activeDeadlineSeconds"] == 4200
        and CLUSTER.parser().parse_args(container["args"]).lifetime_seconds == 3600.0
    )


def test_a_template_adds_to_a_pod_and_goes_before_defaults_and_after_options() -> None:
    template: Dict[str, Any] = {
        "metadata": {"labels": {"team": "blue", UNIT_LABEL: "stolen"}, "annotations": {"a": "b"}},
        "spec": {
            "priorityClassName": "low",
            "securityContext": {"runAsUser": 1000},
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {
                    "name": "worker",
                    "image": "other",
                    "env": [{"name": "SCALER_CLUSTER_PRELOAD", "value": "numpy"}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/dev/shm"}],
                },
                {"name": "beside", "image": "logs:1"},
            ],
        },
    }
    assert template_fault(template) == ""
    made = pod(template=template, node_selector={"disk": "ssd"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    spec, container = made["spec"], container_of(made)

    assert made["metadata"]["labels"][UNIT_LABEL] == UNIT and made["metadata"]["labels"]["team"] == "blue"
    assert spec["securityContext"] == {"runAsUser": 1000} and spec["nodeSelector"] == {"zone": "a", "disk": "ssd"}
    assert [each["key"] for each in spec["tolerations"]] == ["spot", "gpu"]
    assert [each["name"] for each in spec["containers"]] == ["worker", "beside"]
    assert container["image"] == "workers:1" and container["env"][0]["value"] == "numpy"
    assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}}
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/dev/shm"]
    assert template["metadata"]["labels"][UNIT_LABEL] == "stolen", "the template is used again"

    resources = {"memory": "8Gi"}
    assert container_of(pod(template=template, resources=resources))["resources"] == {
        "requests": {"cpu": "1", "memory": "8Gi"},
        "limits": {"memory": "8Gi"},
    }


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ([], "expected a pod"),
        ({"kind": "Deployment"}, "expected the kind Pod, got 'Deployment'"),
        ({"replicas": 3}, "unknown field replicas"),
        ({"spec": {"restartPolicy": "Always"}}, "must be Never"),
        ({"spec": {"containers": ["worker"]}}, "expected a list of mappings as spec.containers"),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "use --grace-seconds"),
        ({"spec": {"activeDeadlineSeconds": 5}}, "use --lifetime-seconds"),
        ({"spec": {"containers": [{"name": "worker", "args": ["-n", "8"]}]}}, "set SCALER_CLUSTER_..."),
        ({"spec": {"containers": [{"name": "worker", "command": ["sh"]}]}}, "use --worker-command"),
    ],
)
def test_a_template_that_would_break_a_unit_is_refused(template: object, part: str) -> None:
    assert part in template_fault(template)


def test_names_of_pods_are_valid_and_differ_where_units_differ() -> None:
    long = f"{'A' * 40}-ab12cd-123456"
    for unit in (UNIT, "GPU_big.-ab12cd-1", long):
        pod(unit=unit, pool=POOL._replace(name="p"))
    names = [pod_name_of(unit, ADDRESS) for unit in (UNIT, UNIT.upper(), "gpu_ab12cd-7", long)]
    assert len({*names, pod_name_of(UNIT, "tcp://other:2345")}) == 5
    assert names[0].startswith("gpu-ab12cd-7-") and all(len(each) <= 63 for each in names)


def test_pods_are_found_by_labels_that_differ_between_schedulers_and_pools() -> None:
    labels = labels_of("gpu", ADDRESS)
    assert selector_of(labels).count("=") == 3 and labels.items() <= pod()["metadata"]["labels"].items()
    assert labels != labels_of("gpu", "tcp://other:2345") and labels != labels_of("cpu", ADDRESS)


def test_workers_stop_a_little_before_they_are_killed() -> None:
    assert [drain_seconds_of(seconds) for seconds in (30.0, 4.0, 0.0)] == [25.0, 2.0, 0.0]


def test_extended_resources_are_capabilities() -> None:
    given = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "amd.com/gpu": "1", "example.com/fpga": "1"}
    assert capabilities_of_resources(given) == {"gpu": 3.0, "fpga": 1.0}


# What a status means.


def status(phase: str, **fields: Any) -> Dict[str, Any]:
    found = pod()
    found["metadata"]["uid"] = "1"
    found["status"] = {"phase": phase, **fields}
    check_pod(found, is_strict=True)
    return found


def container(**state: Any) -> List[Dict[str, Any]]:
    common = {"name": "worker", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    return [{**common, "state": state}]


def condition(kind: str, value: str, **fields: str) -> List[Dict[str, Any]]:
    return [{"type": kind, "status": value, **fields}]


SCHEDULED = condition("PodScheduled", "True")
UNSCHEDULABLE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (status("Pending"), m.UnitState.PENDING, "it waits for the scheduler of pods"),
        (
            status(
                "Pending",
                conditions=condition("PodScheduled", "False", reason="Unschedulable", message=UNSCHEDULABLE),
            ),
            m.UnitState.PENDING,
            f"Unschedulable: {UNSCHEDULABLE}",
        ),
        (
            status(
                "Pending", conditions=SCHEDULED, containerStatuses=container(waiting={"reason": "ContainerCreating"})
            ),
            m.UnitState.STARTING,
            "ContainerCreating",
        ),
        (status("Running", conditions=SCHEDULED, containerStatuses=container(running={})), m.UnitState.STARTING, ""),
        (status("Unknown", reason="NodeLost"), m.UnitState.STARTING, "NodeLost"),
        (status("Hibernating"), m.UnitState.STARTING, "Hibernating"),
    ],
)
def test_a_pod_that_has_not_ended_waits_or_runs(found: Dict[str, Any], state: m.UnitState, reason: str) -> None:
    seen = state_of(found)
    assert seen.listed == ListedUnit(state, reason) and not seen.has_ended and not seen.start_error


def test_a_pod_that_is_being_deleted_still_counts() -> None:
    found = status("Running")
    found["metadata"]["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    assert state_of(found).listed == ListedUnit(m.UnitState.STARTING, "it is being deleted")


def test_a_worker_that_has_drained_is_no_failure() -> None:
    seen = state_of(status("Succeeded", containerStatuses=container(terminated={"exitCode": 0})))
    assert seen.listed is None and seen.has_ended


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (
            {"containerStatuses": container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "it needed more memory than its limit (OOMKilled, exit code 137)",
        ),
        (
            {"containerStatuses": container(terminated={"exitCode": 3, "reason": "Error"})},
            "its worker has ended with exit code 3: kubectl logs gpu-ab12cd-7-",
        ),
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "too little memory, disk or processes (Evicted): The node was low on resource: memory.",
        ),
        (
            {"reason": "DeadlineExceeded", "containerStatuses": container(terminated={"exitCode": 137})},
            "longer than activeDeadlineSeconds (DeadlineExceeded, exit code 137)",
        ),
        (
            {
                "conditions": condition("DisruptionTarget", "True", reason="PreemptionByScheduler", message="by x"),
                "containerStatuses": container(terminated={"exitCode": 137, "reason": "Error"}),
            },
            "a pod with a higher priority took its place (PreemptionByScheduler, exit code 137): by x",
        ),
        (
            {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"},
            "it has failed (OutOfcpu): Node didn't have enough resource: cpu",
        ),
        ({}, "it has failed, and its status does not say why"),
    ],
)
def test_a_pod_that_has_failed_says_why(fields: Dict[str, Any], part: str) -> None:
    seen = state_of(status("Failed", **fields))
    assert seen.listed is not None and seen.listed.state == m.UnitState.FAILED and seen.has_ended
    assert seen.listed.reason.startswith("pod gpu-ab12cd-7-") and part in seen.listed.reason


@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_cannot_start_is_an_error_that_may_pass(field: str) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "workers:1"'}
    seen = state_of(status("Pending", conditions=SCHEDULED, **{field: container(waiting=waiting)}))
    text = 'its image cannot be pulled (ImagePullBackOff): Back-off pulling image "workers:1"'
    assert seen.listed == ListedUnit(m.UnitState.STARTING, text)
    assert seen.start_error.endswith(text) and not seen.has_ended


# Options.


def options(*words: str) -> Any:
    (found,) = read_options([ADDRESS, "--adapter", "kubernetes", *words])
    return found


def test_options_say_what_pods_are_made_of(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text("spec:\n  priorityClassName: low\n")
    given = options(
        *("--image", "workers:1", "--name", "gpu", "--namespace", "team", "--pod-template", str(template)),
        *("--resources", "cpu=500m, nvidia.com/gpu=2", "--node-selector", "disk=ssd,empty="),
        *("--tolerations", "gpu=a100:NoSchedule,spot", "--worker-secret", "scaler-worker"),
        *("--worker-command", "python -m scaler.worker", "--lifetime-seconds", "1h"),
    )
    settings, pool = pod_settings(given), pool_of(given)

    assert settings.resources == {"cpu": "500m", "nvidia.com/gpu": "2"} and pool.capabilities == {"gpu": 2.0}
    assert settings.node_selector == {"disk": "ssd", "empty": ""} and pool.lifetime_seconds == 3600.0
    assert settings.tolerations == [
        {"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert settings.template == {"spec": {"priorityClassName": "low"}}
    assert list(settings.worker) == ["python", "-m", "scaler.worker"] and settings.worker_secret == "scaler-worker"
    check_pod(pod_of(settings, pool, UNIT), is_strict=True)


def test_a_file_may_have_tables_and_reads_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaler.toml"
    file.write_text(
        f'[[provision]]\naddress = "{ADDRESS}"\nadapter = "kubernetes"\nimage = "workers:1"\n'
        'resources = {cpu = 2, "nvidia.com/gpu" = "1"}\nnode_selector = {disk = "ssd"}\n'
        'tolerations = [{key = "gpu", operator = "Exists"}]\n'
    )
    (first,) = read_options(["--config", str(file)])
    with pytest.raises(SystemExit):
        read_options(["--config", str(file), "--print-config"])
    file.write_text(capsys.readouterr().out)
    (second,) = read_options(["--config", str(file)])

    assert first.resources == second.resources == {"cpu": "2", "nvidia.com/gpu": "1"}
    assert first.node_selector == second.node_selector == {"disk": "ssd"}
    assert first.tolerations == second.tolerations == [{"key": "gpu", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "--adapter kubernetes needs --image"),
        (("--image", "w", "--name", "gpu-"), "the last character is a letter or a digit"),
        (("--image", "w", "--resources", "cpu=four"), "expected quantities such as"),
        (("--image", "w", "--resources", "cpu=1,cpu=2"), "each name once"),
        (("--image", "w", "--node-selector", "a b=c"), "expected labels such as"),
        (("--image", "w", "--tolerations", "gpu:Never"), "expected taints such as"),
        (("--image", "w", "--gres", "gpu:1"), "--gres is for --adapter slurm"),
        (("--adapter", "local", "--image", "w"), "--image is for --adapter kubernetes"),
        (("--adapter", "local", "--grace-seconds", "5"), "--grace-seconds is for --adapter kubernetes"),
        (("--adapter", "local", "--worker-command", "w"), "--worker-command is for --adapter slurm or kubernetes"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    words: List[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*words)
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "No such file"),
        ("a: [", "while parsing a flow node"),
        ("- a", "expected a mapping"),
        ("spec: {restartPolicy: Always}", "restartPolicy must be Never"),
    ],
)
def test_a_template_that_cannot_be_read_ends_the_program_at_once(
    text: Optional[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    if text is not None:
        file.write_text(text)
    words = [ADDRESS, "--adapter", "kubernetes", "--image", "w", "--pod-template", str(file)]
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert "--pod-template" in shown and part in shown


def test_a_dry_run_prints_a_manifest_that_kubernetes_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--adapter", "kubernetes", "--image", "workers:1", "--name", "gpu", "--worker-secret", "w", "--dry-run"]
    assert main([ADDRESS, *words]) == 0
    shown = capsys.readouterr().out
    assert "# list: kubectl get pods --selector app.kubernetes.io/managed-by=scaler-provision,scaler/pool=gpu" in shown
    check_pod(json.loads(shown.partition("# MANIFEST:\n")[2]), is_strict=True)
