"""A build of this tree as if it were the next minor version: what it speaks has grown as versioning.md allows.

    sources ──copy──▶ schema: each struct has one more field, the union Message one more member ──▶ generate.py
                      versions: minor 1, another version of the packages

Rules:
- The newer build writes the new field in each struct that it sends, so that older ones meet structs they do not know in
  full; what it gets from them is without it.
- Nothing but the sources is used: this works without a history, and without an earlier release.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = ("protocol-spec/python/src", "appliance/src", "sdk/src")
FIELD, NUMBER = "addedLater", 77
_STRUCT = re.compile(r"^struct (\w+)(.*?)^}", re.DOTALL | re.MULTILINE)


class Build:
    """Where programs of one version find their packages.

    Parameters:
        folder: the root of a tree.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self) -> Dict[str, str]:
        """Variables with which this Python runs the programs of this build."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(str(self.folder / each) for each in SOURCES)}

    def command(self, program: str, *arguments: str) -> List[str]:
        return [sys.executable, "-m", program, *arguments]

    def version(self, program: str) -> str:
        """What a program says of itself."""
        command = self.command(program, "--version")
        return subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=True
        ).stdout.strip()


def this_build() -> Build:
    """The tree as it is."""
    return Build(REPOSITORY)


def newer_build(folder: Path) -> Build:
    """Make a build of the next minor version in an empty folder."""
    for source in (*SOURCES, "protocol-spec/schema", "protocol-spec/python/tools"):
        shutil.copytree(REPOSITORY / source, folder / source)
    for schema in sorted((folder / "protocol-spec/schema").glob("*.capnp")):
        schema.write_text(_STRUCT.sub(_grown, schema.read_text()))
    _replace(folder / "protocol-spec/python/src/scaler_protocol/versions.py", "MINOR_MAX = 0", "MINOR_MAX = 1")
    for package in ("sdk/src/scaler/version.py", "appliance/src/scaler_appliance/__init__.py"):
        path = folder / package
        path.write_text(re.sub(r'^__version__ = ".*"', '__version__ = "99.1.0"', path.read_text(), flags=re.MULTILINE))
    subprocess.run([sys.executable, str(folder / "protocol-spec/python/tools/generate.py")], check=True)
    messages = folder / "protocol-spec/python/src/scaler_protocol/wire/messages.py"
    text = messages.read_text()
    messages.write_text(re.sub(r"added_later: int = 0", f"added_later: int = {NUMBER}", text))
    return Build(folder)


def _grown(struct: re.Match[str]) -> str:
    """A struct of the schema, and its next version."""
    name, body = struct[1], struct[2]
    ordinal = 1 + max((int(each) for each in re.findall(r"@(\d+) :", body)), default=-1)
    if name == "Message":  # only a union
        at = body.rindex("  }")
        return f"struct {name}{body[:at]}    {FIELD} @{ordinal} :Session.AddedLater;\n{body[at:]}}}"
    grown = f"struct {name}{body}  {FIELD} @{ordinal} :UInt32;\n}}"
    return grown if name != "Hello" else f"struct AddedLater {{\n  text @0 :Text;\n}}\n\n{grown}"


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path}: {before}"
    path.write_text(text.replace(before, after))
