"""Run all situations against all engines and write the page about it, or against one engine, as JSON.

Each engine has a process of its own, in which notebooks' cells are `__main__`'s.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, NamedTuple

SAME, WRONG, REFUSED, NOTHING, ABSENT = "same", "wrong", "error", "no outcome", "not tried"
_TIMEOUTS = ("TimeoutError", "GetTimeoutError")
_OF_THIS_RUN = re.compile(r"\\x1b\[\d+m|\(pid=\d+, ip=[^)]*\)")  # in the representation of a text: colours, processes
_DISTRIBUTIONS = {"Scaler": "scaler-sdk", "Dask": "distributed", "Ray": "ray"}


class Outcome(NamedTuple):
    """
    Parameters:
        kind: SAME, WRONG, REFUSED, NOTHING or ABSENT.
        text: the wrong value, or the type of the error.
        message: of the error.
    """

    kind: str
    text: str = ""
    message: str = ""


def run_engine(name: str) -> Dict[str, Outcome]:
    """The outcomes of all situations, by their names."""
    from situation_engines import ENGINES
    from situations import FOLDER_VARIABLE, SITUATIONS

    folder = tempfile.mkdtemp()
    sys.path.append(folder)
    os.environ.update({FOLDER_VARIABLE: folder, "PYTHONPATH": folder})
    notebook = sys.modules["__main__"].__dict__
    engine = ENGINES[name]()
    outcomes: Dict[str, Outcome] = {}
    try:
        for situation in SITUATIONS:
            if situation.needs and importlib.util.find_spec(situation.needs) is None:
                outcomes[situation.name] = Outcome(ABSENT, situation.needs)
                continue
            before = dict(notebook)
            outcomes[situation.name] = _outcome(situation, engine)
            notebook.clear()
            notebook.update(before)
            engine.repair()
    finally:
        engine.close()
        shutil.rmtree(folder)
    return outcomes


def _outcome(situation: Any, engine: Any) -> Outcome:
    from situations import ERROR

    try:
        value = situation.run(engine)
    except BaseException as error:
        kind = type(error).__name__
        if kind in _TIMEOUTS:
            return Outcome(NOTHING)
        return Outcome(SAME if situation.expected is ERROR else REFUSED, kind, str(error))
    return Outcome(SAME) if value == situation.expected else Outcome(WRONG, repr(value))


def start_engine(name: str) -> subprocess.Popen[str]:
    """As `run_engine`, in a process of its own."""
    command = [sys.executable, __file__, "--engine", name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def outcomes_in(process: subprocess.Popen[str]) -> Dict[str, Outcome]:
    """The outcomes that a process of `start_engine` prints at its end."""
    try:
        output, _ = process.communicate(timeout=900)
    finally:
        process.kill()
    answer = output.splitlines()[-1]  # the lines before it are printed by tasks
    return {situation: Outcome(*outcome) for situation, outcome in json.loads(answer).items()}


# The page -------------------------------------------------------------------------------------------------------------

_BEGINNING = """# Everyday situations

The results of everyday Python code that runs in other processes. `make situations` runs each situation on five engines
and writes this page; a test runs each on Scaler and `ProcessPoolExecutor`. The engines are started first, as in a
notebook; on Linux, those of the standard library fork their processes at that point.

- **same**: the result of Python in one process; if that is impossible, an error.
- an error's name: the engine rejects the code.
- **wrong**: a different value, without an error.
- no outcome: the call does not end.

"""


def page(outcomes: Dict[str, Dict[str, Outcome]]) -> str:
    from situations import SITUATIONS

    lines = [_BEGINNING]
    lines.append(f"Python {platform.python_version()}; " + ", ".join(map(_version, outcomes)) + ".\n")
    lines.append("\n| | " + " | ".join(outcomes) + " |\n| --- |" + " --- |" * len(outcomes) + "\n")
    counts = [sum(each.kind == SAME for each in of_engine.values()) for of_engine in outcomes.values()]
    lines.append(f"| **{len(SITUATIONS)} situations: the same** | " + " | ".join(f"**{n}**" for n in counts) + " |\n")
    wrong = [sum(each.kind == WRONG for each in of_engine.values()) for of_engine in outcomes.values()]
    lines.append("| **wrong without an error** | " + " | ".join(f"**{n}**" for n in wrong) + " |\n")
    group = ""
    groups = list(dict.fromkeys(each.group for each in SITUATIONS))  # some have situations in several modules
    for situation in sorted(SITUATIONS, key=lambda each: groups.index(each.group)):
        if situation.group != group:
            group = situation.group
            lines.append(f"\n## {group}\n\n| | {' | '.join(outcomes)} |\n| --- |{' --- |' * len(outcomes)}\n")
        cells = [cell_of(of_engine[situation.name]) for of_engine in outcomes.values()]
        lines.append(f"| {situation.name} | {' | '.join(cells)} |\n")
    return "".join(lines)


def _version(name: str) -> str:
    return f"{name} {metadata.version(_DISTRIBUTIONS[name])}" if name in _DISTRIBUTIONS else name


def cell_of(outcome: Outcome) -> str:
    if outcome.kind == WRONG:
        first_line = _OF_THIS_RUN.sub("", outcome.text).partition("\\n")[0].rstrip()
        return f"**wrong**: `{first_line.replace('|', '')[:80]}`"
    if outcome.kind == REFUSED:
        return f"`{outcome.text}`"
    return outcome.kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", help="run this one, and print outcomes as JSON")
    parser.add_argument("--page", type=Path, help="run all, and write this file")
    arguments = parser.parse_args()
    if arguments.engine:
        warnings.simplefilter("ignore")
        outcomes = run_engine(arguments.engine)
        print("\n" + json.dumps(outcomes))
    else:
        from situation_engines import ENGINES

        outcomes_by_engine = {name: outcomes_in(start_engine(name)) for name in ENGINES}
        arguments.page.write_text(page(outcomes_by_engine), encoding="utf-8")


if __name__ == "__main__":
    main()
