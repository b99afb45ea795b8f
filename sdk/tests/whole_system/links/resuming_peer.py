"""A client or worker whose session goes on over another connection: what the shells do, around the real `Resumption`.

Rules:
- Not all peers of a history can do so; none does on the scheduler's host.
- Some Hellos have a wrong token, or one of an earlier session: then another session is granted.
- Chance is drawn apart from all other, so that histories without it stay what they are.
"""

from __future__ import annotations

from random import Random
from typing import Any, List, Optional, Tuple, Union

from whole_system.network import Connection, Network, Peer
from whole_system.simulated_world import NEVER, World

from scaler_protocol.session.resumption import (
    BeginAnother,
    CloseSecond,
    EndSession,
    GreetOnSecond,
    LeaveSecond,
    LinkState,
    OpenSecond,
    Resumption,
    ResumptionEffect,
    UseSecond,
)
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode

MOST_KEPT_BYTES = (1 << 26, 1 << 26, 20_000)
WRONG_SHARE = 0.05  # of the tokens


class ResumingPeer(Peer):
    _resumption: Resumption

    def prepare_links(self, world: World, network: Network) -> None:
        """Before anything else of it."""
        self._chance = Random(f"resume: {world.plan.seed} {self.name}")
        self.can_resume = not self.is_shared and self._chance.random() < world.rates["resume"]
        self._network = network
        self._link_effects: List[ResumptionEffect] = []
        most_bytes = self._chance.choice(MOST_KEPT_BYTES)
        self._resumption = Resumption(self._link_effects, self._chance.random, most_bytes)
        self._second: Optional[Connection] = None
        self._left: List[Connection] = []
        self._granted: Optional[Connection] = None
        self._muted: Optional[Connection] = None  # is read no more, in whichever state the session is
        self._unread: List[Tuple[Any, Tuple[bytes, bytes]]] = []  # messages, and their frames
        self._link_timer_at = NEVER
        self._is_greeted = self._is_wrong = False  # the second one: it was, with a wrong token
        self._tokens: List[bytes] = []  # of earlier sessions
        self.resumed = 0

    # What the host does ---------------------------------------------------------------------------------------------

    def connect(self, network: Network) -> None:
        granted = self._granted
        if granted is None:
            self._unread = []
            super().connect(network)
            return
        self.drop()
        self._granted = None
        self._beats = 0
        self.connection = granted
        self.after(0.0, lambda: self.on_established(granted) if self.connection is granted else None)

    def drop(self) -> None:
        if self._granted is None:
            self._unread = []
        self._resumption.end()
        self._perform_links()
        self._close_left()
        super().drop()

    def send(self, message: Any, payload: Union[bytes, bytearray, memoryview] = b"") -> None:
        resumption = self._resumption
        if isinstance(message, m.Hello):
            message = resumption.introduce(message, self.can_resume)
            self._perform_links()
            if self._unread:
                self.after(0.0, self._read_granted)
                return
        if isinstance(message, m.Heartbeat):
            self._beats += 1
        resumption.before_sending(message)
        frames = encode(message), bytes(payload)
        if resumption.log is not None:
            self._network.judge.on_sent(self.name, resumption.number, True, frames)
            resumption.log.add(frames)
        if self.connection is not None and not resumption.is_cut_off:
            self.connection.up.send(frames)

    def _read_granted(self) -> None:
        while self._unread and self.is_alive:
            self._hear(*self._unread.pop(0))

    def _hear(self, message: Any, frames: Tuple[bytes, bytes]) -> None:
        if isinstance(message, m.Welcome) and message.resume_token:
            self._tokens.append(bytes(message.resume_token))
        is_last = isinstance(message, (m.DisconnectResponse, m.Refusal))  # behind the end of the session
        if self._resumption.log is not None and not is_last:
            self._network.judge.on_arrived(self.name, self._resumption.number, False, frames)
        self._resumption.on_message(self.now, message)
        self._perform_links()
        self.on_message(message, frames[1])

    def step_clock(self, seconds: float) -> None:
        super().step_clock(seconds)
        at = self._link_timer_at
        self.after(0.0, lambda: self._on_link_time(at))

    # Connections ----------------------------------------------------------------------------------------------------

    def connections(self) -> List[Connection]:
        found = [self.connection, self._second, self._granted, *self._left]
        return [each for each in found if each is not None]

    def uses(self, connection: Connection) -> bool:
        return connection is self.connection or connection in self.connections()

    def on_established(self, connection: Connection) -> None:
        if connection is self.connection:
            self.on_connected()
        elif connection is self._second:
            self._resumption.on_second_connected(self.now)
            self._plan_links()
            self.after(self.world.delay(), lambda: self._on_second_up(connection))

    def _on_second_up(self, connection: Connection) -> None:
        if connection is self._second:
            log = self._resumption.log
            must_greet = log is not None and log.is_whole
            self._resumption.on_second_up(self.now)
            self._perform_links()
            assert self._resumption.is_cut_off or not must_greet, f"{self.name} does not use a second connection"

    def on_refused(self, connection: Connection) -> None:
        if connection is self.connection:
            super().on_refused(connection)
        else:
            self._fail(connection)

    def on_end_of(self, connection: Connection) -> None:
        if connection is not self.connection:
            self._fail(connection)
        elif not self._resumption.is_cut_off:
            super().on_end_of(connection)

    def _fail(self, connection: Connection) -> None:
        if connection is self._second:
            self._second = None
            connection.close_by_peer()
            self._resumption.on_second_failed(self.now)
            self._perform_links()
        elif connection is self._granted:
            connection.close_by_peer()
            self._granted, self._unread = None, []

    def on_arrival(self, connection: Connection, message: Any, frames: Tuple[bytes, bytes]) -> None:
        if connection is self._second:
            self._resumption.on_second_message(self.now, message)
            self._perform_links()
        elif connection is self._granted:
            self._unread.append((message, frames))
        elif connection is self.connection and connection is not self._muted:
            self._resumption.on_heard(self.now)
            if self._unread:
                self._unread.append((message, frames))
            else:
                self._hear(message, frames)

    # Resuming -------------------------------------------------------------------------------------------------------

    def _perform_links(self) -> None:
        while self._link_effects:
            self._perform_link(self._link_effects.pop(0))
        self._plan_links()

    def _perform_link(self, effect: ResumptionEffect) -> None:
        second, world = self._second, self.world
        if isinstance(effect, OpenSecond):
            world.say(self.name, "tries a second connection")
            self._second = Connection(self._network, self)
            self._is_greeted = False
            world.after(world.delay(), self._second.establish)
        elif isinstance(effect, EndSession):
            world.say(self.name, "cannot resume:", effect.reason)
            self.on_disconnected(effect.reason)
        elif second is None:
            pass
        elif isinstance(effect, CloseSecond):
            is_over = self._resumption.state is LinkState.NONE
            assert is_over or not self._is_greeted, f"{self.name} closes a connection that may have its session"
            self._second = None
            second.close_by_peer()
        elif isinstance(effect, LeaveSecond):
            self._second = None
            self._left.append(second)
        elif isinstance(effect, GreetOnSecond):
            hello = effect.hello
            right, self._is_greeted = hello.resume_token, True
            if self._chance.random() < WRONG_SHARE:
                hello.resume_token = self._chance.choice((bytes(32), self._tokens[0]))
            self._is_wrong = hello.resume_token != right
            self._muted = self.connection
            second.up.send((encode(hello), b""))
        elif isinstance(effect, UseSecond):
            self._use_second(second, effect)
        else:
            assert isinstance(effect, BeginAnother)
            self._second, self._granted, self._unread = None, second, [(effect.welcome, (encode(effect.welcome), b""))]
            self.on_disconnected("the scheduler has ended the session meanwhile")

    def _use_second(self, second: Connection, effect: UseSecond) -> None:
        self.world.say(self.name, "resumes, and sends again", len(effect.rest))
        assert not self._is_wrong, f"{self.name} has resumed its session with a wrong token"
        self.resumed += 1
        former, self.connection, self._second = self.connection, second, None
        self._close_left()
        if former is not None:
            former.close_by_peer()
        for frames in effect.rest:
            second.up.send((bytes(frames[0]), bytes(frames[1])))

    def _close_left(self) -> None:
        left, self._left = self._left, []
        for each in left:
            each.close_by_peer()

    def _plan_links(self) -> None:
        at = self._resumption.next_time
        if at != self._link_timer_at and self._resumption.state is not LinkState.NONE:
            self._link_timer_at = at
            if at < NEVER:
                self.at_own(at, lambda: self._on_link_time(at))

    def _on_link_time(self, at: float) -> None:
        if at == self._link_timer_at and self._resumption.state is not LinkState.NONE:
            self._link_timer_at = NEVER
            self._resumption.on_time(self.now)
            self._perform_links()
