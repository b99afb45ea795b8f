"""Workers that a test plays, and what they and others do at the data address of another worker."""

from __future__ import annotations

from array import array
from typing import Any, List, NamedTuple, Sequence, Tuple

from security.keyed_peer import KeyedPeer
from security.test_attackers import Wire

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import Address, parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_file import KeyFile
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH
from scaler_protocol.wire.curve import KeyPair
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp

FEATURES = [KEPT_RESULTS, PEER_FETCH]
NOWHERE = "tcp://127.0.0.2:1"  # the data address of who serves no one
LIMIT_BYTES = 1 << 24


class Holder(NamedTuple):
    """A worker that serves others."""

    address: str
    key: bytes


class DataDoor(NamedTuple):
    """Where callers come in at a worker: see `Door`.

    Attributes:
        request: the first thing that they say there.
    """

    request: bytes

    def address(self, holder: Holder) -> Address:
        return parse_address(holder.address)

    def end(self, security: ClientSecurity) -> SecureZmtp:
        return SecureZmtp(security, "DEALER", LIMIT_BYTES)

    def first_message(self) -> List[bytes]:
        return [self.request]


def request_for(object_id: int, ticket: bytes, length: int = 1 << 20) -> DataDoor:
    """The door of a caller that requests the beginning of an object."""
    return DataDoor(bytes(encode(m.ObjectRequest(id=object_id, offset=0, length=length, ticket=ticket))))


def secured(holder: Holder, keys: KeyPair) -> SecureZmtp:
    """A caller's end."""
    return SecureZmtp(ClientSecurity(load_sodium(), keys, holder.key), "DEALER", LIMIT_BYTES)


def wire_to(holder: Holder, door: DataDoor, source: str = "") -> Wire:
    """A connection to a data address."""
    return Wire(holder, door, source)  # type: ignore[arg-type]  # a holder, at the door of a holder


class Caller:
    """A connection to a data address, in which the handshake is done.

    Parameters:
        source: the address of this end.
    """

    def __init__(self, holder: Holder, keys: KeyPair, door: DataDoor, source: str = "") -> None:
        self.wire = wire_to(holder, door, source)
        self._protocol = secured(holder, keys)
        try:
            self.wire.shake_hands(self._protocol)
        except BaseException:
            self.wire.stream.close()
            raise

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *details: object) -> None:
        self.wire.stream.close()

    def say(self) -> None:
        """Say what the door is for."""
        self.wire.say_hello(self._protocol)

    def ask(self) -> Tuple[Any, bytes]:
        """Say what the door is for; returns the answer, with its payload."""
        self.say()
        return self.answer()

    def answer(self) -> Tuple[Any, bytes]:
        """What is said next, with its payload."""
        header, *payload = self.wire.wait_for_answer(self._protocol)
        return decode(bytes(header)), bytes(payload[0]) if payload else b""

    def is_closed(self) -> bool:
        return self.wire.is_closed()


class Callers:
    """Several of them, each with keys and a door."""

    def __init__(self, holder: Holder, keys: Sequence[KeyPair], doors: Sequence[DataDoor]) -> None:
        self._callers = [Caller(holder, *each) for each in zip(keys, doors)]

    def ask(self) -> List[Tuple[Any, bytes]]:
        """What each of them is answered."""
        return [caller.ask() for caller in self._callers]


class PlayedWorker(KeyedPeer):
    """A worker that keeps its results, and says that it serves others.

    Parameters:
        data_address: where.
        fields: of its Hello.
    """

    def __enter__(self) -> PlayedWorker:
        return self

    def __init__(self, address: str, key: KeyFile, data_address: str = NOWHERE, **fields: Any) -> None:
        self.key = key
        fields.update(features=FEATURES, data_address=data_address, data_key=key.keys.public, queue_size=1)
        super().__init__(address, key, **fields)

    def announced(self) -> int:
        """The object that other workers have, and a task here needs."""
        while True:
            message, _ = self.take(m.ObjectInstruction)
            if m.ObjectStorage.HELD in message.storages:
                return int(message.ids[message.storages.index(m.ObjectStorage.HELD)])

    def ticket(self, object_id: int) -> m.Ticket:
        """A new one for an object."""
        self.send(m.TicketRequest(id=object_id))
        return self.take(m.Ticket)[0]

    def keep(self, content_bytes: int, codec: str = "cloudpickle") -> int:
        """Wait for a task, and finish it with a result of so many bytes that stays here; returns the object."""
        task, _ = self.take(m.Task)
        object_id = self.session << 40 | 1
        instruction = m.ObjectInstruction(
            ids=array("Q", [object_id]),
            sizes=array("Q", [content_bytes]),
            storages=bytes([m.ObjectStorage.KEPT]),
            codec=codec,
        )
        self.send(instruction)
        result = m.TaskResult(
            ids=array("Q", [task.ids[0]]),
            statuses=bytes([m.TaskStatus.SUCCESS]),
            payload_sizes=array("I", [0]),
            codec=codec,
            objects=array("Q", [object_id]),
        )
        self.send(result)
        return object_id
