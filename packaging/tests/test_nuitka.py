"""The nuitka binary runs on a machine with the C library and nothing else.

It takes minutes to build, so that `make test` does not: these tests run where `make dist-nuitka` was run before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest
from empty_root import EmptyRoot
from packaged import (
    NUITKA,
    RunningScheduler,
    assert_finds_itself_sound,
    assert_reads_files,
    assert_serves,
    assert_serves_with_keys,
    assert_watches,
    built,
    clean_environment,
)

pytestmark = pytest.mark.slow

PROGRAM = "/scaler_scheduler"
HOME = {"HOME": "/root", "PATH": "/usr/bin:/bin"}
TIME_LIMIT_SECONDS = 60


@pytest.fixture
def command(c_library_root: EmptyRoot) -> List[str]:
    """The command that runs the binary in an empty root.

    There is /proc, as on any machine but not in an empty root: nuitka's start asks it for the program's path. It is
    mounted for that one process.
    """
    c_library_root.add(built(NUITKA, "dist-nuitka"), PROGRAM)
    proc = c_library_root.outside("/proc")
    proc.mkdir(exist_ok=True)
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no empty root with /proc: there is no unshare here")
    namespace = [unshare, "--mount"] if os.geteuid() == 0 else [unshare, "--mount", "--user", "--map-root-user"]
    mounted = [*namespace, "/bin/sh", "-c", 'mount --rbind /proc "$0" && exec "$@"', str(proc)]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
        pytest.skip("no empty root with /proc: nothing can be mounted here")
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "chroot"
    return [*mounted, chroot, str(c_library_root.folder), PROGRAM]


def run(command: List[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments], env=HOME, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=TIME_LIMIT_SECONDS,
    )  # fmt: skip


def test_it_serves(command: List[str], sdk_python: Path, tmp_path: Path) -> None:
    assert_serves(command, HOME, sdk_python, tmp_path)


def test_its_connections_have_keys(
    command: List[str], c_library_root: EmptyRoot, sdk_python: Path, tmp_path: Path
) -> None:
    keys = "/root/keys"
    assert_serves_with_keys(command, HOME, sdk_python, tmp_path, keys, c_library_root.outside(keys))


def test_it_finds_itself_sound(command: List[str]) -> None:
    assert_finds_itself_sound(command, HOME)


def test_it_says_its_version(command: List[str]) -> None:
    finished = run(command, "--version")

    assert (finished.returncode, finished.stderr) == (0, "")
    assert " CPython " in finished.stdout
    assert "libzmq" in finished.stdout


def test_links_to_it_are_the_other_programs(tmp_path: Path) -> None:
    assert_watches(built(NUITKA, "dist-nuitka"), tmp_path, clean_environment(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it(command: List[str], number: int) -> None:
    with RunningScheduler(command, HOME) as scheduler:
        assert scheduler.stop(number) == 0, scheduler.output
        assert "Traceback" not in scheduler.output


def test_the_exit_code_is_the_programs(command: List[str]) -> None:
    finished = run(command, "nowhere")

    assert finished.returncode == 2
    assert "is not a scheduler address" in finished.stderr


def test_it_reads_a_file_of_options(command: List[str], c_library_root: EmptyRoot) -> None:
    assert_reads_files(command, HOME, c_library_root.outside("/scaler.toml"), "/scaler.toml")


def test_the_licences_of_its_parts_are_in_it(command: List[str], c_library_root: EmptyRoot) -> None:
    run(command, "--version")

    names = {path.name for path in c_library_root.outside("/root/.cache").rglob("licenses/*/*")}
    assert {"LICENSE.libsodium.txt", "LICENSE.zeromq.txt"} <= names


def test_later_starts_use_what_the_first_one_unpacked(command: List[str], c_library_root: EmptyRoot) -> None:
    def files() -> dict[str, int]:
        cache = c_library_root.outside("/root/.cache")
        return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}

    run(command, "--version")
    unpacked = files()
    run(command, "--version")

    assert unpacked
    assert files() == unpacked
