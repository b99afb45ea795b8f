"""The option tables and everything generated from them agree.

Rules: each program's command is checked, not only its table; example files in the documentation are valid.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Callable, Iterator, Set

import pytest
import site_pages
from preloaded_programs import PreloadedPrograms

from scaler_protocol.keys.keys_options import KEYS
from scaler_protocol.programs.options import Program, Reading
from scaler_protocol.programs.options.table import Table

TREE = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
TOML_FENCE = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "tcp://127.0.0.1:2345"
EVERY_PROGRAMS = {"--help", "--version", "--print-completion"}
SECRETS = {"SCALER_UI_TOKEN"}  # have a variable, but no option, which other users could read
CONFIGURED = {"--config", "--check", "--print-config"}


def load_page_tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("configuration_page", TREE / ".ci/configuration_page.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


page = load_page_tool()
PROGRAMS = pytest.mark.parametrize("program", page.PROGRAMS.values(), ids=lambda program: program.name)


OutputOf = Callable[..., str]


@pytest.fixture(scope="session")
def output_of(preloaded_commands: PreloadedPrograms) -> OutputOf:
    """What a command prints."""

    def run(*command: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SCALER_")}
        done = preloaded_commands.run([str(BIN / command[0]), *command[1:]], environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def long_options(program: Table) -> Set[str]:
    flags = set(LONG_OPTION.findall(page.table_of(program)))
    if program.is_configured:
        flags |= CONFIGURED | ({"--config-entry"} if program.is_repeated else set())
    return flags | EVERY_PROGRAMS


def commands_of(program: Table) -> Iterator[Table]:
    """Its commands, and theirs."""
    for command in program.commands:
        yield command
        yield from commands_of(command)


def test_every_program_has_a_table() -> None:
    scripts = {
        entry.name
        for name in ("scaler-sdk", "scaler-appliance")
        for entry in distribution(name).entry_points
        if entry.group == "console_scripts"
    }
    other_names = {"scaler_worker", "scaler_worker_manager", "scaler_gui"}  # of scaler_cluster and scaler_ui
    assert scripts - other_names == set(page.PROGRAMS)


def test_the_options_of_a_command_are_documented_where_it_is(output_of: OutputOf) -> None:
    text = (TREE / "docs/cluster.md").read_text(encoding="utf-8")
    section = re.search(r"^## `scaler dev`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    told = set(LONG_OPTION.findall(output_of("scaler", "dev", "-h")))
    assert set(LONG_OPTION.findall(section[1])) == told - EVERY_PROGRAMS


def test_the_options_of_the_commands_of_keys_are_documented_where_they_are() -> None:
    text = (TREE / "docs/security.md").read_text(encoding="utf-8")
    section = re.search(r"^### `scaler keys`$(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    described = set(LONG_OPTION.findall(section[1]))
    assert described == set().union(*(long_options(command) for command in commands_of(KEYS))) - EVERY_PROGRAMS


def test_the_page_is_what_the_tables_say() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.page_of(text) == text, "make configuration-page"
    assert [match["program"] for match in page.MARKED.finditer(text)] == list(page.PROGRAMS)


@PROGRAMS
def test_errors_of_usage_end_with_a_link_to_a_section(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    for each in (program, *commands_of(program)):
        assert isinstance(each, Program)
        with pytest.raises(SystemExit):
            each.read(["--no-such-option"])
        last = capsys.readouterr().err.splitlines()[-1]
        link = f"docs/{each.page.replace('#', '.md#')}"
        assert last in (f"see {link}", f"see {each.name} -h, or {link}")
        source, _, anchor = link.partition("#")
        assert anchor in site_pages.anchors_of(site_pages.PAGES[source].text)
        assert each.page == f"{site_pages.PAGES[source].name}#{anchor}", "its place on the site"


@PROGRAMS
def test_the_help_has_exactly_the_options_and_variables_of_the_table(program: Program, output_of: OutputOf) -> None:
    text = output_of(program.name, "-h")
    assert set(LONG_OPTION.findall(text)) - {"--config-entry"} == long_options(program) - {"--config-entry"}
    options = program.configurable_options
    referred_to = set(re.findall(r"SCALER_\w+", " ".join(option.default_text or "" for option in options)))
    variables = {program.variables(option)[0] for option in options}
    assert set(re.findall(r"SCALER_\w+", text)) - SECRETS == variables | referred_to


@PROGRAMS
def test_a_file_has_exactly_the_keys_of_the_table(program: Program, tmp_path: Path, output_of: OutputOf) -> None:
    path = tmp_path / "scaler.toml"
    path.write_text(f'[scheduler]\naddress = "{ADDRESS}"\n')
    which = [str(path)] if program.name == "scaler" else ["--config", str(path)]
    printed = output_of(program.name, *which, "--print-config")
    section = re.split(r"^\[+\w+\]+\n", printed, flags=re.MULTILINE)[1]
    assert re.findall(r"^(?:# )?(\w+)", section, re.MULTILINE) == [
        option.key for option in program.configurable_options
    ]


@PROGRAMS
def test_every_variable_is_read(program: Program) -> None:
    for option in program.configurable_options:
        for variable in program.variables(option):
            text = option.default if isinstance(option.default, str) else "1"
            reading = Reading(program, {}, {variable: text})
            places = [reading.origins[option.key], *reading.faults]
            assert any(variable in place for place in places), option


@PROGRAMS
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_exactly_the_options_of_the_table(program: Program, shell: str, output_of: OutputOf) -> None:
    script = output_of(program.name, "--print-completion", shell)
    found = set(LONG_OPTION.findall(script))
    if shell == "fish":
        found = {f"--{name}" for name in re.findall(r" -l ([a-z][a-z-]*)", script)}
    assert found == long_options(program).union(*(long_options(command) for command in commands_of(program)))


@pytest.mark.parametrize("name", ["configuration.md", "cluster.md"])
def test_files_in_the_documentation_are_valid(name: str, tmp_path: Path, output_of: OutputOf) -> None:
    fences = TOML_FENCE.findall((TREE / "docs" / name).read_text(encoding="utf-8"))
    assert fences
    for text in fences:
        path = tmp_path / "scaler.toml"
        path.write_text(text)
        assert output_of("scaler", "--check", str(path)) == f"scaler: {path} is valid\n"
