"""Connections that fall silent while both ends live: sessions go on over other ones."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from pathlib import Path
from typing import Iterator, List

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import wait_for_file
from tcp_proxy import Proxy

from scaler import Client, Cluster, Scheduler
from scaler.aio import Client as AsyncClient

HEARTBEAT_SECONDS = 0.2
TASKS = 40
TIMEOUT_SECONDS = 60.0
LARGE_BYTES = 3_000_000


@pytest.fixture
def scheduler_address() -> Iterator[str]:
    address = quiet_address()
    scheduler = Scheduler(address=address, logging_level="ERROR", heartbeat_interval_seconds=HEARTBEAT_SECONDS)
    scheduler.start()
    yield address
    scheduler.shutdown()


def note_and_wait(number: int, folder: str, begun: str, go: str) -> int:
    """Each run is noted; the first task waits, so that the others wait behind it."""
    with open(f"{folder}/runs", "a") as file:
        file.write(f"{number}\n")
    if number == 0:
        Path(begun).touch()
        wait_for_file(go)
    return number


def begin_and_wait(begun: str, go: str) -> str:
    Path(begun).touch()
    wait_for_file(go)
    return begun


def enlarge(data: bytes) -> bytes:
    return data * 2


def test_no_task_runs_again_when_all_connections_fall_silent(
    scheduler_address: str, tmp_path: Path, done_files: List[Path]
) -> None:
    begun, go = map(str, done_files)
    with Proxy(scheduler_address) as at_worker, Proxy(scheduler_address) as at_client:
        cluster = Cluster(at_worker.address, 1, logging_level="CRITICAL")
        cluster.start()
        with Client(at_client.address) as client:
            futures = [client.submit(note_and_wait, each, str(tmp_path), begun, go) for each in range(TASKS)]
            wait_for_file(begun)
            session = client.info().workers[0].session

            at_worker.silence()
            at_client.silence()
            later = client.submit(enlarge, b"x" * LARGE_BYTES)
            Path(go).touch()

            assert [future.result() for future in futures] == list(range(TASKS))
            assert later.result() == b"x" * LARGE_BYTES * 2
            assert client.info().workers[0].session == session
        cluster.shutdown()
    runs = (tmp_path / "runs").read_text().split()
    assert sorted(map(int, runs)) == list(range(TASKS))


def test_a_client_that_cannot_get_through_says_so_once_and_when_it_is_over(
    scheduler_address: str, done_files: List[Path], caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = map(str, done_files)
    told, is_over = threading.Event(), threading.Event()
    events = {"has not been heard": told, "goes on": is_over}

    def look(record: logging.LogRecord) -> bool:
        for words, event in events.items():
            if words in record.getMessage():
                event.set()
        return True

    with Proxy(scheduler_address) as at_client, Cluster(scheduler_address, 1, logging_level="CRITICAL"):
        with Client(at_client.address) as client, caplog.at_level(logging.WARNING, "scaler"):
            caplog.handler.addFilter(look)
            future = client.submit(begin_and_wait, begun, go)
            wait_for_file(begun)
            at_client.isolate()
            assert told.wait(TIMEOUT_SECONDS)
            Path(go).touch()
            at_client.heal()
            assert future.result() == begun
            assert is_over.wait(TIMEOUT_SECONDS)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2, texts
    assert re.search(r"at tcp://\S+ has not been heard for \d+ seconds, .*the tasks of this client go on", texts[0])
    assert "the session goes on" in texts[1]


def test_a_client_for_coroutines_goes_on_too(scheduler_address: str) -> None:
    async def main(address: str, proxy: Proxy) -> None:
        async with AsyncClient(address) as client:
            assert await client.submit(enlarge, b"x") == b"xx"
            proxy.silence()
            assert await client.submit(enlarge, b"y") == b"yy"

    with Proxy(scheduler_address) as at_client:
        cluster = Cluster(scheduler_address, 1, logging_level="CRITICAL")
        cluster.start()
        asyncio.run(asyncio.wait_for(main(at_client.address, at_client), TIMEOUT_SECONDS))
        cluster.shutdown()
