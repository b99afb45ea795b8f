"""The files of a release, in dist/release: `release.py collect`, then `release.py checksums`.

Rules:
- `collect` takes what `make dist` has built, whatever forms there are, under names that say version, form and machine,
  and adds a bill of materials. Wheels and source archives keep their names.
- `checksums` covers all files in the folder, including those of other machines, and is always rewritten.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from pathlib import Path
from typing import List

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
        if folder == release or not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            # A link is another name of a file: which program it then is.
            if not path.is_file() or path.is_symlink() or path.name.startswith("."):
                continue
            name = path.name
            if path.suffix != ".whl" and not name.endswith(".tar.gz"):
                form = "" if folder.name == DEFAULT_FORM else f"-{folder.name}"
                name = f"{path.stem}-{version}{form}-{machine}{path.suffix}"
            shutil.copy2(path, release / name)
    files = sorted(release.iterdir())
    if not files:
        raise SystemExit(f"error: there is nothing in {dist} to release. Build it: make dist")
    (release / f"scaler-{version}-{machine}.cdx.json").write_text(bill_of(files), encoding="utf-8")
    return sorted(release.iterdir())


def checksums(dist: Path) -> None:
    """Write what `sha256sum --check` reads."""
    release = dist / "release"
    files = [path for path in sorted(release.iterdir()) if path.name != CHECKSUMS]
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
