"""`scaler replay FILE`: repeat what a scheduler, worker or client has recorded, with the one that is installed here.

Rule: the file says whose recording it is. For that of a scheduler, this program becomes the scheduler's own.
"""

from __future__ import annotations

from typing import Optional, Sequence

from scaler.cluster.appliance import scheduler_command
from scaler.programs.other_programs import become
from scaler.version import __version__
from scaler_protocol.recording.recording_file import CLIENT, SCHEDULER, WORKER, Recording, RecordingError
from scaler_protocol.recording.replay_command import run_replay
from scaler_protocol.recording.replay_options import REPLAY
from scaler_protocol.recording.replaying import Replay

NAME = "scaler replay"
EXIT_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """Run the program; its exit code."""
    options = REPLAY.read(list(arguments))
    if _core_of(options.file) == SCHEDULER:
        return become(scheduler_command, ["replay", *arguments], NAME, EXIT_FAILED)
    return run_replay(options, NAME, _replay_of, __version__)


def _core_of(path: str) -> Optional[str]:
    """Whose recording it is; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return Recording(file).header.core
    except (OSError, RecordingError):
        return None


def _replay_of(recording: Recording, checks_invariants: bool) -> Replay:
    core = recording.header.core
    if core == WORKER:
        from scaler.worker.agent.shell.agent_replay import AgentReplay

        return AgentReplay(recording)
    if core == CLIENT:
        from scaler.client.shell.client_replay import ClientReplay

        return ClientReplay(recording)
    raise RecordingError(f"this is a recording of a {core}, which this version does not know")
