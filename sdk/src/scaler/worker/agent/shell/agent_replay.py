"""Repeats the recording of a worker's agent: see `scaler_protocol.recording.replaying`."""

from __future__ import annotations

from typing import Any, List, Sequence

from scaler.values.code_notes import CodeNote
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.agent_identity import AgentIdentity, Chance
from scaler.worker.agent.core.effects import Effect
from scaler.worker.agent.core.heartbeats import ProcessUsage
from scaler.worker.agent.shell.agent_recording import INPUTS, PLACE_OF_NOW, crc_of
from scaler.worker.frames import Frame
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import decode
from scaler_protocol.recording.recording_file import RecordedInput, Recording, RecordingError, decode_body
from scaler_protocol.recording.replaying import Reads, Replay, Tables


class _ReplayedEntry:
    """An entry of the progress page that says what it said when it was recorded."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def __getitem__(self, index: int) -> Any:
        return self._reads.next()

    def __setitem__(self, index: int, value: int) -> None:
        pass


class AgentReplay(Replay):
    """An agent's core that gets the inputs of a recording.

    Parameters:
        recording: read from its beginning.

    Raises RecordingError if the settings in it cannot be read.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._reads = Reads()
        made_with = recording.header.settings
        try:
            settings = _settings_of(made_with["settings"])
            identity = AgentIdentity(**made_with["identity"])
        except (KeyError, TypeError) as error:
            raise RecordingError(f"the beginning of the recording cannot be read: {error}") from error
        self.core = AgentCore(
            settings,
            identity,
            self._entry,
            lambda *_: bytes(self._reads.next()),
            Chance(lambda: float(self._reads.next()), iter(lambda: int(self._reads.next()), None)),
        )

    def _entry(self, number: int) -> Any:
        return _ReplayedEntry(self._reads)

    def repeat(self, entry: RecordedInput) -> None:
        name = self.name_of(entry.kind)
        self._reads.begin(entry)
        result = getattr(self.core, name)(*arguments_of(self._recording, entry))
        self._reads.end()
        if name == "take_effects":
            self.count(result)

    def crc_of(self, effects: Sequence[Effect]) -> int:
        return crc_of(effects)

    @staticmethod
    def name_of(kind: int) -> str:
        return INPUTS[kind - 1]

    @staticmethod
    def summary(recording: Recording, entry: RecordedInput) -> str:
        name, found = AgentReplay.name_of(entry.kind), arguments_of(recording, entry)
        if name in PLACE_OF_NOW:
            del found[PLACE_OF_NOW[name]]
        if name == "on_message":
            message, payload = found
            ids = getattr(message, "ids", None)
            about = f" of {len(ids)} from id {ids[0]}" if ids else ""
            return f"{type(message).__name__}{about}, {len(payload)} bytes"
        if name == "on_frames":
            number, received = found
            return f"{number} " + ", ".join(f"kind {frame.kind} of {len(frame.body)} bytes" for frame in received)
        return " ".join(f"{len(each)} bytes" if isinstance(each, bytes) else str(each) for each in found)

    # The state ------------------------------------------------------------------------------------------------------

    def tables(self) -> Tables:
        core = self.core
        tasks, objects, session = core.tasks, core.objects, core.session
        return {
            "worker": [
                {
                    "session": session.number,
                    "state": session.state.name.lower(),
                    "queued": tasks.queue.count,
                    "waiting_for_objects": tasks.waiting.count,
                    "busy": tasks.pool.busy,
                    "suspended": tasks.pool.suspended,
                    "is_empty": tasks.is_empty,
                    "effects_to_be_done": len(core.effects),
                    "next_time": core.next_time,
                }
            ],
            "processors": [
                {
                    "number": state.number,
                    "process": state.process_id,
                    "chunks": len(state.chunks),
                    "tasks_without_outcome": state.outstanding,
                    "next_position": state.next_position,
                    "objects": len(state.defined),
                    "suspended": state.suspended,
                    "killed": state.killed,
                }
                for state in tasks.pool.states()
            ],
            "objects": [{"id": f"{each:x}", "place": place} for each, place in objects.places().items()],
        }


def _settings_of(fields: Any) -> WorkerSettings:
    found = dict(fields)
    for name in ("names", "functions", "capabilities"):
        found[name] = tuple(tuple(each) if isinstance(each, list) else each for each in found[name])
    return WorkerSettings(**found)


def arguments_of(recording: Recording, entry: RecordedInput) -> List[Any]:
    """Those of the core's method."""
    name = INPUTS[entry.kind - 1]
    found: List[Any] = decode_body(entry.body, recording.header.has_payloads) if entry.body else []
    if name == "on_message":
        found[0] = decode(found[0])
    elif name == "on_data_message":
        found[1] = decode(found[1])
    elif name == "on_frames":
        found[1] = [Frame(*each) for each in found[1]]
    elif name == "on_processes_measured":
        found[0] = {process_id: ProcessUsage(*usage) for process_id, *usage in found[0]}
    elif name == "on_memory_measured":
        found[0] = dict(found[0])
    elif name == "on_note_read":
        found = [found[0], CodeNote(found[1], tuple((number, digest) for number, digest in found[2]))]
    if name in PLACE_OF_NOW:
        found.insert(PLACE_OF_NOW[name], entry.time)
    return found
