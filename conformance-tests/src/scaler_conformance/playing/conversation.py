"""One conversation with the implementation under test: what was sent and received, and waiting for what must follow.

    implementation ◀──socket── Transport ──▶ Conversation (one a peer): queue of messages that no case has taken
                                                 ▲ expect, fence, expect_nothing_more: the case

Rules:
- Waits are for events, with one deadline (`Settings.deadline_seconds`). No case sleeps.
- A fence shows that nothing else was sent: the suite sends a Heartbeat, and everything that the implementation sent
  before its HeartbeatEcho has arrived when the echo arrives.
- Heartbeats of the other side are answered at once and automatically, unless a case tests what happens otherwise. They
  and their echoes are kept apart from other messages.
- `expect` takes the first message that matches and leaves the others: a case that tests the order of messages compares
  `position`, and a case that allows no others ends with `expect_nothing_more`.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from scaler_conformance.codec.schema_codec import SCHEMA, Message, Schema, UnreadableMessageError
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.wire_log import WireLog

WELL_FORMED = "SCL-TRN-003"
_SLICE_SECONDS = 0.05
_LAST_WORDS_SECONDS = 0.3  # for messages in transit when the implementation ends
_MOST_SHOWN = 6
BACKGROUND = frozenset({"Heartbeat", "HeartbeatEcho"})
"""Messages that may come at any time."""


class Transport:
    """A socket of the suite, and the conversations over it."""

    is_ending = False  # the case is over: DisconnectRequests are answered

    def pump(self, seconds: float) -> bool:
        """Wait up to this time for a message and pass all that have arrived to their conversations; whether there were
        any.
        """
        raise NotImplementedError

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        """Send one multipart message."""
        raise NotImplementedError


class Conversation:
    """The messages between one peer of the suite and the implementation.

    Parameters:
        name: for traces, "scheduler", "client 2".
        how_it_ended: returns a text once the implementation has ended; then waits end as well.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        settings: Settings,
        log: WireLog,
        how_it_ended: Callable[[], Optional[str]],
    ) -> None:
        self.name = name
        self.answers_heartbeats = True
        self.is_watched = False  # sent in each HeartbeatEcho
        self.last_heartbeat: Optional[Message] = None
        self.heartbeats: List[Message] = []
        self.echoes: List[Message] = []
        self._transport = transport
        self._settings = settings
        self._log = log
        self._how_it_ended = how_it_ended
        self.first: Optional[Message] = None  # that arrived
        self.sent_count = 0  # messages that were sent
        self.largest = 0  # bytes of a message that arrived
        self._queue: List[Message] = []
        self._arrived = 0
        self._next_sequence = 1_000_000

    # Sending --------------------------------------------------------------------------------------------------------

    def send(
        self,
        type_: str,
        payload: Optional[bytes] = None,
        *,
        segmented: bool = False,
        schema: Schema = SCHEMA,
        **fields: Any,
    ) -> None:
        """Send a message.

        Parameters:
            payload: the second frame; None for a message without one.
            segmented: use as many segments, and so far pointers, as possible.
            schema: that of another version of the protocol.
            fields: by their names in the schema; structs are dicts, enums texts.
        """
        header = schema.encode(type_, fields, segmented)
        self.send_frames(header, *([] if payload is None else [payload]))

    def send_frames(self, *frames: bytes) -> None:
        """Send frames unchanged, including those that no encoder would write."""
        self.sent_count += 1
        self._log.sent(self.name, frames)
        self._transport.transmit(self, frames)

    # Receiving ------------------------------------------------------------------------------------------------------

    def arrived(self, frames: Sequence[bytes]) -> None:
        """Called by the transport with each message of this conversation."""
        self._log.received(self.name, frames)
        try:
            type_, fields = SCHEMA.decode(frames)
        except UnreadableMessageError as error:
            came = f"got one that cannot be read: {error}"
            raise Violation("a well-formed message", came, WELL_FORMED) from None
        self._arrived += 1
        message = Message(type_, fields, b"".join(frames[1:]), self._arrived)
        if len(frames) > 2:
            came = f"got {len(frames)} frames: {message}"
            raise Violation("a message of one frame, or of two with a payload", came, WELL_FORMED)
        self.first = self.first or message
        self.largest = max(self.largest, sum(map(len, frames)))
        self._take_in(message)

    def _take_in(self, message: Message) -> None:
        if message.type == "Heartbeat":
            self.heartbeats.append(message)
            if self.answers_heartbeats:
                self.send("HeartbeatEcho", sequence=message.sequence, isWatched=self.is_watched)
        elif message.type == "HeartbeatEcho":
            self.echoes.append(message)
        elif message.type == "DisconnectRequest" and self._transport.is_ending:
            self.send("DisconnectResponse")
        else:
            self._queue.append(message)

    # Waiting --------------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], Any], expected: str, requirement: Optional[str] = None) -> Any:
        """Read until `condition` returns something true, and return that.

        Parameters:
            expected: what is waited for, as a noun phrase for the message of the Violation.

        Raises Violation if the deadline passes or the implementation ends.
        """
        deadline = time.monotonic() + self._settings.deadline_seconds
        while True:
            found = condition()
            if found:
                return found
            ending = self._how_it_ended()
            left = deadline - time.monotonic()
            if self._transport.pump(max(0.0, min(left, _LAST_WORDS_SECONDS if ending else _SLICE_SECONDS))):
                continue
            if ending:
                raise Violation(expected, f"{ending}{self._what_else_came()}", requirement)
            if left <= 0:
                limit = self._settings.deadline_seconds
                raise Violation(expected, f"timed out after {limit:g} s{self._what_else_came()}", requirement)

    def unclaimed(self) -> List[object]:
        """What has arrived and was not taken by the case."""
        return list(self._queue)

    def _what_else_came(self) -> str:
        came = self.unclaimed()
        if not came:
            return "; no other message is unread"
        shown = ", ".join(map(repr, came[:_MOST_SHOWN]))
        more = f" and {len(came) - _MOST_SHOWN} more" if len(came) > _MOST_SHOWN else ""
        return f"; other messages: {shown}{more}"

    def expect(
        self,
        *types: str,
        where: Optional[Callable[[Message], bool]] = None,
        expected: str = "",
        requirement: Optional[str] = None,
        **fields: Any,
    ) -> Message:
        """Wait for the first message of one of these types that matches, and take it.

        Parameters:
            where: a further condition.
            expected: what is waited for, as a noun phrase; by default made of the types and fields.
            requirement: the one that is violated if none arrives; by default the first of the case.
            fields: values that the message's fields must have.

        Raises Violation.
        """
        _check_types(types)
        wanted = expected or f"{' or '.join(types)}{_described(fields)}"
        message: Message = self.wait_until(lambda: self._take(types, where, fields), wanted, requirement)
        return message

    def _take(
        self, types: Tuple[str, ...], where: Optional[Callable[[Message], bool]], fields: Dict[str, Any]
    ) -> Optional[Message]:
        for index, message in enumerate(self._queue):
            if message.type in types and (where is None or where(message)) and _has(message, fields):
                return self._queue.pop(index)
        return None

    def waiting(self, *types: str) -> List[Message]:
        """The messages of these types, or of any type, that have arrived and were not taken."""
        return [message for message in self._queue if not types or message.type in types]

    def fence(self, requirement: Optional[str] = None) -> None:
        """Wait until the implementation has read everything sent so far, and its earlier messages have arrived."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self.send("Heartbeat", sequence=sequence)
        self.wait_until(
            lambda: any(echo.sequence == sequence for echo in self.echoes),
            f"HeartbeatEcho(sequence={sequence})",
            requirement,
        )

    def expect_none(self, *types: str, expected: str = "", requirement: Optional[str] = None) -> None:
        """No message of these types may have arrived by the time a fence is answered.

        Raises Violation.
        """
        _check_types(types)
        self.fence()
        came = self.waiting(*types)
        if came:
            raise Violation(expected or f"no {' or '.join(types)}", f"got {came[0]!r}", requirement)

    def expect_nothing_more(
        self, but: Sequence[str] = (), expected: str = "", requirement: Optional[str] = None
    ) -> None:
        """Only messages of the types `but`, and those that the case has taken, may have arrived by the next fence.

        Raises Violation.
        """
        _check_types(but)
        self.fence()
        came = [message for message in self._queue if message.type not in but]
        if came:
            raise Violation(expected or "no further message", f"got {came[0]!r}", requirement)

    def forget_waiting(self) -> None:
        """Drop the messages that have arrived and were not taken."""
        self._queue.clear()


def check(condition: Any, expected: str, came: Any, requirement: Optional[str] = None) -> None:
    """Require a condition.

    Parameters:
        expected: what should be the case, as a noun phrase.
        came: what was found instead, as a noun phrase or value.

    Raises Violation unless `condition` is true.
    """
    if not condition:
        raise Violation(expected, f"got {came if isinstance(came, str) else repr(came)}", requirement)


def _check_types(types: Sequence[str]) -> None:
    unknown = [each for each in types if each not in SCHEMA.types]
    if unknown:
        raise ValueError(f"the schema has no message {unknown[0]}; it has {', '.join(SCHEMA.types)}")


def _has(message: Message, fields: Dict[str, Any]) -> bool:
    return all(getattr(message, name) == value for name, value in fields.items())


def _described(fields: Dict[str, Any]) -> str:
    return f" with {', '.join(f'{name}={value!r}' for name, value in fields.items())}" if fields else ""
