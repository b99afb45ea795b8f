"""Options of earlier generations: accepted, hidden from the help, and told about.

    --per-worker-task-queue-size 10     has another name now: it is that option
    --load-balance-seconds 1            has no effect any more: a warning says why

Rules:
- A command line or a file of an earlier generation never fails for an option's name.
- What has no effect is said on standard error, in one line each.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol.programs.options.table import Earlier, Table

DESTINATION = "earlier"


def find(program: Table, key: str) -> Optional[Earlier]:
    """The earlier option by its name in files; None when there is none."""
    wanted = key.replace("-", "_")
    return next((each for each in program.earlier if each.key == wanted), None)


def add_to(parser: argparse.ArgumentParser, program: Table) -> None:
    """Let a command line have them."""
    for each in program.earlier:
        if each.flags:
            parser.add_argument(
                *each.flags,
                action=_Take,
                earlier=each,
                nargs=None if each.takes == "one" else 0,
                dest=DESTINATION,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


class _Take(argparse.Action):
    def __init__(self, *args: Any, earlier: Earlier, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._earlier = earlier

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Optional[str] = None
    ) -> None:
        taken: List[Tuple[Earlier, str, Any]] = getattr(namespace, DESTINATION, [])
        setattr(namespace, DESTINATION, [*taken, (self._earlier, option or "", values)])


class Translated(NamedTuple):
    """What earlier options mean here.

    Parameters:
        values: by the keys of today's options.
        warnings, faults: to be told.
    """

    values: Dict[str, Any]
    warnings: List[str]
    faults: List[str]


def translate(
    program: Table, given: Sequence[Tuple[Earlier, str, Any]], known: Sequence[str], is_file: bool
) -> Translated:
    """What earlier options mean here.

    Parameters:
        given: each with the name by which it was given, for errors, and its value.
        known: keys of options that are given by their names of today.
        is_file: the values are TOML's, not texts.
    """
    translated = Translated({}, [], [])
    for earlier, place, value in given:
        if earlier.only and str(value) not in earlier.only:
            allowed = " or ".join(earlier.only)
            translated.faults.append(f"{place}: {value!r} cannot be had, only {allowed}: {earlier.why}")
        elif not earlier.becomes:
            if earlier.why and not earlier.only:
                translated.warnings.append(f"{place} has no effect: {earlier.why}")
        elif str(value) not in earlier.unset:
            _take_over(program, earlier, place, value, known, is_file, translated)
    return translated


def _take_over(
    program: Table,
    earlier: Earlier,
    place: str,
    value: Any,
    known: Sequence[str],
    is_file: bool,
    translated: Translated,
) -> None:
    parts = [value] if len(earlier.becomes) == 1 else str(value).rsplit(":", len(earlier.becomes) - 1)
    if len(parts) != len(earlier.becomes):
        translated.faults.append(f"{place}: expected {':'.join(earlier.becomes).upper()}, got {value!r}")
        return
    for key, part in zip(earlier.becomes, parts):
        option = program.option(key)
        assert option is not None, key
        if key in known and not earlier.overrides:
            translated.faults.append(f"{place}: this option is here twice, as {option.title} too")
            continue
        try:
            is_toml = is_file and len(earlier.becomes) == 1
            translated.values[key] = option.kind.from_toml(part) if is_toml else option.kind.parse(part)
        except ValueError as error:
            translated.faults.append(f"{place}: {error}")
