"""A key that is revoked ends its session, and opens nothing, at whichever moment that is."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Iterator

import pytest
from security.attackers.doors import DOORS, Door
from security.keyed_scheduler import KeyedScheduler
from security.test_attackers import Wire, sessions

from scaler_protocol.wire.zmtp import ZmtpError

MOMENTS = ("after the greetings", "after the HELLO", "before the first message", "before the answer is read")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[KeyedScheduler]:
    """One that monitors reach by TCP, too."""
    started = KeyedScheduler(tmp_path, "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


@pytest.mark.parametrize("door", DOORS, ids=str)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_key_that_is_revoked_while_its_peer_connects_opens_nothing(
    scheduler: KeyedScheduler, door: Door, moment: str
) -> None:
    protocol = door.admitted(scheduler, "revoked")
    steps = MOMENTS.index(moment) + 1
    with Wire(scheduler, door) as wire:
        if steps > 2:
            wire.shake_hands(protocol)
        else:
            for _ in range(steps):
                wire.send(protocol.take_output())
                protocol.feed(wire.receive())
        if steps == len(MOMENTS):
            wire.say_hello(protocol)
            if door.role != "monitor":
                scheduler.wait_for_log(f"with the key 'revoked-{door.role}'")
        scheduler.keys.revoke(f"revoked-{door.role}")
        scheduler.reload()
        before = sessions(scheduler)
        try:
            wire.shake_hands(protocol)
            wire.say_hello(protocol)
        except (OSError, ZmtpError):
            assert steps < 3, "the handshake was complete"
        assert wire.is_closed()
    assert sessions(scheduler) == before


@pytest.mark.parametrize("door", DOORS, ids=str)
def test_a_session_ends_at_the_signal(scheduler: KeyedScheduler, door: Door) -> None:
    protocol = door.admitted(scheduler, "revoked")
    with Wire(scheduler, door) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.wait_for_answer(protocol)
        scheduler.keys.revoke(f"revoked-{door.role}")
        assert scheduler.process is not None
        scheduler.process.send_signal(signal.SIGHUP)
        assert wire.is_closed()
