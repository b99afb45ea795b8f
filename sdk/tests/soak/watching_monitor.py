"""A monitor of a soak: it subscribes to a scheduler's status and prints, once a second, what it received, as JSON.

`python -m soak.watching_monitor ADDRESS`; it ends with its standard input.
"""

from __future__ import annotations

import json
import logging
import select
import sys
import time

from scaler_appliance.feed.status_feed import Feed
from scaler_appliance.feed.task_history import TaskHistory
from scaler_appliance.shell.publishing.monitor_address import monitor_address_of

INTERVAL_SECONDS = 1.0
HISTORY_BYTES = 1 << 20  # soon full: after that, its memory stays as it is


def main(address: str) -> None:
    logging.basicConfig(format="[%(levelname)s]%(asctime)s: %(message)s", level=logging.WARNING)
    feed = Feed(monitor_address_of(address))
    feed.task_log = TaskHistory(HISTORY_BYTES)
    next_report = time.monotonic()
    while not select.select([0], [], [], 0)[0]:
        feed.poll(0.1)
        feed.receive()
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + INTERVAL_SECONDS
            print(json.dumps({"status_age_seconds": feed.age_seconds(), "malformed": feed.malformed}), flush=True)
    feed.close()


if __name__ == "__main__":
    main(sys.argv[1])
