"""Wheels and source archives have exactly the right content, and builds are reproducible."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Dict, List

import pytest
from packaged import PACKAGING_PYTHON, TREE

# The folder of each distribution and the package in it.
DISTRIBUTIONS = {
    "scaler_protocol": ("protocol-spec/python", "scaler_protocol"),
    "scaler_appliance": ("appliance", "scaler_appliance"),
    "scaler_sdk": ("sdk", "scaler"),
    "scaler_conformance": ("conformance-tests", "scaler_conformance"),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PACKAGING_PYTHON.exists(), reason="no tools to build with (make dist-wheels)"),
]


def build_all(output: Path, umask: int) -> List[Path]:
    """A source archive of each distribution, and a wheel from that archive."""
    for folder, _ in DISTRIBUTIONS.values():
        subprocess.run(
            [str(PACKAGING_PYTHON), "-m", "build", "--no-isolation", "--outdir", str(output), str(TREE / folder)],
            check=True,
            stdout=subprocess.DEVNULL,
            umask=umask,
        )
    return sorted(output.iterdir())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> List[Path]:
    return build_all(tmp_path_factory.mktemp("archives"), 0o022)


def wheel_of(archives: List[Path], distribution: str) -> Path:
    (wheel,) = (path for path in archives if path.name.startswith(f"{distribution}-") and path.suffix == ".whl")
    return wheel


def sources_of(distribution: str) -> set[str]:
    """The files of a package, as a wheel names them; a link to a folder stands for what is in it."""
    folder, package = DISTRIBUTIONS[distribution]
    root = TREE / folder / "src"
    return {
        str(Path(place, name).relative_to(root))
        for place, _, names in os.walk(root / package, followlinks=True)
        for name in names
        if not place.endswith("__pycache__")
    }


def test_built_again_they_have_the_same_bytes(archives: List[Path], tmp_path: Path) -> None:
    again = build_all(tmp_path, 0o077)

    assert [path.name for path in again] == [path.name for path in archives]
    assert len(again) == 2 * len(DISTRIBUTIONS)
    assert [a.name for a, b in zip(archives, again) if a.read_bytes() != b.read_bytes()] == []


def test_an_index_would_take_them(archives: List[Path]) -> None:
    finished = subprocess.run(
        [str(PACKAGING_PYTHON), "-m", "twine", "check", "--strict", *map(str, archives)],
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_holds_the_package_and_the_licence(archives: List[Path], distribution: str) -> None:
    wheel = wheel_of(archives, distribution)
    information = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licence = archive.read(f"{information}/licenses/LICENSE")

    assert {name for name in names if not name.startswith(f"{information}/")} == sources_of(distribution)
    assert f"{DISTRIBUTIONS[distribution][1]}/py.typed" in names
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert {name[len(information) + 1 :] for name in names if name.startswith(information)} <= about
    assert licence == (TREE / "LICENSE").read_bytes()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_source_archive_holds_what_the_wheel_is_made_of(archives: List[Path], distribution: str) -> None:
    (source,) = (path for path in archives if path.name.startswith(f"{distribution}-") and path.suffix == ".gz")
    with tarfile.open(source) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}

    beside = {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert names == beside | {f"src/{name}" for name in sources_of(distribution)}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_says_what_it_is_and_needs(archives: List[Path], distribution: str) -> None:
    wheel = wheel_of(archives, distribution)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())

    assert metadata["Name"] == distribution.replace("_", "-")
    assert metadata["Version"] == wheel.name.split("-")[1]
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Summary"]
    ours: Dict[str, List[str]] = {
        "scaler_protocol": [],
        "scaler_appliance": ["scaler-protocol<2,>=1.0"],
        "scaler_sdk": ["scaler-protocol<2,>=1.0", "scaler-appliance[top,ui]; extra == 'local'"],
        "scaler_conformance": [],
    }
    needed = metadata.get_all("Requires-Dist") or []
    assert [one for one in needed if one.startswith("scaler-")] == ours[distribution]
