"""Options of earlier generations: accepted, hidden from the help, and reported.

    --per-worker-task-queue-size 10     was renamed: it sets the new option
    --load-balance-seconds 1            no longer has an effect: a warning says why

Rules:
- A command line or a file of an earlier generation never fails because of an option's name.
- Each option without effect is reported on standard error, in one line.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol.programs.options.table import Earlier, Table

DESTINATION = "earlier"


def find(program: Table, key: str) -> Optional[Earlier]:
    """The earlier option with this name in files; None if there is none."""
    wanted = key.replace("-", "_")
    return next((each for each in program.earlier if each.key == wanted), None)


def add_to(parser: argparse.ArgumentParser, program: Table) -> None:
    """Add them to a command line."""
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
    """The values of earlier options in terms of today's options.

    Parameters:
        values: by the keys of today's options.
        warnings, faults: messages to report.
    """

    values: Dict[str, Any]
    warnings: List[str]
    faults: List[str]


def translate(
    program: Table, given: Sequence[Tuple[Earlier, str, Any]], known: Sequence[str], is_file: bool
) -> Translated:
    """Translate earlier options to today's options.

    Parameters:
        given: each with the name by which it was given, for errors, and its value.
        known: keys of options that are given by today's names.
        is_file: the values are TOML values, not texts.
    """
    translated = Translated({}, [], [])
    for earlier, place, value in given:
        if earlier.only and str(value) not in earlier.only:
            allowed = " or ".join(earlier.only)
            advice = earlier.advice_for(value) or earlier.why
            translated.faults.append(f"{place}: {value!r} is not supported, only {allowed}: {advice}")
        elif not earlier.becomes:
            if earlier.why and not earlier.only:
                advice = earlier.advice_for(value)
                text = f"{place} has no effect: {earlier.why}" + (f"; for {value!r}, {advice}" if advice else "")
                translated.warnings.append(text)
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
            translated.faults.append(f"{place}: this option is set twice, also as {option.label}")
            continue
        try:
            is_toml = is_file and len(earlier.becomes) == 1
            translated.values[key] = option.kind.from_toml(part) if is_toml else option.kind.parse(part)
        except ValueError as error:
            translated.faults.append(f"{place}: {error}")
