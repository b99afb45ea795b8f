"""What the tests of all recipes share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from empty_root import EmptyRoot, why_not
from packaged import WHEELS, built
from pypy_file import BUILD, FILE, WORK, build


@pytest.fixture(scope="session")
def one_file() -> Path:
    """The single file with PyPy."""
    build(BUILD, WORK, FILE)
    return FILE


@pytest.fixture
def empty_root(tmp_path: Path) -> EmptyRoot:
    """A root folder with nothing in it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return EmptyRoot(tmp_path / "root")


@pytest.fixture
def c_library_root(tmp_path: Path) -> EmptyRoot:
    """A root folder with only the C library and /bin/sh in it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return EmptyRoot(tmp_path / "root", with_c_library=True)


def install(folder: Path, *requirements: str) -> Path:
    """A new environment with packages from the wheels; its Python.

    The pip is that of this environment: a new one takes longer to install than all else.
    """
    built(WHEELS / ".built", "dist-wheels")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--find-links", str(WHEELS), *requirements], check=True)
    return python


@pytest.fixture(scope="session")
def sdk_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the SDK and no scheduler."""
    return install(tmp_path_factory.mktemp("sdk") / "environment", "scaler-sdk")


@pytest.fixture(scope="session")
def local_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with all that a local cluster needs."""
    return install(tmp_path_factory.mktemp("local") / "environment", "scaler-sdk[local]")
