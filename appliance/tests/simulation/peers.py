"""What simulated clients and workers have in common: they join, live, die and come back."""

from __future__ import annotations

from typing import Dict, Optional, Sequence

from simulation.world import CHUNK_BYTES, World, column

from scaler_appliance.core.effects import PeerError
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m

MISSING = m.ObjectResponseStatus.MISSING


class Peer:
    """A peer on a link of its own.

    A peer without session has said Hello, or is dead. A peer whose session ended says Hello again, on the same link.
    """

    role: m.Role

    def __init__(self, world: World, tenants: Sequence[str] = ()) -> None:
        """Join.

        Parameters:
            tenants: of which it may be, if this world has any.
        """
        self.world = world
        self.random = world.random
        self.link = world.open_link(self, tenants if world.has_tenants else ())
        self.session = 0
        self.era = 0  # how many of its sessions have ended, with whatever scheduler
        self.limits = m.Limits()
        self.is_alive = True
        self.is_greeting = False
        self.fetches: Dict[int, Fetch] = {}
        self.last_object = 0
        self.greet()
        world.after(self.random.random() * 2, self.beat)

    def greet(self) -> None:
        self.is_greeting = True
        self.send(self.hello())

    def hello(self) -> m.Hello:
        return m.Hello(major=PROTOCOL_MAJOR, minor_min=PROTOCOL_MINOR_MIN, minor_max=PROTOCOL_MINOR_MAX, role=self.role)

    @property
    def tenant(self) -> str:
        return self.world.tenants.get(self.link.name, "")

    def send(self, message: m.Member, payload: bytes = b"") -> None:
        if self.link.is_open:
            self.link.send_up(message, payload)

    def beat(self) -> None:
        if self.is_alive:
            if self.session:
                self.send(self.heartbeat())
            self.world.after(2.0, self.beat)

    def heartbeat(self) -> m.Heartbeat:
        return m.Heartbeat()

    def on_message(self, message: object, payload: bytes) -> None:
        if isinstance(message, m.Welcome):
            assert self.is_greeting and not self.session
            self.is_greeting = False
            self.session = message.session
            self.limits = message.limits
            self.on_joined()
        elif isinstance(message, (m.Refusal, m.DisconnectRequest)):
            self.on_refused(message)
        elif self.session:
            getattr(self, f"on_{_snake(type(message).__name__)}")(message, payload)

    def on_refused(self, message: object) -> None:
        """The session has ended; others of its messages may be refused as well before the new one begins."""
        self.end_session()
        if not self.is_greeting and isinstance(message, m.Refusal):
            self.greet()

    def on_connection_lost(self) -> None:
        """The scheduler is another one."""
        self.end_session()
        self.greet()

    def end_session(self) -> None:
        if self.session:
            self.session = 0
            self.era += 1
            self.last_object = 0
            self.fetches.clear()
            self.on_session_ended()

    def on_joined(self) -> None:
        raise NotImplementedError

    def on_session_ended(self) -> None:
        raise NotImplementedError

    def on_heartbeat(self, message: m.Heartbeat, payload: bytes) -> None:
        self.send(m.HeartbeatEcho(sequence=message.sequence))

    def on_heartbeat_echo(self, message: m.HeartbeatEcho, payload: bytes) -> None:
        pass

    def on_disconnect_response(self, message: m.DisconnectResponse, payload: bytes) -> None:
        self.die()

    # Faults ---------------------------------------------------------------------------------------------------------

    def misfortune(self) -> None:
        """Perhaps something bad happens to it now."""
        rates, world = self.world.rates, self.world
        if world.chance(rates.crash):
            self.die()
        elif world.chance(rates.pause):
            self.link.paused_until = world.now + self.random.choice((1.0, 4.0, 9.0))
        elif world.chance(rates.leave):
            self.send(m.DisconnectRequest())
            self.die()
        elif world.chance(rates.violate) and self.session:
            self.violate()

    def violate(self) -> None:
        error = PeerError(m.RefusalReason.MALFORMED, "junk")
        self.send(self.random.choice((error, m.Welcome(), m.TaskEcho())))  # type: ignore[arg-type]  # wrong on purpose

    def leave(self) -> None:
        """Say goodbye, or just be gone."""
        if self.random.random() < 0.5:
            self.send(m.DisconnectRequest())
        self.die()

    def die(self) -> None:
        if self.is_alive:
            self.is_alive = self.link.is_open = False
            self.on_died()
            self.session = 0

    def on_died(self) -> None:
        pass

    # Objects --------------------------------------------------------------------------------------------------------

    def new_object_id(self) -> int:
        self.last_object += 1
        return self.session << 40 | self.last_object

    def create(self, object_id: int, content: bytes, storage: m.ObjectStorage) -> None:
        if self.role == m.Role.CLIENT:
            self.world.all_objects.append(object_id)
        is_inline = storage == m.ObjectStorage.INLINE
        message = m.ObjectInstruction(ids=column([object_id]), sizes=column([len(content)]), storages=bytes([storage]))
        self.send(message, content if is_inline else b"")

    def delete(self, *object_ids: int) -> None:
        self.send(m.ObjectInstruction(action=m.ObjectAction.DELETE, ids=column(object_ids)))

    def fetch(self, object_id: int, size: int) -> None:
        """Ask for all bytes of an object, chunk by chunk."""
        self.fetches[object_id] = Fetch(size)
        self.send(m.ObjectRequest(id=object_id, offset=0, length=CHUNK_BYTES))

    def on_object_response(self, message: m.ObjectResponse, payload: bytes) -> None:
        fetch = self.fetches.get(message.id)
        if fetch is None:
            return
        if message.status == MISSING:
            del self.fetches[message.id]
            self.on_fetched(message.id, None)
            return
        assert message.offset == len(fetch.content)
        fetch.content += payload
        if len(fetch.content) >= fetch.size:
            assert len(fetch.content) == fetch.size
            del self.fetches[message.id]
            self.on_fetched(message.id, bytes(fetch.content))
        else:
            self.send(m.ObjectRequest(id=message.id, offset=len(fetch.content), length=CHUNK_BYTES))

    def on_fetched(self, object_id: int, content: Optional[bytes]) -> None:
        raise NotImplementedError


class Fetch:
    def __init__(self, size: int) -> None:
        self.size = size
        self.content = bytearray()


def content_of(object_id: int) -> bytes:
    """What the object with this id holds, in the whole simulation; between nothing and a few chunks."""
    return b"%x." % object_id * (object_id % 9)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
