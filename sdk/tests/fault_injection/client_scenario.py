"""A small life of a client over a simulated system: tasks, objects and results of all kinds, and leaving."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from fault_injection.played_scheduler import LARGE, LARGE_BYTES, URL, SchedulerOfClient
from fault_injection.simulated_loop import SimulatedLoop
from fault_injection.simulated_system import Fault, SimulatedSystem, StuckError, installed

from scaler import Client, aio
from scaler.aio import loop_driver, loop_transport
from scaler.client.shell import (
    client_driver,
    client_object_files,
    deferred_sender,
    io_thread,
    lone_tasks,
    mailbox,
    polled_transport,
    settling,
    transport,
)
from scaler.client.shell.data_service import polled_loop
from scaler.client.shell.io_thread import IoThread
from scaler.data_serving import data_connections, data_dialer, rounds
from scaler_protocol.host import addresses, connection, segments, spill, waker

MODULES = (
    loop_driver,
    loop_transport,
    client_driver,
    io_thread,
    transport,
    polled_loop,
    polled_transport,
    mailbox,
    lone_tasks,
    settling,
    deferred_sender,
    client_object_files,
    data_connections,
    data_dialer,
    rounds,
    connection,
    addresses,
    segments,
    spill,
    waker,
)
OBJECT_BYTES = 200_000
OBJECT_SIZE = OBJECT_BYTES + 64  # with its header


def echo(value: Any) -> Any:
    return value


class ClientRun(NamedTuple):
    """The outcome of one run.

    Parameters:
        outcomes: results, or exceptions, by what was asked for.
        expected: the results of what was asked for.
        problems: what is wrong whatever the fault was.
    """

    system: SimulatedSystem
    sessions: int
    outcomes: Dict[str, Any]
    expected: Dict[str, Any]
    problems: List[str]


class _User:
    """A user thread's steps, which are taken while the I/O thread waits."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outcomes: Dict[str, Any] = {}
        self.expected: Dict[str, Any] = {}
        self.futures: Dict[str, Any] = {}
        self._steps = self._live()

    def act(self) -> bool:
        """Take the next step; returns whether there was one to take."""
        if self._is_waiting():
            return False
        return next(self._steps, None) is not None

    def _is_waiting(self) -> bool:
        return not all(future.done() for future in self.futures.values())

    def _live(self) -> Iterator[bool]:
        for name, argument in (("first", 1), ("lone", 2)):
            self._submit(name, argument, argument)
            yield True
        for number in range(3):
            self._submit(f"batch {number}", number, number)
        yield True
        try:
            reference = self.client.send_object(b"o" * OBJECT_BYTES)
        except Exception as error:
            self.outcomes["object"] = error
        else:
            self._submit("object", reference, [OBJECT_SIZE])
            yield True
            del reference
        self._submit("large result", LARGE, b"L" * LARGE_BYTES)
        yield True
        self._submit("last", 9, 9)
        yield True
        self.client._shell._start_leaving()
        self.client._shell.mailbox.wake()
        yield True

    def _submit(self, name: str, argument: Any, result: Any) -> None:
        self.expected[name] = result
        try:
            self.futures[name] = self.client.submit(echo, argument)
        except Exception as error:
            self.outcomes[name] = error

    def collect(self) -> List[str]:
        """The outcomes of all futures; returns those that have none."""
        hung = []
        for name, future in self.futures.items():
            if not future.done():
                hung.append(f"{name}: no outcome")
                continue
            try:
                self.outcomes[name] = future.result(0)
            except BaseException as error:
                self.outcomes[name] = error
        return hung


def run_client(folder: Path, fault: Optional[Fault] = None, is_shared: bool = True) -> ClientRun:
    """Run the scenario of a client with a thread once."""

    def live(system: SimulatedSystem, outcomes: Dict[str, Any], expected: Dict[str, Any], problems: List[str]) -> None:
        try:
            client = Client(URL, timeout_seconds=100.0, connect_timeout_seconds=20.0)
        except Exception as error:
            outcomes["client"] = error
        else:
            _live(client, system, outcomes, expected, problems)
            del client

    return _run(folder, fault, is_shared, live)


Live = Callable[[SimulatedSystem, Dict[str, Any], Dict[str, Any], List[str]], None]


def _run(folder: Path, fault: Optional[Fault], is_shared: bool, live: Live) -> ClientRun:
    parent = tempfile.mkdtemp(dir=folder)
    directory = os.path.join(parent, "scheduler")
    os.mkdir(directory)
    system = SimulatedSystem(fault)
    outcomes: Dict[str, Any] = {}
    expected: Dict[str, Any] = {}
    problems: List[str] = []
    logger = logging.getLogger("scaler")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with installed(system, MODULES) as patch, warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            patch.setattr(IoThread, "start", lambda io: None)
            patch.setattr(segments, "default_parent", lambda: parent)
            scheduler = SchedulerOfClient(system, directory if is_shared else None)
            live(system, outcomes, expected, problems)
        problems += [f"left open: {each}" for each in system.left_open()]
        left = [name for name in os.listdir(parent) if name != "scheduler"]
        problems += [f"left behind: {name}" for name in left]
    except StuckError as error:
        problems.append(f"stuck: {error}")
    finally:
        logger.setLevel(level)
        shutil.rmtree(parent)
    return ClientRun(system, scheduler.sessions, outcomes, expected, problems)


async def _live_in_loop(client: aio.Client, outcomes: Dict[str, Any], expected: Dict[str, Any]) -> None:
    async def ask(**submitted: Any) -> None:
        futures: Dict[str, Any] = {}
        for name, argument in submitted.items():
            try:
                futures[name] = client.submit(echo, argument)
            except Exception as error:
                outcomes[name] = error
        if futures:
            await asyncio.wait(list(futures.values()))
        for name, future in futures.items():
            outcomes[name] = future.exception() or future.result()

    expected.update({"first": 1, "lone": 2, **{f"batch {number}": number for number in range(3)}})
    expected.update({"object": [OBJECT_SIZE], "large result": b"L" * LARGE_BYTES, "last": 9})
    await ask(first=1)
    await ask(lone=2)
    await ask(**{f"batch {number}": number for number in range(3)})
    try:
        reference = await client.send_object(b"o" * OBJECT_BYTES)
    except Exception as error:
        outcomes["object"] = error
    else:
        await ask(object=reference)
        del reference
    await ask(**{"large result": LARGE})
    await ask(last=9)
    await client.disconnect()


def run_in_loop(folder: Path, fault: Optional[Fault] = None, is_shared: bool = True) -> ClientRun:
    """Run the scenario of a client of `scaler.aio` once."""

    def live(system: SimulatedSystem, outcomes: Dict[str, Any], expected: Dict[str, Any], problems: List[str]) -> None:
        loop: Any = SimulatedLoop(system)
        loop.set_exception_handler(lambda _, context: problems.append(str(context)))
        asyncio._set_running_loop(loop)
        try:
            client = aio.Client(URL, timeout_seconds=100.0, connect_timeout_seconds=20.0)
            try:
                loop.run_until_complete(loop.create_task(client.connect()))
            except Exception as error:
                outcomes["client"] = error
            else:
                loop.run_until_complete(loop.create_task(_live_in_loop(client, outcomes, expected)))
        finally:
            asyncio._set_running_loop(None)

    return _run(folder, fault, is_shared, live)


def _live(
    client: Client, system: SimulatedSystem, outcomes: Dict[str, Any], expected: Dict[str, Any], problems: List[str]
) -> None:
    user = _User(client)
    system.actors.append(user.act)
    try:
        client._shell.io._run()
    finally:
        problems += user.collect()
        outcomes.update(user.outcomes)
        expected.update(user.expected)
        user.futures.clear()
        system.actors.clear()
