"""Runs the tasks of one chunk: loads the arguments, calls the function, keeps the outcome.

Rules:
- `run_plain` handles ordinary tasks. Its loop is the cost per task, so it has no allocation, lock or system call that
  could be done per chunk. Everything unusual is in `run_general`, at any cost.
- The tasks that have not started are one iterator. The thread that takes an item from it owns that task: the main
  thread runs it, the watchdog gives it back. `next` and `list` on this iterator are single operations under the
  interpreter's lock.
- Outcomes are appended, in order, to `payloads`: outcome i belongs to task i of the chunk. A failure and a
  large result are marked by their type, so that an ordinary result needs no second column.
- User code may raise anything: an exception ends its task, never the processor.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import pickle
import sys
import time
from array import array
from itertools import accumulate, chain
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional, Protocol, Sequence, TextIO, Tuple, Union, cast

from scaler.exceptions import CodecNotTakenError, MissingObjects, ObjectStorageFullError, WrongArgumentsError
from scaler.values import coroutines
from scaler.values.code_notes import NOTICE_STREAM
from scaler.values.failures import failure_payload
from scaler.values.named_functions import ServedFunction
from scaler.values.payload import BY_DEPENDENCY, INLINE_BYTES, Buffer, Parts, dump_value, load_arguments, split_results
from scaler.values.texts import description_of
from scaler.worker import resident_memory
from scaler.worker.frames import TaskChunk, TasksFlag
from scaler.worker.processor.defined_objects import DefinedObjects, Reader
from scaler.worker.processor.imported_code import explain_import_error
from scaler.worker.progress import LOADING
from scaler_protocol.host.spill import NoRoomError
from scaler_protocol.wire.messages import FailureKind

logger = logging.getLogger("scaler")

PICKLE_PROTOCOL = 5
FLUSH_INTERVAL_SECONDS = 0.001
"""Finished results wait at most this long to be sent together with others, unless a task is running."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_OF_CALLERS = tuple(
    os.path.join(_PACKAGE, *names)
    for names in (
        ("actors", "actor_function.py"),
        ("client", "mapping.py"),
        ("client", "graph_submission.py"),
        ("executor", "initialized.py"),
        ("synchronous", "local_tasks.py"),
        ("task_functions.py",),
    )
)
_OWN_FILES = (__file__, *_OF_CALLERS, *coroutines.OWN_FILES)

_PICKLE_MARK = 0x80
_SCALARS = frozenset({int, float, bool, complex})
_SHARED = "arrays from send_object(), joblib and Dask are shared by tasks, and read-only: write to a copy of the array"
_NONE_PAYLOAD = pickle.dumps(None, PICKLE_PROTOCOL)
_GENERAL_FLAGS = TasksFlag.DEPENDENCIES | TasksFlag.PROFILING | TasksFlag.STREAM_OUTPUT


class FailurePayload(bytes):
    """The outcome of a task that failed."""


class LargePayload(bytes):
    """The outcome of a task whose result went to a file: names the file."""


class TaskHost(Protocol):
    """The methods of the processor that running tasks needs."""

    progress: memoryview
    objects: DefinedObjects
    name: str
    process_id: int

    def flush(self, chunk: RunningChunk) -> None:
        """Send the outcomes so far."""

    def send_log(self, position: int, stream: int, text: str) -> None:
        """Send text that the task at `position` printed."""

    def keep_large_result(self, content: Parts) -> bytes:
        """Keep a large result; returns the payload that stands for it.

        Raises NoRoomError if there is no room for it.
        """


class RunningChunk:
    """A chunk being run, shared by the main thread, which appends outcomes, and the thread that sends them."""

    __slots__ = ("tasks", "remaining", "payloads", "profiles", "flushed", "busy_since", "has_given_back", "is_neutral")

    def __init__(self, tasks: TaskChunk) -> None:
        first = tasks.first_position
        self.tasks = tasks
        self.remaining: Iterator[Tuple[int, int]] = zip(range(first, first + tasks.task_count), accumulate(tasks.sizes))
        self.payloads: List[bytes] = []
        self.profiles: List[Tuple[int, int, int]] = []
        self.flushed = 0  # outcomes sent
        self.busy_since = 0.0
        self.has_given_back = False
        self.is_neutral = False  # outcomes are for readers of any language

    def take_rest(self) -> int:
        """Take all tasks that have not started; returns how many."""
        return len(list(self.remaining))


def run_chunk(processor: TaskHost, chunk: RunningChunk) -> None:
    """Run the tasks of a chunk, except those that the watchdog gives back."""
    objects, function_id = processor.objects, chunk.tasks.function
    first = None
    if not objects.is_loaded(function_id):
        # Loading runs user code on behalf of the first task, which must not be given back meanwhile: otherwise it would
        # be unknown which task kills the processor, and the task would go from processor to processor.
        first = next(chunk.remaining, None)
        if first is None:
            return
        processor.progress[0] = first[0] | LOADING
    failure = None
    try:
        function, serializer = objects.function(function_id)
        chunk.is_neutral = isinstance(serializer, ServedFunction)
    except CodecNotTakenError as error:
        failure = _failure(processor, chunk, FailureKind.CODEC_UNKNOWN, error)
    except BaseException as error:
        # SCL-COD-004
        failure = _failure(processor, chunk, FailureKind.FUNCTION_NOT_LOADED, error)
    if objects.notices and first is not None:
        _send_notices(processor, first[0])
    if first is not None:
        chunk.remaining = chain((first,), chunk.remaining)
    chunk.busy_since = time.perf_counter()
    if failure is not None:
        _fail_all(processor, chunk, failure)
    elif serializer is None and not chunk.tasks.flags & _GENERAL_FLAGS:
        run_plain(processor, chunk, function)
    else:
        run_general(processor, chunk, function, serializer)


def _send_notices(processor: TaskHost, position: int) -> None:
    """Send notices for the client of a task about the code that was loaded for it."""
    notices, processor.objects.notices = processor.objects.notices, []
    for notice in notices:
        logger.warning("%s: %s", processor.name, notice.text)
        processor.send_log(position, NOTICE_STREAM, notice.to_log())


def run_plain(processor: TaskHost, chunk: RunningChunk, function: Callable[..., Any]) -> None:
    """Run ordinary tasks: pickled arguments, and no options that affect the outcome."""
    body = chunk.tasks.body
    start = offset = chunk.tasks.payload_offset
    progress = processor.progress
    append, loads, dumps, clock = chunk.payloads.append, pickle.loads, pickle.dumps, time.perf_counter
    flush_at = chunk.busy_since + FLUSH_INTERVAL_SECONDS
    for position, stop in chunk.remaining:
        stop += offset
        if clock() >= flush_at:
            processor.flush(chunk)
            flush_at = clock() + FLUSH_INTERVAL_SECONDS
        progress[0] = position
        arguments: Any
        try:
            if start == stop:
                arguments = ()
            elif body[start] == _PICKLE_MARK:
                arguments = loads(body[start:stop])
            else:
                arguments = list(load_arguments(memoryview(body)[start:stop], (), None))
        except BaseException as error:
            append(_failure(processor, chunk, FailureKind.ARGUMENT_NOT_LOADED, error))
            start = stop
            continue
        start = stop
        try:
            if type(arguments) is tuple:
                result = function(*arguments)
            else:
                result = function(*arguments[0], **arguments[1])
        except BaseException as error:
            append(_failure(processor, chunk, FailureKind.TASK_RAISED, error))
            arguments = None  # their destructors are part of this task
            continue
        if result is None:
            append(_NONE_PAYLOAD)
        elif type(result) in _SCALARS:
            append(dumps(result, PICKLE_PROTOCOL))
        else:
            append(_dump_result(processor, chunk, result, None))
        result = arguments = None  # a large value must not live until the next task has created its own


def run_general(
    processor: TaskHost, chunk: RunningChunk, function: Callable[..., Any], serializer: Optional[Reader]
) -> None:
    """Run tasks with dependencies, a Serializer, profiling or captured output."""
    tasks = chunk.tasks
    view = memoryview(tasks.body)
    start = tasks.payload_offset
    stream_output = bool(tasks.flags & TasksFlag.STREAM_OUTPUT)
    bounds = [0, *accumulate(tasks.dependency_counts)]
    flush_at = chunk.busy_since + FLUSH_INTERVAL_SECONDS
    for position, stop in chunk.remaining:
        stop += tasks.payload_offset
        index = position - tasks.first_position
        if time.perf_counter() >= flush_at:
            processor.flush(chunk)
            flush_at = time.perf_counter() + FLUSH_INTERVAL_SECONDS
        processor.progress[0] = position
        dependencies: Sequence[int] = ()
        if tasks.dependency_counts:
            dependencies = tasks.dependencies[bounds[index] : bounds[index + 1]]
        profile = _Profile() if tasks.flags & TasksFlag.PROFILING else None
        output = _CapturedOutput(processor, position) if stream_output else None
        try:
            outcome = _run_one(processor, chunk, function, serializer, view[start:stop], dependencies)
        finally:
            if output is not None:
                output.end()
        if profile is not None:
            chunk.profiles.append(profile.end())  # before the payload, so that n payloads always have n profiles
        chunk.payloads.append(outcome)
        outcome = b""
        start = stop


def _run_one(
    processor: TaskHost,
    chunk: RunningChunk,
    function: Callable[..., Any],
    serializer: Optional[Reader],
    content: memoryview,
    dependencies: Sequence[int],
) -> bytes:
    objects = processor.objects
    if isinstance(serializer, ServedFunction):
        return _run_served(processor, chunk, serializer, content, dependencies)
    try:
        elsewhere: Buffer = b""
        if split_results(content)[1] == BY_DEPENDENCY:
            elsewhere, dependencies = objects.content(dependencies[0]), dependencies[1:]
        loaders = [objects.loader(object_id, serializer) for object_id in dependencies]
        args, kwargs = load_arguments(content, loaders, serializer, elsewhere)
    except MissingObjects as error:
        return _failure(processor, chunk, FailureKind.OBJECT_MISSING, error)
    except BaseException as error:
        return _failure(processor, chunk, FailureKind.ARGUMENT_NOT_LOADED, error)
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        if dependencies and type(error) in (ValueError, TypeError) and "read-only" in str(error):
            error.args = (f"{error} ({_SHARED})",)
        return _failure(processor, chunk, FailureKind.TASK_RAISED, error)
    return _dump_result(processor, chunk, result, serializer)


def _run_served(
    processor: TaskHost, chunk: RunningChunk, served: ServedFunction, content: Buffer, dependencies: Sequence[int]
) -> bytes:
    """One call by name, in a neutral codec."""
    try:
        if not len(content) and dependencies:  # SCL-COD-006
            content = processor.objects.content(dependencies[0])
        arguments = served.load_arguments(content)
    except MissingObjects as error:
        return _failure(processor, chunk, FailureKind.OBJECT_MISSING, error)
    except BaseException as error:
        return _failure(processor, chunk, FailureKind.ARGUMENT_NOT_LOADED, error)
    try:
        result = served.function(*arguments)
    except WrongArgumentsError as error:
        return _failure(processor, chunk, FailureKind.ARGUMENT_NOT_LOADED, error)
    except BaseException as error:
        return _failure(processor, chunk, FailureKind.TASK_RAISED, error)
    return _dump_result(processor, chunk, result, served)


def _dump_result(processor: TaskHost, chunk: RunningChunk, result: Any, serializer: Optional[Reader]) -> bytes:
    try:
        data: Union[bytes, Parts]
        if isinstance(serializer, ServedFunction):
            content = serializer.codec.dump_result(result)
            data = [content] if len(content) >= INLINE_BYTES else content
        else:
            data = dump_value(result, serializer)
        if isinstance(data, bytes):
            return data
        return LargePayload(processor.keep_large_result(data))
    except NoRoomError as error:
        full = ObjectStorageFullError(f"the task ran, but its result cannot be stored: {error.strerror}")
        return _failure(processor, chunk, FailureKind.TASK_RAISED, full)
    except BaseException as error:
        if inspect.iscoroutine(result):
            result.close()  # otherwise Python also warns that it was never awaited
        return _failure(processor, chunk, FailureKind.RESULT_NOT_SERIALIZABLE, error)


def _failure(processor: TaskHost, chunk: RunningChunk, kind: FailureKind, error: BaseException) -> FailurePayload:
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_own(frames.tb_frame):
        frames = frames.tb_next
    # Only the user's frames; also for an exception whose class forbids setting attributes.
    BaseException.with_traceback(error, frames)
    explain_import_error(error)
    attempts = chunk.tasks.attempt
    payload = failure_payload(
        kind, exception=error, worker=processor.name, attempts=attempts, is_neutral=chunk.is_neutral
    )
    if len(payload) >= INLINE_BYTES and kind == FailureKind.TASK_RAISED:
        # Failures travel inline: one that is too large for that keeps its text, but loses the exception.
        text = (
            f"the task raised {description_of(error)}; the exception itself, {len(payload)} bytes, is too large to be"
            f" sent with it (the limit is {INLINE_BYTES}): keep large data out of exceptions"
        )
        kind = FailureKind.EXCEPTION_NOT_SERIALIZABLE
        payload = failure_payload(kind, exception=error, message=text, worker=processor.name, attempts=attempts)
    return FailurePayload(payload)


def _is_own(frame: FrameType) -> bool:
    """Whether a frame at the beginning of a traceback belongs to Scaler."""
    return frame.f_code.co_filename.endswith(_OWN_FILES)


def _fail_all(processor: TaskHost, chunk: RunningChunk, payload: FailurePayload) -> None:
    for position, _ in chunk.remaining:
        processor.progress[0] = position
        if chunk.tasks.flags & TasksFlag.PROFILING:
            chunk.profiles.append((0, 0, 0))
        chunk.payloads.append(payload)


def outcome_columns(payloads: Sequence[bytes], failed: int, success: int) -> Tuple[bytes, bytes]:
    """The status and large-result columns of outcomes, each empty when no outcome needs it.

    Parameters:
        failed, success: the values of TaskStatus to fill in.
    """
    types = set(map(type, payloads))
    if types == {bytes}:
        return b"", b""
    statuses = large = b""
    if FailurePayload in types:
        # SCL-WRK-006
        statuses = bytes(failed if type(payload) is FailurePayload else success for payload in payloads)
    if LargePayload in types:
        large = bytes(type(payload) is LargePayload for payload in payloads)
    return statuses, large


def profile_columns(profiles: Sequence[Tuple[int, int, int]]) -> Tuple[array[int], array[int], array[int]]:
    """Durations and CPU times in microseconds and peak memory in bytes, as columns."""
    durations, cpu_times, peaks = zip(*profiles)
    return array("Q", durations), array("Q", cpu_times), array("Q", peaks)


class _Profile:
    """Measures one task: wall time, CPU time of the process, peak memory above what was resident before.

    Where the peak cannot be reset, a task shows the peak that it has if none was higher before, and otherwise
    what is resident when it ends.
    """

    def __init__(self) -> None:
        self._resident = resident_memory.resident_bytes()
        self._former_peak = 0 if resident_memory.reset_peak() else resident_memory.peak_bytes()
        self._cpu_start = time.process_time()
        self._start = time.perf_counter()

    def end(self) -> Tuple[int, int, int]:
        duration = time.perf_counter() - self._start
        cpu_time = time.process_time() - self._cpu_start
        peak = resident_memory.peak_bytes()
        if peak <= self._former_peak:
            peak = resident_memory.resident_bytes()
        # A duration of 0 says that nothing was measured.
        return max(1, int(duration * 1e6)), int(cpu_time * 1e6), max(0, peak - self._resident)


class _CapturedOutput:
    """Sends the output of one task to the agent, by lines, instead of to the worker's own output."""

    def __init__(self, processor: TaskHost, position: int) -> None:
        self._saved = (sys.stdout, sys.stderr)
        self._streams = (_TaskStream(processor, position, 1), _TaskStream(processor, position, 2))
        sys.stdout, sys.stderr = cast("Tuple[TextIO, TextIO]", self._streams)

    def end(self) -> None:
        sys.stdout, sys.stderr = self._saved
        for stream in self._streams:
            stream.end()


class _TaskStream(io.TextIOBase):
    """A text stream of one task; what is written after the task's end is dropped."""

    _MAXIMUM_CHARACTERS = 8192
    _MAXIMUM_FRAME_CHARACTERS = 64 * 1024  # divides large writes, because the scheduler limits messages

    def __init__(self, processor: TaskHost, position: int, stream: int) -> None:
        self._processor: Optional[TaskHost] = processor
        self._position = position
        self._stream = stream
        self._pending: List[str] = []
        self._characters = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream  # of the process itself, for code that needs a descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._pending.append(text)
        self._characters += len(text)
        if "\n" in text or self._characters >= self._MAXIMUM_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        self._characters = 0
        processor = self._processor
        if pending and processor is not None and os.getpid() == processor.process_id:
            text, most = "".join(pending), self._MAXIMUM_FRAME_CHARACTERS
            for start in range(0, len(text), most):
                processor.send_log(self._position, self._stream, text[start : start + most])

    def end(self) -> None:
        self.flush()
        self._processor = None
