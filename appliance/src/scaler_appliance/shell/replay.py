"""Repeats a recording: the same inputs to a new core, and a comparison of what it decides.

    Recording ──▶ Replay: CoreInputs ─▶ SchedulerCore ─▶ effects ◀─compared─ digests of the recording

Rules:
- The same version with the same settings and inputs decides the same. Anything else is found at the next digest.
- Nothing is performed: effects are compared and dropped.
"""

from __future__ import annotations

from collections import Counter
from typing import List, Optional

from scaler_appliance.core.effects import Effect
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.shell.core_inputs import BrokenInvariantError, CoreInputs, InputKind
from scaler_appliance.shell.recording import Digest, Input, Recording, crc_of


class DivergedError(Exception):
    """The core decides otherwise than it did when it was recorded."""


class Replay:
    """A core that gets the inputs of a recording, one after the other.

    Parameters:
        recording: read from its beginning.
        checks_invariants: whether the core's invariants are checked after each input, which takes time.
    """

    def __init__(self, recording: Recording, checks_invariants: bool = False) -> None:
        self.core = SchedulerCore(recording.header.settings)
        self.last_input: Optional[Input] = None
        self.effects = 0  # that the core has had
        self.digests = 0  # that were compared
        self._recording = recording
        self._checks_invariants = checks_invariants
        self._inputs = CoreInputs(self.core, Counter())
        self._taken: List[Effect] = []  # the last time when there were any

    def run(self, until: Optional[float] = None, last_number: Optional[int] = None) -> None:
        """Repeat what is recorded.

        Parameters:
            until: up to this time by the core's clock, in seconds.
            last_number: up to this input, counted from 1.

        Raises BrokenInvariantError where the core fails, and DivergedError where it decides otherwise than recorded.
        """
        for time, entry in self._recording.records():
            if isinstance(entry, Digest):
                self._compare(entry)
                continue
            is_past = last_number is not None and entry.number > last_number
            if is_past or (until is not None and time > until):
                return
            self.last_input = entry
            self._repeat(entry)

    def _repeat(self, entry: Input) -> None:
        if entry.kind == InputKind.FRAMES:
            self._inputs.frames(entry.time, *entry.arguments)
        elif entry.kind == InputKind.TICK:
            self._count(self._inputs.tick(entry.time))
        elif entry.kind == InputKind.EFFECTS:
            self._count(self._inputs.effects(entry.time))
        else:
            self._inputs.call(entry.kind, entry.time, *entry.arguments)
        if self._checks_invariants:
            try:
                self.core.state.check_invariants()
            except AssertionError as error:
                raise BrokenInvariantError(f"an invariant does not hold after {entry.kind.name}: {error}") from error

    def _count(self, effects: List[Effect]) -> None:
        self.effects += len(effects)
        self._taken = effects or self._taken

    def _compare(self, digest: Digest) -> None:
        self.digests += 1
        found = Digest(self.effects, len(self._taken), crc_of(self._taken))
        if found != digest:
            number = self.last_input.number if self.last_input is not None else 0
            raise DivergedError(
                f"at input {number} the core has decided otherwise than when it was recorded:"
                f" {found.effects} effects instead of {digest.effects},"
                f" the last {found.last} with CRC {found.crc:08x} instead of {digest.last} with {digest.crc:08x}"
            )
