"""Work that is done in parts, so that nothing one peer sends keeps the others waiting.

    message ──▶ reaction: done at once, or Steps ──▶ PendingWork ──▶ some steps in this call, the others in later ticks

Rules:
- The core has no clock: work is counted. A unit is about a microsecond of CPython 3.11: one change of a task, a node or
  an object, four edges of a graph, or sixteen entries of a column that is only read. The default of
  `Settings.work_per_call`, 4000 units, was chosen by measuring: see `benchmarks/large_messages.py` and ADR 0018.
- Messages of one session take effect in their order: while one of them is being worked on, the others wait. Heartbeats
  don't.
- Sessions with work take turns of equal amounts. Consequences of what has ended (nodes and tasks that become ready, or
  fail with others) alternate with the session's messages.
- What was done in later calls is reported by peer (`LateWork`), so that the shell can charge the peer for it.
- Between two steps all invariants hold. What is left of a session's messages is dropped with the session; then the
  steps that release what it held are its only work.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import chain
from typing import Callable, Deque, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.steps import PARTS_PER_CALL, Steps
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m

Reaction = Callable[[Session, object, bytes], Optional[Steps]]

UNITS_OF_A_MESSAGE = 16  # besides what its steps count


class ConnectionLost(NamedTuple):
    """Follows the last message of a worker whose connection has ended."""

    is_fault: bool


LateWork = Mapping[bytes, int]
"""What one call has done for messages of earlier calls, in units, by the peers that sent them."""

NO_LATE_WORK: LateWork = {}


class _Line:
    """What one session waits for."""

    __slots__ = ("session", "steps", "units", "consequences", "has_consequences", "messages")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.steps: Optional[Steps] = None  # of the message that is being worked on, or of the session's end
        self.units = 0  # that these steps have taken
        self.consequences: Optional[Steps] = None  # of what has ended
        self.has_consequences = False
        self.messages: Deque[Tuple[object, bytes]] = deque()

    @property
    def is_idle(self) -> bool:
        return self.steps is None and self.consequences is None and not self.messages


class PendingWork:
    """Unfinished work of all sessions.

    Parameters:
        amount: of work in one call of the core, in units.
        react: begins to work on a message.
        consequences: processes what has ended for a client.
        on_error: a session has broken the protocol, with a message on which so much work was done.
    """

    def __init__(
        self,
        amount: int,
        react: Reaction,
        consequences: Callable[[ClientSession], Steps],
        on_error: Callable[[Session, PeerError, int], None],
    ) -> None:
        self._amount = amount
        self._share = max(1, amount // PARTS_PER_CALL)
        self._left = amount
        self.units_left = amount  # by the last call of `run`
        self._react = react
        self._consequences = consequences
        self._on_error = on_error
        self._lines: OrderedDict[int, _Line] = OrderedDict()  # by session, the one whose turn it is first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def is_awaited(self, session: Session) -> bool:
        """Whether messages of the session have to wait for earlier ones."""
        line = self._lines.get(session.number)
        return line is not None and (line.steps is not None or bool(line.messages))

    def add_message(self, session: Session, message: object, payload: bytes) -> None:
        """A message has to wait."""
        self._line_of(session).messages.append((message, payload))

    def begin(self, session: Session, steps: Steps) -> None:
        """Do as much as this call may, and the rest later. A PeerError of the first steps is raised to the caller."""
        units = 0
        while self._left > 0:
            amount = next(steps, None)
            if amount is None:
                return
            self._left -= amount
            units += amount
        line = self._line_of(session)
        line.steps, line.units = steps, units

    def end(self, session: Session, steps: Steps) -> Sequence[object]:
        """The session has ended: drop its messages, and do this instead; returns the messages that were waiting."""
        line = self._lines.pop(session.number, None)
        dropped: Sequence[object] = ()
        if line is not None:
            dropped = [message for message, _ in line.messages]
            line.messages.clear()  # one of those before may have ended the session, in this line's turn
            line.steps = line.consequences = None
        self.begin(session, steps)
        return dropped

    def add(self, client: ClientSession, steps: Steps) -> None:
        """Do this in later calls, besides the client's messages."""
        line = self._line_of(client)
        line.consequences = steps if line.consequences is None else chain(line.consequences, steps)

    def run(self, advancing: Dict[int, ClientSession]) -> LateWork:
        """Work for one call, by turns; returns for whom.

        Parameters:
            advancing: clients whose tasks have ended; those whose consequences are about to be processed are removed.
        """
        self._left = self._amount
        done: Dict[bytes, int] = {}
        while (self._lines or advancing) and self._left > 0:
            while advancing:
                _, client = advancing.popitem()
                self._add_consequences(client)
            if not self._lines:
                break
            number, line = next(iter(self._lines.items()))
            self._lines.move_to_end(number)
            peer, units = line.session.peer, self._turn(line, min(self._left, self._share))
            self._left -= units
            done[peer] = done.get(peer, 0) + units
            if line.is_idle and self._lines.get(number) is line:
                del self._lines[number]
        self.units_left, self._left = self._left, self._amount  # for the messages of the next burst
        return done

    def _add_consequences(self, client: ClientSession) -> None:
        line = self._line_of(client)
        if not client.is_gone and not line.has_consequences:
            line.has_consequences = True
            self.add(client, self._processed(line, client))

    def _processed(self, line: _Line, client: ClientSession) -> Steps:
        yield from self._consequences(client)
        line.has_consequences = False

    def _turn(self, line: _Line, share: int) -> int:
        done = 0
        while done < share and not line.is_idle:
            if line.consequences is not None:
                amount = next(line.consequences, None)
                if amount is None:
                    line.consequences = None
                done += amount or 1
            if line.steps is not None or line.messages:
                done += self._step(line)
        return done

    def _step(self, line: _Line) -> int:
        """Work on the session's current message, or begin with the next one."""
        try:
            if line.steps is not None:
                amount = next(line.steps, None)
                if amount is None:
                    line.steps = None
                line.units += amount or 1
                return amount or 1
            message, payload = line.messages.popleft()
            line.units = UNITS_OF_A_MESSAGE
            line.steps = self._react(line.session, message, payload)
            return UNITS_OF_A_MESSAGE
        except (PeerError, MalformedMessageError) as error:
            line.steps = None
            is_malformed = isinstance(error, MalformedMessageError)
            fault = PeerError(m.RefusalReason.MALFORMED, str(error)) if is_malformed else error
            assert isinstance(fault, PeerError)
            self._on_error(line.session, fault, line.units)
            return UNITS_OF_A_MESSAGE

    def _line_of(self, session: Session) -> _Line:
        line = self._lines.get(session.number)
        if line is None:
            line = self._lines[session.number] = _Line(session)
        return line
