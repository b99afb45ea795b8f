"""Runs tasks in the thread that submits them, for a synchronous client.

    function, arguments ──bytes──▶ LocalObjects ──▶ run_chunk, as in a processor ──bytes──▶ LocalOutcome

Rules:
- Everything passes through the same bytes, and the same code, as in a processor: what is copied, shared, read-only or
  unpicklable there is so here.
- Ctrl-C, and the end of a debugger's session, come from the user: they reach the caller of `submit`.
- Modules are those of this process: none is reloaded for a task.
- A task sees no running event loop, as in a processor, even if the calling thread runs one.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from array import array
from types import TracebackType
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, TextIO, Tuple, Union

from scaler import nesting
from scaler.exceptions import MissingObjects
from scaler.serializer import Serializer
from scaler.values.code_notes import CodeNote, Notice
from scaler.values.named_functions import ServedFunction
from scaler.values.payload import Buffer, Loader, Parts
from scaler.worker.frames import ContentPlace, TaskChunk, TasksFlag
from scaler.worker.processor.chunk_runner import FailurePayload, LargePayload, RunningChunk, run_chunk
from scaler.worker.processor.defined_objects import DefinedObjects, Reader
from scaler.worker.processor.imported_code import ImportedCode
from scaler_protocol.wire import messages as m

_ENDS_OF_DEBUGGING = (("bdb", "BdbQuit"), ("_pytest.outcomes", "Exit"))
"""What debuggers raise when the user quits, by module and name, so that they need not be imported."""

Emit = Callable[[int, int, str], None]
"""Shows what a task prints: its number, the stream (1 or 2), and the text."""


class _ModulesOfThisProcess(ImportedCode):
    """The client's modules are those of its tasks, whatever their files say by now."""

    def before_loading(self, note: CodeNote) -> bool:
        return False

    def after_loading(self, note: CodeNote, content: Buffer) -> List[Notice]:
        return []


class LocalObjects(DefinedObjects):
    """The objects of all synchronous clients of this process."""

    def __init__(self) -> None:
        super().__init__(_ModulesOfThisProcess())

    def add(self, object_id: int, content: Buffer) -> None:
        self.define(object_id, ContentPlace.INLINE, memoryview(content))

    def has(self, object_id: int) -> bool:
        return object_id in self._definitions

    def content(self, object_id: int) -> Union[bytes, memoryview]:
        if object_id not in self._definitions:
            raise MissingObjects(f"object {object_id:x} does not exist any more")
        return super().content(object_id)


class LocalTask(NamedTuple):
    """A task to run.

    Parameters:
        number: the client's, for its output.
        function: the object's id.
        dependencies: ids of the objects that it needs.
        folders: where the modules are that its client ships.
    """

    number: int
    function: int
    payload: Buffer
    dependencies: Sequence[int]
    options: Optional[m.TaskOptions]
    folders: Sequence[str] = ()


class LocalOutcome(NamedTuple):
    """What came of a task.

    Parameters:
        traceback: of the exception that the function raised, with its frames, for debuggers.
        profile: duration in microseconds, peak memory in bytes, processor time in microseconds; or empty.
    """

    payload: Buffer
    has_failed: bool
    traceback: Optional[TracebackType]
    profile: Tuple[int, ...]


class _Call:
    """Calls the function of one task; keeps what it raised."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.error: Optional[BaseException] = None
        self.traceback: Optional[TracebackType] = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # an argument may be called self
        try:
            return self._function(*args, **kwargs)
        except BaseException as error:
            self.error = error
            self.traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None
            raise


class _ObjectsOfTask:
    """The objects as one task sees them: its function is called by way of a `_Call`."""

    def __init__(self, objects: LocalObjects) -> None:
        self._objects = objects
        self.is_loaded = objects.is_loaded
        self.content = objects.content
        self.notices: List[Notice] = []
        self.call: Optional[_Call] = None

    def loader(self, object_id: int, serializer: Optional[Serializer]) -> Loader:
        return self._objects.loader(object_id, serializer)

    def function(self, object_id: int) -> Tuple[Callable[..., Any], Optional[Reader]]:
        function, reader = self._objects.function(object_id)
        if isinstance(reader, ServedFunction):
            self.call = _Call(reader.function)
            reader = copy.copy(reader)
            reader.function = self.call
        else:
            self.call = _Call(function)
        return self.call, reader


class _Host:
    """What a processor is to the task that it runs."""

    def __init__(self, number: int, objects: Any, emit: Emit) -> None:
        self.progress = memoryview(array("Q", [0]))
        self.objects = objects
        self.process_id = os.getpid()
        self.name = f"process {self.process_id}"
        self.large_result = bytearray()
        self._number = number
        self._emit = emit
        self._streams: Tuple[TextIO, TextIO] = (sys.stdout, sys.stderr)

    def flush(self, chunk: RunningChunk) -> None:
        """The outcome is read when the task has ended."""

    def keep_large_result(self, content: Parts) -> bytes:
        self.large_result = bytearray().join(content)
        return b""

    def send_log(self, position: int, stream: int, text: str) -> None:
        captured = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._streams
        try:
            self._emit(self._number, stream, text)
        finally:
            sys.stdout, sys.stderr = captured


def run_here(objects: LocalObjects, task: LocalTask, emit: Emit) -> LocalOutcome:
    """Run a task in this thread.

    Raises KeyboardInterrupt, and what a debugger raises when its user quits.
    """
    seen = _ObjectsOfTask(objects)
    host = _Host(task.number, seen, emit)
    chunk = RunningChunk(_chunk_of(task))
    was_in_task, nesting.this_thread.is_in_synchronous_task = nesting.this_thread.is_in_synchronous_task, True
    try:
        with _without_event_loop(), _importable(task.folders):
            run_chunk(host, chunk)
    finally:
        nesting.this_thread.is_in_synchronous_task = was_in_task
    call = seen.call
    if call is not None and call.error is not None and _comes_from_the_user(call.error):
        raise call.error.with_traceback(call.traceback)
    payload: Union[bytes, bytearray] = chunk.payloads[0]
    has_failed = type(payload) is FailurePayload
    if type(payload) is LargePayload:
        payload = host.large_result
    profile: Tuple[int, ...] = ()
    if chunk.profiles:
        duration, cpu_time, peak_memory = chunk.profiles[0]
        profile = (duration, peak_memory, cpu_time)
    return LocalOutcome(payload, has_failed, call.traceback if call is not None else None, profile)


def _chunk_of(task: LocalTask) -> TaskChunk:
    flags = TasksFlag.DEPENDENCIES  # so that the general way is taken, at any cost
    if task.options is not None:
        flags |= TasksFlag.PROFILING * task.options.profiling | TasksFlag.STREAM_OUTPUT * task.options.stream_output
    return TaskChunk(
        function=task.function,
        first_position=0,
        client=0,
        attempt=1,
        priority=0,
        task_count=1,
        flags=flags,
        ids=array("Q", [task.number]),
        sizes=array("Q", [len(task.payload)]),
        dependency_counts=array("Q", [len(task.dependencies)]),
        dependencies=array("Q", task.dependencies),
        body=bytes(task.payload),
        payload_offset=0,
    )


def _comes_from_the_user(error: BaseException) -> bool:
    """Whether an exception is no outcome of a task, because the user has interrupted it."""
    if isinstance(error, KeyboardInterrupt):
        return True
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in _ENDS_OF_DEBUGGING)
    return any(kind is not None and isinstance(error, kind) for kind in kinds)


@contextlib.contextmanager
def _importable(folders: Sequence[str]) -> Iterator[None]:
    """Import from these folders first."""
    sys.path[:0] = folders
    try:
        yield
    finally:
        for folder in folders:
            with contextlib.suppress(ValueError):  # the task has changed the path
                sys.path.remove(folder)


@contextlib.contextmanager
def _without_event_loop() -> Iterator[None]:
    """If this thread runs an event loop: let the task run one of its own, as it may in a processor."""
    events: Any = sys.modules.get("asyncio.events")
    loop = events._get_running_loop() if events is not None else None
    if loop is None:
        yield
        return
    # From Python 3.12 on, a loop cannot run while a task of another one is the current task of the thread.
    swap = getattr(sys.modules["asyncio.tasks"], "_swap_current_task", None)
    current = swap(loop, None) if swap is not None else None
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        if swap is not None and current is not None:
            swap(loop, current)
