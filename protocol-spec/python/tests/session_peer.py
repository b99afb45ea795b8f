"""A session of a peer, driven by a test: its clock, and what it has asked for."""

from __future__ import annotations

from typing import Any, List, Type, TypeVar

from scaler_protocol import messages as m
from scaler_protocol.session.effects import Connect, Opened, SessionEffect, Transmit
from scaler_protocol.session.peer_session import PeerSession, SessionSettings

Kind = TypeVar("Kind")


class Peer:
    """A session, its clock, and what it has asked for."""

    def __init__(self, role: m.Role = m.Role.WORKER, **settings: Any) -> None:
        self.effects: List[SessionEffect] = []
        self.now = 100.0
        chosen = SessionSettings(**{"heartbeat_interval_seconds": 2.0, "give_up_seconds": 60.0, **settings})
        self.session = PeerSession(m.Hello(role=role), chosen, self.effects, lambda now: m.Heartbeat(), lambda: 0.5)

    def take(self) -> List[SessionEffect]:
        taken, self.effects[:] = list(self.effects), []
        return taken

    def sent(self) -> List[m.Member]:
        """The messages sent since the last look; anything else asked for is an error."""
        taken = self.take()
        assert all(isinstance(each, Transmit) for each in taken), taken
        return [each.message for each in taken if isinstance(each, Transmit)]

    def hear(self, message: m.Message) -> bool:
        return self.session.on_message(self.now, message)

    def sleep(self, seconds: float) -> None:
        """Time goes by; the session is called as often as it wants to be."""
        end = self.now + seconds
        while self.session.next_time <= end:
            self.now = max(self.now, self.session.next_time)
            before = (self.session.next_time, len(self.effects))
            self.session.on_time(self.now)
            assert (self.session.next_time, len(self.effects)) != before, "it asked to be called, and did nothing"
        self.now = end

    def started(self) -> Peer:
        """Its first attempt to connect failed."""
        self.session.start(self.now)
        self.session.on_connect_failed(self.now, "connection refused")
        self.take()
        return self

    def greeting(self) -> Peer:
        self.session.start(self.now)
        assert self.take() == [Connect()]
        self.session.on_connected(self.now)
        assert [type(message) for message in self.sent()] == [m.Hello]
        return self

    def opened(self, session: int = 7, **welcome: Any) -> Peer:
        self.greeting()
        self.hear(m.Welcome(session=session, **welcome))
        assert [type(effect) for effect in self.take()] == [Opened]
        self.session.on_time(self.now)
        assert [type(message) for message in self.sent()] == [m.Heartbeat]
        return self

    def asking(self) -> Peer:
        self.opened().session.ask_to_drain(m.DrainCause.SIGNAL, "SIGTERM")
        self.take()
        return self

    def draining(self) -> Peer:
        assert self.opened().hear(m.DisconnectRequest(reason=m.DisconnectReason.DRAINING))
        return self

    def leaving(self) -> Peer:
        self.opened().session.leave(self.now)
        self.take()
        return self

    def ended(self) -> Peer:
        self.leaving().hear(m.DisconnectResponse())
        self.take()
        return self


def only(kind: Type[Kind], effects: List[SessionEffect]) -> Kind:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found
