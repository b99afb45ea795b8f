"""What the agent's core asks its shell to do, and what it asks of the object store.

Rules: effects are values, which tests compare; nothing here does anything.
"""

from __future__ import annotations

from typing import Callable, Iterable, List, NamedTuple, Optional, Protocol, Set, Tuple, Union

from scaler.worker.frames import Buffer, Buffers, ContentPlace
from scaler_protocol import messages as m


class Deliver(NamedTuple):
    """Write a frame to a processor's socket."""

    number: int
    buffers: Buffers


class SpawnProcessor(NamedTuple):
    """Fork a processor, after a delay in seconds if it is not 0."""

    number: int
    delay_seconds: float = 0.0


class KillProcessor(NamedTuple):
    """Kill a processor. `on_processor_died` follows, with the stack of its task if that is wanted and can be told."""

    number: int
    wants_stack: bool = False


class StopProcessor(NamedTuple):
    """Let a processor that has nothing to do end by itself."""

    number: int


class Send(NamedTuple):
    """Send a message to the scheduler."""

    message: m.Member
    payload: Buffer = b""


Effect = Union[Deliver, SpawnProcessor, KillProcessor, StopProcessor, Send]


class FunctionCode(Protocol):
    """Where the core asks what code of their client functions need (see `code_sets`)."""

    def key(self, function: int) -> str:
        """What tells processors with this code from others; empty: it needs none."""

    def missing(self, function: int) -> Set[int]:
        """The archives that have to be fetched before the function can run.

        Raises CodeError when code cannot be had.
        """

    def contents(self, function: int) -> Tuple[str, List[str]]:
        """The key by which the client knows the code, and where processors import it from, once nothing is missing."""

    def forget(self, functions: Iterable[int]) -> Set[str]:
        """These functions are gone; returns keys that no function has any more."""

    def forget_all(self) -> Set[str]:
        """All functions are gone; returns their keys."""

    def sweep(self, folders_in_use: Set[str]) -> None:
        """Remove what neither a function nor a processor needs any more."""


class CodeError(Exception):
    """Code that tasks need cannot be had here; the message says why."""


class ObjectSource(Protocol):
    """Where the core asks for objects (see `object_store`)."""

    def is_available(self, object_id: int) -> bool:
        """Whether processors can be given the object now."""

    def fetch(self, object_id: int) -> None:
        """Get it; `on_object_available` or `on_object_missing` follows."""

    def definition(self, object_id: int) -> Optional[Tuple[int, ContentPlace, Buffer]]:
        """Kind, place and content of an available object."""

    def forget_unused(self, now: float, retention_seconds: float, needed: Callable[[], Set[int]]) -> None:
        """Forget what nobody has asked for in so long, and nobody needs."""

    def adopt(self, path: str, size: int) -> Tuple[int, bool]:
        """Make a file that a processor wrote an object: its id, 0 if it is gone, and whether the scheduler has it.

        Raises ObjectStorageFullError when it is larger than the scheduler allows; the file is removed then.
        """
