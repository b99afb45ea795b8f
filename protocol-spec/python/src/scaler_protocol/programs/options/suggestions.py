"""Suggestions for unknown names: an option, a variable, a key or a section.

Rules:
- An unknown option or key is an error. An unknown variable is only a warning, because others set variables too:
  Kubernetes sets variables such as SCALER_SCHEDULER_SERVICE_HOST for a service named scaler-scheduler.
- difflib is imported only when there is something to suggest, to keep the start fast.
"""

from __future__ import annotations

import re
from typing import Iterable, List, Mapping, Sequence, Tuple

from scaler_protocol.programs.documentation import DOCS_URL_VARIABLE
from scaler_protocol.programs.options.sources import OTHER_NAMES, SECTIONS, closest
from scaler_protocol.programs.options.table import Table

GENERAL_VARIABLES = (
    "SCALER_ADDRESS", "SCALER_RUN_DIRECTORY", "SCALER_KEY_FILE", "SCALER_KEY_DIRECTORY", "SCALER_INSECURE",
    DOCS_URL_VARIABLE,
)  # fmt: skip
"""Variables that every program reads."""

_OTHER_VARIABLES = frozenset(
    {
        *("SCALER_SCHEDULER", "SCALER_UI", "SCALER_UI_TOKEN"),  # commands, and a secret that has no option
        *("SCALER_SCHEDULER_OPTIONS", "SCALER_WORKERS_OPTIONS"),  # of the service files
        "SCALER_CACHE_HOME",  # of the single-file scheduler
        *("SCALER_RECORD", "SCALER_RECORD_PAYLOADS", "SCALER_RECORD_LIMIT", "SCALER_DATA_ADDRESS"),  # of clients
    }
)
_OF_KUBERNETES = re.compile(r"SCALER_\w+?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_OWN_CUTOFF, _GENERAL_CUTOFF = 0.5, 0.8


def unknown_option(flags: Sequence[str], arguments: Iterable[str]) -> str:
    """The first argument on a command line that looks like an unknown option; empty if there is none.

    Parameters:
        flags: all that the command line accepts.

    argparse itself would take the value after it for a positional argument, and complain about that.
    """
    for argument in arguments:
        if argument == "--":
            break
        flag = argument.partition("=")[0]
        is_option = (
            len(flag) > 1 and flag[0] == "-" and " " not in argument and not flag[1].isdigit() and flag[1] != "."
        )
        # Long options may be abbreviated, and short ones may have their value attached: argparse checks both.
        if is_option and not any(
            known.startswith(flag) or (flag[:2] != "--" and known[:2] != "--" and flag.startswith(known))
            for known in flags
        ):
            return flag
    return ""


def meant_option(flag: str, flags: Iterable[str]) -> str:
    """`did you mean --name?`, or nothing if no long option is similar."""
    long_flags = [known for known in flags if known.startswith("--")]
    if len(flag) < 4:
        return ""
    meant = closest(flag.lstrip("-").replace("_", "-").lower(), [known[2:] for known in long_flags], _OWN_CUTOFF)
    return f"did you mean --{meant}?" if meant else ""


def unknown_variables(program: Table, environment: Mapping[str, str]) -> List[str]:
    """A warning for each variable that seems to be meant for the program but is unknown."""
    known = [variable for option in program.options for variable in program.variables(option)]
    known += [variable for variable in GENERAL_VARIABLES if variable not in known]
    own, others = _prefixes(program)
    warnings = []
    for name, value in sorted(environment.items()):
        if not name.startswith("SCALER_") or not value or name in known or _is_of_others(name, others):
            continue
        is_own = name.startswith(own)
        meant = closest(name, known, _OWN_CUTOFF if is_own else _GENERAL_CUTOFF)
        if is_own or meant:
            hint = f"did you mean {meant}?" if meant else f"see {program.name} -h"
            warnings.append(f"environment variable {name} is unknown and has no effect; {hint}")
    return warnings


def _prefixes(program: Table) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The prefixes of the variables of a program's section, and of those of the other sections."""
    own: List[str] = []
    others: List[str] = []
    for section in (*SECTIONS, *OTHER_NAMES):
        if section != "scaler":  # its variables have no section in their names
            is_own = OTHER_NAMES.get(section, section) == program.section
            (own if is_own else others).append(f"SCALER_{section.upper()}_")
    return tuple(own), tuple(others)


def _is_of_others(name: str, prefixes: Tuple[str, ...]) -> bool:
    from scaler_protocol.programs.options.common import logging_options

    of_scaler = {f"SCALER_{option.key.upper()}" for option in logging_options()}
    is_known = name in _OTHER_VARIABLES or name in of_scaler
    return is_known or name.startswith(prefixes) or _OF_KUBERNETES.fullmatch(name) is not None
