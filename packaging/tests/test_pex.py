"""The pex runs on whatever PyPy or Python there is, PyPy first, and starts each of the appliance's programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import Dict, List, Optional

import pytest
from packaged import (
    EARLIER_NAMES,
    PACKAGING_PYTHON,
    PEX,
    TREE,
    WHEELS,
    RunningScheduler,
    assert_finds_itself_sound,
    assert_reads_files,
    assert_serves,
    assert_serves_with_keys,
    assert_watches,
    built,
)

pytestmark = pytest.mark.slow

PYPY = TREE / ".venv-pypy/bin/pypy3"
TIME_LIMIT_SECONDS = 60

INTERPRETERS = ["python3", pytest.param("pypy3", marks=pytest.mark.exhaustive)]
"""That it serves on PyPy is always tried, and its programs with PyPy are tried with the single file of PyPy."""


@pytest.fixture
def pex() -> Path:
    return built(PEX, "dist-pex")


def interpreter(name: str) -> Path:
    """The program of an interpreter itself, without the virtual environment around it."""
    if name == "python3":
        return Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if not PYPY.exists():
        pytest.skip("no PyPy here (make test says why)")
    return PYPY.resolve()


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests share copies that are not about unpacking: for each interpreter that takes seconds.

    The first test of each interpreter unpacks one.
    """
    return tmp_path_factory.mktemp("unpacked")


def machine_with(folder: Path, *names: str, unpacked: Optional[Path] = None) -> Dict[str, str]:
    """The environment of a machine on which these interpreters are all there is.

    Parameters:
        unpacked: where copies may have been unpacked before, one for each choice of interpreters, because a copy
            runs on the interpreter that unpacked it; nowhere, if omitted.
    """
    programs = folder / "programs"
    programs.mkdir()
    for name in names:
        (programs / name).symlink_to(interpreter(name))
    for name in ("ldd", "uname"):  # with which Python finds out about the machine
        (programs / name).symlink_to(shutil.which(name) or name)
    copies = folder / "unpacked" if unpacked is None else unpacked / "-".join(names)
    return {"HOME": str(folder / "home"), "PATH": str(programs), "PEX_ROOT": str(copies)}


def run(command: List[str], env: Dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS
    )


def version(pex: Path, env: Dict[str, str], *arguments: str) -> str:
    finished = run([str(pex), "--version", *arguments], env)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


@pytest.mark.parametrize("is_started_by_name", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_on_pypy_it_has_the_larger_young_generation(
    is_started_by_name: bool, pex: Path, unpacked: Path, tmp_path: Path
) -> None:
    machine = machine_with(tmp_path, "pypy3", unpacked=unpacked)
    command = [str(pex)] if is_started_by_name else [str(tmp_path / "programs/pypy3"), str(pex)]

    with RunningScheduler(command, machine) as scheduler:
        environment = Path(f"/proc/{scheduler.process.pid}/environ").read_bytes().split(b"\0")
        assert b"PYPY_GC_NURSERY=16M" in environment
        assert scheduler.stop() == 0
    assert [path.name for path in (tmp_path / "home").iterdir()] == [".config"], "all else is where PEX_ROOT says"


@pytest.mark.parametrize(("name", "implementation"), [("python3", "CPython"), ("pypy3", "PyPy")])
def test_it_serves_on(
    name: str, implementation: str, pex: Path, unpacked: Path, sdk_python: Path, tmp_path: Path
) -> None:
    machine = machine_with(tmp_path, name, unpacked=unpacked)

    assert f" {implementation} " in version(pex, machine)
    assert_serves([str(pex)], machine, sdk_python, tmp_path)
    assert_finds_itself_sound([str(pex)], machine)


@pytest.mark.parametrize("name", INTERPRETERS)
def test_its_connections_have_keys(name: str, pex: Path, unpacked: Path, sdk_python: Path, tmp_path: Path) -> None:
    assert_serves_with_keys([str(pex)], machine_with(tmp_path, name, unpacked=unpacked), sdk_python, tmp_path)


def test_it_prefers_pypy(pex: Path, tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "python3", "pypy3")

    assert " PyPy " in version(pex, machine)
    assert " PyPy " in version(pex, machine), "when it was unpacked before"


def test_a_user_can_name_the_interpreter(pex: Path, tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "pypy3")

    assert " CPython " in version(pex, {**machine, "PEX_PYTHON": str(interpreter("python3"))})


def test_names_that_stand_for_nothing_are_passed_over(pex: Path, unpacked: Path, tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "python3", unpacked=unpacked)
    nothing = tmp_path / "programs/pypy3.10"  # as a version manager leaves them
    nothing.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    nothing.chmod(0o755)

    assert " CPython " in version(pex, machine)


def test_without_an_interpreter_it_says_what_it_needs(pex: Path, tmp_path: Path) -> None:
    finished = run(["/bin/sh", str(pex), "--version"], machine_with(tmp_path))

    assert finished.returncode != 0
    assert "needs PyPy or CPython" in finished.stderr


@pytest.mark.parametrize("name", INTERPRETERS)
def test_its_monitors_watch_its_scheduler(name: str, pex: Path, unpacked: Path, tmp_path: Path) -> None:
    assert_watches(pex, tmp_path, machine_with(tmp_path, name, unpacked=unpacked))


@pytest.mark.parametrize("name", INTERPRETERS)
def test_it_reads_a_file_of_options(name: str, pex: Path, unpacked: Path, tmp_path: Path) -> None:
    assert_reads_files([str(pex)], machine_with(tmp_path, name, unpacked=unpacked), tmp_path / "scaler.toml")


def test_wrong_command_lines_have_the_programs_exit_code(pex: Path, unpacked: Path, tmp_path: Path) -> None:
    finished = run([str(pex), "nowhere"], machine_with(tmp_path, "python3", unpacked=unpacked))

    assert finished.returncode == 2
    assert "is not a scheduler address" in finished.stderr


def test_each_program_of_the_appliance_is_in_it(pex: Path, unpacked: Path, tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "python3", unpacked=unpacked)
    (wheel,) = built(WHEELS, "dist-wheels").glob("scaler_appliance-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        entries = ConfigParser()
        entries.read_string(archive.read(name).decode())

    programs = list(entries["console_scripts"])
    assert "scaler_scheduler" in programs
    for program in programs:
        link = tmp_path / program
        link.symlink_to(pex)
        name = EARLIER_NAMES.get(program, program)
        assert version(link, machine).startswith(f"{name} "), "by the name of the file"
        assert version(pex, {**machine, "PEX_SCRIPT": program}).startswith(f"{name} "), "by the variable"


@pytest.mark.exhaustive
def test_built_again_it_has_the_same_bytes(pex: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere" / pex.name
    subprocess.run(
        [str(PACKAGING_PYTHON), str(TREE / "packaging/pex/build.py"), str(WHEELS), str(again)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        umask=0o077,
        check=True,
        stdout=subprocess.DEVNULL,
    )

    assert again.read_bytes() == pex.read_bytes()
