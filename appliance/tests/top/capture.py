"""Puts a frame of `scaler_top`, taken from a terminal before a busy cluster, into docs/monitoring.md.

    .venv/bin/python appliance/tests/top/capture.py

Rule: the frame is what was to be seen; nothing in it is made up or made nicer.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scheduler_process import SchedulerProcess
from top.terminal import Load, Terminal

DOCUMENT = Path(__file__).parents[3] / "docs/monitoring.md"
FRAME = re.compile(r"(?<=<!-- frame: begin -->\n).*(?=<!-- frame: end -->)", re.DOTALL)
WORKERS = 4
COLUMNS, LINES = 132, 20
AT_WORK = (r"up +[1-9]\d s", r"unassigned +[\d,]{3}", r"success .*/s", r"failed +[1-9]")


def capture(folder: Path) -> str:
    """A frame, some seconds after the work has begun."""
    address = folder / "address"
    scheduler = SchedulerProcess(
        sys.executable, address, "tcp://127.0.0.1:0", "--monitor-address", f"ipc://{folder}/monitor"
    )
    try:
        scheduler.wait_until_ready()
        with (
            Load(scheduler.address, WORKERS, tasks=2000, pause_seconds=0),
            Terminal(folder, COLUMNS, LINES) as terminal,
        ):
            terminal.run(sys.executable, "-m", "scaler_appliance.top", scheduler.monitor_address)
            screen = terminal.wait_for(
                lambda now: all(re.search(each, "\n".join(now)) for each in AT_WORK),
                "a scheduler that has worked for a while, and has work left",
            )
            terminal.press("q")
    finally:
        scheduler.close()
    return "\n".join(line.rstrip() for line in screen).rstrip() + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        frame = capture(Path(folder))
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(FRAME.sub(lambda _: f"\n```text\n{frame}```\n\n", text), encoding="utf-8")
    print(frame)


if __name__ == "__main__":
    main()
