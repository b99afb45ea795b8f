"""Every error that a user of the SDK can meet, named by what went wrong.

Rules:
- A message says what happened, where, and what to do next.
- All derive from ScalerError; where a builtin category fits (ConnectionError, TimeoutError), they derive from it as
  well, so that code which knows nothing of Scaler catches them.
"""

from __future__ import annotations

__all__ = [
    "ClientShutdownException",
    "DeserializeObjectError",
    "DisconnectedError",
    "GraphKeyError",
    "MissingObjects",
    "ModuleUploadError",
    "NamedFunctionError",
    "NoWorkerError",
    "NotASchedulerError",
    "ObjectStorageFullError",
    "ProcessorDiedError",
    "ProtocolVersionError",
    "RemoteTraceback",
    "ResultNotSerializableError",
    "ScalerError",
    "SchedulerRefusedError",
    "SchedulerUnreachableError",
    "SerializeObjectError",
    "TaskExceptionNotSerializableError",
    "TaskMemoryLimitError",
    "TaskRejectedError",
    "TaskTimeoutError",
    "WorkerDiedError",
]


class ScalerError(Exception):
    """Base of all errors of Scaler's own."""


class SchedulerUnreachableError(ScalerError, ConnectionError):
    """Nobody listens at the scheduler's address."""


class NotASchedulerError(ScalerError, ConnectionError):
    """Something answers at the address, but it is not a Scaler scheduler."""


class ProtocolVersionError(ScalerError, ConnectionError):
    """Client and scheduler have no protocol version in common."""


class SchedulerRefusedError(ScalerError, ConnectionError):
    """The scheduler does not serve this client, and says why."""


class DisconnectedError(ScalerError, ConnectionError):
    """The client is disconnected, or has lost its scheduler, so the call or the task has no outcome."""


class ClientShutdownException(ScalerError):
    """The cluster was shut down by a client."""


class SerializeObjectError(ScalerError, TypeError):
    """A function, argument or object cannot be serialised by this client."""


class DeserializeObjectError(ScalerError):
    """A function or argument cannot be loaded by the worker, or a result by the client."""


class ResultNotSerializableError(ScalerError):
    """The task ran, but what it returned cannot be sent back."""


class NamedFunctionError(ScalerError):
    """A function that was called by name failed; what it raised stayed where it ran."""


class TaskExceptionNotSerializableError(ScalerError):
    """The task raised an exception that cannot be sent back; the message holds its text."""


class MissingObjects(ScalerError, KeyError):
    """An object reference whose object does not exist any more."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class ObjectStorageFullError(ScalerError, OSError):
    """Neither memory nor disk has room for a large argument, object or result, or the scheduler takes none so large."""


class ModuleUploadError(ScalerError, ImportError):
    """Code that is to be shipped to workers cannot be found here, or cannot be shipped."""


class GraphKeyError(ScalerError, KeyError):
    """A key that was asked for is not in the graph, or was given twice."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


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


class TaskRejectedError(ScalerError):
    """The scheduler did not accept the task."""


class RemoteTraceback(Exception):
    """The traceback of an exception as it was on the worker; shown as the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
