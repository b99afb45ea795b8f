"""`scaler_scheduler replay FILE`: repeats a recording, and prints the state that it leads to.

Rules: only the file is opened. Exit codes: 0, the core decided as it did when it was recorded; 1, the file cannot be
read; 2, wrong command line; 3, it decided otherwise; 70, it failed, which a replay is mostly to find out.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from datetime import datetime, timezone
from typing import Any, List, Optional

from scaler_appliance import __version__
from scaler_appliance.core.monitoring.state_tables import Row, Tables, state_tables
from scaler_appliance.shell.core_inputs import EXIT_BROKEN_INVARIANT, BrokenInvariantError, InputKind
from scaler_appliance.shell.recording import Digest, Header, Input, Recording, RecordingError
from scaler_appliance.shell.replay import DivergedError, Replay
from scaler_protocol import MalformedMessageError, decode

EXIT_UNREADABLE = 1
EXIT_DIVERGED = 3
_LONGEST_CELL = 60


def main(arguments: Optional[List[str]] = None, name: str = "scaler_scheduler replay") -> int:
    """Run the program; returns its exit code."""
    options = _parser(name).parse_args(arguments)
    try:
        with open(options.file, "rb") as file:
            recording = Recording(file)
            if options.list:
                return _list(recording)
            return _replay(recording, options)
    except BrokenPipeError:
        raise
    except (OSError, RecordingError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        print(f"{name}: {options.file}: {text}", file=sys.stderr)
        return EXIT_UNREADABLE


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        name,
        description="Repeat what `scaler_scheduler --record FILE` has recorded, and print the state that it leads to.",
    )
    parser.add_argument("file", help="the recording")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        help="stop at this time: seconds since the recording began, or ISO 8601 such as 2026-03-19T12:16:10-04:00",
    )
    stop.add_argument("--event", type=int, metavar="N", help="stop after the Nth input, counted from 1")
    parser.add_argument("--check", action="store_true", help="check all invariants after each input, which takes time")
    parser.add_argument("--list", action="store_true", help="print the inputs, a line each, and repeat nothing")
    parser.add_argument("--json", action="store_true", help="print the state as JSON")
    return parser


def _time(text: str) -> float:
    """Seconds; from 1970 on where they are more than a recording can last."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc).timestamp()


def _replay(recording: Recording, options: argparse.Namespace) -> int:
    header = recording.header
    if header.version != __version__:
        print(f"recorded by version {header.version}, and this is {__version__}: it may differ", file=sys.stderr)
    until = options.until
    if until is not None:
        until += header.began if until < header.began_unix / 2 else header.began - header.began_unix
    replay = Replay(recording, options.check)
    code = 0
    try:
        replay.run(until, options.event)
    except DivergedError as error:
        print(error, file=sys.stderr)
        code = EXIT_DIVERGED
    except BrokenInvariantError as error:
        cause = error.__cause__ or error
        traceback.print_exception(type(cause), cause, cause.__traceback__, file=sys.stderr)
        number = replay.last_input.number if replay.last_input is not None else 0
        print(f"at input {number}: {error}", file=sys.stderr)
        code = EXIT_BROKEN_INVARIANT
    if recording.is_cut:
        print("the end of the recording is missing", file=sys.stderr)
    tables = state_tables(replay.core.state)
    progress = _progress(replay, header)
    if options.json:
        print(json.dumps({"replay": progress, **tables}, indent=1, default=str))
    else:
        _print({"replay": [progress], **tables})
    return code


def _progress(replay: Replay, header: Header) -> Row:
    last = replay.last_input
    return {
        "inputs": 0 if last is None else last.number,
        "last_input": "" if last is None else last.kind.name,
        "seconds": 0.0 if last is None else round(last.time - header.began, 6),
        "moment": _moment(header, header.began if last is None else last.time),
        "effects": replay.effects,
        "digests_compared": replay.digests,
    }


def _moment(header: Header, time: float) -> str:
    moment = datetime.fromtimestamp(header.began_unix + time - header.began, timezone.utc)
    return moment.isoformat(timespec="milliseconds")


def _print(tables: Tables) -> None:
    for title, rows in tables.items():
        print(f"{title}: {len(rows)}" if title not in ("replay", "scheduler") else title)
        columns = list(rows[0]) if rows else []
        cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)] if rows else []
        widths = [max(map(len, column)) for column in zip(*cells)]
        for line in cells:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print()


def _cell(value: Any) -> str:
    text = "-" if value is None or value == "" else str(value)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _list(recording: Recording) -> int:
    for time, entry in recording.records():
        seconds = time - recording.header.began
        if isinstance(entry, Digest):
            continue
        print(f"{entry.number:>8} {seconds:12.6f} {entry.kind.name:<18} {_summary(entry)}".rstrip())
    if recording.is_cut:
        print("the end of the recording is missing", file=sys.stderr)
    return 0


def _summary(entry: Input) -> str:
    if entry.kind != InputKind.FRAMES:
        return " ".join(each.hex() if isinstance(each, bytes) else str(each) for each in entry.arguments)
    peer, frames = entry.arguments
    try:
        message = decode(frames[0])
        name = type(message).__name__
        ids = getattr(message, "ids", None)
        about = f"{name} of {len(ids)} from id {ids[0]}" if ids else name
    except (MalformedMessageError, IndexError):
        about = "malformed"
    return f"{peer.hex()} {about}, {' + '.join(str(len(frame)) for frame in frames)} bytes"
