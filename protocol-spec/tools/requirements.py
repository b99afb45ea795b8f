"""List requirements that nothing names: no code, no case of the conformance suite, no mutant.

    python tools/requirements.py            what is missing, and counts
    python tools/requirements.py SCL-WRK-019    all about one

The front matter of a case in conformance-tests/ says `covers=["SCL-WRK-019"]`, that of a mutant `breaks="SCL-WRK-019"`.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Dict, List

from specification import LEVELS, ROLES, Requirement, code_ids, covered, requirements


def gaps(named: Dict[str, List[str]], register: Dict[str, Requirement]) -> List[str]:
    """Stable MUSTs that can be tested and are not named."""
    return [each.id for each in register.values() if each.must_be_tested and each.id not in named]


def counts(register: Dict[str, Requirement]) -> str:
    lines = [f"{len(register)} requirements"]
    for role in ROLES:
        levels = Counter(each.level for each in register.values() if role in each.roles)
        lines.append(f"  {role:10}" + "".join(f"{level} {levels[level]:3}   " for level in LEVELS).rstrip())
    levels = Counter(each.level for each in register.values())
    lines.append("  all       " + "".join(f"{level} {levels[level]:3}   " for level in LEVELS).rstrip())
    return "\n".join(lines)


def report() -> str:
    register = requirements()
    parts = [counts(register)]
    for title, named in (("code", code_ids()), ("case", covered("cases")), ("mutant", covered("mutants"))):
        missing = gaps(named, register)
        text = "every stable MUST has one" if not missing else f"{len(missing)} stable MUSTs have none"
        parts.append(f"{title}: {text}" + "".join(f"\n  {each} {register[each].text}" for each in missing))
        strange = sorted(set(named) - set(register))
        if strange:
            parts.append(f"{title}: ids that are not in the register: {', '.join(strange)}")
    return "\n\n".join(parts)


def about(number: str) -> str:
    requirement = requirements()[number]
    lines = [f"{name}: {value}" for name, value in requirement._asdict().items() if value]
    for title, named in (("code", code_ids()), ("cases", covered("cases")), ("mutants", covered("mutants"))):
        lines.append(f"{title}: {', '.join(named.get(number, [])) or 'none'}")
    return "\n".join(lines)


def main(arguments: List[str]) -> int:
    print("\n\n".join(map(about, arguments)) if arguments else report())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
