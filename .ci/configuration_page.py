"""The tables in docs/configuration.md, generated from the programs' option tables.

    .venv/bin/python .ci/configuration_page.py --write      (make configuration-page)

Rules: the text between the markers `<!-- options: PROGRAM -->` and `<!-- end -->` is generated here; people write the
rest. A test fails if the generated text is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Dict, List

from scaler.programs.scaler_options import SCALER
from scaler.provision.provision_options import PROVISION
from scaler.worker.worker_options import CLUSTER
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_appliance.top.top_options import TOP
from scaler_appliance.ui.ui_options import UI
from scaler_protocol.programs.options import Option, Program, Switch
from scaler_protocol.programs.options.command_line import default_of

PAGE = Path(__file__).resolve().parents[1] / "docs/configuration.md"
PROGRAMS: Dict[str, Program] = {program.name: program for program in (SCALER, SCHEDULER, CLUSTER, UI, PROVISION, TOP)}
MARKED = re.compile(r"(<!-- options: (?P<program>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_of(text: str) -> str:
    """The page with its tables regenerated."""
    return MARKED.sub(lambda marked: f"{marked[1]}{table_of(PROGRAMS[marked['program']])}{marked[3]}", text)


def table_of(program: Program) -> str:
    """A row for each option, in the order of the help; a program that reloads options has a column for that."""
    heads = ["option", "in a file, and in the environment", "value", "default", "meaning"]
    rows = [row_of(program, option) for option in program.options]
    if any(option.is_reloadable for option in program.options):
        heads.append("SIGHUP")
        rows = [[*row, "yes" if option.is_reloadable else ""] for row, option in zip(rows, program.options)]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def row_of(program: Program, option: Option) -> List[str]:
    flags = [f"`{flag}`" for flag in option.flags] or [f"`{option.label}`"]
    is_flag = isinstance(option.kind, Switch) and not option.kind.has_negation
    if isinstance(option.kind, Switch) and not is_flag:
        flags.append(f"`--no-{option.flags[-1][2:]}`")
    places = [f"`{option.key}`", *(f"`{variable}`" for variable in program.variables(option))]
    default = default_of(option)
    return [
        ", ".join(flags),
        "" if option.is_command_line_only else "<br>".join(places),
        "" if is_flag else option.kind.expects,
        "required" if option.is_required and not default else default,
        option.help,
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*") if "`" not in text else text


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare docs/configuration.md with the tables of options.")
    parser.add_argument("--write", action="store_true", help="write the page instead")
    written = PAGE.read_text(encoding="utf-8")
    made = page_of(written)
    if parser.parse_args().write:
        PAGE.write_text(made, encoding="utf-8")
    elif made != written:
        print("docs/configuration.md is not what the tables of options say: make configuration-page")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
