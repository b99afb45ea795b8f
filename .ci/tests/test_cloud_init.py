"""The user data for cloud-init: what it installs are the units of systemd and the programs' options as they are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import jsonschema
import pytest
import yaml

from scaler.worker.worker_options import CLUSTER
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_protocol.programs.options import Program

TREE = Path(__file__).resolve().parents[2]
FOLDER = TREE / "packaging/cloud-init"
SCHEMA = TREE / "build/cloud-init/schema-cloud-config-v1.json"  # of Debian's package: see .ci/prepare
HOSTS = {"scheduler.yaml": "scaler-scheduler.service", "workers.yaml": "scaler-workers.service"}
LARGEST_BYTES = 16384  # of the user data of EC2
KEY_TEXT = re.compile(r"(secret|public|server)_keys? *=|^[A-Za-z_]*TOKEN=", re.M)


def user_data(name: str) -> Dict[str, Any]:
    found = yaml.safe_load((FOLDER / name).read_text())
    assert isinstance(found, dict)
    return found


def written(name: str) -> Dict[str, str]:
    return {each["path"]: each["content"] for each in user_data(name)["write_files"]}


def settings(text: str) -> Dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] not in "#[")


def installed(name: str) -> str:
    """The script that runs once."""
    ((shell, flags, script),) = user_data(name)["runcmd"]
    assert (shell, flags) == ("sh", "-ec"), "the first command that fails must end it"
    return str(script)


@pytest.mark.parametrize("name", HOSTS)
def test_user_data_is_what_cloud_init_accepts(name: str) -> None:
    text = (FOLDER / name).read_bytes()
    assert text.startswith(b"#cloud-config\n") and len(text) < LARGEST_BYTES
    if not SCHEMA.exists():
        pytest.skip("no schema of cloud-init here: .ci/prepare cloud_init takes it from Debian's package")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft4Validator(schema).validate(user_data(name))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate({"write_files": [{"contents": "a misspelled field"}]})


@pytest.mark.parametrize(("name", "unit"), HOSTS.items())
def test_the_unit_is_that_of_the_systemd_folder(name: str, unit: str) -> None:
    assert written(name)[f"/etc/systemd/system/{unit}"] == (TREE / "packaging/systemd" / unit).read_text()


@pytest.mark.parametrize(
    ("name", "file", "program"),
    [("scheduler.yaml", "scheduler.env", SCHEDULER), ("workers.yaml", "workers.env", CLUSTER)],
)
def test_the_settings_are_options_of_the_program(name: str, file: str, program: Program) -> None:
    unit = written(name)[f"/etc/systemd/system/{HOSTS[name]}"]
    given = settings(written(name)[f"/etc/scaler/{file}"])
    assert f"EnvironmentFile=-/etc/scaler/{file}" in unit
    assert all(f"Environment={variable}=" in unit for variable in given)
    address = given.pop("SCALER_SCHEDULER_ADDRESS")
    (words,) = given.values()
    options = program.parser().parse_args([address, *words.split()])

    assert options.address == address and address.endswith(":2345")
    if program is CLUSTER:
        (stop_seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
        assert int(stop_seconds) >= options.drain_timeout_seconds + 5


@pytest.mark.parametrize(("name", "unit"), HOSTS.items())
def test_programs_are_where_the_unit_and_the_scripts_look_for_them(name: str, unit: str) -> None:
    links = re.findall(r"/opt/scaler/bin/(scaler\w*)", installed(name))
    used = [
        program
        for path, text in written(name).items()
        if path.startswith("/usr/local/sbin/") or path.endswith(unit)
        for program in re.findall(r"/usr/local/bin/(\w+)", text)
    ]
    assert used and set(used) <= set(links)
    assert "python3-venv" in user_data(name)["packages"]


def test_no_key_is_in_user_data_and_none_is_readable_by_others() -> None:
    for name in HOSTS:
        for path, text in written(name).items():
            assert not KEY_TEXT.search(text) and not path.endswith(".key")
    host = written("workers.yaml")["/etc/systemd/system/scaler-workers.service.d/host.conf"]
    accept = written("workers.yaml")["/usr/local/sbin/scaler-accept-key"]
    (credential,) = re.findall(r"^LoadCredential=worker.key:(\S+)$", host, re.M)
    assert "Environment=SCALER_KEY_FILE=%d/worker.key" in host and f" {credential}\n" in accept
    assert accept.index("umask 077") < accept.index("cat >")
    assert "systemctl" not in installed("workers.yaml").replace("systemctl daemon-reload", ""), "before there is a key"


def test_a_new_key_is_made_as_the_page_of_the_units_makes_it() -> None:
    script = written("scheduler.yaml")["/usr/local/sbin/scaler-new-key"]
    page = (TREE / "packaging/systemd/README.md").read_text()
    (command,) = re.findall(r"# (systemd-run .*?) > alice.key", page, re.S)

    def words(text: str) -> List[str]:
        return re.findall(r"(?:-p|-E) (\S+)", text)

    assert words(script) == words(command)
    assert 'scaler_scheduler keys new --role "$role" "$@"' in script


def test_scripts_refuse_an_empty_key_and_keep_the_one_they_have(tmp_path: Path) -> None:
    """With a `systemctl` that writes down what it is asked."""
    script = written("workers.yaml")["/usr/local/sbin/scaler-accept-key"].replace("/etc/scaler", str(tmp_path))
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (tmp_path / "systemctl").chmod(0o755)

    def accept(text: bytes) -> int:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(["sh", "-c", script], input=text, env=environment).returncode

    assert accept(b"") != 0 and not (tmp_path / "worker.key").exists() and not (tmp_path / "asked").exists()
    assert accept(b"a key\n") == 0
    assert accept(b"") != 0
    assert (tmp_path / "worker.key").read_bytes() == b"a key\n"
    assert (tmp_path / "worker.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "asked").read_text() == "enable scaler-workers\nrestart scaler-workers\n"


def test_systemd_finds_the_drop_in_sound(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
    files = written("workers.yaml")
    unit = tmp_path / "scaler-workers.service"
    unit.write_text(
        files["/etc/systemd/system/scaler-workers.service"].replace("/usr/local/bin/scaler_cluster", "/bin/sh")
    )
    (tmp_path / "scaler-workers.service.d").mkdir()
    drop_in = tmp_path / "scaler-workers.service.d/host.conf"
    drop_in.write_text(files["/etc/systemd/system/scaler-workers.service.d/host.conf"])
    environment = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"}
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.returncode == 0 and "host.conf" not in found.stderr, found.stderr
