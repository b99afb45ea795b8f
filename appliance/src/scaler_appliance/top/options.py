"""What the command line of `scaler_top` may say."""

from __future__ import annotations

import argparse
from typing import Optional

from scaler_appliance.top.rows import COLUMNS, OTHER_TITLES, SORTABLE
from scaler_appliance.top.view import KEYS

DESCRIPTION = """\
Show what a Scaler cluster does, as top shows a machine: the scheduler, how many tasks are where, messages, and each
worker, newest figures each second. It only listens: it slows nothing down, and works while the scheduler is restarted.

  scaler_top ipc:///tmp/127.0.0.1_2345_monitor              the address that scheduler printed when it started
  scaler_top --sort rss ADDRESS                             the largest first
  scaler_top --once ADDRESS                                 one frame as plain text, for mails and tickets
  scaler_top --json ADDRESS | jq .tasks.running             figures for programs, an object a second
"""


def make_parser() -> argparse.ArgumentParser:
    keys = "\n".join(f"  {names:>18}  {meaning}" for names, meaning in KEYS)
    columns = "\n".join(f"  {column.title:>18}  {column.meaning}" for column in COLUMNS)
    parser = argparse.ArgumentParser(
        prog="scaler_top",
        description=DESCRIPTION,
        epilog=f"keys:\n{keys}\n\ncolumns; a row is a processor with its worker's agent:\n{columns}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "address",
        metavar="MONITOR_ADDRESS",
        nargs="?",
        help="where the scheduler publishes its status: ipc:///tmp/HOST_PORT_monitor, unless it was told otherwise;"
        " without one, a scheduler of this user on this host is looked for",
    )
    parser.add_argument(
        "-s",
        "--sort",
        type=_column,
        default="cpu",
        metavar="COLUMN",
        help=f"largest first by {', '.join(SORTABLE[1:])}; or by {SORTABLE[0]} from A to Z (default: cpu)",
    )
    parser.add_argument("-r", "--reverse", action="store_true", help="the other way round")
    parser.add_argument("-f", "--filter", default="", metavar="TEXT", help="only workers with that in their name")
    parser.add_argument(
        "-i",
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="at least so long between two frames, or two objects of --json (default: 1, as often as there is news)",
    )
    output = parser.add_argument_group("without a terminal")
    output.add_argument("--once", action="store_true", help="print one frame with all rows as plain text, then end")
    output.add_argument(
        "--json", action="store_true", help="print a JSON object a line, schema 1, as docs/monitoring.md tells"
    )
    output.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="--once waits so long for a scheduler, then ends with code 1 (default: 10)",
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    return parser


def default_address() -> Optional[str]:
    """The monitor address of a scheduler of this user on this host; None if there is none to be found."""
    return None


def _column(name: str) -> str:
    title = OTHER_TITLES.get(name, name)
    if title not in SORTABLE:
        raise argparse.ArgumentTypeError(f"{name!r} is no column to sort by; there are {', '.join(SORTABLE)}")
    return title


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is no time above 0")
    return value
