"""`scaler replay FILE` and `scaler_scheduler replay FILE`: repeat a recording, and print the resulting state.

Rules: only the file is opened. Exit codes: 0, the core decided as it did when it was recorded; 1, the file cannot be
read; 2, wrong command line; 3, it decided otherwise; 70, it failed, which a replay is mostly to find out.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from datetime import datetime, timezone
from typing import Any, Callable

from scaler_protocol.recording.recording_file import Digest, Header, Recording, RecordingError
from scaler_protocol.recording.replaying import CoreFailedError, DivergedError, Replay, Row, Tables

EXIT_UNREADABLE = 1
EXIT_DIVERGED = 3
EXIT_BROKEN_INVARIANT = 70  # EX_SOFTWARE of sysexits.h
_LONGEST_CELL = 60

MakeReplay = Callable[[Recording, bool], Replay]
"""Given the recording, and whether invariants are checked. Raises RecordingError if it is of another core."""


def run_replay(options: argparse.Namespace, program: str, make_replay: MakeReplay, version: str) -> int:
    """Do what the command line says; the exit code.

    Parameters:
        version: of the cores that are here.
    """
    try:
        with open(options.file, "rb") as file:
            recording = Recording(file)
            replay = make_replay(recording, options.check)
            return _list(recording, replay) if options.list else _replay(recording, replay, options, version)
    except BrokenPipeError:
        raise
    except (OSError, RecordingError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        print(f"{program}: {options.file}: {text}", file=sys.stderr)
        return EXIT_UNREADABLE


def _replay(recording: Recording, replay: Replay, options: argparse.Namespace, version: str) -> int:
    header = recording.header
    if header.version != version:
        print(f"recorded by version {header.version}, and this is {version}: it may differ", file=sys.stderr)
    until = options.until
    if until is not None:
        until += header.began if until < header.began_unix / 2 else header.began - header.began_unix
    code = 0
    try:
        replay.run(until, options.event)
    except DivergedError as error:
        print(error, file=sys.stderr)
        code = EXIT_DIVERGED
    except CoreFailedError as error:
        cause = error.__cause__ or error
        traceback.print_exception(type(cause), cause, cause.__traceback__, file=sys.stderr)
        number = replay.last_input.number if replay.last_input is not None else 0
        print(f"at input {number}: {error}", file=sys.stderr)
        code = EXIT_BROKEN_INVARIANT
    if replay.is_past_failure:
        print("the core failed at the last input when it was recorded, and does not fail there now", file=sys.stderr)
    if recording.is_cut:
        print("the end of the recording is missing", file=sys.stderr)
    tables = replay.tables()
    progress = _progress(replay, header)
    if options.json:
        print(json.dumps({"replay": progress, **tables}, indent=1, default=str))
    else:
        _print({"replay": [progress], **tables})
    return code


def _progress(replay: Replay, header: Header) -> Row:
    last = replay.last_input
    return {
        "core": header.core,
        "inputs": 0 if last is None else last.number,
        "last_input": "" if last is None else replay.name_of(last.kind),
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
        print(f"{title}: {len(rows)}" if title not in ("replay", "scheduler", "worker", "client") else title)
        columns = list(rows[0]) if rows else []
        cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)] if rows else []
        widths = [max(map(len, column)) for column in zip(*cells)]
        for line in cells:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print()


def _cell(value: Any) -> str:
    text = "-" if value is None or value == "" else str(value)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _list(recording: Recording, replay: Replay) -> int:
    for time, entry in recording.records():
        if isinstance(entry, Digest):
            continue
        seconds = time - recording.header.began
        summary = replay.summary(recording, entry)
        print(f"{entry.number:>8} {seconds:12.6f} {replay.name_of(entry.kind):<18} {summary}".rstrip())
    if recording.is_cut:
        print("the end of the recording is missing", file=sys.stderr)
    return 0
