"""The options of `scaler_top`: one table that defines its help, its section of a configuration file, its environment
variables and its documentation (see `scaler_protocol.programs.options`)."""

from __future__ import annotations

from typing import Any

from scaler_appliance import __version__
from scaler_appliance.feed.finding import find_monitor
from scaler_appliance.top.rows import COLUMNS, OTHER_TITLES, ROWS_MEANING, SORTABLE
from scaler_appliance.top.sections import MEANINGS
from scaler_appliance.top.view import KEYS
from scaler_protocol.programs.options import (
    EARLIER_SECURITY,
    Choice,
    Earlier,
    Kind,
    NetworkAddress,
    Option,
    Program,
    Seconds,
    Switch,
    key_options,
)

_DESCRIPTION = """\
Show what a Scaler cluster does, as top shows a machine: the scheduler, how many tasks are where, messages, and each
worker's processors, updated each second. It only listens, so it slows nothing down, and keeps running
while the scheduler is restarted.

  scaler_top                                        the scheduler that you started last on this machine
  scaler_top ipc:///tmp/127.0.0.1_2345_monitor      the one that printed this address when it started
  scaler_top --sort rss                             the largest first
  scaler_top --once                                 one frame as plain text, for mails and tickets
  scaler_top --json | jq .tasks.running             figures for programs, an object a second
"""


class _Column(Choice):
    """A column, by any of its names."""

    def parse(self, text: str) -> Any:
        return super().parse(OTHER_TITLES.get(text, text))


def _epilog() -> str:
    keys = "\n".join(f"  {names:>18}  {meaning}" for names, meaning in KEYS)
    columns = "\n".join(f"  {column.title:>18}  {column.meaning}" for column in COLUMNS)
    figures = "\n".join(f"  {names:>18}  {meaning}" for names, meaning in MEANINGS)
    return f"keys:\n{keys}\n\n{ROWS_MEANING}:\n{columns}\n\nfigures:\n{figures}"


TOP = Program(
    name="scaler_top",
    page="configuration#scaler_top",
    section="top",
    description=_DESCRIPTION,
    epilog=_epilog(),
    version=lambda: f"scaler_top {__version__}",
    options=[
        Option(
            "address",
            NetworkAddress(),
            "where the scheduler publishes its status: by default ipc:///tmp/HOST_PORT_monitor",
            metavar="MONITOR_ADDRESS",
            default_text="that of the scheduler in SCALER_ADDRESS, else of the file's [scheduler],"
            " else of the newest scheduler of this user on this host",
            is_required=True,
            find=find_monitor,
        ),
        Option(
            "-s --sort",
            _Column(SORTABLE),
            "sort by this column, largest first; worker from A to Z",
            default="cpu",
        ),
        Option("-r --reverse", Switch(has_negation=False), "sort in reverse order", default=False),
        Option("-f --filter", Kind(), "only workers with this text in their name, host or process id"),
        Option(
            "-i --interval --interval-seconds",
            Seconds(0, is_minimum_excluded=True),
            "minimum time between two frames, or two objects of --json; the scheduler publishes every second",
            default=1.0,
        ),
        Option(
            "--once",
            Switch(has_negation=False),
            "print one frame with all rows as plain text, and exit",
            default=False,
            group="without a terminal",
            is_command_line_only=True,
        ),
        Option(
            "--json",
            Switch(has_negation=False),
            "print one JSON object per line; docs/monitoring.md describes schema 1",
            default=False,
            group="without a terminal",
            is_command_line_only=True,
        ),
        Option(
            "--timeout --timeout-seconds",
            Seconds(0, is_minimum_excluded=True),
            "how long --once waits for a scheduler before it exits with code 1",
            default=10.0,
            group="without a terminal",
        ),
        *key_options("monitor", "the scheduler"),
    ],
    earlier=[Earlier("-t", becomes=("timeout_seconds",)), *EARLIER_SECURITY],
)
