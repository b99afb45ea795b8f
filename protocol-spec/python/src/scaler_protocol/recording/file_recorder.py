"""Records the inputs of a core to a file, up to a size limit.

    inputs ──▶ FileRecorder ──▶ FILE

Rules:
- An input is recorded before the core gets it: the one that breaks an invariant is the last of the recording.
- Recording never stops the program: if it cannot continue, one log line says so.
- The recording of the process before this one stays, as FILE.previous: that process may have been killed, and what it
  recorded is then all that there is.
- A file that another process is recording to is left to it: this one appends its process id to the name, and says so.
- Records reach the file within FLUSH_SECONDS while there are inputs, and all of them when the program ends normally.
- Without a recorder nothing is kept: even keeping the last inputs would cost a scheduler 0.8 µs per burst, about 2 % of
  a round trip, and they could not be repeated, because a core cannot start in the middle.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from math import inf
from typing import Callable, List, Optional, Sequence, TypeVar

from scaler_protocol.host import system
from scaler_protocol.host.output_files import create_output
from scaler_protocol.recording.recording_file import Digest, Header, block, digest_record, header_bytes, record

FLUSH_SECONDS = 1.0
FLUSH_BYTES = 256 * 1024
DIGEST_SECONDS = 0.1
DEFAULT_LIMIT_BYTES = 1 << 30

Effect = TypeVar("Effect")

logger = logging.getLogger("scaler")


class FileRecorder:
    """Records all inputs of a core from the first one on.

    Parameters:
        path: of the file; a recording that is there already is renamed, unless another process is writing it.
        limit_bytes: of the file; 0: no limit.
        raising_limit: what to do for a longer recording, for the log.

    Raises OSError if the file cannot be made.
    """

    def __init__(
        self, path: str, header: Header, limit_bytes: int, raising_limit: str = "raise --record-limit"
    ) -> None:
        self.has_payloads = header.has_payloads
        self._who = header.core.capitalize()
        self.path = path if not _is_being_written(path) else f"{path}.{os.getpid()}"
        if self.path != path:
            text = "%s: another process is recording to %s: the recording of this one is %s"
            logger.warning(text, self._who, path, self.path)
        self._limit_bytes = limit_bytes
        self._raising_limit = raising_limit
        self._records: List[bytes] = []
        self._unwritten_bytes = 0
        self._written_bytes = 0
        self._flushed_at = header.began
        self._digested_at = -inf
        self._effects = 0
        _keep_previous(self.path)
        self._descriptor = create_output(self.path)
        with contextlib.suppress(OSError):  # a file system without locks
            system.flock(self._descriptor, system.LOCK_EX | system.LOCK_NB)
        self._write(header_bytes(header))

    @property
    def is_open(self) -> bool:
        """Whether anything is recorded."""
        return self._descriptor >= 0

    def add(self, kind: int, time: float, body: bytes = b"") -> None:
        """Something happened."""
        if self._descriptor >= 0:
            self._add(record(kind, time, body))

    def on_effects(self, now: float, effects: Sequence[Effect], crc_of: Callable[[Sequence[Effect]], int]) -> None:
        """The core has decided; write gathered records if it is time."""
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
            text = "%s: the recording %s ends here: it has reached its limit of %d bytes; %s"
            logger.warning(text, self._who, self.path, self._limit_bytes, self._raising_limit)
            self._stop()
            return
        try:
            self._write(content)
        except OSError as error:
            logger.error("%s: the recording %s ends here: %s", self._who, self.path, error.strerror or error)
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
        """Write gathered records, and end the recording."""
        self._flush()
        if self._descriptor >= 0:
            self._stop()

    def abandon(self) -> None:
        """In a fork of the process: leave the file to the parent."""
        self._records = []
        if self._descriptor >= 0:
            self._stop()

    def keep(self) -> Optional[str]:
        """Rename the recording, which ends with a failure, so that it is not overwritten.

        Returns the name; None if the recording had ended before, so that it does not contain the failure.
        """
        self._flush()
        if self._descriptor < 0:
            return None
        self._stop()
        if not os.path.isfile(self.path):
            return self.path
        kept = f"{self.path}.failed"
        try:
            os.replace(self.path, kept)
        except OSError as error:
            logger.error("%s: the recording %s cannot be renamed: %s", self._who, self.path, error.strerror or error)
            return self.path
        return kept


def _is_being_written(path: str) -> bool:
    """Whether a living process holds the lock of a recording."""
    flags = os.O_RDONLY | system.O_CLOEXEC | system.O_NONBLOCK | system.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return False  # there is none
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            system.flock(descriptor, system.LOCK_SH | system.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)


def _keep_previous(path: str) -> None:
    """Rename the recording at a path, if there is one. If it cannot be renamed, it is replaced."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.replace(path, f"{path}.previous")
