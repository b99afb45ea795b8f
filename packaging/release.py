"""The files of a release, in dist/release: `release.py collect`, then `release.py checksums`.

Rules:
- `collect` takes what `make dist` has built, whatever forms there are, under names that say version, form and machine,
  and adds a bill of materials. Wheels and source archives keep their names.
- The machine is the one that a program is for; of a script, which runs it by another program, the one here.
- `checksums` covers all files in the folder, including those of other machines, but not its own signature. It is always
  rewritten.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from pathlib import Path
from typing import List

from machines import machine_of
from sbom import bill_of, sha256_of

TREE = Path(__file__).resolve().parents[1]
DEFAULT_FORM = "pypy"  # its files need no word that says so
CHECKSUMS = "SHA256SUMS"


def collect(dist: Path) -> List[Path]:
    """Copy what is in the folders of `dist` to its folder `release`; the files that are there then."""
    release = dist / "release"
    shutil.rmtree(release, ignore_errors=True)
    release.mkdir(parents=True)
    text = (TREE / "appliance/src/scaler_appliance/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'__version__ = "(.+)"', text)
    machine = f"{platform.machine()}-{platform.system().lower()}"
    for folder in sorted(dist.iterdir()):
        if folder.name in (release.name, "previous") or not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            # A link is another name of a file: which program it then is.
            if not path.is_file() or path.is_symlink() or path.name.startswith("."):
                continue
            shutil.copy2(path, release / released_name(path, version))
    files = sorted(release.iterdir())
    if not files:
        raise SystemExit(f"error: there is nothing in {dist} to release. Build it: make dist")
    (release / f"scaler-{version}-{machine}.cdx.json").write_text(bill_of(files), encoding="utf-8")
    return sorted(release.iterdir())


def released_name(path: Path, version: str) -> str:
    """What a file in a folder of `dist` is called in a release; a folder is named after a form, and maybe a machine."""
    if path.suffix == ".whl" or path.name.endswith(".tar.gz"):
        return path.name
    machine = machine_of(path) or platform.machine()
    form = path.parent.name
    if form.endswith(f"-{machine}"):
        form = form[: -len(machine) - 1]
    form = "" if form == DEFAULT_FORM else f"-{form}"
    return f"{path.stem}-{version}{form}-{machine}-{platform.system().lower()}{path.suffix}"


def checksums(dist: Path) -> None:
    """Write what `sha256sum --check` reads."""
    release = dist / "release"
    files = [path for path in sorted(release.iterdir()) if not path.name.startswith(CHECKSUMS)]
    (release / CHECKSUMS).write_text("".join(f"{sha256_of(path)}  {path.name}\n" for path in files), encoding="utf-8")


def main(arguments: List[str]) -> None:
    """Run the commands that are named, one after another."""
    commands = {"collect": collect, "checksums": checksums}
    for name in arguments:
        commands[name](TREE / "dist")
    for path in sorted((TREE / "dist/release").iterdir()):
        print(path.relative_to(TREE))


if __name__ == "__main__":
    main(sys.argv[1:])
