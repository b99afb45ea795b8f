"""`scaler.aio.Client` where little may be in flight, and where the scheduler ends or is replaced."""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest
from aio.test_aio_client import play
from quiet_addresses import quiet_address
from sdk_tasks import identity, wait_for_file, wait_until

from scaler import Cluster, Scheduler, SchedulerClusterCombo, aio
from scaler.cluster.appliance import PROGRAM_VARIABLE, scheduler_command
from scaler.exceptions import ClientShutdownException, DisconnectedError

TASKS_LIMIT = 100
BYTES_LIMIT = 1_000_000
TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="module")
def strict_address() -> Iterator[str]:
    """A cluster of two workers whose clients may have little in flight."""
    limits = ["--client-tasks-in-flight", str(TASKS_LIMIT), "--client-bytes-in-flight", str(BYTES_LIMIT)]
    os.environ[PROGRAM_VARIABLE] = shlex.join([*scheduler_command(), *limits])
    try:
        combo = SchedulerClusterCombo(n_workers=2, logging_level="WARNING")
    finally:
        del os.environ[PROGRAM_VARIABLE]
    with combo:
        yield combo.get_address()


def test_tasks_wait_here_when_the_scheduler_takes_no_more(strict_address: str, done_files: List[Path]) -> None:
    running, go = done_files

    async def scene(client: aio.Client) -> None:
        first = [client.submit(wait_for_file, str(go), str(running)) for _ in range(TASKS_LIMIT)]
        others = [
            client.submit(functools.partial(identity, each)) for each in range(300)
        ]  # which only their tasks refer to
        assert not any(each.done() for each in others), "submitting does not wait"
        await asyncio.get_running_loop().run_in_executor(None, wait_until, running)
        room = asyncio.ensure_future(client.wait_for_room())
        assert others[-1].task_id < 0 and "waits in this client" in await client.explain(others[-1])
        assert others[-1].cancel() and others[-2].cancel()
        assert len(client._shell.core.futures) <= TASKS_LIMIT and not room.done()
        go.touch()
        assert (
            await asyncio.gather(*others[:-2]) == list(range(298)) and len(await asyncio.gather(*first)) == TASKS_LIMIT
        )
        await room
        assert not client._shell.waiting_futures

    play(strict_address, scene)


def test_large_arguments_are_placed_when_there_is_credit(strict_address: str) -> None:
    async def scene(client: aio.Client) -> None:
        size = 400_000
        futures = [client.submit(len, bytes(size)) for _ in range(20)]
        futures[-1].cancel()
        directory = client._shell.welcome.object_directory
        placed = 0
        while not all(each.done() for each in futures):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED, timeout=0.01)
            placed = max(placed, len(set(os.listdir(directory)) - {"token", "spill"}))
        assert [each.result() for each in futures[:-1]] == [size] * 19 and placed < 10

    play(strict_address, scene)


def test_a_cleared_client_forgets_what_waits_here(strict_address: str, done_files: List[Path]) -> None:
    running, go = done_files

    async def scene(client: aio.Client) -> None:
        futures = [client.submit(wait_for_file, str(go), str(running)) for _ in range(3 * TASKS_LIMIT)]
        await asyncio.get_running_loop().run_in_executor(None, wait_until, running)
        client.clear()
        assert all(each.cancelled() for each in futures) and not go.exists()
        assert await client.submit(abs, -1) == 1

    play(strict_address, scene)


@pytest.fixture
def address_to_restart() -> Iterator[str]:
    yield quiet_address()


def test_a_client_outlives_its_scheduler(address_to_restart: str) -> None:
    async def scene(client: aio.Client) -> None:
        assert await client.submit(abs, -1) == 1
        futures = [client.submit(pow, each, 2) for each in range(1000)]
        await futures[0]
        assert schedulers[0].pid is not None
        os.kill(schedulers[0].pid, signal.SIGKILL)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, schedulers[0].join, TIMEOUT_SECONDS)
        late = client.submit(pow, 7, 2)
        assert "looking for its scheduler" in repr(client) or not late.done()
        schedulers.append(Scheduler(address=address_to_restart, logging_level="WARNING"))
        await loop.run_in_executor(None, schedulers[1].start)
        assert await asyncio.gather(*futures) == [each**2 for each in range(1000)] and await late == 49

    schedulers = [Scheduler(address=address_to_restart, logging_level="WARNING")]
    schedulers[0].start()
    cluster = Cluster(address_to_restart, n_workers=1, logging_level="WARNING")
    cluster.start()
    try:
        play(address_to_restart, scene)
    finally:
        cluster.shutdown()
        schedulers[-1].shutdown()


def test_a_scheduler_that_is_gone_for_good_fails_the_futures(done_files: List[Path]) -> None:
    async def main() -> None:
        with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
            client = await aio.Client(combo.get_address(), timeout_seconds=3.0).connect()
            future = client.submit(wait_for_file, str(done_files[1]))
            await asyncio.wait([future], timeout=0.2)
            combo._scheduler.kill()
            with pytest.raises(DisconnectedError, match="took this client back"):
                await future
            with pytest.raises(DisconnectedError):
                client.submit(abs, -1)
            await client.disconnect()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))


def test_shutting_the_cluster_down_ends_the_client() -> None:
    async def main() -> None:
        combo = SchedulerClusterCombo(n_workers=1, logging_level="WARNING", protected=False)
        async with aio.Client(combo.get_address()) as client:
            other = await aio.Client(combo.get_address()).connect()
            hanging = other.submit(wait_for_file, "/nowhere")
            await asyncio.wait([hanging], timeout=0.1)
            await client.shutdown()
            with pytest.raises((ClientShutdownException, DisconnectedError)):
                await hanging
        combo.shutdown()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_SECONDS))


INTERRUPTED = """
import asyncio, os, signal, sys
from scaler import aio

async def main():
    async with aio.Client(sys.argv[1]) as client:
        print("ready", flush=True)
        while True:
            await asyncio.gather(*[client.submit(abs, -1) for _ in range(100)])

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_busy_program_in_good_order(any_address: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, any_address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=TIMEOUT_SECONDS)
    assert (output, program.returncode) == ("interrupted\n", 0), errors
    if sys.version_info >= (3, 11):  # before, it may come within a turn, which ends the client with a message
        assert errors == ""
