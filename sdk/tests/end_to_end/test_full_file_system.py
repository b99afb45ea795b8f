"""A scheduler whose file system is full, really: its users get errors that say so, and go on when there is room again.

The scheduler has a mount namespace of its own, in which its folder for objects is a small file system. So its peers
share no files with it, as if they were on other hosts: what they place and return goes to it in chunks.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from sdk_tasks import identity

from scaler import Client, ScalerFuture, SchedulerClusterCombo
from scaler.cluster.appliance import PROGRAM_VARIABLE
from scaler.exceptions import ObjectStorageFullError

TIMEOUT_SECONDS = 60.0
SIZE = 1_000_000
MOUNT = "mount -t tmpfs -o size=8m none {0} && head -c 6m /dev/zero > {0}/other-data && "
SAYS_WHAT_TO_DO = (
    "(no room|could not be stored by the scheduler).* free memory or disk space .*--object-spill-directory"
)
IN_NAMESPACE = ("unshare", "--mount", "sh", "-c")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuple[Client, Path]]:
    """A client of such a cluster, and a file that takes most of the room, of which 2 MiB are left."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = MOUNT.format(shlex.quote(str(folder)))
    try:
        tried = subprocess.run([*IN_NAMESPACE, f"{mount}true"], capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    if tried.returncode:
        pytest.skip(f"a file system cannot be mounted in a namespace of its own: {tried.stderr.strip()}")
    script = f'{mount}exec {shlex.quote(sys.executable)} -m scaler_appliance "$@"'
    monkeypatch.setenv(PROGRAM_VARIABLE, shlex.join((*IN_NAMESPACE, script, "scheduler")))
    options: Dict[str, Any] = {"object_directory": str(folder), "object_spill_directory": str(folder)}
    with SchedulerClusterCombo(1, logging_level="CRITICAL", **options) as combo:
        with Client(address=combo.get_address(), timeout_seconds=TIMEOUT_SECONDS) as client:
            yield client, Path(f"/proc/{combo._scheduler.pid}/root/{folder}/other-data")


def make_bytes(size: int) -> bytes:
    return bytes(size)


def test_a_full_file_system_is_an_error_that_says_so_and_nothing_more(cluster: Tuple[Client, Path]) -> None:
    client, other_data = cluster
    kept = client.send_object(bytes(SIZE))
    assert client.submit(len, kept).result(TIMEOUT_SECONDS) == SIZE
    too_large = client.send_object(bytes(4 * SIZE))
    futures: List[ScalerFuture[Any]] = [
        client.submit(make_bytes, 4 * SIZE),
        client.submit(len, too_large),
        client.submit(len, bytes(3 * SIZE)),
    ]
    for future in futures:
        with pytest.raises(ObjectStorageFullError, match=SAYS_WHAT_TO_DO):
            future.result(TIMEOUT_SECONDS)
    assert client.submit(identity, 7).result(TIMEOUT_SECONDS) == 7
    assert client.submit(len, kept).result(TIMEOUT_SECONDS) == SIZE, "what it had room for is there"
    other_data.unlink()
    assert client.submit(make_bytes, 4 * SIZE).result(TIMEOUT_SECONDS) == bytes(4 * SIZE)
    again = client.send_object(bytes(3 * SIZE))
    assert client.submit(len, again).result(TIMEOUT_SECONDS) == 3 * SIZE
