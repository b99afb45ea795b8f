"""Raw connections to a scheduler that requires keys: only a complete and fresh handshake gets further.

Each of them comes as a client, as a worker, and as a monitor, from a process of another user of the host.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

import pytest
from sdk_tasks import wait_for
from security.attackers.another_user import AnotherUser
from security.attackers.doors import DOORS, Door
from security.keyed_scheduler import KeyedScheduler

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.wire.secure_zmtp import ClientSecurity
from scaler_protocol.wire.zmtp import GREETING_BYTES, Zmtp, ZmtpError, greeting

TIMEOUT_SECONDS = 30.0
LOUD = b"\x01" * 70_000
at_each_door = pytest.mark.parametrize("door", DOORS, ids=str)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedScheduler]:
    """One that monitors reach by TCP, too."""
    started = KeyedScheduler(tmp_path_factory.mktemp("attacked"), "-ma", "tcp://127.0.0.2:*")
    yield started
    started.stop()


class Wire:
    """A TCP connection to a scheduler, and all that was sent and received on it."""

    def __init__(self, scheduler: KeyedScheduler, door: Door, source: str = "") -> None:
        self.door = door
        parsed = door.address(scheduler)
        self.stream = socket.create_connection((parsed.host, parsed.port), TIMEOUT_SECONDS, (source, 0))
        self.sent: List[bytes] = []
        self.heard = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *details: object) -> None:
        self.stream.close()

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        try:
            self.stream.sendall(data)
        except OSError:
            pass  # it has been closed, which `is_closed` reads

    def send_end(self) -> None:
        self.stream.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes:
        """What has come; empty at the end."""
        try:
            data = self.stream.recv(65536)
        except ConnectionResetError:
            return b""
        self.heard += data
        return data

    def is_closed(self) -> bool:
        """Waits for the end of the connection; False, or an error, if the scheduler keeps it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.receive():
            if time.monotonic() > deadline:
                return False
        return True

    def shake_hands(self, protocol: Zmtp) -> None:
        while not protocol.is_ready:
            data = protocol.take_output()
            if data:
                self.send(data)
            protocol.feed(self._receive_more())
        assert not protocol.output

    def say_hello(self, protocol: Zmtp) -> None:
        self.send(b"".join(map(bytes, protocol.encode(self.door.first_message()))))

    def wait_for_answer(self, protocol: Zmtp) -> List[bytes]:
        """The first message of the scheduler."""
        while True:
            messages = protocol.feed(self._receive_more())
            if messages:
                return messages[0]

    def _receive_more(self) -> bytes:
        data = self.receive()
        if not data:
            raise ConnectionResetError("the scheduler has closed the connection")
        return data


def sessions(scheduler: KeyedScheduler) -> int:
    return scheduler.log.count("connected, session")


@at_each_door
def test_the_honest_way_in_for_comparison(scheduler: KeyedScheduler, door: Door) -> None:
    before = sessions(scheduler)
    protocol = door.admitted(scheduler, "honest-wire")
    with Wire(scheduler, door) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.wait_for_answer(protocol)
    if door.role != "monitor":
        wait_for(lambda: sessions(scheduler) == before + 1, "the session in the log")


OPENINGS: Dict[str, bytes] = {
    "NULL": greeting(b"NULL") + b"\4\x26\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0",
    "PLAIN": greeting(b"PLAIN") + b"\4\x13\5HELLO\5alice\7letmein",
    "GSSAPI": greeting(b"GSSAPI") + LOUD,
    "CURVE, and then a message": greeting(b"CURVE") + b"\0\5hello",
    "CURVE, and then READY": greeting(b"CURVE") + b"\4\6\5READY",
    "CURVE, and then INITIATE": greeting(b"CURVE") + b"\6\0\0\0\0\0\0\2\0\x08INITIATE" + bytes(503),
    "a HELLO of zeros": greeting(b"CURVE") + b"\4\xc8\5HELLO\1\0" + bytes(192),
    "a HELLO for another key": b"",  # see below
    "a short HELLO": greeting(b"CURVE") + b"\4\x20\5HELLO\1\0" + bytes(24),
    "a large command": greeting(b"CURVE") + b"\6\0\0\0\0\0\2\0\0" + LOUD,
    "another protocol": b"GET / HTTP/1.1\r\nHost: scheduler\r\n\r\n",
    "ZMTP 1.0": b"\x01\x00" + LOUD,
}


@at_each_door
@pytest.mark.parametrize("name", OPENINGS)
def test_other_openings_close_the_connection(
    scheduler: KeyedScheduler, another_user: AnotherUser, name: str, door: Door
) -> None:
    before = sessions(scheduler)
    opening = OPENINGS[name]
    if not opening:
        sodium = load_sodium()
        other = door.end(ClientSecurity(sodium, sodium.new_keys(), sodium.new_keys().public))
        opening = other.take_output()
        other.feed(greeting(b"CURVE", True))
        opening += other.take_output()
    with another_user.starts(Wire, scheduler, door) as wire:
        wire.send(opening)
        assert wire.is_closed()
        assert b"READY" not in wire.heard and b"Socket-Type" not in wire.heard
    assert sessions(scheduler) == before


def recorded(scheduler: KeyedScheduler, door: Door, name: str) -> List[bytes]:
    """What an honest peer has sent: greeting, HELLO, INITIATE, and its first message."""
    protocol = door.admitted(scheduler, name)
    with Wire(scheduler, door) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.wait_for_answer(protocol)
        if door.role != "monitor":
            scheduler.wait_for_log(f"with the key '{name}-{door.role}'")
        return wire.sent


@at_each_door
def test_a_recorded_connection_is_of_no_use(scheduler: KeyedScheduler, another_user: AnotherUser, door: Door) -> None:
    sent = recorded(scheduler, door, "recorded")
    before = sessions(scheduler)
    with another_user.starts(Wire, scheduler, door) as wire:
        wire.send(b"".join(sent))
        assert wire.is_closed()
        assert b"READY" not in wire.heard
    assert sessions(scheduler) == before


@at_each_door
def test_a_connection_that_was_recorded_before_a_restart_is_of_no_use_after_it(
    tmp_path: Path, another_user: AnotherUser, door: Door
) -> None:
    scheduler = KeyedScheduler(tmp_path, "-ma", "tcp://127.0.0.2:*")
    try:
        sent = recorded(scheduler, door, "recorded")
        scheduler.kill()
        scheduler.start()
        before = sessions(scheduler)
        with another_user.starts(Wire, scheduler, door) as wire:
            wire.send(b"".join(sent))
            assert wire.is_closed()
            assert b"READY" not in wire.heard
        assert sessions(scheduler) == before
    finally:
        scheduler.stop()


def initiate_changed(data: bytearray) -> None:
    data[len(data) // 2] ^= 1


def tag_changed(data: bytearray) -> None:
    data[-1] ^= 0x80


def cookie_changed(data: bytearray) -> None:
    data[data.index(b"INITIATE") + 8] ^= 1


CHANGES: Dict[str, Tuple[str, Callable[[bytearray], None]]] = {
    "the HELLO": ("HELLO", initiate_changed),
    "the tag of the HELLO": ("HELLO", tag_changed),
    "the INITIATE": ("INITIATE", initiate_changed),
    "the tag of the INITIATE": ("INITIATE", tag_changed),
    "the cookie": ("INITIATE", cookie_changed),
    "the first message": ("MESSAGE", initiate_changed),
    "the tag of the first message": ("MESSAGE", tag_changed),
}


@at_each_door
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_on_its_way_closes_the_connection(
    scheduler: KeyedScheduler, another_user: AnotherUser, what: str, door: Door
) -> None:
    before = sessions(scheduler)
    command, change = CHANGES[what]
    protocol = door.admitted(scheduler, f"changed-{what.replace(' ', '-')}")

    def attack() -> bool:
        with Wire(scheduler, door) as wire:
            honest = wire.send

            def send(data: bytes) -> None:
                found = bytearray(data)
                if command.encode() in data:
                    change(found)
                honest(bytes(found))

            wire.send = send  # type: ignore[method-assign]  # a network that changes what it carries
            try:
                wire.shake_hands(protocol)
                wire.say_hello(protocol)
            except Exception:
                assert command != "MESSAGE"
            return wire.is_closed()

    assert another_user.runs(attack)
    assert sessions(scheduler) == before


@at_each_door
def test_a_message_that_is_sent_twice_closes_the_connection(
    scheduler: KeyedScheduler, another_user: AnotherUser, door: Door
) -> None:
    protocol = door.admitted(scheduler, "twice")
    before = scheduler.log.count("a sealed frame was repeated")

    def attack() -> bool:
        with Wire(scheduler, door) as wire:
            wire.shake_hands(protocol)
            wire.say_hello(protocol)
            wire.send(wire.sent[-1])
            return wire.is_closed()

    assert another_user.runs(attack)
    wait_for(lambda: scheduler.log.count("a sealed frame was repeated") > before, "the reason in the log")


@at_each_door
@pytest.mark.parametrize("count", [10, GREETING_BYTES, GREETING_BYTES + 100, GREETING_BYTES + 202 + 100])
def test_a_connection_that_ends_in_the_handshake_leaves_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, count: int, door: Door
) -> None:
    sent = recorded(scheduler, door, f"cut-{count}")
    before = sessions(scheduler)
    with another_user.starts(Wire, scheduler, door) as wire:
        wire.send(b"".join(sent)[:count])
        wire.send_end()
        assert wire.is_closed()
    assert sessions(scheduler) == before


def test_a_handshake_that_stops_is_given_up(scheduler: KeyedScheduler, another_user: AnotherUser) -> None:
    def attack() -> bool:
        wires = [Wire(scheduler, door) for door in DOORS]
        for wire in wires:
            wire.send(greeting(b"CURVE"))
        return all(wire.is_closed() for wire in wires)

    assert another_user.runs(attack)


@at_each_door
def test_honest_peers_connect_beside_callers_that_do_nothing(
    scheduler: KeyedScheduler, another_user: AnotherUser, door: Door
) -> None:
    protocol = door.admitted(scheduler, "beside-callers")
    with another_user.starts(IdleCallers, scheduler, door, 300), Wire(scheduler, door) as honest:
        honest.shake_hands(protocol)
        honest.say_hello(protocol)
        honest.wait_for_answer(protocol)


class IdleCallers:
    """They send a part of their greeting, and nothing more."""

    def __init__(self, scheduler: KeyedScheduler, door: Door, count: int) -> None:
        self._wires = [Wire(scheduler, door) for _ in range(count)]
        for number, wire in enumerate(self._wires):
            wire.send(greeting(b"CURVE")[: 1 + number % GREETING_BYTES])


@at_each_door
def test_honest_peers_connect_beside_a_flood_of_handshakes_from_elsewhere(
    scheduler: KeyedScheduler, another_user: AnotherUser, door: Door
) -> None:
    """Each of them costs the scheduler the arithmetic of a HELLO, and comes again as soon as it is refused."""
    protocol = door.admitted(scheduler, "beside-handshakes")
    server_key = scheduler.keys.server_key_pairs()[0].public
    with another_user.starts(Flood, scheduler, door, server_key) as flood:
        flood.wait_until_refused(20)
        with Wire(scheduler, door, source="127.0.0.8") as honest:
            honest.shake_hands(protocol)
            honest.say_hello(protocol)
            honest.wait_for_answer(protocol)


class Flood:
    """Four callers that repeat a handshake with keys that are not admitted, until their process ends."""

    def __init__(self, scheduler: KeyedScheduler, door: Door, server_key: bytes) -> None:
        self._scheduler, self._door, self._server_key = scheduler, door, server_key
        self._refused = threading.Semaphore(0)
        for _ in range(4):
            threading.Thread(target=self._flood, daemon=True).start()

    def _flood(self) -> None:
        sodium = load_sodium()
        while True:
            security = ClientSecurity(sodium, sodium.new_keys(), self._server_key)
            with suppress(OSError, ZmtpError), Wire(self._scheduler, self._door, source="127.0.0.7") as wire:
                wire.shake_hands(self._door.end(security))
            self._refused.release()

    def wait_until_refused(self, count: int) -> None:
        for _ in range(count):
            assert self._refused.acquire(timeout=TIMEOUT_SECONDS)
