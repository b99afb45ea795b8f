"""The sources of the pages keep their rules; no browser is needed to see that.

Rule: what a reader's browser loads comes from the package, is text first and never HTML made of strings, and would also
work in a folder of some other server.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest
from browser_driver import MODULES
from hypothesis import given, settings
from hypothesis import strategies as some

STATIC = Path(__file__).resolve().parents[2] / "src" / "scaler_appliance" / "ui" / "static"
LINTERS = sorted(MODULES.glob("@biomejs/cli-*/biome"))  # for this machine's processor
MODULE_FILES = sorted((STATIC / "js").rglob("*.js"))
OWN_FILES = [STATIC / "index.html", *MODULE_FILES, *sorted((STATIC / "css").glob("*.css"))]
MOST_LINES = 500
UPLOT_TYPES = """
export default class uPlot {
  constructor(options: any, data: any, place: HTMLElement);
  [name: string]: any;
  static paths: any;
}
"""


def found(pattern: str, files: List[Path]) -> List[str]:
    """Where a pattern stands, apart from comments."""
    return [
        f"{path.relative_to(STATIC)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line) and not line.lstrip().startswith(("*", "//", "/*"))
    ]


def test_every_module_opens_with_its_rules() -> None:
    assert MODULE_FILES
    opening = {path.name: path.read_text(encoding="utf-8").split("*/")[0] for path in MODULE_FILES}
    assert [name for name, text in opening.items() if not (text.startswith("/**") and "Rule" in text)] == []


def test_modules_stay_short() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in OWN_FILES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_text_is_ever_parsed_as_html_or_code() -> None:
    assert (
        found(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", OWN_FILES)
        == []
    )


def test_nothing_is_inline_so_a_strict_policy_holds() -> None:
    assert found(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=\"", [STATIC / "index.html"]) == []


def test_all_addresses_are_relative() -> None:
    # A namespace of SVG is a name and no address.
    urls = found(r"https?://|[\"'(]//|(?:href|src)=\"/|fetch\([\"'`]/", OWN_FILES)
    assert [line for line in urls if "www.w3.org/2000/svg" not in line] == []


def test_what_others_wrote_comes_with_its_licence() -> None:
    folder = STATIC / "vendor" / "uplot"
    assert "MIT" in (folder / "LICENSE").read_text()
    version = re.search(r"\(v([0-9.]+)\)", (folder / "uPlot.esm.js").read_text()[:600])
    assert version is not None and version[1] in (folder / "README.md").read_text()


@pytest.mark.skipif(shutil.which("node") is None, reason="no browser: Node.js missing")
def test_every_module_can_be_read() -> None:
    for path in MODULE_FILES:
        done = subprocess.run(["node", "--check", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


COVER = """
import { Columns } from MODULE;
const lanes = JSON.parse(process.argv[1]);
console.log(JSON.stringify(lanes.map((runs) => {
  const columns = new Columns(WIDTH);
  for (const [start, end, number] of runs) columns.cover(start, end, number);
  let filled = 0;
  let next = 0;
  columns.pieces((x, width, share) => {
    if (x < next) throw new Error("pieces overlap");
    next = x + width;
    filled += width * share;
  });
  return filled;
})));
"""
WIDTH = 200
RUNS = some.lists(some.tuples(some.floats(0, 3), some.floats(0, 5), some.integers(1, 3)), max_size=80)


def one_after_the_other(steps: List[Tuple[float, float, int]]) -> List[Tuple[float, float, int]]:
    """Runs with gaps, in pixels, as far as there is room."""
    runs, now = [], 0.0
    for gap, length, function in steps:
        start, now = now + gap, now + gap + length
        runs.append((start, min(now, WIDTH), function))
    return [run for run in runs if run[0] < run[1]]


@pytest.mark.skipif(shutil.which("node") is None, reason="no browser: Node.js missing")
@settings(max_examples=3, deadline=None)
@given(some.lists(RUNS.map(one_after_the_other), min_size=30, max_size=60))
def test_as_much_of_a_lane_is_filled_as_it_was_busy(lanes: List[List[Tuple[float, float, int]]]) -> None:
    module = json.dumps((STATIC / "js" / "stream" / "columns.js").as_uri())
    script = COVER.replace("MODULE", module).replace("WIDTH", str(WIDTH))
    command = ["node", "--input-type=module", "--eval", script, json.dumps(lanes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for runs, filled in zip(lanes, json.loads(done.stdout)):
        assert abs(filled - sum(end - start for start, end, _ in runs)) < 1


@pytest.mark.skipif(not LINTERS, reason="no linter: build/browser is missing; `make browser` installs what it can")
def test_the_linter_has_no_complaint() -> None:
    settings = f"--config-path={Path(__file__).parent / 'biome.json'}"
    command = [str(LINTERS[0]), "lint", settings, "--error-on-warnings", "--colors=off", str(STATIC / "js")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Checked" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "typescript").is_dir(),
    reason="no browser: Node.js or what build/browser holds is missing; `make browser` installs what it can",
)
def test_the_types_that_modules_state_hold(tmp_path: Path) -> None:
    shutil.copytree(STATIC, tmp_path / "static")
    (tmp_path / "static" / "vendor" / "uplot" / "uPlot.esm.d.ts").write_text(UPLOT_TYPES)
    settings = {
        "compilerOptions": {
            "allowJs": True,
            "checkJs": True,
            "noEmit": True,
            "strict": True,
            "noUnusedLocals": True,
            "target": "ES2022",
            "module": "ES2022",
            "moduleResolution": "bundler",
            "lib": ["ES2022", "DOM", "DOM.Iterable"],
            "types": [],
        },
        "include": ["static/js/**/*.js"],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    compiler = MODULES / "typescript" / "bin" / "tsc"
    done = subprocess.run(["node", str(compiler), "-p", str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
