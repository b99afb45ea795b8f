"""The implementations that this tree tests: one TOML file each, and the page with the results.

    role = "worker"
    command = ["{tree}/path/to/program", "{address}"]  # {tree} is the root of the tree
    needs = ["{tree}/path/to/program"]                 # files that it needs; default: the program
    options = ["--config", "{tree}/..."]               # of scaler-conformance

`python -m implementations FOLDER` runs the suite against all of them and writes FOLDER/index.html; that is what
`make conformance` does.

Rules:
- An implementation that is not built is skipped, with a message.
- The reports are written whatever the verdicts are; the exit code is the worst one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

from scaler_conformance.configuration.toml_files import load_toml
from scaler_conformance.running.program import main as run_suite

FOLDER = Path(__file__).resolve().parent
TREE = FOLDER.parents[1]


class Implementation(NamedTuple):
    """One program to test."""

    name: str
    role: str
    command: Tuple[str, ...]
    needs: Tuple[str, ...]
    options: Tuple[str, ...]

    @property
    def missing(self) -> List[str]:
        """Files that it needs and that do not exist."""
        return [each for each in self.needs if not Path(each).exists()]

    def run(self, *options: str) -> int:
        """Run the suite, and return its exit code."""
        return run_suite([self.role, *self.options, *options, "--", *self.command])


def implementations() -> List[Implementation]:
    """All implementations, ordered by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.toml"))]


def _read(path: Path) -> Implementation:
    table = load_toml(path)

    def texts(key: str, default: Any) -> Tuple[str, ...]:
        return tuple(each.replace("{tree}", str(TREE)) for each in table.get(key, default))

    command = texts("command", ())
    return Implementation(path.stem, table["role"], command, texts("needs", command[:1]), texts("options", ()))


def main(folder: Path) -> int:
    """Test all that are built, write their reports, and return the worst exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    codes, reports = [0], []
    for each in implementations():
        if each.missing:
            print(f"skipped {each.name}: {each.missing[0]} does not exist; build it first")
            continue
        report = folder / f"{each.name}.json"
        print(f"{each.name}:", flush=True)
        codes.append(each.run("--quiet", "--json", str(report)))
        if not report.exists():
            continue
        without_place = report.read_text(encoding="utf-8").replace(f"{TREE}/", "")
        report.write_text(without_place, encoding="utf-8")
        reports.append(str(report))
    page = folder / "index.html"
    if reports:
        codes.append(run_suite(["report", "--html", str(page), *reports]))
        verdicts = [json.loads(Path(each).read_text(encoding="utf-8"))["counts"] for each in reports]
        print(f"{page}: {len(reports)} implementations, {sum(sum(each.values()) for each in verdicts)} cases")
    return max(codes)
