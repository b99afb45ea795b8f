"""Run the fast tests of the SDK and the protocol package on every supported CPython that this machine has.

    .ci/pythons.py [VERSION ...]      for example 3.9 3.13; without one, all that are found

Interpreters are looked for on the PATH and among pyenv's. Each has an environment of its own, `.venv-python3.X`, which
is kept. Where a tool has no release for a version, the tests that need it are skipped.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

TREE = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PACKAGES = ("-e", "protocol-spec/python", "-e", "appliance[top,ui]", "-e", "sdk")
TOOLS = (
    "dask",
    "hypothesis",
    "joblib",
    "kubernetes-validate",
    "numpy",
    "pandas",
    "pycapnp",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "tqdm",
    "uvloop",
)
TESTS = ("sdk/tests", "protocol-spec/python/tests")


def found() -> Dict[str, Path]:
    """Interpreters by version."""
    pyenv = Path.home() / ".pyenv/versions"
    interpreters: Dict[str, Path] = {}
    for version in SUPPORTED:
        name = f"python{version}"
        on_path = shutil.which(name)
        candidates = [Path(on_path)] if on_path else []
        candidates += sorted(pyenv.glob(f"{version}.*/bin/{name}"), reverse=True)
        for candidate in candidates:
            command = [
                str(candidate),
                "-c",
                f"import venv, sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])",
            ]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                interpreters[version] = candidate
                break
    return interpreters


def prepare(version: str, interpreter: Path) -> Path:
    """Make the environment, or bring it up to date; returns its interpreter."""
    environment = TREE / f".venv-python{version}"
    if not environment.exists():
        subprocess.run([str(interpreter), "-m", "venv", str(environment)], check=True)
    python = environment / "bin/python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *PACKAGES], cwd=TREE, check=True)
    for tool in TOOLS:  # one by one: some have no release for some versions
        if subprocess.run([*pip, tool], cwd=TREE, check=False, stderr=subprocess.DEVNULL).returncode:
            print(f"Python {version}: {tool} cannot be installed, its tests are skipped", file=sys.stderr)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"among {', '.join(SUPPORTED)} (default: all found)"
    )
    parser.add_argument("--jobs", default="2", help="tests at a time (default: %(default)s)")
    options = parser.parse_args()
    interpreters = found()
    missing = [version for version in options.versions if version not in interpreters]
    if missing:
        parser.error(f"no CPython {missing[0]} here; found: {', '.join(interpreters) or 'none'}")
    failed: List[str] = []
    for version in options.versions or interpreters:
        print(f"CPython {version} ({interpreters[version]})", flush=True)
        python = prepare(version, interpreters[version])
        start = time.monotonic()
        pytest = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-n",
            options.jobs,
            "--dist",
            "loadfile",
            "-m",
            "not slow",
            "-r",
            "fE",
        ]
        if subprocess.run([*pytest, *TESTS], cwd=TREE, check=False).returncode:
            failed.append(version)
        print(f"CPython {version}: {time.monotonic() - start:.0f} s\n", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
