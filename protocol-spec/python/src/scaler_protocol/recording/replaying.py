"""Repeats a recording: gives the same inputs to a new core, and compares its effects.

    Recording ──▶ Replay ─▶ core ─▶ effects ◀─compared─ digests of the recording

Rules:
- The same version with the same settings and inputs has the same effects. A difference is detected at the next digest.
- Nothing is performed: effects are compared and dropped.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from scaler_protocol.recording.recording_file import Digest, RecordedInput, Recording

Row = Dict[str, Any]
Tables = Dict[str, List[Row]]


class DivergedError(Exception):
    """The core decided differently than when it was recorded."""


class ReadsEndedError(DivergedError):
    """The core reads more by itself than it did when it was recorded."""


class CoreFailedError(Exception):
    """The core fails, as it did or did not when it was recorded."""


class Replay:
    """A core that gets the inputs of a recording, one after the other. A base class: each core has its own.

    Parameters:
        recording: read from its beginning.
    """

    def __init__(self, recording: Recording) -> None:
        self.last_input: Optional[RecordedInput] = None
        self.effects = 0  # that the core has had
        self.digests = 0  # that were compared
        self.is_past_failure = False
        """Whether it stopped within the last input: the core went on where the recorded one had failed."""
        self._recording = recording
        self._taken: Sequence[Any] = ()  # the last time when there were any

    # What each core has of its own ----------------------------------------------------------------------------------

    def repeat(self, entry: RecordedInput) -> None:
        """Give the core an input, and count what effects it has."""
        raise NotImplementedError

    def crc_of(self, effects: Sequence[Any]) -> int:
        """Of all that does not depend on the bytes of payloads."""
        raise NotImplementedError

    def tables(self) -> Tables:
        """The core's state, for display."""
        raise NotImplementedError

    @staticmethod
    def name_of(kind: int) -> str:
        """The name of a kind of input."""
        raise NotImplementedError

    @staticmethod
    def summary(recording: Recording, entry: RecordedInput) -> str:
        """The arguments of an input, on one line."""
        raise NotImplementedError

    # What all have in common ----------------------------------------------------------------------------------------

    def run(self, until: Optional[float] = None, last_number: Optional[int] = None) -> None:
        """Repeat the recording.

        Parameters:
            until: up to this time by the core's clock, in seconds.
            last_number: up to this input, counted from 1.

        Raises CoreFailedError where the core fails, and DivergedError where it decides otherwise than recorded.
        """
        records = self._recording.records()
        for time, entry in records:
            if isinstance(entry, Digest):
                self._compare(entry)
                continue
            is_past = last_number is not None and entry.number > last_number
            if is_past or (until is not None and time > until):
                return
            self.last_input = entry
            try:
                self.repeat(entry)
            except DivergedError as error:
                if isinstance(error, ReadsEndedError) and next(records, None) is None:
                    self.is_past_failure = True
                    return
                raise DivergedError(f"at input {entry.number}, {self.name_of(entry.kind)}: {error}") from error
            except CoreFailedError:
                raise
            except Exception as error:
                text = f"the core failed at {self.name_of(entry.kind)}: {type(error).__name__}: {error}"
                raise CoreFailedError(text) from error

    def count(self, effects: Sequence[Any]) -> None:
        """The core has had these effects."""
        self.effects += len(effects)
        self._taken = effects or self._taken

    def _compare(self, digest: Digest) -> None:
        self.digests += 1
        found = Digest(self.effects, len(self._taken), self.crc_of(self._taken))
        if found != digest:
            number = self.last_input.number if self.last_input is not None else 0
            raise DivergedError(
                f"at input {number} the core has decided otherwise than when it was recorded:"
                f" {found.effects} effects instead of {digest.effects},"
                f" the last {found.last} with CRC {found.crc:08x} instead of {digest.last} with {digest.crc:08x}"
            )


class Reads:
    """What a core read by itself, for a core that reads it again."""

    def __init__(self) -> None:
        self._values: List[Any] = []

    def begin(self, entry: RecordedInput) -> None:
        """What follows is read while this input is handled."""
        self._values = entry.reads[::-1]

    def next(self) -> Any:
        """Raises ReadsEndedError if the core read less when it was recorded."""
        if not self._values:
            raise ReadsEndedError("the core reads more than when it was recorded")
        return self._values.pop()

    def end(self) -> None:
        """Raises DivergedError if the core read more when it was recorded."""
        if self._values:
            raise DivergedError("the core reads less than when it was recorded")
