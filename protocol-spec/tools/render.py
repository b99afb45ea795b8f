"""Fill in what the pages have from elsewhere: sentences of the register, lifecycle.md, examples.

    python tools/render.py            says what is out of date, and fails if anything is
    python tools/render.py --write    brings it up to date

The examples need the binding for Python (scaler_protocol).
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Callable, Dict, List

from specification import FOLDER, ITEM, Machine, Requirement, machines, pages, requirements

WIDTH = 120
GENERATED = re.compile(r"^<!-- generated: (\w+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
LIFECYCLE = "lifecycle.md"
NOT_TO_BE_EDITED = "<!-- generated from machines/*.toml by tools/render.py: do not edit -->"
ABOUT_TABLES = (
    "Each table is total: for every state and event it gives the next state, or says that the event is *ignored*, or"
    " that it is a *fault*, which cannot happen while all peers follow the protocol. What is sent in response follows"
    " the state. The tables are data in [machines/](machines/), and tests compare each with our programs: the scheduler"
    " runs on the one of its tasks and a peer's session on its own, and tests drive the scheduler, the client and the"
    " worker's agent through the others."
)


def with_sentences(text: str, register: Dict[str, Requirement]) -> str:
    """A page with the register's sentence in each item; the lines that belonged to the old one are replaced."""
    lines: List[str] = []
    is_old = False
    for line in text.splitlines():
        item = ITEM.match(line)
        if item:
            is_old = True
            requirement = register.get(item[1])
            sentence = requirement.text if requirement is not None else "(not in the register)"
            draft = " (draft)" if requirement is not None and requirement.status == "draft" else ""
            words = f"- **{item[1]}**{draft} {sentence}"
            lines += textwrap.wrap(words, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        elif not (is_old and line.startswith("  ")):
            is_old = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def with_examples(text: str, makers: Dict[str, Callable[[], str]]) -> str:
    def made(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n\n{makers[match[1]]().strip()}\n\n<!-- end -->"

    return GENERATED.sub(made, text)


# lifecycle.md -------------------------------------------------------------------------------------------------------


def lifecycle(tables: List[Machine]) -> str:
    parts = ["# Life cycles", NOT_TO_BE_EDITED, ABOUT_TABLES]
    for machine in tables:
        parts += [f"## {machine.title}", f"`machines/{machine.name}.toml`", diagram(machine), *table(machine)]
    wrapped = [textwrap.fill(part, WIDTH) if part[:1].isalpha() else part for part in parts]
    return "\n\n".join(wrapped) + "\n"


def diagram(machine: Machine) -> str:
    """A state diagram in mermaid's language; what changes nothing is left out."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in machine.initial]
    for state, row in machine.transitions.items():
        ways: Dict[str, List[str]] = {}
        for event, target in row.items():
            if target in machine.states and target != state:
                ways.setdefault(target, []).append(event)
        lines += [f"    {state} --> {target}: {', '.join(events)}" for target, events in ways.items()]
    lines += [f"    {state} --> [*]" for state in machine.final]
    return "\n".join([*lines, "```"])


def table(machine: Machine) -> List[str]:
    states = ["| state | |", "|---|---|"]
    states += [f"| `{state}` | {text} |" for state, text in machine.states.items()]
    rows = [f"| event | {' | '.join(f'`{state}`' for state in machine.states)} |"]
    rows.append("|---" * (1 + len(machine.states)) + "|")
    for event, text in machine.events.items():
        cells = [cell(machine, state, event) for state in machine.states]
        rows.append(f"| **`{event}`** {text} | {' | '.join(cells)} |")
    return ["\n".join(states), "\n".join(rows)]


def cell(machine: Machine, state: str, event: str) -> str:
    target = machine.transitions[state][event]
    reply = machine.replies.get(f"{state}.{event}", "")
    if target in machine.states:
        where = f"→ `{target}`"
    else:
        kind, _, why = target.partition(": ")
        where = f"*{kind}*: {why}"
    return f"{where}; sends {reply}" if reply else where


# All ----------------------------------------------------------------------------------------------------------------


def rendered() -> Dict[Path, str]:
    """What each page should be."""
    from message_examples import MAKERS

    register = requirements()
    result = {}
    for page in pages():
        if page.name != LIFECYCLE:
            result[page] = with_examples(with_sentences(page.read_text(encoding="utf-8"), register), MAKERS)
    result[FOLDER / LIFECYCLE] = lifecycle(machines())
    return result


def out_of_date() -> List[Path]:
    return [page for page, text in rendered().items() if not page.exists() or page.read_text(encoding="utf-8") != text]


def main(arguments: List[str]) -> int:
    stale = rendered() if "--write" in arguments else {}
    for page, text in stale.items():
        page.write_text(text, encoding="utf-8")
    left = out_of_date()
    for page in left:
        print(f"{page.name} is out of date: run tools/render.py --write", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
