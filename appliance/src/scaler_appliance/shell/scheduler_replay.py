"""Repeats the recording of a scheduler: see `scaler_protocol.recording.replaying`."""

from __future__ import annotations

from collections import Counter
from typing import Sequence

from scaler_appliance.core.effects import Effect
from scaler_appliance.core.monitoring.state_tables import state_tables
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.shell.core_inputs import BrokenInvariantError, CoreInputs, InputKind
from scaler_appliance.shell.scheduler_recording import arguments_of, crc_of, settings_of
from scaler_protocol import MalformedMessageError, decode
from scaler_protocol.recording.recording_file import RecordedInput, Recording
from scaler_protocol.recording.replaying import CoreFailedError, Replay, Tables


class SchedulerReplay(Replay):
    """A scheduler's core that gets the inputs of a recording.

    Parameters:
        recording: read from its beginning.
        checks_invariants: whether the core's invariants are checked after each input, which takes time.

    Raises RecordingError if the settings in it cannot be read.
    """

    def __init__(self, recording: Recording, checks_invariants: bool = False) -> None:
        super().__init__(recording)
        self.core = SchedulerCore(settings_of(recording.header))
        self._checks_invariants = checks_invariants
        self._inputs = CoreInputs(self.core, Counter())

    def repeat(self, entry: RecordedInput) -> None:
        try:
            self._repeat(entry)
        except BrokenInvariantError as error:
            raise CoreFailedError(str(error)) from (error.__cause__ or error)
        if self._checks_invariants:
            try:
                self.core.state.check_invariants()
            except AssertionError as error:
                text = f"an invariant does not hold after {self.name_of(entry.kind)}: {error}"
                raise CoreFailedError(text) from error

    def _repeat(self, entry: RecordedInput) -> None:
        kind, arguments = InputKind(entry.kind), arguments_of(self._recording, entry)
        if kind == InputKind.FRAMES:
            self._inputs.frames(entry.time, *arguments)
        elif kind == InputKind.TICK:
            self.count(self._inputs.tick(entry.time))
        elif kind == InputKind.EFFECTS:
            self.count(self._inputs.effects(entry.time))
        else:
            self._inputs.call(kind, entry.time, *arguments)

    def crc_of(self, effects: Sequence[Effect]) -> int:
        return crc_of(effects)

    def tables(self) -> Tables:
        return state_tables(self.core.state)

    @staticmethod
    def name_of(kind: int) -> str:
        return InputKind(kind).name

    @staticmethod
    def summary(recording: Recording, entry: RecordedInput) -> str:
        arguments = arguments_of(recording, entry)
        if entry.kind != InputKind.FRAMES:
            return " ".join(each.hex() if isinstance(each, bytes) else str(each) for each in arguments)
        peer, frames = arguments
        try:
            message = decode(frames[0])
            name = type(message).__name__
            ids = getattr(message, "ids", None)
            about = f"{name} of {len(ids)} from id {ids[0]}" if ids else name
        except (MalformedMessageError, IndexError):
            about = "malformed"
        return f"{peer.hex()} {about}, {' + '.join(str(len(frame)) for frame in frames)} bytes"
