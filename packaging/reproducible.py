"""Builds the forms of the last commit twice, from two clones, and compares them byte by byte: `make reproducible`.

    python packaging/reproducible.py [FORM ...]        all of FORMS, or those that are named

Rules:
- The clones share nothing: each sets up its own tools, fetches what it needs, and compresses what it packs.
- They differ in what must not matter: the path and its length, the dates of the sources, the time of the build, the
  time zone, the language, the umask, the home and the seed of hashes.
- A file that differs is named with the place where that begins, and both clones stay to be looked at.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

TREE = Path(__file__).resolve().parents[1]
FORMS = {
    "wheels": ["dist-wheels"],
    "pex": ["dist-pex"],
    "pypy": ["dist-pypy"],
    "pypy-aarch64": ["dist-pypy", "MACHINE=aarch64"],
    "nuitka": ["dist-nuitka"],
}
"""The folders in dist, and what make builds in them."""
LONG_AGO = 1_000_000_000


class Clone(NamedTuple):
    """A copy of the repository, and what is different about building there.

    Attributes:
        variables: of the environment.
        umask: of the builder.
        date: of all sources, in seconds since 1970; None: that of the checkout.
    """

    folder: Path
    variables: Dict[str, str]
    umask: int
    date: Optional[int]

    def make(self) -> None:
        """Clone the tree."""
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(TREE), str(self.folder)], check=True)
        if self.date is not None:
            for path in self.folder.rglob("*"):
                os.utime(path, (self.date, self.date), follow_symlinks=False)

    def build(self, forms: List[str]) -> None:
        """Build forms.

        Raises SystemExit if that fails.
        """
        home = self.folder.parent / "home"
        home.mkdir(exist_ok=True)
        variables = {**os.environ, **self.variables, "HOME": str(home)}
        variables.pop("SOURCE_DATE_EPOCH", None)
        for form in forms:
            print(f"building {form} in {self.folder}", flush=True)
            command = ["make", "-C", str(self.folder), *FORMS[form]]
            finished = subprocess.run(
                command, env=variables, umask=self.umask, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if finished.returncode:
                sys.exit(f"{finished.stdout}\nerror: {' '.join(command)} failed (see above)")

    def files(self, forms: List[str]) -> Dict[str, Path]:
        """What was built, by its path in dist; links are other names of the same."""
        dist = self.folder / "dist"
        paths = [path for form in forms for path in sorted((dist / form).iterdir())]
        return {
            path.relative_to(dist).as_posix(): path
            for path in paths
            if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
        }


def clones(work: Path) -> List[Clone]:
    """Two that differ."""
    plain = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0"}
    other = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "4711"}
    return [
        Clone(work / "one/tree", plain, 0o022, None),
        Clone(work / "another one/of a longer path/sources".replace(" ", "-"), other, 0o077, LONG_AGO),
    ]


def compare(first: Dict[str, Path], second: Dict[str, Path]) -> List[str]:
    """Compare files by name, and print a line about each; the names of those that differ."""
    different = sorted(first.keys() ^ second.keys())
    for name in different:
        print(f"DIFFERS  {name} was built once only")
    for name in sorted(first.keys() & second.keys()):
        one, two = first[name].read_bytes(), second[name].read_bytes()
        if one == two:
            print(f"same     {hashlib.sha256(one).hexdigest()}  {name}")
            continue
        place = next((index for index, pair in enumerate(zip(one, two)) if pair[0] != pair[1]), min(len(one), len(two)))
        print(f"DIFFERS  {name}: {len(one)} and {len(two)} bytes, first at {place}")
        different.append(name)
    return different


def main(arguments: List[str]) -> int:
    """Run the program; returns its exit code."""
    parser = argparse.ArgumentParser(description="Build forms twice, and compare the bytes.")
    parser.add_argument("forms", nargs="*", metavar="FORM", help=f"of {', '.join(FORMS)}; all if none is named")
    forms = parser.parse_args(arguments).forms or list(FORMS)
    unknown = [form for form in forms if form not in FORMS]
    if unknown:
        parser.error(f"there is no form {unknown[0]}; there are {', '.join(FORMS)}")
    work = Path(tempfile.mkdtemp(prefix="scaler-reproducible-"))
    both = clones(work)
    for clone in both:  # before anything is built, which takes long: meanwhile there may be another last commit
        clone.make()
    for clone in both:
        clone.build(forms)
    different = compare(both[0].files(forms), both[1].files(forms))
    if different:
        print(f"{len(different)} of the files differ; what was built is in {work}", file=sys.stderr)
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
