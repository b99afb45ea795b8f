"""One conversation with the implementation under test: what was sent, what came, and waiting for what should come.

    implementation ◀──socket── Transport ──▶ Conversation (one a peer): queue of messages that no case has taken
                                                 ▲ expect, fence, expect_nothing_more: the case

Rules:
- Waits are for events, with one deadline (`Settings.deadline_seconds`). No case sleeps.
- Silence is proven by a fence: a Heartbeat goes out, and all that the implementation had to say before it answered is
  there when its HeartbeatEcho is.
- Heartbeats of the other side are answered at once and by themselves, unless a case wants to see what happens if not;
  they and their echoes are kept apart from the rest.
- `expect` takes the first message that fits and leaves the others: a case that minds their order compares
  `position`, and one that minds more ends with `expect_nothing_more`.
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
_LAST_WORDS_SECONDS = 0.3  # for what is on its way when the implementation ends
_MOST_SHOWN = 6
BACKGROUND = frozenset({"Heartbeat", "HeartbeatEcho"})
"""Messages that may come at any time."""


class Transport:
    """A socket of the suite, and the conversations that it carries. Others are made of it (`peers`)."""

    is_ending = False  # the case is over: whoever says goodbye is answered

    def pump(self, seconds: float) -> bool:
        """Wait so long for a message, hand what is there to its conversations, and return whether there was any."""
        raise NotImplementedError

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        """Send one multipart message."""
        raise NotImplementedError


class Conversation:
    """One peer of the suite and one of the implementation, talking.

    Parameters:
        name: for traces, "scheduler", "client 2".
        how_it_ended: a text as soon as the implementation has ended: then nothing more is waited for.
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
        self.is_watched = False  # what answers to heartbeats say
        self.last_heartbeat: Optional[Message] = None
        self.heartbeats: List[Message] = []
        self.echoes: List[Message] = []
        self._transport = transport
        self._settings = settings
        self._log = log
        self._how_it_ended = how_it_ended
        self.first: Optional[Message] = None  # that came
        self.largest = 0  # bytes of a message that came
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
            payload: the second frame; None: there is none.
            segmented: write as many segments, and so far pointers, as can be.
            schema: another version of the protocol.
            fields: by their names in the schema; structs are dicts, enums texts.
        """
        header = schema.encode(type_, fields, segmented)
        self.send_frames(header, *([] if payload is None else [payload]))

    def send_frames(self, *frames: bytes) -> None:
        """Send frames as they are: for what no encoder would write."""
        self._log.sent(self.name, frames)
        self._transport.transmit(self, frames)

    # Receiving ------------------------------------------------------------------------------------------------------

    def arrived(self, frames: Sequence[bytes]) -> None:
        """The transport has read a message of this conversation."""
        self._log.received(self.name, frames)
        try:
            type_, fields = SCHEMA.decode(frames)
        except UnreadableMessageError as error:
            came = f"one came that cannot: {error}"
            raise Violation("messages that can be read", came, WELL_FORMED) from None
        self._arrived += 1
        message = Message(type_, fields, b"".join(frames[1:]), self._arrived)
        if len(frames) > 2:
            came = f"{len(frames)} frames came: {message}"
            raise Violation("one frame, or two with the payload", came, WELL_FORMED)
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
        """Read until `condition` is true, and return what it returned.

        Parameters:
            expected: what is waited for, for the message.

        Raises Violation when the deadline passes, or the implementation ends.
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
                raise Violation(expected, f"it did not come within {limit:g} s{self._what_else_came()}", requirement)

    def unclaimed(self) -> List[object]:
        """What has come and no case has taken."""
        return list(self._queue)

    def _what_else_came(self) -> str:
        came = self.unclaimed()
        if not came:
            return "; nothing else is there"
        shown = ", ".join(map(repr, came[:_MOST_SHOWN]))
        more = f" and {len(came) - _MOST_SHOWN} more" if len(came) > _MOST_SHOWN else ""
        return f"; what is there: {shown}{more}"

    def expect(
        self,
        *types: str,
        where: Optional[Callable[[Message], bool]] = None,
        expected: str = "",
        requirement: Optional[str] = None,
        **fields: Any,
    ) -> Message:
        """The first message of one of these types that fits, waited for if need be.

        Parameters:
            where: what else must be true of it.
            expected: what is waited for, in words; by default made of the types and fields.
            requirement: whose violation it is when none comes; by default the first of the case.
            fields: values that its fields must have.

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
        """What has come and was not taken, of these types or of any."""
        return [message for message in self._queue if not types or message.type in types]

    def fence(self, requirement: Optional[str] = None) -> None:
        """Wait until the implementation has answered all that was sent so far, and said what it had to say before."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self.send("Heartbeat", sequence=sequence)
        self.wait_until(
            lambda: any(echo.sequence == sequence for echo in self.echoes),
            f"HeartbeatEcho(sequence={sequence})",
            requirement,
        )

    def expect_none(self, *types: str, expected: str = "", requirement: Optional[str] = None) -> None:
        """Nothing of these types has come by the time that a fence is answered.

        Raises Violation.
        """
        _check_types(types)
        self.fence()
        came = self.waiting(*types)
        if came:
            raise Violation(expected or f"no {' or '.join(types)}", f"there came {came[0]!r}", requirement)

    def expect_nothing_more(
        self, but: Sequence[str] = (), expected: str = "", requirement: Optional[str] = None
    ) -> None:
        """Nothing but what the case has taken, and messages of the types `but`, has come by the next fence.

        Raises Violation.
        """
        _check_types(but)
        self.fence()
        came = [message for message in self._queue if message.type not in but]
        if came:
            raise Violation(expected or "nothing more", f"there came {came[0]!r}", requirement)

    def forget_waiting(self) -> None:
        """Drop what has come and was not taken."""
        self._queue.clear()


def check(condition: Any, expected: str, came: Any, requirement: Optional[str] = None) -> None:
    """What a case found out of what came.

    Raises Violation unless `condition` is true.
    """
    if not condition:
        raise Violation(expected, f"it was {came if isinstance(came, str) else repr(came)}", requirement)


def _check_types(types: Sequence[str]) -> None:
    unknown = [each for each in types if each not in SCHEMA.types]
    if unknown:
        raise ValueError(f"the schema has no message {unknown[0]}")


def _has(message: Message, fields: Dict[str, Any]) -> bool:
    return all(getattr(message, name) == value for name, value in fields.items())


def _described(fields: Dict[str, Any]) -> str:
    return f" with {', '.join(f'{name}={value!r}' for name, value in fields.items())}" if fields else ""
