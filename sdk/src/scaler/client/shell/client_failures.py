"""The end of a client whose core has a bug, and of its recording, if there is one.

Rules:
- The state of a core that failed may be half changed: it may have lost futures without an outcome. The garbage
  collector finds all of them.
- Without a recorder nothing is kept: see `scaler_protocol.recording.file_recorder`.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import Any, Iterator, List, Mapping, Optional, Sequence

from scaler.client.core.client_core import ClientCore
from scaler.client.shell.future_internals import AnyFuture, FutureWithSharedCondition
from scaler.client.shell.record_variables import RECORD_VARIABLE
from scaler.exceptions import ActorLostError
from scaler_protocol.wire import messages as m


def make_core(welcome: m.Welcome, numbers: Iterator[int], address: str, direct_bytes: int) -> ClientCore:
    """The core of a client, recorded if the environment says so."""
    pattern = os.environ.get(RECORD_VARIABLE)
    if not pattern:
        return ClientCore(welcome, numbers, direct_bytes=direct_bytes)
    from scaler.client.shell.client_recording import recorded_core

    return recorded_core(pattern, welcome, numbers, address, direct_bytes)


def end_recording(core: ClientCore, has_failed: bool) -> Optional[str]:
    """End the recording; returns where the failure is recorded, if it is."""
    recorder = getattr(core, "recorder", None)
    if recorder is None:
        return None
    if has_failed:
        kept: Optional[str] = recorder.keep()
        return kept
    recorder.close()
    return None


def abandon_recording(core: ClientCore) -> None:
    """In a fork of the client's process."""
    recorder = getattr(core, "recorder", None)
    if recorder is not None:
        recorder.abandon()


def text_of_failure(failure: Exception, kept: Optional[str]) -> str:
    """The text of the error for waiting callers.

    Parameters:
        kept: where what led to it is recorded.
    """
    cause = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
    where = (
        f"what led to it is recorded in {kept}: please report it with that file (`scaler replay {kept}` repeats it)"
        if kept
        else f"what led to it is not recorded: set {RECORD_VARIABLE}=FILE to find out more"
    )
    is_of_system = isinstance(failure, (OSError, MemoryError))
    what = "an error of the system" if is_of_system else "a bug in the client"
    return f"{what} has ended this client ({cause}); {where}; make a new Client"


def unfinished_futures(condition: threading.Condition, known: Mapping[int, Any]) -> List[AnyFuture]:
    """All futures of a client that have no outcome.

    Parameters:
        condition: that its futures share.
        known: those that the core knows.
    """
    left = [each for each in gc.get_objects() if issubclass(type(each), FutureWithSharedCondition)]
    own = [each for each in left if getattr(each, "_condition", None) is condition]
    return [each for each in {*known.values(), *own} if not each.done()]


def error_of(futures: Sequence[Any], error: Exception) -> Exception:
    """The error of futures that the core has failed together; the calls of a lost actor are of one, which is named."""
    label = futures[0]._label if futures and isinstance(error, ActorLostError) else ""
    return ActorLostError(f"task {label}: {error}") if label else error
