"""The effects that the agent's core returns to its shell, and the interfaces between parts of the core.

    core ── Send, Deliver, SpawnProcessor … ──▶ shell
    core ◀── on_<event>(…) ──────────────────── shell

Rules:
- Effects are plain values, which tests compare.
- The shell performs effects in order. An effect that asks for something is answered exactly once, by the method of
  `AgentCore` that its docstring names, at once or later; file operations are answered in the order in which they
  were asked for.
"""

from __future__ import annotations

from typing import Callable, Iterable, List, NamedTuple, Optional, Protocol, Set, Tuple, Union

from scaler.data_serving.data_effects import CloseData as CloseData
from scaler.data_serving.data_effects import ConnectData as ConnectData
from scaler.data_serving.data_effects import SendData as SendData
from scaler.worker.frames import Buffer, Buffers, ContentPlace
from scaler_protocol import messages as m
from scaler_protocol.session.effects import Connect, Disconnect, StopConnecting

# Log levels, with the numbers of the standard library.
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50


# The scheduler; the session's effects Connect, StopConnecting and Disconnect are answered as described there
# -----------------------------------


class Send(NamedTuple):
    """Send a message to the scheduler."""

    message: m.Member
    payload: Buffer = b""


# Processors -----------------------------------------------------------------------------------------------------------


class Deliver(NamedTuple):
    """Write a frame to a processor's socket."""

    number: int
    buffers: Buffers


class SpawnProcessor(NamedTuple):
    """Fork a processor, after a delay in seconds if it is not 0.

    `on_processor_started` follows, and in the end `on_processor_died`.
    """

    number: int
    delay_seconds: float = 0.0


class KillProcessor(NamedTuple):
    """Kill a processor. `on_processor_died` follows, with the stack of its task if that is requested and available."""

    number: int
    wants_stack: bool = False


class StopProcessor(NamedTuple):
    """Let an idle processor end by itself. `on_processor_died` follows."""

    number: int


class ImportModule(NamedTuple):
    """Let the fork server import a module, so that processors forked from now on have it."""

    name: str


class EndProcessors(NamedTuple):
    """End the fork server, and with it all processors; no events of them follow."""


class MeasureProcesses(NamedTuple):
    """Read CPU time and memory of processes and of the host. `on_processes_measured` follows."""

    process_ids: Tuple[int, ...]


class MeasureMemory(NamedTuple):
    """Read the unshared memory of processes. `on_memory_measured` follows."""

    process_ids: Tuple[int, ...]


# Files ----------------------------------------------------------------------------------------------------------------


class OpenObjects(NamedTuple):
    """Find out whether this host sees the scheduler's object directory, and where results go.

    `on_objects_opened` follows.
    """

    directory: str
    token: bytes


class FindObject(NamedTuple):
    """Check whether the scheduler's directory has an object. `on_object_found` follows."""

    object_id: int
    path: str


class WriteChunk(NamedTuple):
    """Write a part of an object that is fetched. `on_chunk_written` or `on_chunk_failed` follows.

    Parameters:
        fetch: number of the fetch, for the answer.
        chunk: may be a view of memory that the next part overwrites: it is written in the turn in which it came.
        size: of the whole object in bytes.
        is_first: this is the first part, so there may be no room for the object.
    """

    object_id: int
    fetch: int
    offset: int
    chunk: Buffer
    size: int
    is_first: bool


class NameCopy(NamedTuple):
    """Give the file of a fetch, which is whole, this name in our own directory: others on this host may find it then.
    `on_copy_named` follows, or `on_chunk_failed`.

    Parameters:
        fetch: number of the fetch, for the answer.
    """

    object_id: int
    fetch: int
    path: str
    name: str


class LinkCopy(NamedTuple):
    """Make the whole file of an object that another worker on this host has ours, too. `on_copy_linked` follows.

    Parameters:
        fetch: number of the fetch, for the answer.
        name: of that file, in the directories of both workers.
        size: in bytes.
    """

    object_id: int
    fetch: int
    name: str
    size: int


class ReadChunk(NamedTuple):
    """Read a part of a result that is fetched here. `on_chunk_read` follows.

    Parameters:
        connection: to the worker that fetches it; 0: the scheduler does.
    """

    object_id: int
    path: str
    offset: int
    length: int
    connection: int = 0


class KeepResult(NamedTuple):
    """Rename the file of a large result to that of an object. `on_result_kept` follows."""

    object_id: int
    path: str
    target: str


class RemoveFiles(NamedTuple):
    """Remove object files, as far as they exist."""

    paths: Tuple[str, ...]


class RemoveLeftovers(NamedTuple):
    """Remove the files that a processor was writing when it died."""

    process_id: int


class ReadNote(NamedTuple):
    """Read from a function's file which code the function needs. `on_note_read` follows."""

    function: int
    path: str


class UnpackCode(NamedTuple):
    """Unpack an archive of code. `on_code_unpacked` or `on_code_failed` follows."""

    digest: str
    place: ContentPlace
    content: Buffer


class RemoveCode(NamedTuple):
    """Remove folders of unpacked code."""

    folders: Tuple[str, ...]


# The process ----------------------------------------------------------------------------------------------------------


class Log(NamedTuple):
    """Write a line to the log."""

    level: int
    text: str


class Finish(NamedTuple):
    """End the program with this exit code."""

    exit_code: int


Effect = Union[
    Connect,
    StopConnecting,
    Disconnect,
    Send,
    ConnectData,
    SendData,
    CloseData,
    Deliver,
    SpawnProcessor,
    KillProcessor,
    StopProcessor,
    ImportModule,
    EndProcessors,
    MeasureProcesses,
    MeasureMemory,
    OpenObjects,
    FindObject,
    WriteChunk,
    NameCopy,
    LinkCopy,
    ReadChunk,
    KeepResult,
    RemoveFiles,
    RemoveLeftovers,
    ReadNote,
    UnpackCode,
    RemoveCode,
    Log,
    Finish,
]


# Between the parts of the core ----------------------------------------------------------------------------------------


class FunctionCode(Protocol):
    """Answers which code of their client functions need (see `code_sets`)."""

    def key(self, function: int) -> str:
        """Identifies processors with this code; empty if the function needs none."""

    def missing(self, function: int) -> Set[int]:
        """The objects that its tasks wait for: archives that are not here or not unpacked, or the function itself while
        the note in its file is read."""

    def contents(self, function: int) -> Tuple[str, List[str]]:
        """The client's key for the code, and the folders from which processors import it, once all of it is here."""

    def forget(self, functions: Iterable[int]) -> Set[str]:
        """These functions are gone; returns keys that no remaining function has."""

    def forget_all(self) -> Set[str]:
        """All functions are gone; returns their keys."""

    def sweep(self, folders_in_use: Set[str]) -> None:
        """Remove code that neither a function nor a processor needs any more."""


class ObjectSource(Protocol):
    """Provides objects for tasks (see `worker_objects`)."""

    def is_available(self, object_id: int) -> bool:
        """Whether the object can be given to processors now."""

    def fetch(self, object_id: int) -> None:
        """Get it; the listener's `on_object_available` or `on_object_missing` follows."""

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]:
        """Kind, place and content of an available object."""

    def forget_unused(self, now: float, retention_seconds: float, needed: Callable[[], Set[int]]) -> None:
        """Forget objects that were not used for this long and are not needed."""

    def adopt(self, path: str, size: int) -> int:
        """Make an object of a file that a processor wrote: its id, or 0 when it is larger than the scheduler allows.

        The listener's `on_object_served` follows when its outcome may be sent, or `on_object_unserved` when it is gone.
        """

    @property
    def maximum_object_bytes(self) -> int:
        """The scheduler's limit in bytes; 0 if it is not known."""


class ObjectListener(Protocol):
    """Notified about changes of objects."""

    def on_object_available(self, object_id: int) -> None:
        """An object has been fetched."""

    def on_object_missing(self, object_id: int, is_maker_lost: bool = False) -> None:
        """An object could not be fetched, because it does not exist.

        Parameters:
            is_maker_lost: the worker that had made it, and had the only copy, is gone.
        """

    def on_no_room_for_object(self, object_id: int, why: str) -> None:
        """An object could not be fetched, because there is no room for it on this host or at the scheduler.

        Parameters:
            why: what happened to it, as the end of a sentence.
        """

    def on_object_served(self, object_id: int) -> None:
        """The outcome whose result is this object may be sent."""

    def on_object_unserved(self, object_id: int) -> None:
        """A large result is gone, and the scheduler does not have all of it."""
