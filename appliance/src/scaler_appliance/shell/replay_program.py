"""`scaler_scheduler replay FILE`: see `scaler_protocol.recording.replay_command`."""

from __future__ import annotations

from typing import List, Optional

from scaler_appliance import __version__
from scaler_appliance.shell.scheduler_replay import SchedulerReplay
from scaler_protocol.recording.recording_file import SCHEDULER, Recording, RecordingError
from scaler_protocol.recording.replay_command import run_replay
from scaler_protocol.recording.replay_options import REPLAY


def main(arguments: Optional[List[str]] = None, name: str = "scaler_scheduler replay") -> int:
    """Run the program; returns its exit code."""
    return run_replay(REPLAY.read(arguments, name), name, _replay_of, __version__)


def _replay_of(recording: Recording, checks_invariants: bool) -> SchedulerReplay:
    if recording.header.core != SCHEDULER:
        raise RecordingError(f"this is a recording of a {recording.header.core}: repeat it by `scaler replay`")
    return SchedulerReplay(recording, checks_invariants)
