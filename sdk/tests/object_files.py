"""What is in the scheduler's object directory: tests end with nothing in it."""

from __future__ import annotations

import os
from typing import List

from sdk_tasks import identity

from scaler import Client

TIMEOUT_SECONDS = 100.0


def object_files(client: Client) -> List[str]:
    """Names of the files in the scheduler's object directory that are objects, or will be."""
    names = set(os.listdir(client._shell.welcome.object_directory)) - {"token", "spill"}
    return sorted(name for name in names if not name.endswith("-lock"))


def nothing_is_left(client: Client) -> bool:
    """Wait until the scheduler has worked off what was sent, and see whether all object files are gone."""
    for _ in range(1000):
        client.submit(identity, 0).result(TIMEOUT_SECONDS)
        if not object_files(client):
            return True
    return False
