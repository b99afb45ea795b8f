"""The scheduler's image has the single file and nothing else, and its containers serve, from a read-only root."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
from empty_root import EmptyRoot, why_not
from image_root import Image
from packaged import TREE, RunningScheduler, assert_finds_itself_sound

from scaler import Client

CONTAINERFILE = TREE / "packaging/oci/Containerfile.scheduler"
ANOTHER_USER = 1000
TIMEOUT_SECONDS = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> EmptyRoot:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to the image's user")
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return EmptyRoot(tmp_path_factory.mktemp("image") / "root")


@pytest.fixture(scope="module")
def image(one_file: Path, root: EmptyRoot) -> Image:
    return Image(CONTAINERFILE, {"dist/pypy/scaler_scheduler": one_file}, root)


@pytest.fixture
def address() -> str:
    """An address of this host that no other test uses, and beside which there is no local socket: peers need keys."""
    with socket.create_server(("127.0.0.3", 0)) as free:
        return f"tcp://127.0.0.3:{free.getsockname()[1]}"


def run(command: List[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)


def test_there_is_nothing_but_the_file_its_copy_and_the_volume(image: Image, root: EmptyRoot) -> None:
    files = [path.relative_to(root.folder) for path in root.folder.rglob("*") if not path.is_dir()]
    others = [path for path in files if path.parts[0] not in ("dev", "opt")]
    assert sorted(map(str, others)) == ["usr/local/bin/scaler_scheduler", "var/lib/scaler/README"]
    [copy] = root.outside("/opt/scaler").iterdir()
    assert (copy / "complete").exists()
    assert {path.stat().st_uid for path in (copy, *copy.rglob("*"))} == {0}, "users of a container cannot change it"


def test_a_container_is_healthy_makes_keys_serves_and_stops(image: Image, address: str, tmp_path: Path) -> None:
    volume, keys = tmp_path / "volume", {}
    program = image.entrypoint
    check = [word.replace("tcp://127.0.0.1:2345", address) for word in image.health_check]
    assert check != image.health_check
    assert run(image.container(volume, *check)).returncode == 1
    with RunningScheduler(image.container(volume, *program), address=address) as scheduler:
        assert "unpacking" not in scheduler.output
        healthy = run(image.container(volume, *check))
        assert healthy.returncode == 0, healthy.stderr
        for role in ("worker", "client"):
            made = run(image.container(volume, *program, "keys", "new", "--role", role))
            assert f"Told the scheduler at {address} to read its keys again." in made.stderr
            keys[role] = tmp_path / f"{role}.key"
            keys[role].touch(0o600)
            keys[role].write_text(made.stdout)
        workers = subprocess.Popen(
            [sys.executable, "-m", "scaler.worker", "-n", "1", "-ll", "ERROR", "--key-file", keys["worker"], address]
        )
        with Client(address=address, key_file=str(keys["client"])) as client:
            assert client.map(abs, range(-1000, 0)) == list(range(1000, 0, -1))
            assert client.submit(len, bytes(5_000_000)).result() == 5_000_000
        assert scheduler.stop(signal.SIGTERM) == 0, scheduler.output
        assert workers.wait(TIMEOUT_SECONDS) == 0
        assert "WARN" not in scheduler.output and "Traceback" not in scheduler.output
    assert run(image.container(volume, *check)).returncode == 1
    assert {path.name for path in volume.iterdir()} <= {"README", "keys", f"scaler-{image.user}"}


@pytest.mark.parametrize("user", [None, ANOTHER_USER])
def test_any_user_runs_the_copy_that_is_in_the_image(user: int, image: Image, tmp_path: Path) -> None:
    command = image.container(tmp_path / "volume", *image.entrypoint, user=user)
    assert assert_finds_itself_sound(command).splitlines()[0].startswith("unpacked: ")
    finished = run([*command, "--version"])
    assert (finished.returncode, finished.stderr) == (0, "")
