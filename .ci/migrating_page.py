"""The tables in docs/migrating/scaler.md, made from what the code accepts of earlier generations.

    .venv/bin/python .ci/migrating_page.py --write      (make migrating-page)

Rules: the text between the markers `<!-- table: NAME -->` and `<!-- end -->` is generated here; people write the rest.
A test fails if the generated text is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Callable, Dict, Iterable, List

from scaler.compat.compatibility_table import ARGUMENTS, MODULES, WITHOUT_COUNTERPART
from scaler.worker.worker_options import CLUSTER
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_appliance.top.top_options import TOP
from scaler_appliance.ui.ui_options import UI

PAGE = Path(__file__).resolve().parents[1] / "docs/migrating/scaler.md"
PROGRAMS = (SCHEDULER, CLUSTER, UI, TOP)
MARKED = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HELPERS = "scaler.compat"
_MANY_NAMES = 12


def page_of(text: str) -> str:
    """The page with its tables regenerated."""
    return MARKED.sub(lambda marked: f"{marked[1]}{TABLES[marked['name']]()}{marked[3]}", text)


def _table(header: str, rows: Iterable[List[str]]) -> str:
    columns = header.count("|") + 1
    lines = [f"| {header} |", "|" + " --- |" * columns, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _modules() -> str:
    rows = []
    for module, places in sorted(MODULES.items()):
        by_home: Dict[str, List[str]] = {}
        for name, place in places.items():
            home, _, original = place.partition(":")
            renamed = "" if original == name else f" (`{original}`)"
            by_home.setdefault(home, []).append(f"`{name}`{renamed}")
        for home, names in by_home.items():
            where = "as it is" if home.startswith(_HELPERS) else f"`{home}`"
            listed = f"all {len(names)} constants" if len(names) > _MANY_NAMES else ", ".join(sorted(names))
            rows.append([f"`{module}`", listed, where])
    return _table("module | names | import it from", rows)


def _missing() -> str:
    return _table("module, and all below it | why", ([f"`{name}`", why] for name, why in WITHOUT_COUNTERPART.items()))


def _arguments() -> str:
    rows = [
        [f"`{owner}`", f"`{name}`", f"`{argument.becomes}`" if argument.becomes else f"no effect: {argument.why}"]
        for owner, arguments in ARGUMENTS.items()
        for name, argument in arguments.items()
    ]
    return _table("of | argument | now", rows)


def _options() -> str:
    rows = []
    for program in PROGRAMS:
        for earlier in program.earlier:
            names = ", ".join(f"`{name}`" for name in earlier.names.split())
            options = [option for option in map(program.option, earlier.becomes) if option is not None]
            becomes = " and ".join(f"`{option.flags[-1] if option.flags else option.key}`" for option in options)
            only = f"{' or '.join(f'`{each}`' for each in earlier.only)} alone: {earlier.why}"
            rows.append(
                [f"`{program.name}`", names, becomes or (only if earlier.only else f"no effect: {earlier.why}")]
            )
    return _table("program | option or key | now", rows)


TABLES: Dict[str, Callable[[], str]] = {
    "modules": _modules,
    "missing": _missing,
    "arguments": _arguments,
    "options": _options,
}


def main() -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(description="Compare docs/migrating/scaler.md with what the code accepts.")
    parser.add_argument("--write", action="store_true", help="write the page instead")
    written = PAGE.read_text(encoding="utf-8")
    made = page_of(written)
    if parser.parse_args().write:
        PAGE.write_text(made, encoding="utf-8")
    elif made != written:
        print("docs/migrating/scaler.md is not what the code accepts: make migrating-page")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
