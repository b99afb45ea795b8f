"""Raw connections to a scheduler that requires keys: only a complete and fresh handshake gets further."""

from __future__ import annotations

import socket
from typing import Callable, Dict, List, Tuple

import pytest
from security.keyed_scheduler import KeyedScheduler

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import read_key_file
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import GREETING_BYTES, Zmtp, greeting

TIMEOUT_SECONDS = 30.0
HELLO = m.Hello(
    major=PROTOCOL_MAJOR,
    minor_min=PROTOCOL_MINOR_MIN,
    minor_max=PROTOCOL_MINOR_MAX,
    role=m.Role.CLIENT,
    host="elsewhere",
    name="attacker",
)
LOUD = b"\x01" * 70_000


class Wire:
    """A TCP connection to a scheduler, and all that was sent and received on it."""

    def __init__(self, scheduler: KeyedScheduler) -> None:
        parsed = parse_address(scheduler.address)
        self.stream = socket.create_connection((parsed.host, parsed.port), TIMEOUT_SECONDS)
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

    def receive(self) -> bytes:
        """What has come; empty at the end."""
        try:
            data = self.stream.recv(65536)
        except ConnectionResetError:
            return b""
        self.heard += data
        return data

    def is_closed(self) -> bool:
        """Waits for the end of the connection; times out if the scheduler keeps it."""
        while self.receive():
            pass
        return True

    def shake_hands(self, protocol: Zmtp) -> None:
        while not protocol.is_ready:
            data = protocol.take_output()
            if data:
                self.send(data)
            protocol.feed(self.receive())
        assert not protocol.output

    def say_hello(self, protocol: Zmtp) -> None:
        self.send(b"".join(map(bytes, protocol.encode([encode(HELLO)]))))


def admitted(scheduler: KeyedScheduler, name: str) -> SecureZmtp:
    """The client's end with a key that is admitted."""
    key = read_key_file(str(scheduler.admitted_key("client", name)))
    return SecureZmtp(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]), "DEALER", 1 << 20)


def sessions(scheduler: KeyedScheduler) -> int:
    return scheduler.log.count("connected, session")


def test_the_honest_way_in_for_comparison(scheduler: KeyedScheduler) -> None:
    before = sessions(scheduler)
    protocol = admitted(scheduler, "honest-wire")
    with Wire(scheduler) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        while not (messages := protocol.feed(wire.receive())):
            pass
    assert messages
    scheduler.wait_for_log("with the key 'honest-wire'")
    assert sessions(scheduler) == before + 1


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


@pytest.mark.parametrize("name", OPENINGS)
def test_other_openings_close_the_connection(scheduler: KeyedScheduler, name: str) -> None:
    before = sessions(scheduler)
    opening = OPENINGS[name]
    if not opening:
        sodium = load_sodium()
        other = SecureZmtp(ClientSecurity(sodium, sodium.new_keys(), sodium.new_keys().public), "DEALER", 1 << 20)
        opening = other.take_output()
        other.feed(greeting(b"CURVE", True))
        opening += other.take_output()
    with Wire(scheduler) as wire:
        wire.send(opening)
        assert wire.is_closed()
        assert b"READY" not in wire.heard and b"Socket-Type" not in wire.heard
    assert sessions(scheduler) == before


def recorded(scheduler: KeyedScheduler, name: str) -> List[bytes]:
    """What an honest client has sent: greeting, HELLO, INITIATE, and its first message."""
    protocol = admitted(scheduler, name)
    with Wire(scheduler) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        while not protocol.feed(wire.receive()):
            pass
        scheduler.wait_for_log(f"with the key '{name}'")
        return wire.sent


def test_a_recorded_connection_is_of_no_use(scheduler: KeyedScheduler) -> None:
    sent = recorded(scheduler, "recorded")
    before = sessions(scheduler)
    with Wire(scheduler) as wire:
        wire.send(b"".join(sent))
        assert wire.is_closed()
    assert sessions(scheduler) == before


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


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_on_its_way_closes_the_connection(scheduler: KeyedScheduler, what: str) -> None:
    before = sessions(scheduler)
    command, change = CHANGES[what]
    protocol = admitted(scheduler, f"changed-{what.replace(' ', '-')}")
    with Wire(scheduler) as wire:
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
        assert wire.is_closed()
    assert sessions(scheduler) == before


def test_a_message_that_is_sent_twice_closes_the_connection(scheduler: KeyedScheduler) -> None:
    protocol = admitted(scheduler, "twice")
    with Wire(scheduler) as wire:
        wire.shake_hands(protocol)
        wire.say_hello(protocol)
        wire.send(wire.sent[-1])
        assert wire.is_closed()
    scheduler.wait_for_log("a sealed frame was repeated")


@pytest.mark.parametrize("count", [10, GREETING_BYTES, GREETING_BYTES + 100, GREETING_BYTES + 202 + 100])
def test_a_connection_that_ends_in_the_handshake_leaves_nothing(scheduler: KeyedScheduler, count: int) -> None:
    sent = recorded(scheduler, f"cut-{count}")
    before = sessions(scheduler)
    with Wire(scheduler) as wire:
        wire.send(b"".join(sent)[:count])
        wire.stream.shutdown(socket.SHUT_WR)
        assert wire.is_closed()
    assert sessions(scheduler) == before


def test_a_handshake_that_stops_is_given_up(scheduler: KeyedScheduler) -> None:
    with Wire(scheduler) as wire:
        wire.send(greeting(b"CURVE"))
        assert wire.is_closed()


def test_honest_peers_connect_beside_callers_that_do_nothing(scheduler: KeyedScheduler) -> None:
    key_file = scheduler.admitted_key("client", "beside-callers")
    wires = [Wire(scheduler) for _ in range(300)]
    try:
        for number, wire in enumerate(wires):
            wire.send(greeting(b"CURVE")[: 1 + number % GREETING_BYTES])
        with scheduler.client(key_file) as client:
            client.info()
    finally:
        for wire in wires:
            wire.stream.close()
