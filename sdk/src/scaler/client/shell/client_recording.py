"""Records the inputs of a client's core, so that `scaler replay` can repeat its decisions.

    commands, messages ──▶ RecordedClientCore ──▶ ClientCore
                                └──▶ FileRecorder ──▶ FILE ──▶ client_replay

Rules:
- Futures and askers have numbers in a recording, in the order in which the core first saw them.
- What depends on other threads is recorded where the core reads it: numbers of new objects, and whether an unheld
  object still exists.
- Payloads are left out unless they were asked for. What the core reads of them is kept: why the scheduler lost a task.
- Without SCALER_RECORD the shell has a ClientCore as it is, and does not import this module.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
import weakref
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from scaler.arguments import size_in_bytes
from scaler.client.core import commands as c
from scaler.client.core import effects as e
from scaler.client.core.client_core import ClientCore
from scaler.client.core.deferring import DeferredTask
from scaler.client.core.kept_objects import KeptObject
from scaler.client.shell.record_variables import LIMIT_VARIABLE, PAYLOADS_VARIABLE, RECORD_VARIABLE
from scaler.exceptions import InvalidArgumentError
from scaler.values.sizes import DIRECT_BYTES, INLINE_BYTES
from scaler.version import __version__
from scaler_protocol.recording.file_recorder import DEFAULT_LIMIT_BYTES, FileRecorder
from scaler_protocol.recording.recording_file import CLIENT, READS, Body, Header
from scaler_protocol.recording.recording_path import RecordingPathError, path_of_process, recording_path
from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import encode, encode_struct

INPUTS = (
    "apply",
    "take_effects",
    "on_message",
    "on_sent",
    "on_result_opened",
    "on_lost",
    "on_welcome",
    "on_leaving",
    "on_end",
)
"""Methods of the core, by the kind of input less 1. Others are added at the end."""

_APPLY, _TAKE_EFFECTS, _ON_MESSAGE, _ON_SENT, _ON_RESULT_OPENED, _ON_LOST, _ON_WELCOME, _ON_LEAVING, _ON_END = range(
    1, len(INPUTS) + 1
)
_counts = itertools.count(1)  # of clients of this process that are recorded

logger = logging.getLogger("scaler")


def recorded_core(
    pattern: str, welcome: m.Welcome, numbers: Iterator[int], address: str, direct_bytes: int = DIRECT_BYTES
) -> ClientCore:
    """A core whose inputs are recorded; one that is not, where the file cannot be made.

    Parameters:
        pattern: of the path; `%p` stands for the process id, which is appended if it is missing. From the second client
            of a process on, its number is appended.
    """
    count = next(_counts)
    path = path_of_process(pattern if "%p" in pattern else f"{pattern}.%p") + (f".{count}" if count > 1 else "")
    limit = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit_bytes = size_in_bytes(LIMIT_VARIABLE, limit) if limit else DEFAULT_LIMIT_BYTES
        with recording_path(RECORD_VARIABLE, path):
            recorder = FileRecorder(
                path, header_of(welcome, address, direct_bytes), limit_bytes, f"raise {LIMIT_VARIABLE}"
            )
    except (RecordingPathError, InvalidArgumentError) as error:
        logger.error("Client: nothing is recorded: %s", error)
        return ClientCore(welcome, numbers, direct_bytes=direct_bytes)
    logger.info("Client: recording to %s", path)
    return RecordedClientCore(welcome, numbers, recorder, direct_bytes)


def header_of(welcome: m.Welcome, address: str, direct_bytes: int = DIRECT_BYTES) -> Header:
    """The header of a client's recording."""
    made_with = {"welcome": encode(welcome).hex(), "address": address, "direct_bytes": direct_bytes}
    has_payloads = os.environ.get(PAYLOADS_VARIABLE, "").lower() in ("1", "true", "yes", "on")
    return Header(__version__, made_with, time.monotonic(), time.time(), has_payloads, CLIENT)


class Names:
    """The numbers of futures and askers in a recording."""

    def __init__(self) -> None:
        self._last_future = self._last_asker = 0
        self._askers: Dict[int, Tuple[int, Any]] = {}  # by id; while they wait
        self._known: Dict[int, Tuple[int, Any]] = {}  # options and named functions by id, kept so that ids stay theirs

    def future(self, future: Any) -> int:
        number: int = getattr(future, "_recorded_as", 0)
        if not number:
            self._last_future = future._recorded_as = number = self._last_future + 1
        return number

    def asker(self, asker: Any) -> int:
        if asker is None:
            return 0
        found = self._askers.get(id(asker))
        if found is None:
            self._last_asker += 1
            found = self._askers[id(asker)] = self._last_asker, asker
        return found[0]

    def forget_asker(self, asker: Any) -> None:
        self._askers.pop(id(asker), None)

    def known(self, value: Any) -> Tuple[int, bool]:
        """The number of options or of a named function, and whether it is new."""
        found = self._known.get(id(value))
        if found is not None:
            return found[0], False
        number = len(self._known) + 1
        self._known[id(value)] = number, value
        return number, True


class _References(weakref.WeakValueDictionary[int, KeptObject]):
    """Objects that may be gone when they are looked for: what was found is recorded."""

    note: Callable[[int], object]

    def get(self, number: int, default: Any = None) -> Any:
        found = super().get(number)
        self.note(int(found is not None))
        return found


class RecordedClientCore(ClientCore):
    """A core whose inputs are recorded. Parameters: as of ClientCore, and what writes them down."""

    def __init__(
        self, welcome: m.Welcome, numbers: Iterator[int], recorder: FileRecorder, direct_bytes: int = DIRECT_BYTES
    ) -> None:
        self.recorder = recorder
        self._names = Names()
        references = _References()
        references.note = self._note_reading
        super().__init__(welcome, map(self._note_reading, numbers), references, direct_bytes)

    def _note_reading(self, value: int) -> int:
        self.recorder.add(READS, time.monotonic(), Body(False).encode([value]))
        return value

    def _note(self, kind: int, arguments: Callable[[Body], List[Any]]) -> None:
        recorder = self.recorder
        if recorder.is_open:
            body = Body(recorder.has_payloads)
            recorder.add(kind, time.monotonic(), body.encode(arguments(body)))

    def apply(self, commands: Iterable[Any]) -> None:
        commands = list(commands)
        self._note(_APPLY, lambda body: [encoded_command(each, self._names, body) for each in commands])
        super().apply(commands)

    def on_sent(self, task: c.PlainTask) -> None:
        self._note(_ON_SENT, lambda body: _plain(task, self._names, body))
        super().on_sent(task)

    def on_message(self, message: m.Member, payload: bytes) -> None:
        self._note(_ON_MESSAGE, lambda body: [body.kept(encode(message)), _payload(message, payload, body)])
        super().on_message(message, payload)

    def on_result_opened(self, effect_id: int, outcome: Any, content: Any) -> None:
        self._note(
            _ON_RESULT_OPENED, lambda body: [effect_id, None if content is None else body.payload(memoryview(content))]
        )
        super().on_result_opened(effect_id, outcome, content)

    def on_lost(self) -> None:
        self._note(_ON_LOST, lambda body: [])
        super().on_lost()

    def on_welcome(self, welcome: m.Welcome) -> int:
        self._note(_ON_WELCOME, lambda body: [body.kept(encode(welcome))])
        return super().on_welcome(welcome)

    def on_leaving(self) -> None:
        self._note(_ON_LEAVING, lambda body: [])
        super().on_leaving()

    def on_end(self, error: Optional[Exception] = None) -> None:
        self._note(_ON_END, lambda body: [None if error is None else str(error)])
        super().on_end(error)

    def take_effects(self) -> List[e.Effect]:
        if not self._effects and not (self.outbox.items and self.is_connected):
            return []  # nothing changes
        self._note(_TAKE_EFFECTS, lambda body: [])
        effects = super().take_effects()
        self.recorder.on_effects(time.monotonic(), effects, lambda effects: crc_of(effects, self._names))
        for effect in effects:
            if type(effect) is e.Tell:
                self._names.forget_asker(effect.asker)
        return effects


# Commands -------------------------------------------------------------------------------------------------------------


def encoded_command(command: Any, names: Names, body: Body) -> List[Any]:
    """A command as `client_replay` reads it."""
    if type(command) is tuple:
        return _plain(command, names, body)
    return [type(command).__name__, *_ARGUMENTS[type(command)](command, names, body)]


def _plain(task: c.PlainTask, names: Names, body: Body) -> List[Any]:
    future, function, payload, options = task
    return [
        names.future(future),
        _function(function, names),
        body.payload(payload),
        None if options is None else _options(options, names, body),
    ]


def _function(function: Any, names: Names) -> Any:
    """The object that holds it; of a named one, its number, name and codec."""
    return function if isinstance(function, int) else [names.known(function)[0], function.name, function.codec]


def _options(options: Optional[m.TaskOptions], names: Names, body: Body) -> Any:
    """A number, with the content when it is new: options are told apart by identity."""
    if options is None:
        return None
    number, is_new = names.known(options)
    return [number, body.kept(encode_struct(options))] if is_new else number


def _futures(futures: Iterable[Any], names: Names) -> List[int]:
    return [names.future(each) for each in futures]


def _task(task: c.SubmitTask, names: Names, body: Body) -> List[Any]:
    return [
        *_plain((task.future, task.function, task.payload, task.options), names, body),
        list(task.dependencies),
        _futures(task.predecessors, names),
        task.arguments_bytes,
        names.asker(task.asker),
    ]


def _graph(command: c.SubmitGraph, names: Names, body: Body) -> List[Any]:
    columns, payload = command.run.content
    return [
        body.kept(encode(columns)),
        body.payload(payload),
        [kept.number for kept in command.run.function_objects],
        list(command.dependencies),
        [[position, names.future(future)] for position, future in command.targets.items()],
    ]


def _kept(command: c.HoldObject, names: Names, body: Body) -> List[Any]:
    kept = command.kept
    content = body.payload(kept.content) if kept.size < INLINE_BYTES else None
    return [kept.number, kept.object_id, kept.name, int(kept.kind), kept.size, kept.codec, content]


def _deferred(command: c.SubmitDeferred, names: Names, body: Body) -> List[Any]:
    future = names.future(command.task.future)
    return [future, body.payload(command.payload), list(command.results), list(command.made)]


def _end_deferred(command: c.EndDeferred, names: Names, body: Body) -> List[Any]:
    failed = None if command.failed is None else names.future(command.failed)
    return [names.future(command.task.future), failed, None if command.error is None else str(command.error)]


def _forget(command: c.ForgetQuery, names: Names, body: Body) -> List[Any]:
    number = names.asker(command.asker)
    names.forget_asker(command.asker)
    return [number]


_ARGUMENTS: Dict[type, Callable[[Any, Names, Body], List[Any]]] = {
    c.SubmitTask: _task,
    c.AwaitRoom: lambda command, names, body: [names.asker(command.asker)],
    c.SubmitGraph: _graph,
    c.SubmitDeferred: _deferred,
    c.EndDeferred: _end_deferred,
    c.NumberFuture: lambda command, names, body: [names.future(command.future)],
    c.HoldObject: _kept,
    c.LetGo: lambda command, names, body: [list(command.object_ids)],
    c.Cancel: lambda command, names, body: [_futures(command.futures, names), command.force],
    c.GiveUp: lambda command, names, body: [_futures(command.futures, names)],
    c.CancelAll: lambda command, names, body: [names.asker(command.asker)],
    c.Clear: lambda command, names, body: [list(command.object_ids)],
    c.Ask: lambda command, names, body: [body.kept(encode(command.query)), names.asker(command.asker)],
    c.Explain: lambda command, names, body: [names.future(command.future), names.asker(command.asker)],
    c.ForgetQuery: _forget,
    c.Barrier: lambda command, names, body: [names.asker(command.asker)],
}


def _payload(message: Any, payload: bytes, body: Body) -> Any:
    """The payload of a message: the core reads why the scheduler lost a task."""
    if type(message) is not m.TaskResult or not message.statuses or m.TaskStatus.LOST not in bytes(message.statuses):
        return body.payload(payload)
    parts, start = [], 0
    for size, status in zip(message.payload_sizes, message.statuses):
        part = payload[start : start + size]
        parts.append(body.kept(part) if status == m.TaskStatus.LOST else body.payload(part))
        start += size
    return body.parts(*parts, body.payload(payload[start:]))


# Effects --------------------------------------------------------------------------------------------------------------


def crc_of(effects: Sequence[e.Effect], names: Any) -> int:
    """Of all that does not depend on the bytes of payloads.

    Parameters:
        names: as `Names`.
    """
    crc = 0
    for effect in effects:
        shown = repr([type(effect).__name__, *(_shown(each, names) for each in effect)])
        crc = zlib.crc32(shown.encode("utf-8", "backslashreplace"), crc)
    return crc


def _shown(value: Any, names: Any) -> Any:
    """What is compared of a part of an effect."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", len(value)
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if hasattr(value, "_task_id"):
        return "future", names.future(value)
    if isinstance(value, KeptObject):
        return "object", value.number, value.object_id, value.size
    if isinstance(value, DeferredTask):
        return "deferred", names.future(value.future)
    if isinstance(value, Exception):
        return "error", str(value)
    if isinstance(value, (tuple, list)) or hasattr(value, "typecode"):
        return [_shown(each, names) for each in value]
    if hasattr(value, "put"):
        return "asker", names.asker(value)
    return type(value).__name__, encode(value)
