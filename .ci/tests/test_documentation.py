"""The documentation runs: its programs, commands, links and error names are checked.

Rules, for README.md, the README.md of each distribution, and docs/:
- Every ```python fence is a whole program. It runs in a separate process, and must not fail. One that imports Client
  finds it imported, since most of the time of all of them would be that.
  The address in it, or its absence, stands for that of a cluster that the test has started; if the program starts a
  cluster itself, for a free one.
- `<!-- example: compile only -->` above a fence: only its syntax is checked, and COMPILED_ONLY says why.
- `<!-- example: needs MODULE -->` above a fence: it runs where this module is installed, in one of the environments of
  this tree, and is skipped if none has it.
- `<!-- example: from FILE -->` above a fence: its lines stand in that file, which other tests run; they may be indented
  otherwise, and blank lines do not count.
- `<!-- example: shell -->` above a fence: bash runs it, in a home of its own that the page's fences of this kind share.
- `<!-- example: output -->` above a fence of any kind: this is the exact output of the last program,
  except for the log lines of a cluster that it started, and for times and fingerprints in that of a shell.
- A command in a ```bash or ```console fence, `scaler_...` or `make ...`, exists, and so do its long options. All of
  them run in test_page_commands.py, which has more markers: `on`, `file` and `log`.
- Every ```toml, ```yaml and ```ini fence is well-formed; that programs accept them is tested with these programs.
- Every link to a file is valid. (For their anchors, the navigation and errors see test_site.py, for options
  test_configuration.py.)
"""

from __future__ import annotations

import configparser
import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set

import pytest
import yaml
from page_fences import FENCES, PAGES, SHELLS, TREE, Fence, fences_of
from preloaded_programs import PreloadedPrograms
from quiet_addresses import quiet_address

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ADDRESS = re.compile(r"tcp://(?:127\.0\.0\.1|localhost):\d+")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")
LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
PROGRAM = re.compile(r"scaler([_-]\w+)?")
CHANGING = re.compile(r"[0-9a-f]{4}(?:-[0-9a-f]{4}){3}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
BIN = Path(sys.executable).parent
IMPORTS_CLIENT = re.compile(r"^from scaler import (?:.*\W)?Client\b", re.MULTILINE)

TIME_LIMIT_SECONDS = 60


QUOTED_FENCES = [fence for fence in FENCES if fence.marker.startswith("from ")]
PYTHON_FENCES = [fence for fence in FENCES if fence.language == "python" and fence not in QUOTED_FENCES]
PROGRAM_FENCES = [
    fence for fence in PYTHON_FENCES if fence.marker != "compile only" and not fence.marker.startswith("on ")
]
COMPILED_ONLY = {"docs/migrating/celery.md": "needs a broker: test_celery_side.py runs it with files in its place"}
"""Pages with a program that only compiles here, and why."""
COMMAND_FENCES = [fence for fence in FENCES if fence.language in SHELLS]
SHELL_FENCES = [fence for fence in FENCES if fence.marker == "shell"]


def expected_output(program: Fence) -> str:
    """The expected output, from the fence right after the program; empty if there is none."""
    following = FENCES[FENCES.index(program) + 1 :]
    if following and following[0].marker == "output" and following[0].page == program.page:
        return following[0].text
    return ""


@functools.cache
def has(python: Path, module: str) -> bool:
    """Whether a Python can import a module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([str(python), "-c", code], stdin=subprocess.DEVNULL).returncode == 0


def python_for(program: Fence) -> Optional[Path]:
    """The Python that runs a program, if one here has what it needs."""
    if not program.marker.startswith("needs "):
        return Path(sys.executable)
    module = program.marker[len("needs ") :].strip()
    environments = (TREE / name / "bin/python" for name in (".venv-adapters", ".venv-situations"))
    candidates = [Path(sys.executable), *(path for path in environments if path.exists())]
    return next((python for python in candidates if has(python, module)), None)


@pytest.mark.parametrize("fence", QUOTED_FENCES, ids=lambda fence: fence.place)
def test_quotation_is_in_its_file(fence: Fence) -> None:
    def lines(text: str) -> str:
        return "".join(f"\n{line.strip()}" for line in text.splitlines() if line.strip()) + "\n"

    source = (TREE / fence.marker[len("from ") :]).read_text(encoding="utf-8")
    assert lines(fence.text) in lines(source), f"{fence.place} quotes what does not stand there"


@pytest.mark.parametrize("fence", PYTHON_FENCES, ids=lambda fence: fence.place)
def test_python_compiles(fence: Fence) -> None:
    compile(fence.text, fence.place, "exec")


def test_programs_that_only_compile_are_few_and_have_a_reason() -> None:
    pages = [str(fence.page.relative_to(TREE)) for fence in PYTHON_FENCES if fence.marker == "compile only"]
    assert sorted(pages) == sorted(COMPILED_ONLY)


@pytest.mark.parametrize("fence", PROGRAM_FENCES, ids=lambda fence: fence.place)
def test_program_runs(
    fence: Fence,
    cluster_in: Callable[[Path], str],
    tmp_path: Path,
    lines_but_log_lines: Callable[[str], List[str]],
    programs_with_scaler: PreloadedPrograms,
) -> None:
    python = python_for(fence)
    if python is None:
        pytest.skip(f"no environment here has {fence.marker[len('needs ') :]}")
    address = quiet_address() if "SchedulerClusterCombo(" in fence.text else cluster_in(python)
    program = tmp_path / "program.py"
    program.write_text(ADDRESS.sub(address, fence.text), encoding="utf-8")

    command = [str(python), str(program)]
    environment = {**os.environ, "SCALER_ADDRESS": address}  # for `Client()`
    if python == Path(sys.executable) and IMPORTS_CLIENT.search(fence.text):
        finished = programs_with_scaler.run(command, environment, tmp_path)
    else:
        finished = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
        )

    assert finished.returncode == 0, finished.stderr
    if expected_output(fence):
        assert lines_but_log_lines(finished.stdout) == expected_output(fence).splitlines()


@pytest.mark.parametrize("page", sorted({fence.page for fence in SHELL_FENCES}), ids=lambda page: page.stem)
def test_shell_commands_run(page: Path, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "SCALER_RUN_DIRECTORY": str(tmp_path / "run"), "PATH": f"{BIN}:/usr/bin:/bin"}
    for fence in SHELL_FENCES:
        if fence.page != page:
            continue
        finished = subprocess.run(
            ["bash", "-euc", fence.text],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
        )
        assert finished.returncode == 0, f"{fence.place}: {finished.stderr}"
        if expected_output(fence):
            assert CHANGING.sub("...", finished.stdout) == CHANGING.sub("...", expected_output(fence))


def read_ini(text: str) -> None:
    configparser.RawConfigParser(strict=False, interpolation=None).read_string(text)


READERS: Dict[str, Callable[[str], object]] = {"toml": tomllib.loads, "yaml": yaml.safe_load, "ini": read_ini}


@pytest.mark.parametrize(
    "fence", [fence for fence in FENCES if fence.language in READERS], ids=lambda fence: fence.place
)
def test_data_is_well_formed(fence: Fence) -> None:
    READERS[fence.language](fence.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_markers_are_known_and_in_place(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = list(fences_of(page))

    markers = {re.sub(r"^(needs|from|file|on) .*", r"\1", fence.marker) for fence in fences}
    assert markers <= {"", "compile only", "from", "needs", "output", "shell", "file", "on", "log"}
    assert text.count("<!-- example:") == sum(bool(fence.marker) for fence in fences), "a marker without a fence"
    assert len(re.findall("^ *```", text, re.MULTILINE)) == 2 * len(fences), "a fence without an end"
    for before, fence in zip([None, *fences], fences):
        if fence.marker == "output":
            assert before in [*PROGRAM_FENCES, *COMMAND_FENCES], f"{fence.place} is the output of no program"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


# Commands.


COMMANDS = [
    (fence, words)
    for fence in FENCES
    if fence.language in SHELLS
    for words in (shlex.split(command, comments=True) for command in fence.commands)
    if words[0] == "make" or PROGRAM.fullmatch(words[0])
]


@functools.cache
def help_of(program: str, *commands: str) -> str:
    path = BIN / program
    assert path.exists(), f"there is no program {program}"
    return subprocess.run(
        [str(path), *commands, "-h"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
    ).stdout


def options_of(program: str, *commands: str) -> Set[str]:
    return set(LONG_OPTION.findall(help_of(program, *commands))) - {"--help"}


def subcommands_in(words: List[str]) -> List[str]:
    """Such as `keys new` in `scaler keys new --role client`."""
    if words[1:2] == ["keys"]:
        return words[1:3]
    return words[1:2] if words[1:2] in (["drain"], ["ping"]) else []


@pytest.mark.parametrize(
    ("fence", "words"), COMMANDS, ids=lambda value: value.place if isinstance(value, Fence) else value[0]
)
def test_command_exists(fence: Fence, words: List[str]) -> None:
    if words[0] == "make":
        makefile = (TREE / "Makefile").read_text(encoding="utf-8")
        targets = [word for word in words[1:] if "=" not in word]
        assert [target for target in targets if not re.search(f"^{target}:", makefile, re.MULTILINE)] == []
    else:
        own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
        used = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert used - {"--help"} <= options_of(words[0], *subcommands_in(words))
