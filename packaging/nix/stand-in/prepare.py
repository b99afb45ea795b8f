"""Make a stand-in for nixpkgs in a folder: `prepare.py FOLDER PYPY`, with a Python that has hatchling.

Rules: what it makes is a flake that names programs of this host; nothing outside the folder changes. The wheels that
the flake at the top of the tree fetches by hash are fetched here by pip, since builds must do without a network.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict

HERE = Path(__file__).resolve().parent
NIX = ["nix", "--extra-experimental-features", "nix-command flakes"]


def main(folder: Path, pypy: str) -> None:
    """Write flake.nix, host.json and the wheels; raises CalledProcessError when a wheel cannot be had."""
    version = subprocess.run(
        [pypy, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    _fetch_wheels(wheels, pypy, "pp" + version.replace(".", ""))
    shutil.copy(HERE / "flake.nix", folder)
    host = {
        "python": sys.executable,
        "pypy": os.path.realpath(pypy),  # not an environment's, which may have what is to be proven
        "pypyVersion": version,
        "path": os.environ["PATH"],
        "hasPatchelf": shutil.which("patchelf") is not None,
        "wheels": str(wheels),
    }
    (folder / "host.json").write_text(json.dumps(host), encoding="utf-8")


def _fetch_wheels(folder: Path, pypy: str, tag: str) -> None:
    """Those of packaging/nix/wheels.nix for this PyPy and this machine."""
    text = subprocess.run(
        [*NIX, "eval", "--json", "--file", str(HERE.parent / "wheels.nix")], capture_output=True, text=True, check=True
    ).stdout
    known: Dict[str, Dict[str, Dict[str, Dict[str, str]]]] = json.loads(text)
    for tags in known.values():
        systems = tags.get(tag) or tags["any"]
        wheel = systems.get(f"{platform.machine()}-linux") or systems["any"]
        options = ["-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        subprocess.run([pypy, "-m", "pip", "download", *options, f"{wheel['pname']}=={wheel['version']}"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
