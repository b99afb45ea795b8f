"""The scheduler's part of its recordings; all cores share the file format (`scaler_protocol.recording`).

CoreInputs ──▶ SchedulerRecorder ──▶ FileRecorder ──▶ FILE ──▶ Recording ──▶ scheduler_replay
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Dict, List, Sequence, Tuple

from scaler_appliance import __version__
from scaler_appliance.core.effects import Effect, Send, StoreChunk
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.core_inputs import InputKind
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.recording.file_recorder import FileRecorder
from scaler_protocol.recording.recording_file import Header, RecordedInput, Recording, RecordingError

_KINDS_OF_A_PEER = (InputKind.PEER_GONE, InputKind.CONGESTION, InputKind.AUTHENTICATED)


class SchedulerRecorder:
    """Records all inputs of a core from the first one on.

    Parameters:
        path: of the file, which is replaced if there is one.
        settings: of the core.
        now, unix_now: this moment by the core's clock and since 1970, in seconds.
        has_payloads: whether payloads are recorded.
        limit_bytes: of the file; 0: no limit.

    Raises OSError if the file cannot be made.
    """

    def __init__(
        self, path: str, settings: Settings, now: float, unix_now: float, has_payloads: bool, limit_bytes: int
    ) -> None:
        header = Header(__version__, _as_json(settings), now, unix_now, has_payloads)
        self._file = FileRecorder(path, header, limit_bytes)
        self.close = self._file.close
        self.keep = self._file.keep

    def on_frames(self, now: float, peer: bytes, frames: Sequence[bytes]) -> None:
        """A peer sent a message."""
        if self._file.is_open:
            content = b"".join(frames if self._file.has_payloads else frames[:1])
            self._file.add(InputKind.FRAMES, now, _frames_body(peer, list(map(len, frames)), content))

    def on_input(self, kind: InputKind, now: float, arguments: Sequence[Any]) -> None:
        """Any other input."""
        if self._file.is_open:
            self._file.add(kind, now, _arguments_body(arguments))

    def on_effects(self, now: float, effects: Sequence[Effect]) -> None:
        """The core has decided."""
        self._file.on_effects(now, effects, crc_of)


def _as_json(settings: Settings) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        name: value.hex() if isinstance(value, bytes) else value for name, value in settings._asdict().items()
    }
    implementation = settings.implementation
    found["implementation"] = {
        "name": implementation.name,
        "version": implementation.version,
        "language": implementation.language,
    }
    return found


def settings_of(header: Header) -> Settings:
    """The settings of a recorded core. Raises RecordingError."""
    settings = dict(header.settings)
    try:
        settings["implementation"] = m.Implementation(**settings["implementation"])
        for name in ("scheduler_id", "object_directory_token", "ticket_seed"):
            settings[name] = bytes.fromhex(settings[name])
        return Settings(**settings)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"the beginning of the recording cannot be read: {error}") from error


def _frames_body(peer: bytes, sizes: Sequence[int], content: bytes) -> bytes:
    """Of an InputKind.FRAMES.

    Parameters:
        sizes: of all frames.
        content: of the first frame, or of all.
    """
    return b"".join((struct.pack(f"<BB{len(sizes)}I", len(peer), len(sizes), *sizes), peer, content))


def _arguments_body(arguments: Sequence[Any]) -> bytes:
    """Of any other input."""
    if not arguments:
        return b""
    return json.dumps([each.hex() if isinstance(each, bytes) else each for each in arguments]).encode()


def arguments_of(recording: Recording, entry: RecordedInput) -> Tuple[Any, ...]:
    """See InputKind; where payloads were left out, those of frames are zeros."""
    body = entry.body
    if not body:
        return ()
    if entry.kind != InputKind.FRAMES:
        arguments = json.loads(body)
        return (bytes.fromhex(arguments[0]), *arguments[1:]) if entry.kind in _KINDS_OF_A_PEER else tuple(arguments)
    peer_size, count = body[0], body[1]
    sizes: Tuple[int, ...] = struct.unpack_from(f"<{count}I", body, 2)
    offset = 2 + 4 * count
    peer = body[offset : offset + peer_size]
    offset += peer_size
    frames: List[bytes] = []
    for size in sizes:
        frames.append(body[offset : offset + size] if recording.header.has_payloads or not frames else bytes(size))
        offset += size
    return peer, frames


def crc_of(effects: Sequence[Effect]) -> int:
    """Of everything that does not depend on the bytes of payloads."""
    crc = 0
    for effect in effects:
        if isinstance(effect, Send):
            size = sum(map(len, effect.payload))
            text = b"%b %d %b" % (effect.peer, size, encode(effect.message))
        elif isinstance(effect, StoreChunk):
            text = repr(effect._replace(chunk=b"", size=len(effect.chunk))).encode()
        else:
            text = repr(effect).encode()
        crc = zlib.crc32(text, crc)
    return crc
