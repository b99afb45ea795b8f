"""Large arguments between versions: whichever side does not know that clients keep them, the scheduler carries them."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, List

import pytest
from security.data_addresses.scene import distant_scheduler
from upgrades.version_skew import REPOSITORY, SOURCES

SIZE = 3_000_000
TIMEOUT_SECONDS = 60.0


def older_scheduler(folder: Path) -> List[str]:
    """The command of a scheduler that knows nothing of clients that keep objects."""
    for source in SOURCES[:2]:
        shutil.copytree(REPOSITORY / source, folder / source)
    core = folder / "appliance/src/scaler_appliance/core"
    for path, before, after in (
        ("peers/handshake.py", "KEPT_RESULTS, KEPT_ARGUMENTS, PEER_FETCH", "KEPT_RESULTS, PEER_FETCH"),
        ("objects/object_reactions.py", "keeps = serves_workers(session)", "keeps = False"),
    ):
        text = (core / path).read_text()
        assert text.count(before) == 1, f"{path}: {before}"
        (core / path).write_text(text.replace(before, after))
    places = os.pathsep.join(str(folder / source) for source in SOURCES[:2])
    return ["env", f"PYTHONPATH={places}", sys.executable, "-m", "scaler_appliance"]


@pytest.mark.parametrize("older", ["scheduler", "worker", "client"])
def test_an_argument_arrives_whichever_side_is_older(older: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        command = older_scheduler(tmp_path / "older") if older == "scheduler" else []
        scheduler = distant_scheduler(tmp_path, command)
        stack.callback(scheduler.stop)
        options: List[str] = ["--data-address", "off"] if older == "worker" else []
        worker = scheduler.worker(*options, "-lp", os.devnull, key_file=scheduler.admitted_key("worker"))
        stack.callback(worker.wait, TIMEOUT_SECONDS)
        stack.callback(worker.terminate)
        place: Any = "off" if older == "client" else "tcp://127.0.0.1:0"
        client = stack.enter_context(scheduler.client(scheduler.admitted_key("client"), data_address=place))
        sent = client.send_object(bytes(SIZE))
        assert client.submit(len, sent).result(TIMEOUT_SECONDS) == SIZE
        stored = [each for each in (tmp_path / "objects").rglob("*") if len(each.name) == 16 and each.is_file()]
        assert len(stored) == 1, "the scheduler has carried it"
        assert client.submit(len, bytes(SIZE)).result(TIMEOUT_SECONDS) == SIZE
