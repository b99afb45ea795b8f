"""All public exceptions of the SDK, named by what went wrong.

Rules:
- A message says what failed (with the value), why, and what to do.
- Its page in the documentation is told by tracebacks, in a line after the message, and by the attribute `page`. The
  text of an error stays what it is, since programs compare it and logs have one line for it.
- All derive from ScalerError; where a builtin category fits (ConnectionError, ValueError), they also derive from it, so
  that generic handlers catch them.
- No other module of the package defines a public exception, and everything that the client and the local cluster raise
  is defined here: a test reads their `raise` statements. The exceptions to this rule are those of `concurrent.futures`,
  such as CancelledError and TimeoutError of `ScalerFuture.result`, which users already know; and whatever a task
  raises.
"""

from __future__ import annotations

import warnings
from concurrent.futures import BrokenExecutor
from graphlib import CycleError
from typing import List

from scaler_protocol.programs.documentation import link_to

__all__ = [
    "ActorCreationError",
    "ActorLostError",
    "ActorsNotSupportedError",
    "AlreadyStartedError",
    "ArgumentTypeError",
    "ClientFailedError",
    "ClientShutdownException",
    "CodecNotTakenError",
    "DependencyError",
    "DeserializeObjectError",
    "DisconnectedError",
    "GraphCycleError",
    "GraphKeyError",
    "InitializerError",
    "InvalidAddressError",
    "InvalidArgumentError",
    "MissingObjects",
    "MissingPackageError",
    "ModuleUploadError",
    "NamedFunctionError",
    "NoWorkerError",
    "NotASchedulerError",
    "ObjectStorageFullError",
    "OtherPythonError",
    "PreloadError",
    "ProcessorDiedError",
    "ProfileNotAvailableError",
    "ProgramStartError",
    "ProtocolVersionError",
    "RemoteTraceback",
    "ResultNotSerializableError",
    "ScalerError",
    "SchedulerNotFoundError",
    "SchedulerRefusedError",
    "SchedulerShuttingDownError",
    "AuthenticationError",
    "SchedulerUnreachableError",
    "SerializeObjectError",
    "ShutdownRefusedError",
    "TaskExceptionNotSerializableError",
    "TaskMemoryLimitError",
    "TaskRejectedError",
    "TaskTimeoutError",
    "TooManyReferences",
    "UnfinishedTasksWarning",
    "WorkerDiedError",
    "WrongArgumentsError",
    "WrongEventLoopError",
]


class ScalerError(Exception):
    """Base class of all errors of Scaler."""

    @property
    def page(self) -> str:
        """The link to what the documentation says about this error; empty if that is nothing."""
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)
        return link_to(f"reference/errors#{name.lower()}")

    # Tracebacks show notes: before Python 3.11 by a package that `scaler` imports. The link is made when they are read,
    # and is no part of the state: it costs an error nothing, is not pickled, and is that of the process which shows it.

    @property
    def __notes__(self) -> List[str]:
        return [*self.__dict__.get("__notes__", ()), *([f"see {self.page}"] if self.page else ())]

    @__notes__.setter
    def __notes__(self, notes: List[str]) -> None:
        self.__dict__["__notes__"] = [note for note in notes if note != f"see {self.page}"]

    def add_note(self, note: str) -> None:
        """As `BaseException.add_note` of Python 3.11."""
        self.__dict__["__notes__"] = [*self.__dict__.get("__notes__", ()), note]


class InvalidArgumentError(ScalerError, ValueError):
    """An argument has an invalid value."""


class ArgumentTypeError(ScalerError, TypeError):
    """An argument has the wrong type."""


class InvalidAddressError(InvalidArgumentError):
    """The address is malformed."""


class SchedulerNotFoundError(ScalerError, ValueError):
    """No address was given, and no scheduler was found on this host."""


class SchedulerUnreachableError(ScalerError, ConnectionError):
    """The client cannot connect to the scheduler's address."""


class NotASchedulerError(ScalerError, ConnectionError):
    """The server at the address is not a Scaler scheduler."""


class ProtocolVersionError(ScalerError, ConnectionError):
    """Client and scheduler have no protocol version in common."""


class SchedulerRefusedError(ScalerError, ConnectionError):
    """The scheduler refuses this client, and says why."""


class SchedulerShuttingDownError(SchedulerRefusedError):
    """The scheduler accepts no new peers because it is shutting down."""


class AuthenticationError(ScalerError, ConnectionError):
    """There is no key for the scheduler, it does not admit the key, or it cannot prove its own."""


class DisconnectedError(ScalerError, ConnectionError):
    """The client is disconnected, or has lost its scheduler, so the call or the task has no outcome."""


class ClientFailedError(DisconnectedError):
    """The client met a bug of its own, or an error of the system, and has ended; the message says where the recording
    is."""


class InitializerError(ScalerError, BrokenExecutor):
    """The initializer of an executor has failed, and the executor cannot be used any more."""


class WrongEventLoopError(ScalerError, RuntimeError):
    """A client of `scaler.aio` was used outside of the event loop that it was connected in."""


class ClientShutdownException(ScalerError):
    """The cluster was shut down, by a client or by who runs the scheduler, and not for a restart."""


class ShutdownRefusedError(ScalerError, ValueError):
    """The scheduler refuses to shut the cluster or a worker down: it is protected, or the worker is unknown."""


class ProgramStartError(ScalerError, OSError):
    """A scheduler, workers or the user interface did not start on this machine."""


class AlreadyStartedError(ScalerError, RuntimeError):
    """A local scheduler or worker is started a second time."""


class MissingPackageError(ScalerError, ModuleNotFoundError):
    """A feature needs a package that is not installed."""


class PreloadError(ScalerError):
    """The value of `--preload` is malformed, or the preload failed."""


class SerializeObjectError(ScalerError, TypeError):
    """This client cannot serialise a function, argument or object."""


class DeserializeObjectError(ScalerError):
    """The worker cannot load a function or argument, or the client cannot load a result."""


class OtherPythonError(ScalerError):
    """Code was pickled by another version of Python than the one that should run it."""


class DependencyError(ScalerError):
    """The task did not run, because a task whose result it needs has failed; `__cause__` is the exception of that
    task."""


class ResultNotSerializableError(ScalerError):
    """The task ran, but its return value cannot be serialised."""


class NamedFunctionError(ScalerError):
    """A function called by name failed; the exception itself stayed on the worker."""


class WrongArgumentsError(ScalerError, TypeError):
    """Raised by a function called by name and codec, if it does not accept the arguments."""


class CodecNotTakenError(ScalerError, TypeError):
    """A function called by name does not accept the codec of the call."""


class TaskExceptionNotSerializableError(ScalerError):
    """The task raised an exception that cannot be serialised; the message has its text."""


class MissingObjects(ScalerError, KeyError):
    """The object of a reference no longer exists."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class TooManyReferences(ScalerError, ValueError):
    """Arguments refer to more objects than one task can."""


class ObjectStorageFullError(ScalerError, OSError):
    """A large argument, object or result fits neither in memory nor on disk, or exceeds the scheduler's limit."""


class ModuleUploadError(ScalerError, ImportError):
    """Code to be shipped to workers was not found here, or cannot be shipped."""


class GraphKeyError(ScalerError, KeyError):
    """A requested key is not in the graph, or was requested twice."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class GraphCycleError(ScalerError, CycleError):
    """Tasks of a graph wait for each other in a cycle; the second argument names the keys."""

    def __str__(self) -> str:  # with two arguments it would be the repr of both
        return str(self.args[0]) if self.args else ""


class ProcessorDiedError(ScalerError):
    """The process that ran the task ended."""


class WorkerDiedError(ScalerError):
    """The worker that held the task was lost, and no attempt was left."""


class ActorLostError(ScalerError):
    """The actor has ended, with its state; the message says where and why. It does not begin again by itself."""


class ActorCreationError(ActorLostError):
    """The actor's instance could not be made; `__cause__` is what its class has raised."""


class ActorsNotSupportedError(ScalerError):
    """The scheduler is of a version that knows no actors."""


class NoWorkerError(ScalerError):
    """No connected worker can run the task."""


class TaskTimeoutError(ScalerError, TimeoutError):
    """The task ran longer than its time limit."""


class TaskMemoryLimitError(ScalerError, MemoryError):
    """The task used more memory than its limit."""


class ProfileNotAvailableError(ScalerError, ValueError):
    """A task has no profile: it is not done, did not run to an end, or was submitted without profiling."""


class TaskRejectedError(ScalerError):
    """The scheduler did not accept the task."""


class UnfinishedTasksWarning(ScalerError, RuntimeWarning):
    """A `with` block of a client ended, and cancelled unfinished tasks."""


# Shown every time, not once per place like other warnings, because a notebook cell runs again and again. Appended after
# all other filters, so that the user's take precedence.
warnings.simplefilter("always", UnfinishedTasksWarning, append=True)


class RemoteTraceback(ScalerError):
    """The traceback of an exception as it was on the worker; shown as the cause of the exception here."""

    @property
    def page(self) -> str:
        return ""  # it belongs to an error, which has one

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def with_page(error: Exception) -> str:
    """What a program prints about an error: its text, and in a second line the link to its page if it has one."""
    page = error.page if isinstance(error, ScalerError) else ""
    return f"{error}\nsee {page}" if page else str(error)
