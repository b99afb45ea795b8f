"""Every exception of Scaler's own that a user of the SDK can meet, named by what went wrong.

Rules:
- A message says what failed (with the value), why, and what to do.
- All derive from ScalerError; where a builtin category fits (ConnectionError, ValueError), they derive from it as well,
  so that code which knows nothing of Scaler catches them.
- No other module of the package defines a public exception, and what the client and the local cluster raise is defined
  here: a test reads their `raise` statements. The exceptions are those of `concurrent.futures`, such as CancelledError
  and TimeoutError of `ScalerFuture.result`, which users know already; and whatever a task raises.
"""

from __future__ import annotations

import warnings
from graphlib import CycleError

__all__ = [
    "AlreadyStartedError",
    "ArgumentTypeError",
    "ClientShutdownException",
    "CodecNotTakenError",
    "DependencyError",
    "DeserializeObjectError",
    "DisconnectedError",
    "GraphCycleError",
    "GraphKeyError",
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
]


class ScalerError(Exception):
    """Base of all errors of Scaler's own."""


class InvalidArgumentError(ScalerError, ValueError):
    """An argument has a value that is not allowed."""


class ArgumentTypeError(ScalerError, TypeError):
    """An argument has the wrong type."""


class InvalidAddressError(InvalidArgumentError):
    """The address is malformed."""


class SchedulerNotFoundError(ScalerError, ValueError):
    """No address was given, and no scheduler was found on this host."""


class SchedulerUnreachableError(ScalerError, ConnectionError):
    """The scheduler's address cannot be connected to."""


class NotASchedulerError(ScalerError, ConnectionError):
    """Something answers at the address, but it is not a Scaler scheduler."""


class ProtocolVersionError(ScalerError, ConnectionError):
    """Client and scheduler have no protocol version in common."""


class SchedulerRefusedError(ScalerError, ConnectionError):
    """The scheduler does not serve this client, and says why."""


class SchedulerShuttingDownError(SchedulerRefusedError):
    """The scheduler accepts no new peers because it is shutting down."""


class DisconnectedError(ScalerError, ConnectionError):
    """The client is disconnected, or has lost its scheduler, so the call or the task has no outcome."""


class ClientShutdownException(ScalerError):
    """The cluster was shut down by a client."""


class ShutdownRefusedError(ScalerError, ValueError):
    """The scheduler refuses to shut the cluster down, or a worker: it is protected, or there is no such worker."""


class ProgramStartError(ScalerError, OSError):
    """A scheduler, workers or the user interface did not start on this machine."""


class AlreadyStartedError(ScalerError, RuntimeError):
    """A local scheduler or worker is started a second time."""


class MissingPackageError(ScalerError, ModuleNotFoundError):
    """A feature was asked for that needs a package which is not installed."""


class PreloadError(ScalerError):
    """What `--preload` names cannot be understood, or failed."""


class SerializeObjectError(ScalerError, TypeError):
    """A function, argument or object cannot be serialised by this client."""


class DeserializeObjectError(ScalerError):
    """A function or argument cannot be loaded by the worker, or a result by the client."""


class OtherPythonError(ScalerError):
    """Code was made by another version of Python than the one that is to run it."""


class DependencyError(ScalerError):
    """The task was not run, because one whose result it needs has failed; `__cause__` is the exception of that one."""


class ResultNotSerializableError(ScalerError):
    """The task ran, but what it returned cannot be sent back."""


class NamedFunctionError(ScalerError):
    """A function that was called by name failed; what it raised stayed where it ran."""


class WrongArgumentsError(ScalerError, TypeError):
    """Raised by a function that is called by name and codec, if its arguments are not what it takes."""


class CodecNotTakenError(ScalerError, TypeError):
    """A function that is called by name does not take the codec of the call."""


class TaskExceptionNotSerializableError(ScalerError):
    """The task raised an exception that cannot be sent back; the message holds its text."""


class MissingObjects(ScalerError, KeyError):
    """An object reference whose object does not exist any more."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class TooManyReferences(ScalerError, ValueError):
    """Arguments refer to more objects than one task can."""


class ObjectStorageFullError(ScalerError, OSError):
    """Neither memory nor disk has room for a large argument, object or result, or the scheduler takes none so large."""


class ModuleUploadError(ScalerError, ImportError):
    """Code that is to be shipped to workers cannot be found here, or cannot be shipped."""


class GraphKeyError(ScalerError, KeyError):
    """A key that was asked for is not in the graph, or was given twice."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class GraphCycleError(ScalerError, CycleError):
    """Tasks of a graph wait for each other in a circle; the second argument names the keys."""

    def __str__(self) -> str:  # with two arguments it would be the repr of both
        return str(self.args[0]) if self.args else ""


class ProcessorDiedError(ScalerError):
    """The process that ran the task ended."""


class WorkerDiedError(ScalerError):
    """The worker that held the task was lost, and no attempt was left."""


class NoWorkerError(ScalerError):
    """No connected worker can run the task."""


class TaskTimeoutError(ScalerError, TimeoutError):
    """The task ran longer than its time limit."""


class TaskMemoryLimitError(ScalerError, MemoryError):
    """The task took more memory than its limit."""


class ProfileNotAvailableError(ScalerError, ValueError):
    """A task has no profile: it is not done, did not run to an end, or was submitted without profiling."""


class TaskRejectedError(ScalerError):
    """The scheduler did not accept the task."""


class UnfinishedTasksWarning(ScalerError, RuntimeWarning):
    """A `with` block of a client ended, and cancelled tasks that were not finished."""


# Each time, not once for each place as others: a cell of a notebook is run again and again. Behind all other filters,
# so that those of the user decide.
warnings.simplefilter("always", UnfinishedTasksWarning, append=True)


class RemoteTraceback(ScalerError):
    """The traceback of an exception as it was on the worker; shown as the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
