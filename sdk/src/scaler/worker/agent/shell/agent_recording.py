"""Records the inputs of an agent's core, so that `scaler replay` can repeat its decisions.

    events ──▶ RecordedAgentCore ──▶ AgentCore
                     └──▶ FileRecorder ──▶ FILE ──▶ agent_replay

Rules:
- A method of the core that the shell calls is an input, with its arguments. What the core reads by itself is recorded
  where it is read: the progress page, random numbers, and what a failure looks like when it is pickled.
- Payloads are left out unless they were asked for. What the core reads of them is kept: the columns of frames, the
  paths of large results, and the notes that say which code a function needs. Of printed output, the lengths are kept.
- Without a recorder the shell has an AgentCore as it is: recording costs nothing then.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
import zlib
from typing import Any, Callable, List, Optional, Sequence, Tuple

from scaler.values.code_notes import FOOTER, note_size
from scaler.version import __version__
from scaler.worker import frames
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.agent_identity import AgentIdentity, Chance
from scaler.worker.agent.core.dead_processors import STACK_STREAM
from scaler.worker.agent.core.effects import Deliver, Effect, Send, SendData, UnpackCode, WriteChunk
from scaler.worker.agent.core.finished_tasks import TooLargePayload
from scaler.worker.frames import ContentPlace, Frame, FrameError, FrameKind
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.recording.file_recorder import FileRecorder
from scaler_protocol.recording.recording_file import READS, WORKER, Body, Buffer, Header
from scaler_protocol.recording.recording_path import path_of_process, recording_path

INPUTS = (
    "start",
    "finish_turn",
    "take_effects",
    "on_message",
    "on_frames",
    "on_time",
    "on_connected",
    "on_connect_failed",
    "on_disconnected",
    "on_stop_requested",
    "on_fork_server_ended",
    "on_processor_started",
    "on_processor_broken",
    "on_processor_died",
    "on_processes_measured",
    "on_memory_measured",
    "on_objects_opened",
    "on_object_found",
    "on_chunk_written",
    "on_chunk_failed",
    "on_chunk_read",
    "on_result_kept",
    "on_note_read",
    "on_code_unpacked",
    "on_code_failed",
    "on_signal",
    "on_notice",
    "on_data_accepted",
    "on_data_connected",
    "on_data_message",
    "on_data_closed",
    "on_copy_named",
    "on_copy_linked",
)
"""Methods of the core, by the kind of input less 1. Others are added at the end."""

_PARAMETERS = {name: list(inspect.signature(getattr(AgentCore, name)).parameters)[1:] for name in INPUTS}
PLACE_OF_NOW = {name: found.index("now") for name, found in _PARAMETERS.items() if "now" in found}
"""Among the arguments of a method: the time is that of the record."""

PRINTED = bytes.maketrans(
    bytes([*range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xE0), *range(0xE0, 0xF0), *range(0xF0, 0xF5)]),
    b"x" * 95 + b"\x80" * 64 + b"\xc3" * 30 + b"\xe3" * 16 + b"\xf1" * 5,
)
"""UTF-8 that says nothing but how long it is, in characters too."""


def agent_recorder(settings: WorkerSettings, identity: AgentIdentity) -> Optional[FileRecorder]:
    """What writes a worker's recording, if one is wanted. Raises RecordingPathError if the file cannot be made."""
    if settings.record is None:
        return None
    path = path_of_process(settings.record)
    with recording_path("--record", path):
        return FileRecorder(path, header_of(settings, identity), settings.record_limit_bytes)


def _without_secrets(settings: WorkerSettings) -> WorkerSettings:
    """What a repetition needs: where a program asks for notice, and with which headers, does not change the core."""
    return dataclasses.replace(settings, drain_url=None, drain_url_headers=())


def header_of(settings: WorkerSettings, identity: AgentIdentity) -> Header:
    """The header of a worker's recording."""
    made_with = {"settings": dataclasses.asdict(_without_secrets(settings)), "identity": identity._asdict()}
    return Header(__version__, made_with, time.monotonic(), time.time(), settings.record_payloads, WORKER)


class _RecordedEntry:
    """A processor's entry of the progress page, every reading of which is recorded."""

    def __init__(self, entry: Any, read: Callable[[int], int]) -> None:
        self._entry = entry
        self._read = read

    def __getitem__(self, index: int) -> int:
        return self._read(self._entry[index])

    def __setitem__(self, index: int, value: int) -> None:
        self._entry[index] = value


class RecordedAgentCore(AgentCore):
    """A core whose inputs are recorded. Parameters: as of AgentCore, and what writes them down."""

    def __init__(
        self,
        settings: WorkerSettings,
        identity: AgentIdentity,
        progress: Callable[[int], memoryview],
        too_large_payload: TooLargePayload,
        chance: Chance,
        recorder: FileRecorder,
    ) -> None:
        self._recorder = recorder
        self._now = 0.0

        def payload(size: int, maximum: int, attempts: int, is_neutral: bool) -> bytes:
            made = too_large_payload(size, maximum, attempts, is_neutral)
            body = Body(recorder.has_payloads)
            recorder.add(READS, self._now, body.encode([body.payload(made)]))
            return made

        def entry(number: int) -> Any:
            return _RecordedEntry(progress(number), self._note_reading)

        noted = Chance(lambda: self._note_reading(chance.random()), map(self._note_reading, chance.numbers))
        super().__init__(settings, identity, entry, payload, noted)

    def _note_reading(self, value: Any) -> Any:
        self._recorder.add(READS, self._now, Body(False).encode([value]))
        return value

    def _note_input(self, kind: int, name: str, arguments: Sequence[Any]) -> None:
        recorder = self._recorder
        if not recorder.is_open:
            return
        place = PLACE_OF_NOW.get(name)
        if place is not None:
            self._now = arguments[place]
            arguments = [*arguments[:place], *arguments[place + 1 :]]
        if not arguments:
            recorder.add(kind, self._now)
            return
        body = Body(recorder.has_payloads)
        recorder.add(kind, self._now, body.encode(_encoded(name, arguments, body)))

    def take_effects(self) -> List[Effect]:
        self._recorder.add(INPUTS.index("take_effects") + 1, self._now)
        effects = super().take_effects()
        self._recorder.on_effects(self._now, effects, crc_of)
        return effects


def _recorded(kind: int, name: str) -> Callable[..., Any]:
    method = getattr(AgentCore, name)

    def on_input(self: RecordedAgentCore, *arguments: Any) -> Any:
        self._note_input(kind, name, arguments)
        return method(self, *arguments)

    return on_input


for _kind, _name in enumerate(INPUTS, start=1):
    if _name != "take_effects":
        setattr(RecordedAgentCore, _name, _recorded(_kind, _name))


# Arguments ------------------------------------------------------------------------------------------------------------


def _encoded(name: str, arguments: Sequence[Any], body: Body) -> List[Any]:
    """Arguments as `agent_replay` reads them, without the time."""
    if name == "on_message":
        message, payload = arguments
        return [body.kept(encode(message)), _payload(message, payload, body)]
    if name == "on_frames":
        number, received = arguments
        return [number, [[frame.kind, frame.flags, _frame_body(frame, body)] for frame in received]]
    if name == "on_processes_measured":
        usages, free_bytes = arguments
        return [[[process_id, *usage] for process_id, usage in usages.items()], free_bytes]
    if name == "on_memory_measured":
        return [list(arguments[0].items())]
    if name == "on_data_message":
        connection, message, payload = arguments
        return [connection, body.kept(encode(message)), body.payload(payload)]
    if name in ("on_connected", "on_data_accepted"):
        return [body.kept(each) if isinstance(each, bytes) else each for each in arguments]
    if name == "on_chunk_read":
        return [body.payload(each) if isinstance(each, (bytes, memoryview)) else each for each in arguments]
    if name == "on_note_read":
        function, note = arguments
        return [function, note.key, note.archives]
    return list(arguments)


def _payload(message: Any, payload: Buffer, body: Body) -> Any:
    """The payload of a message: of functions the notes are kept."""
    if type(message) is not m.ObjectInstruction or not payload:
        return body.payload(payload)
    parts, start = [], 0
    for size, storage in zip(message.sizes, message.storages):
        if storage != m.ObjectStorage.INLINE:
            continue
        content = payload[start : start + size]
        start += len(content)
        noted = note_size(content[-FOOTER.size :])
        split = max(0, len(content) - noted - FOOTER.size) if noted else len(content)
        parts += [body.payload(content[:split]), body.kept(content[split:])]
    return body.parts(*parts, body.payload(payload[start:]))


def _frame_body(frame: Frame, body: Body) -> Any:
    if frame.kind == FrameKind.LOG:
        return body.kept(frame.body if body.has_payloads else without_text(frame.body))
    if frame.kind != FrameKind.RESULTS:
        return body.kept(frame.body)
    try:
        results = frames.parse_results(frame.flags, frame.body)
    except FrameError:
        return body.kept(frame.body)
    start = len(frame.body) - len(results.payload)
    parts = [body.kept(frame.body[:start])]
    if not results.large:
        return body.parts(*parts, body.payload(results.payload))
    for size, is_large in zip(results.sizes, results.large):
        part = frame.body[start : start + size]
        parts.append(body.kept(part) if is_large else body.payload(part))
        start += size
    return body.parts(*parts, body.payload(frame.body[start:]))


def without_text(log: bytes) -> bytes:
    """The body of a LOG frame, with as much text that says nothing."""
    return log[: frames.LOG_HEAD_BYTES] + log[frames.LOG_HEAD_BYTES :].translate(PRINTED)


# Effects --------------------------------------------------------------------------------------------------------------


def crc_of(effects: Sequence[Effect]) -> int:
    """Of all that does not depend on the bytes of payloads and on printed text."""
    crc = 0
    for effect in effects:
        crc = zlib.crc32(_digested(effect), crc)
    return crc


def _digested(effect: Effect) -> bytes:
    if isinstance(effect, Send):
        message = effect.message
        if isinstance(message, m.TaskLog) and message.stream != STACK_STREAM:
            return b"TaskLog %d %d %d" % (message.id, message.stream, len(message.text.encode()))
        return b"Send %d %b" % (len(effect.payload), encode(message))
    if isinstance(effect, SendData):
        return b"SendData %d %d %b" % (effect.connection, len(effect.payload), encode(effect.message))
    if isinstance(effect, Deliver):
        return b"Deliver %d %b" % (effect.number, b" ".join(_delivered(frames.join(effect.buffers))))
    if isinstance(effect, WriteChunk):
        return repr(effect._replace(chunk=len(effect.chunk))).encode()  # type: ignore[arg-type]
    if isinstance(effect, UnpackCode) and effect.place == ContentPlace.INLINE:
        return repr(effect._replace(content=len(effect.content))).encode()  # type: ignore[arg-type]
    return repr(effect).encode("utf-8", "backslashreplace")


def _delivered(frame: bytes) -> Tuple[bytes, ...]:
    """A frame for a processor, without payloads."""
    size, kind, flags = frames.HEADER.unpack_from(frame)
    body = frame[frames.HEADER.size :]
    head = b"%d %d %d" % (size, kind, flags)
    if kind == FrameKind.TASKS:
        return head, body[: frames.parse_tasks(flags, body).payload_offset]
    if kind == FrameKind.DEFINE:
        object_id, object_kind, place, content = frames.parse_define(body)
        shown = bytes(content) if place == ContentPlace.FILE else b""
        return head, b"%d %d %d" % (object_id, object_kind, place), shown
    return head, body
