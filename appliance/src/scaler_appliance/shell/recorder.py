"""Writes down what reaches the core, to a file, as long as that may grow.

    CoreInputs ──▶ FileRecorder ──▶ FILE

Rules:
- An input is recorded before the core gets it: the one that breaks an invariant is the last of the recording.
- Recording never stops the scheduler: where it cannot go on, one line of the log says so.
- What has been recorded is in the file within FLUSH_SECONDS while there are inputs, and all of it when the program ends
  by itself.
- Without a recorder nothing is kept: even the last inputs alone would cost 0.8 µs a burst, some 2 % of a round trip.
"""

from __future__ import annotations

import logging
import os
from math import inf
from typing import Any, List, Optional, Sequence

from scaler_appliance.core.effects import Effect
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.core_inputs import InputKind
from scaler_appliance.shell.recording import (
    Digest,
    Header,
    block,
    crc_of,
    digest_record,
    frames_record,
    header_bytes,
    record,
    version,
)

FLUSH_SECONDS = 1.0
FLUSH_BYTES = 256 * 1024
DIGEST_SECONDS = 1.0

logger = logging.getLogger("scaler")


class FileRecorder:
    """Records everything from the core's first input on.

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
        self._path = path
        self._has_payloads = has_payloads
        self._limit_bytes = limit_bytes
        self._records: List[bytes] = []
        self._unwritten_bytes = 0
        self._written_bytes = 0
        self._flushed_at = now
        self._digested_at = -inf
        self._effects = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        header = Header(version(), settings, now, unix_now, has_payloads)
        self._write(header_bytes(header))

    def on_frames(self, now: float, peer: bytes, frames: Sequence[bytes]) -> None:
        """A peer sent a message."""
        if self._descriptor >= 0:
            content = b"".join(frames if self._has_payloads else frames[:1])
            self._add(frames_record(now, peer, list(map(len, frames)), content))

    def on_input(self, kind: InputKind, now: float, arguments: Sequence[Any]) -> None:
        """Anything else happened."""
        if self._descriptor >= 0:
            self._add(record(kind, now, arguments))

    def on_effects(self, now: float, effects: Sequence[Effect]) -> None:
        """The core has decided; what has gathered is written if it is time."""
        if self._descriptor < 0:
            return
        self._effects += len(effects)
        if effects and now - self._digested_at >= DIGEST_SECONDS:
            self._digested_at = now
            self._add(digest_record(now, Digest(self._effects, len(effects), crc_of(effects))))
        if self._unwritten_bytes >= FLUSH_BYTES or now - self._flushed_at >= FLUSH_SECONDS:
            self._flushed_at = now
            self._flush()

    def _add(self, whole: bytes) -> None:
        self._records.append(whole)
        self._unwritten_bytes += len(whole)

    def _flush(self) -> None:
        if not self._records or self._descriptor < 0:
            return
        content = block(b"".join(self._records))
        self._records, self._unwritten_bytes = [], 0
        if 0 < self._limit_bytes < self._written_bytes + len(content):
            text = "Scheduler: the recording %s ends here: it has reached its limit of %d bytes; raise --record-limit"
            logger.warning(text, self._path, self._limit_bytes)
            self._stop()
            return
        try:
            self._write(content)
        except OSError as error:
            logger.error("Scheduler: the recording %s ends here: %s", self._path, error.strerror or error)
            self._stop()

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._written_bytes += len(content)

    def _stop(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def close(self) -> None:
        """Write what has gathered; nothing more is recorded."""
        self._flush()
        if self._descriptor >= 0:
            self._stop()

    def keep(self) -> Optional[str]:
        """Give the recording, which ends with a failure, a name that no other one is written to.

        Returns the name; None if the recording ended before, so that it does not show the failure.
        """
        self._flush()
        if self._descriptor < 0:
            return None
        self._stop()
        if not os.path.isfile(self._path):
            return self._path
        kept = f"{self._path}.failed"
        try:
            os.replace(self._path, kept)
        except OSError as error:
            logger.error("Scheduler: the recording %s cannot be renamed: %s", self._path, error.strerror or error)
            return self._path
        return kept
