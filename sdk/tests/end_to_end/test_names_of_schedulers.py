"""A client finds its scheduler by name, or at one of several addresses, and finds it again when it has moved."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import ExitStack
from typing import Dict, Iterator, List

import pytest
from played_names import Answer, no_such_name, play_names, silent_name_server
from quiet_addresses import quiet_address
from sdk_tasks import identity

from scaler import Client, Cluster, Scheduler
from scaler.aio import Client as AioClient
from scaler.exceptions import SchedulerUnreachableError

TIMEOUT_SECONDS = 60.0


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Dict[str, Answer]:
    return play_names(monkeypatch)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a scheduler without workers."""
    scheduler = Scheduler(address="tcp://127.0.0.1:0", logging_level="ERROR")
    scheduler.start()
    yield scheduler.get_address()
    scheduler.shutdown()


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


def test_the_first_host_of_a_name_that_answers_is_used(scheduler: str, names: Dict[str, Answer]) -> None:
    names["scheduler.example"] = lambda: ["127.0.0.9", "127.0.0.1"]
    with Client(f"tcp://scheduler.example:{port_of(scheduler)}") as client:
        assert client.is_open


def test_a_list_of_addresses_is_tried_until_one_answers(scheduler: str) -> None:
    with Client(f"{quiet_address()},{scheduler}") as client:
        assert client.is_open


def test_an_error_says_what_happened_at_each_address() -> None:
    addresses = quiet_address(), quiet_address()
    with pytest.raises(SchedulerUnreachableError) as raised:
        Client(",".join(addresses), connect_timeout_seconds=2.0)
    for address in addresses:
        assert f"nothing listens at {address} (Connection refused)" in str(raised.value)


def test_a_name_server_that_is_silent_is_named(names: Dict[str, Answer]) -> None:
    with ExitStack() as stack:
        names["lost.example"] = silent_name_server(stack)
        with pytest.raises(SchedulerUnreachableError, match=r"lost\.example:1 cannot be resolved for now"):
            Client("tcp://lost.example:1", connect_timeout_seconds=0.3)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_attempt_that_is_cut_short_hides_no_reason(names: Dict[str, Answer], is_async: bool) -> None:
    with ExitStack() as stack:
        silent, answers = silent_name_server(stack), iter([no_such_name])
        names["lost.example"] = lambda: next(answers, silent)()

        async def connect() -> None:
            await AioClient("tcp://lost.example:1", connect_timeout_seconds=2.0).connect()

        with pytest.raises(SchedulerUnreachableError, match=r"unknown host name in tcp://lost\.example:1"):
            if is_async:
                asyncio.run(connect())
            else:
                Client("tcp://lost.example:1", connect_timeout_seconds=2.0)


def test_an_event_loop_goes_on_while_a_name_is_resolved(scheduler: str, names: Dict[str, Answer]) -> None:
    is_asked, is_known = threading.Event(), threading.Event()

    def slow_name_server() -> List[str]:
        is_asked.set()
        is_known.wait()
        return ["127.0.0.1"]

    names["slow.example"] = slow_name_server

    async def connect() -> None:
        async def answer_later() -> None:
            while not is_asked.is_set():
                await asyncio.sleep(0.001)
            is_known.set()

        answering = asyncio.ensure_future(answer_later())
        async with AioClient(f"tcp://slow.example:{port_of(scheduler)}"):
            assert answering.done()

    asyncio.run(asyncio.wait_for(connect(), TIMEOUT_SECONDS))


def test_a_client_follows_its_scheduler_to_another_host(names: Dict[str, Answer]) -> None:
    hosts, port = ["127.0.0.1"], port_of(quiet_address())
    names["moving.example"] = lambda: list(hosts)
    first = Scheduler(address=f"tcp://127.0.0.1:{port}", logging_level="CRITICAL")
    first.start()
    second = Scheduler(address=f"tcp://127.0.0.2:{port}", logging_level="CRITICAL")
    with ExitStack() as stack:
        client = stack.enter_context(Client(f"tcp://moving.example:{port}"))
        future = client.submit(identity, 2)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        first.join(TIMEOUT_SECONDS)
        hosts[:] = ["127.0.0.2"]
        stack.callback(second.shutdown)
        second.start()
        cluster = Cluster(f"tcp://127.0.0.2:{port}", 1, logging_level="CRITICAL")
        stack.callback(cluster.shutdown)
        cluster.start()
        assert future.result(TIMEOUT_SECONDS) == 2
