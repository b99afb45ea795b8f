"""The options of `scaler replay` and `scaler_scheduler replay`: a table like that of any program.

See `scaler_protocol.programs.options` for option tables.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any, List

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, __version__
from scaler_protocol.programs.options import Kind, Option, Program, Switch, Whole


class _Moment(Kind):
    """Seconds since the recording began; or since 1970, which are more than a recording can last."""

    expects = "seconds since the recording began, or ISO 8601 such as 2026-03-19T12:16:10-04:00"
    metavar = "TIME"

    def parse(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc).timestamp()
        except ValueError:
            raise self._wrong(text) from None


class _File(Kind):
    """The name of a file that is looked for later: that it cannot be read has an exit code of its own."""

    expects = "a path"
    metavar = "FILE"
    completes = "file"


def _version() -> str:
    return f"scaler replay {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})"


def _faults(options: argparse.Namespace) -> List[str]:
    has_both = options.until is not None and options.event is not None
    return ["--until and --event each say where to stop: give one of them"] if has_both else []


REPLAY = Program(
    name="scaler replay",
    page="cluster#report-a-bug-with-a-recording",
    section="replay",
    description="Repeat what a scheduler, worker or client has recorded, and print the state that it leads to.",
    epilog="examples:\n"
    "  scaler replay scheduler.record\n"
    "  scaler replay scheduler.record --event 1200 --json\n"
    "\n"
    "exit codes: 0, the decisions are the recorded ones; 1, the file cannot be read; 3, the decisions\n"
    "differ; 70, the replay failed, as what was recorded did.",
    version=_version,
    is_configured=False,
    faults=_faults,
    options=[
        Option("file", _File(), "the recording", metavar="FILE", is_required=True, is_command_line_only=True),
        Option(
            "--until",
            _Moment(),
            "stop at this time: seconds since the recording began, or ISO 8601 such as 2026-03-19T12:16:10-04:00",
            is_command_line_only=True,
        ),
        Option("--event", Whole(1), "stop after the Nth input, counted from 1", metavar="N", is_command_line_only=True),
        Option(
            "--check",
            Switch(has_negation=False),
            "of a scheduler: check all invariants after each input, which takes time",
            default=False,
            is_command_line_only=True,
        ),
        Option(
            "--list",
            Switch(has_negation=False),
            "print the inputs, a line each, and repeat nothing",
            default=False,
            is_command_line_only=True,
        ),
        Option(
            "--json",
            Switch(has_negation=False),
            "print the state as JSON",
            default=False,
            is_command_line_only=True,
        ),
    ],
)
