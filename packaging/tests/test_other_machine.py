"""The single file for the other machine, aarch64 on x86-64, which is built here from Debian's packages and run by qemu.

Rules: what `make dist` has built is tested, built again if what it is made of has changed; else a file that is hardly
compressed. Where a compiler for that machine, qemu or the right to use it is missing, tests that need it are skipped.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from empty_root import EmptyRoot
from emulated_machine import EmulatedMachine, why_not
from machines import NotRunnableError, command_for, machine_of
from packaged import EARLIER_NAMES, assert_finds_itself_sound, assert_serves_with_keys
from pypy_file import (
    BUILD,
    DEADLINE_SECONDS,
    SYSTEMS,
    TREE,
    assert_serves_outside,
    build,
    build_again,
    check_ran_from,
    command_in,
    copies,
    run_with_mount,
)
from release import collect

MACHINE = "x86_64" if platform.machine() == "aarch64" else "aarch64"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
RELEASED = TREE / f"dist/pypy-{MACHINE}/scaler_scheduler"
IS_QUICK = not RELEASED.exists()
WORK = TREE / f"build/pypy-{MACHINE}{'-quick' if IS_QUICK else ''}"
FILE = WORK / RELEASED.name if IS_QUICK else RELEASED
OPTIONS = [f"--machine={MACHINE}", f"--packages={TREE}/build/debian-{ARCHITECTURE}", *(["--quick"] if IS_QUICK else [])]

EMULATED_SECONDS = 600.0
OTHER_SYSTEMS: Dict[str, Dict[str, Any]] = {
    **{name: SYSTEMS[name] for name in SYSTEMS if name.startswith(("another", "a root"))},
    "nothing": {},
    # Who is root only in a user namespace may not mount a new one.
    "/proc": {"mounts": ["--rbind /proc proc"]},
}

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def other_file() -> Path:
    build(BUILD, WORK, FILE, OPTIONS)
    return FILE


@pytest.fixture(scope="module")
def qemu() -> List[str]:
    """What goes in front of a command for that machine."""
    try:
        return command_for(MACHINE)
    except NotRunnableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def copy(other_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the file, with nothing run."""
    folder = tmp_path_factory.mktemp("copy")
    content = other_file.read_bytes()
    trailer = dict(line.split(" ", 1) for line in content[-512:].decode().split("\n") if " " in line)
    archive = content[int(trailer["offset"]) : -512]
    with subprocess.Popen(["zstd", "-dc"], stdin=subprocess.PIPE, stdout=(folder / "tar").open("wb")) as decoder:
        decoder.communicate(archive)
    with tarfile.open(folder / "tar") as members:
        members.extractall(folder / "copy")
    return folder / "copy"


def dynamic_section(library: Path) -> str:
    """What its loader is told, in words."""
    command = ["readelf", "--wide", "--dynamic", str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# What is in it --------------------------------------------------------------------------------------------------------


def test_all_machine_code_in_it_is_for_that_machine(other_file: Path, copy: Path) -> None:
    assert machine_of(other_file) == MACHINE
    machines: Dict[str, str] = {}
    for path in copy.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            machines[path.name] = machine_of(path) or "unknown"
    assert {"pypy3", "libc.so.6", "libpypy3.9-c.so", "libstdc++.so.6"} <= set(machines)
    assert set(machines.values()) == {MACHINE}
    assert [path for path in copy.rglob(f"*{platform.machine().replace('_', '?')}*") if path.is_file()] == []


def test_all_libraries_that_its_code_needs_are_in_it(copy: Path) -> None:
    programs = [path for path in copy.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    names = {path.name for path in programs}
    for program in programs:
        assert set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic_section(program))) <= names, program


def test_it_can_be_loaded_with_the_largest_pages_of_its_machine(other_file: Path, copy: Path) -> None:
    page_bytes = {"x86_64": 4096, "aarch64": 65536}[MACHINE]
    programs = [path for path in copy.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    for program in [other_file, *programs]:
        command = ["readelf", "--wide", "--segments", str(program)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        end = 0
        for numbers in re.findall(r"^ +LOAD +(\w+) (\w+) \w+ \w+ (\w+) ", listing, re.MULTILINE):
            offset, address, size = (int(number, 16) for number in numbers)
            assert (address - offset) % page_bytes == 0, program
            assert address // page_bytes * page_bytes >= end, program
            end = -(-(address + size) // page_bytes) * page_bytes
        assert end > 0, program


def test_the_pointers_of_its_pypy_are_packed(copy: Path) -> None:
    [library] = copy.glob("bin/libpypy*")
    dynamic = dynamic_section(library)
    assert "(RELR)" in dynamic
    sizes = dict(re.findall(r"\((RELASZ|RELRSZ)\)\s+(\d+) \(bytes\)", dynamic))
    assert int(sizes["RELASZ"]) + int(sizes["RELRSZ"]) < 1_000_000


def test_the_terms_and_sources_of_all_its_parts_are_in_it(copy: Path) -> None:
    licenses = {path.name for path in (copy / "licenses").iterdir()}
    assert {"libc6", "pypy3", "libgcc-s1", "libstdc++6", "libffi8", "zlib1g", "pyzmq", "scaler", "sources"} <= licenses
    sources = (copy / "licenses/sources").read_text()
    for source in ("glibc", "pypy3", "gcc-12", "libffi"):
        assert re.search(rf"^{re.escape(source)} \S+: https://", sources, re.MULTILINE), source


def test_a_second_build_in_another_folder_gives_the_same_bytes(other_file: Path, tmp_path: Path) -> None:
    again = build_again(tmp_path, WORK, [*OPTIONS, f"--packages={tmp_path}/packages"])  # which are fetched again
    assert again.read_bytes() == other_file.read_bytes()


def test_nothing_is_built_when_nothing_has_changed(other_file: Path) -> None:
    before = other_file.stat()
    build(BUILD, WORK, FILE, OPTIONS)
    assert other_file.stat() == before


def test_no_path_of_the_builder_is_in_it(other_file: Path, copy: Path) -> None:
    content = other_file.read_bytes()
    assert str(TREE).encode() not in content
    assert [path for path in copy.rglob("*") if path.is_file() and str(TREE).encode() in path.read_bytes()] == []


# Running it -----------------------------------------------------------------------------------------------------------


def test_it_serves_a_client_and_workers_of_this_machine(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    assert_serves_outside([*qemu, "env", "-i", f"SCALER_CACHE_HOME={tmp_path}", str(other_file)])


@pytest.mark.parametrize("system", [pytest.param(each, id=name) for name, each in OTHER_SYSTEMS.items()])
def test_on_any_linux_it_serves_a_client_and_workers_outside(
    system: Dict[str, Any], other_file: Path, qemu: List[str], empty_root: EmptyRoot
) -> None:
    assert_serves_outside([*qemu, *command_in(empty_root, other_file, **system)])


def test_a_user_whom_the_system_does_not_know_has_it_serve(
    other_file: Path, qemu: List[str], empty_root: EmptyRoot
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user in another root")
    # In another user namespace, which knows one number; `chroot` needs what is kept of root's rights.
    user = ["unshare", "--user", "--map-user=1234567", "--map-group=1234567", "--keep-caps"]
    assert_serves_outside([*qemu, *user, *command_in(empty_root, other_file)])


def test_each_program_of_the_appliance_runs_under_its_name(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    environment = {"SCALER_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
    links = [path.name for path in other_file.parent.iterdir() if path.is_symlink()]
    assert {"scaler_top", "scaler_ui"} <= set(links)
    for name in links:
        (tmp_path / name).symlink_to(other_file)
        command = [*qemu, str(tmp_path / name), "--version"]
        finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        assert finished.stdout.startswith(f"{EARLIER_NAMES.get(name, name)} "), finished.stderr


def test_ten_starts_at_once_unpack_once(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    command = [*qemu, "env", "-i", f"SCALER_CACHE_HOME={tmp_path}", str(other_file), "--version"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)]
    outputs = [process.communicate(timeout=3 * DEADLINE_SECONDS) for process in started]
    assert [process.returncode for process in started] == [0] * 10, outputs
    assert len({output for output, _ in outputs}) == 1
    assert len([line for _, errors in outputs for line in errors.splitlines()]) == 1
    assert len(copies(tmp_path)) == 1


def test_a_home_that_no_program_runs_from(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    command = [*qemu, str(other_file), "--version"]
    homes = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path / "tmp")}
    finished = run_with_mount("noexec,mode=700", tmp_path / "home", *command, **homes)
    check_ran_from(finished, tmp_path / "tmp/scaler-0")


def test_its_connections_have_keys(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    environment = {"SCALER_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
    assert_serves_with_keys([*qemu, str(other_file)], environment, Path(sys.executable), tmp_path)


def test_in_an_empty_root_its_self_test_finds_it_sound(
    other_file: Path, qemu: List[str], empty_root: EmptyRoot
) -> None:
    said = assert_finds_itself_sound([*qemu, *command_in(empty_root, other_file)])
    assert said.startswith("unpacked: ") and "pyzmq.libs/libsodium" in said


def test_on_an_emulated_machine_with_a_kernel_of_its_kind_its_self_test_finds_it_sound(other_file: Path) -> None:
    reason = why_not(MACHINE)
    if reason:
        pytest.skip(reason)
    machine = EmulatedMachine(MACHINE, TREE / f"build/debian-{ARCHITECTURE}-kernel")
    script = "busybox uname -m; scaler_scheduler --self-test; echo exit code $?"
    output = machine.run({"scaler_scheduler": other_file}, script, EMULATED_SECONDS)
    assert f"{MACHINE}\n" in output
    assert "\nok\nexit code 0\n" in output, output


def test_a_release_names_its_machine_and_its_parts(other_file: Path, qemu: List[str], tmp_path: Path) -> None:
    folder = tmp_path / f"pypy-{MACHINE}"
    folder.mkdir()
    shutil.copy(other_file, folder)
    [bill, released] = collect(tmp_path)
    assert re.fullmatch(rf"scaler_scheduler-[\d.]+-{MACHINE}-linux", released.name)
    [described] = json.loads(bill.read_text())["components"]
    names = {component["name"] for component in described["components"]}
    assert {"PyPy", "libzmq", "pyzmq", "libc.so.6", "scaler_scheduler"} <= names
