"""A peer and a scheduler over links that break at any time: each message arrives once and in order."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler_protocol import messages as m
from scaler_protocol.session.resumable_sessions import CannotResume, ResumableSessions, Resumed
from scaler_protocol.session.resumption import (
    BeginAnother,
    CloseSecond,
    EndSession,
    GreetOnSecond,
    LeaveSecond,
    OpenSecond,
    Resumption,
    ResumptionEffect,
    UseSecond,
)

PEER, KEY = b"peer", b"key"


class Wire:
    """A connection: what was sent arrives in order, or never."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.up: List[object] = []
        self.down: List[object] = []
        self.is_up = False


class Ends:
    """Both ends, and all connections between them. Messages are numbers; others are those of the session."""

    def __init__(self) -> None:
        self.now = 0.0
        self.effects: List[ResumptionEffect] = []
        self.resumption = Resumption(self.effects, lambda: 0.5)
        self.sessions = ResumableSessions(lambda: b"t" * 32)
        self.first = Wire(PEER)
        self.second: Optional[Wire] = None
        self.left: List[Wire] = []
        self.at_scheduler = self.first  # the connection of the session there
        self.wires: Dict[bytes, Wire] = {PEER: self.first}
        self.arrived_up: List[int] = []
        self.arrived_down: List[int] = []
        self.sent_up = self.sent_down = 0
        self.is_over = False
        hello = self.resumption.introduce(m.Hello(), True)
        self.sessions.on_hello(PEER, KEY, hello)
        welcome = self.sessions.begin(PEER, KEY, m.Welcome(session=7, heartbeat_interval_milliseconds=1000))
        self.resumption.on_message(0.0, m.Welcome(**{each: getattr(welcome, each) for each in welcome.__slots__}))

    # What they send ---------------------------------------------------------------------------------------------------

    def send_up(self, message: object = None) -> None:
        if message is None:
            self.sent_up += 1
            message = self.sent_up
        log = self.resumption.log
        assert log is not None
        log.add([repr(message).encode()])
        if not self.resumption.is_cut_off:
            self.first.up.append(message)

    def send_down(self, message: object = None) -> None:
        session = self.sessions.find(PEER)
        if message is None:
            self.sent_down += 1
            message = self.sent_down
        assert session is not None
        self.sessions.keep(session, [repr(message).encode()])
        self.at_scheduler.down.append(message)

    def beat(self) -> None:
        beat = m.Heartbeat()
        self.resumption.before_sending(beat)
        self.send_up(("count", beat.received))

    # What arrives -----------------------------------------------------------------------------------------------------

    def deliver_up(self, wire: Wire) -> None:
        message = wire.up.pop(0)
        if isinstance(message, m.Hello):
            self._on_hello(wire, message)
        elif wire is self.at_scheduler:
            session = self.sessions.find(PEER)
            assert session is not None
            session.on_received(1, 1)
            if isinstance(message, tuple):
                session.acknowledge(message[1])
                self.send_down(("count", session.count()))
            else:
                assert isinstance(message, int)
                self.arrived_up.append(message)

    def _on_hello(self, wire: Wire, hello: m.Hello) -> None:
        judgement = self.sessions.on_hello(wire.name, KEY, hello)
        assert not isinstance(judgement, CannotResume)
        if isinstance(judgement, Resumed):
            self.at_scheduler = wire
            wire.down.append(judgement.welcome)
            wire.down += [eval(bytes(frames[0])) for frames in judgement.session.log.rest()]

    def deliver_down(self, wire: Wire) -> None:
        message = wire.down.pop(0)
        if wire is self.second:
            if isinstance(message, m.Welcome):
                self.resumption.on_second_message(self.now, message)
                self.perform()
        elif wire is self.first and not self.resumption.is_cut_off:
            self.resumption.on_heard(self.now)
            self.perform()
            if isinstance(message, tuple):
                self.resumption.on_message(self.now, m.HeartbeatEcho(received=message[1]))
            else:
                assert isinstance(message, int)
                self.resumption.on_message(self.now, m.Task())
                self.arrived_down.append(message)

    # Time -------------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until something is due."""
        self.now = max(self.now, self.resumption.next_time)
        self.resumption.on_time(self.now)
        self.perform()

    def perform(self) -> None:
        while self.effects:
            effect = self.effects.pop(0)
            if isinstance(effect, OpenSecond):
                name = b"second %d" % len(self.wires)
                self.second = self.wires[name] = Wire(name)
                continue
            assert self.second is not None and not isinstance(effect, (BeginAnother, EndSession))
            if isinstance(effect, CloseSecond):
                self.second = None
            elif isinstance(effect, LeaveSecond):
                self.left.append(self.second)
                self.second = None
            elif isinstance(effect, GreetOnSecond):
                self.second.up.append(effect.hello)
            else:
                assert isinstance(effect, UseSecond)
                self.first, self.second = self.second, None
                self.first.up += [eval(bytes(frames[0])) for frames in effect.rest]

    def connect(self) -> None:
        """The second connection is up."""
        if self.second is not None and not self.second.is_up:
            self.second.is_up = True
            self.resumption.on_second_up(self.now)
            self.perform()

    def step(self, action: str, which: int) -> None:
        wires = list(self.wires.values())
        wire = wires[which % len(wires)]
        if action == "up" and wire.up:
            self.deliver_up(wire)
        elif action == "down" and wire.down:
            self.deliver_down(wire)
        elif action == "send up":
            self.send_up()
        elif action == "send down":
            self.send_down()
        elif action == "beat":
            self.beat()
        elif action == "probe":
            session = self.sessions.find(PEER)
            assert session is not None
            self.send_down(("count", session.count()))
        elif action == "wait":
            self.wait()
        elif action == "connect":
            self.connect()
        elif action == "lose":  # what is under way on a connection, and it says no more
            wire.up.clear()
            wire.down.clear()
            if wire is self.first and wire is self.at_scheduler:
                self.first = Wire(b"lost")  # neither end hears of it
                self.at_scheduler = Wire(b"lost, too")

    def settle(self) -> None:
        """Everything passes, until all has arrived."""
        for _ in range(60):
            for wire in list(self.wires.values()):
                while wire.up:
                    self.deliver_up(wire)
                while wire.down:
                    self.deliver_down(wire)
            self.connect()
            if not self._is_settled and not any(wire.up or wire.down for wire in self.wires.values()):
                self.wait()

    @property
    def _is_settled(self) -> bool:
        return len(self.arrived_up) == self.sent_up and len(self.arrived_down) == self.sent_down


ACTIONS = ("up", "up", "down", "down", "send up", "send down", "beat", "probe", "wait", "connect", "lose")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=60))
def test_each_message_arrives_once_and_in_order(steps: List[Tuple[str, int]]) -> None:
    ends = Ends()
    for action, which in steps:
        ends.step(action, which)
        assert ends.arrived_up == list(range(1, len(ends.arrived_up) + 1))
        assert ends.arrived_down == list(range(1, len(ends.arrived_down) + 1))

    ends.settle()

    assert ends.arrived_up == list(range(1, ends.sent_up + 1))
    assert ends.arrived_down == list(range(1, ends.sent_down + 1))
