"""Before a peer has proved a key, none of its bytes is decoded as a message, whatever they are."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Iterator

import pytest
from sdk_tasks import wait_for
from security.attackers.another_user import AnotherUser
from security.attackers.doors import DOORS, Door
from security.keyed_scheduler import KeyedScheduler
from security.test_attackers import CHANGES, OPENINGS, Wire

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.secure_zmtp import ClientSecurity
from scaler_protocol.wire.zmtp import ZmtpError, greeting

SCRIPT = Path(__file__).with_name("watched_decoding.py")
at_each_door = pytest.mark.parametrize("door", DOORS, ids=str)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with what is decoded."""
    path = tmp_path_factory.mktemp("decoded") / "lines"
    path.touch()
    return path


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory, decoded: Path) -> Iterator[KeyedScheduler]:
    command = [sys.executable, str(SCRIPT), str(decoded)]
    started = KeyedScheduler(tmp_path_factory.mktemp("scheduler"), "-ma", "tcp://127.0.0.2:*", command=command)
    yield started
    started.stop()


@at_each_door
def test_nothing_of_a_peer_without_an_admitted_key_is_decoded(
    scheduler: KeyedScheduler, another_user: AnotherUser, decoded: Path, door: Door
) -> None:
    before = decoded.read_text()
    message = b"".join(b"\0" + bytes((len(frame),)) + frame for frame in door.first_message())
    sodium, server_key = load_sodium(), scheduler.keys.server_key_pairs()[0].public
    spoiled = [(command, change) for command, change in CHANGES.values() if command != "MESSAGE"]
    admitted = [door.admitted(scheduler, f"spoiled-{command}-{change.__name__}") for command, change in spoiled]

    def attack() -> None:
        for opening in OPENINGS.values():
            with Wire(scheduler, door) as wire:
                wire.send((opening or greeting(b"CURVE")) + message * 3)
                assert wire.is_closed()
        with Wire(scheduler, door) as wire:  # the handshake is right, and the key unknown
            protocol = door.end(ClientSecurity(sodium, sodium.new_keys(), server_key))
            with suppress(OSError, ZmtpError):
                wire.shake_hands(protocol)
            wire.send(message)
            assert wire.is_closed()
        for (command, change), protocol in zip(spoiled, admitted):
            with Wire(scheduler, door) as wire:
                spoil(wire, command, change)
                with suppress(OSError, ZmtpError):
                    wire.shake_hands(protocol)
                wire.send(message)
                assert wire.is_closed()

    another_user.runs(attack)
    assert decoded.read_text() == before


def spoil(wire: Wire, command: str, change: object) -> None:
    """Change what is sent with a command."""
    honest = wire.send

    def send(data: bytes) -> None:
        found = bytearray(data)
        if command.encode() in data:
            change(found)  # type: ignore[operator]  # see CHANGES
        honest(bytes(found))

    wire.send = send  # type: ignore[method-assign]  # a network that changes what it carries


@pytest.mark.parametrize("role", ["client", "worker"])
def test_what_a_peer_with_a_key_says_is_decoded_for_comparison(
    scheduler: KeyedScheduler, decoded: Path, role: str
) -> None:
    before = decoded.read_text().count("header")
    door = Door(role)
    protocol = door.admitted(scheduler, "honest")
    with Wire(scheduler, door) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.wait_for_answer(protocol)
    wait_for(lambda: decoded.read_text().count("header") > before, "a Hello to be decoded")
    assert "pickle" not in decoded.read_text()
