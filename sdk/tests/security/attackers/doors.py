"""Where peers of each role come in at a scheduler, and what the first thing is that they say there."""

from __future__ import annotations

from typing import List, NamedTuple

from security.keyed_scheduler import KeyedScheduler

from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import Address, parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import read_key_file
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import property_of

LIMIT_BYTES = 1 << 20


class _Subscriber(SecureZmtp):
    """A monitor's end, which Scaler leaves to libzmq elsewhere."""

    def _metadata(self) -> bytes:
        return property_of(b"Socket-Type", b"SUB")

    def _take_metadata(self, data: bytes) -> None:
        assert b"XPUB" in data
        self.is_ready = True


class Door(NamedTuple):
    """
    Attributes:
        role: of a key that opens it.
    """

    role: str

    def __str__(self) -> str:
        return self.role

    def address(self, scheduler: KeyedScheduler) -> Address:
        """Parameters:
        scheduler: one whose monitors come by TCP, too.
        """
        return parse_address(scheduler.monitor_address if self.role == "monitor" else scheduler.address)

    def admitted(self, scheduler: KeyedScheduler, name: str) -> SecureZmtp:
        """The peer's end with a key that is admitted."""
        key = read_key_file(str(scheduler.admitted_key(self.role, f"{name}-{self.role}")))
        return self.end(ClientSecurity(load_sodium(), key.keys, key.server_keys[0]))

    def end(self, security: ClientSecurity) -> SecureZmtp:
        """The peer's end with other keys."""
        return (_Subscriber if self.role == "monitor" else SecureZmtp)(security, "DEALER", LIMIT_BYTES)

    def first_message(self) -> List[bytes]:
        """What is answered, if anything is: a Hello, or a subscription to the status."""
        if self.role == "monitor":
            return [b"\1status"]
        hello = m.Hello(
            major=PROTOCOL_MAJOR,
            minor_min=PROTOCOL_MINOR_MIN,
            minor_max=PROTOCOL_MINOR_MAX,
            role=m.Role.WORKER if self.role == "worker" else m.Role.CLIENT,
            host="elsewhere",
            name="attacker",
            slots=1,
        )
        return [bytes(encode(hello))]


DOORS = [Door("client"), Door("worker"), Door("monitor")]
