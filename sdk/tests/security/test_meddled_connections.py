"""Clients, workers and monitors notice what someone on the network changes, and tell that one nothing.

That one is a process of another user of the host.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
from security.attackers.another_user import AnotherUser
from security.attackers.doors import DOORS, Door
from security.attackers.lying_scheduler import LIARS, LyingScheduler
from security.attackers.meddler import CHANGES, HANDSHAKE_BYTES, Meddler
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler
from security.test_attackers import Wire
from security.test_lying_schedulers import check_nothing_was_told

from scaler import Client
from scaler.exceptions import AuthenticationError, NotASchedulerError, SchedulerUnreachableError

MEDDLERS = [*CHANGES, "repeats what was recorded", "floods"]
ALWAYS = {
    "client": MEDDLERS,
    "worker": ["changes the READY", "says NULL"],  # its connection is made as a client's is
    "monitor": ["changes the first message", "repeats what was recorded"],  # libzmq makes it
}


def cases() -> List[Any]:
    pairs = [(kind, door) for door in DOORS for kind in MEDDLERS]
    marks = [[] if kind in ALWAYS[door.role] else [pytest.mark.exhaustive] for kind, door in pairs]
    return [pytest.param(*pair, id=f"{pair[1]} {pair[0]}", marks=mark) for pair, mark in zip(pairs, marks)]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    """One that monitors reach by TCP, too."""
    started = KeyedScheduler(tmp_path_factory.mktemp("meddled"), "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


def try_to_connect(scheduler: KeyedScheduler, door: Door, address: str, folder: Path) -> Tuple[bool, str]:
    """Whether a real program with a valid key works at this address, and what it says."""
    key_file = scheduler.admitted_key(door.role, f"trusting-{folder.name}"[:60].rstrip("-_."))
    if door.role == "client":
        try:
            with Client(address=address, key_file=key_file, connect_timeout_seconds=4):
                return True, ""
        except (AuthenticationError, SchedulerUnreachableError, NotASchedulerError) as error:
            return False, str(error)
    if door.role == "worker":
        log = folder / "worker.log"
        worker = scheduler.worker("-lp", str(log), "-ds", "4", key_file=key_file, address=address)
        try:
            return worker.wait(TIMEOUT_SECONDS) == 0, log.read_text()
        finally:
            worker.kill()
            worker.wait()
    command = [sys.executable, "-m", "scaler_appliance.top", address, "--once", "--timeout", "4"]
    done = subprocess.run(
        [*command, "--key-file", str(key_file)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    return done.returncode == 0, done.stdout + done.stderr


def recorded_answers(scheduler: KeyedScheduler, door: Door) -> bytes:
    """What the scheduler sends to an honest peer."""
    protocol = door.admitted(scheduler, "overheard")
    with Wire(scheduler, door) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.wait_for_answer(protocol)
        if door.role != "monitor":
            scheduler.wait_for_log(f"with the key 'overheard-{door.role}'")
        return wire.heard


@pytest.mark.parametrize(("kind", "door"), cases())
def test_who_changes_or_repeats_what_a_scheduler_says_gets_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, kind: str, door: Door, tmp_path: Path
) -> None:
    recorded = recorded_answers(scheduler, door) if kind.startswith("repeats") else b""
    sessions = scheduler.log.count("connected, session")
    with another_user.starts(Meddler, door.address(scheduler), kind, recorded) as meddler:
        works, text = try_to_connect(scheduler, door, meddler.address, tmp_path)
        assert not works, text
        assert meddler.wait_until_changed(TIMEOUT_SECONDS)
        assert meddler.told and all(len(told) <= HANDSHAKE_BYTES for told in meddler.told)
        if "message" not in kind:
            assert scheduler.log.count("connected, session") == sessions


@pytest.mark.parametrize("kind", LIARS)
def test_a_monitor_tells_a_liar_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, kind: str, tmp_path: Path
) -> None:
    with another_user.starts(LyingScheduler, kind) as liar:
        works, text = try_to_connect(scheduler, Door("monitor"), liar.address, tmp_path)
        assert not works, text
        check_nothing_was_told(liar)
