"""How a task's failure travels: a neutral record that any language can read, with the Python exception inside if
possible.

Rules:
- Writing a failure never fails: what cannot be pickled is described.
- Reading a failure never fails: an exception that cannot be loaded becomes a named error with the same text.
- The text of a failure in a neutral codec, which all that is shown of it comes from, controls no terminal.
- The error names the function, the worker and the attempt that failed, why, and what to do about it.
"""

from __future__ import annotations

import traceback as traceback_module
from typing import Any, Dict, Optional, Type

from scaler import exceptions
from scaler.exceptions import RemoteTraceback, ScalerError
from scaler.values.codecs import PYTHON_CODEC
from scaler.values.exception_pickling import dump_exception, load_exception
from scaler.values.payload import INLINE_BYTES
from scaler.values.texts import description_of, shortened, text_of
from scaler_protocol import MalformedMessageError, decode_struct, encode_struct
from scaler_protocol import messages as m
from scaler_protocol.programs.terminal_texts import escaped, escaped_in_line

TRACEBACK_CHARACTERS = 12_000
"""The size of the traceback that travels as text: a failure is sent inline, and a deep stack must not displace its
exception."""

_MARGIN_BYTES = 1024

_ERRORS: Dict[int, Type[ScalerError]] = {
    m.FailureKind.FUNCTION_NOT_LOADED: exceptions.DeserializeObjectError,
    m.FailureKind.ARGUMENT_NOT_LOADED: exceptions.DeserializeObjectError,
    m.FailureKind.RESULT_NOT_SERIALIZABLE: exceptions.ResultNotSerializableError,
    m.FailureKind.EXCEPTION_NOT_SERIALIZABLE: exceptions.TaskExceptionNotSerializableError,
    m.FailureKind.PROCESSOR_DIED: exceptions.ProcessorDiedError,
    m.FailureKind.WORKER_LOST: exceptions.WorkerDiedError,
    m.FailureKind.OBJECT_MISSING: exceptions.MissingObjects,
    m.FailureKind.TIME_LIMIT: exceptions.TaskTimeoutError,
    m.FailureKind.MEMORY_LIMIT: exceptions.TaskMemoryLimitError,
    m.FailureKind.REJECTED: exceptions.TaskRejectedError,
    m.FailureKind.CODEC_UNKNOWN: exceptions.NoWorkerError,
    m.FailureKind.ACTOR_LOST: exceptions.ActorLostError,
}

_WHAT_FAILED: Dict[int, str] = {
    m.FailureKind.FUNCTION_NOT_LOADED: "the worker cannot load the function",
    m.FailureKind.ARGUMENT_NOT_LOADED: "the worker cannot load an argument",
    m.FailureKind.RESULT_NOT_SERIALIZABLE: "the result cannot be serialised",
}

_ADVICE: Dict[int, str] = {
    m.FailureKind.PROCESSOR_DIED: "the worker's log may say more; client.options(retries=...) retries such tasks",
    m.FailureKind.WORKER_LOST: "see the logs of that worker and its host; --maximum-attempts limits the attempts",
    m.FailureKind.TIME_LIMIT: "the stack shows where it was; options(timeout=...) and --task-timeout-seconds set the"
    " limit",
    m.FailureKind.MEMORY_LIMIT: "the stack shows where it was; options(memory_limit=...) sets the limit",
    m.FailureKind.FUNCTION_NOT_LOADED: "workers need the modules that it imports, and the client's version of Python",
    m.FailureKind.ARGUMENT_NOT_LOADED: "workers need the modules of its class, and the client's version of Python",
    m.FailureKind.RESULT_NOT_SERIALIZABLE: "return a picklable value",
    m.FailureKind.ACTOR_LOST: "its state is gone; make a new one with client.actor(...)",
}


def failure_payload(
    kind: m.FailureKind,
    *,
    exception: Optional[BaseException] = None,
    message: str = "",
    worker: str = "",
    attempts: int = 1,
    stack: str = "",
    is_neutral: bool = False,
) -> bytes:
    """The payload of a failed or lost task.

    Parameters:
        kind: what failed. With `taskRaised`, the exception itself travels if it survives a round trip through pickle;
            if not, the kind becomes `exceptionNotSerializable`.
        exception: the original exception; its traceback is sent as text.
        message: what to tell the user; by default the exception's own text, and what failed because of it.
        stack: where the task was when it was stopped, for people.
        is_neutral: for readers in any language: the exception itself is not sent.
    """
    failure = m.Failure(kind=kind, message=message, worker=worker, attempts=attempts, traceback=stack)
    if exception is not None:
        failure.type_name = _type_name(exception)
        failure.traceback = _traceback_text(exception)
        if not message and kind in _WHAT_FAILED:
            failure.message = f"{_WHAT_FAILED[kind]}: {description_of(exception)}"
        elif not message:
            failure.message = text_of(exception)
        if kind == m.FailureKind.TASK_RAISED and not is_neutral:
            _attach_exception(failure, exception)
    return encode_struct(failure)


def _attach_exception(failure: m.Failure, exception: BaseException) -> None:
    try:
        failure.exception = dump_exception(exception, INLINE_BYTES - len(encode_struct(failure)) - _MARGIN_BYTES)
        failure.codec = PYTHON_CODEC
    except BaseException as error:
        failure.kind = m.FailureKind.EXCEPTION_NOT_SERIALIZABLE
        failure.message = (
            f"the task raised {failure.type_name}: {failure.message}; the exception itself cannot be sent"
            f" ({description_of(error)}): give its class a picklable state, or raise a builtin exception"
        )


def _type_name(exception: BaseException) -> str:
    try:
        return f"{type(exception).__module__}.{type(exception).__qualname__}"
    except BaseException:
        return type(exception).__name__


def _traceback_text(exception: BaseException) -> str:
    try:
        lines = traceback_module.format_exception(type(exception), exception, exception.__traceback__)
        return shortened("".join(lines), TRACEBACK_CHARACTERS)
    except BaseException:
        return f"{type(exception).__name__} (its traceback cannot be shown)\n"


def load_failure(payload: bytes, function: str = "", is_neutral: bool = False) -> BaseException:
    """The exception that `future.result()` raises for a failure payload.

    Parameters:
        function: the name of the function whose task it was.
        is_neutral: it was called in a codec that all languages read: nothing is unpickled, whatever the worker sent.
    """
    try:
        # SCL-CLT-003
        failure = decode_struct(m.Failure, payload)
    except MalformedMessageError as error:
        return exceptions.DeserializeObjectError(f"the worker sent a failure that cannot be read: {error}")
    failure.worker = escaped_in_line(failure.worker)
    if is_neutral:
        failure.type_name = escaped_in_line(failure.type_name)
        failure.message, failure.traceback = escaped(failure.message), escaped(failure.traceback)
    exception: Optional[BaseException] = None
    message = failure.message
    if failure.kind == m.FailureKind.TASK_RAISED and failure.codec == PYTHON_CODEC and not is_neutral:
        try:
            exception = load_exception(failure.exception)
        except KeyboardInterrupt:  # from the user who waits
            raise
        except BaseException as error:
            message = (
                f"the task raised {failure.type_name}: {failure.message}; the exception itself cannot be loaded here"
                f" ({description_of(error)}): is its module installed on the client?"
            )
    elif failure.kind == m.FailureKind.TASK_RAISED and (is_neutral or not failure.codec):
        exception = exceptions.NamedFunctionError(
            f"{_place(failure, function)}: it raised {failure.type_name}: {failure.message}"
        )
    if exception is None:
        # SCL-VER-003
        known = _ERRORS.get(int(failure.kind))
        if known is exceptions.MissingObjects and failure.missing_reason == m.MissingReason.NO_ROOM:
            known = exceptions.ObjectStorageFullError
        if known is None:
            known = exceptions.TaskExceptionNotSerializableError
            message = message or f"the task raised {failure.type_name}"
        advice = _ADVICE.get(int(failure.kind))
        exception = known(f"{_place(failure, function)}: {message}" + (f" ({advice})" if advice else ""))
    if failure.traceback:
        _add_cause(exception, RemoteTraceback(f"{_place(failure, function)}:\n{failure.traceback}"))
    return exception


_CAUSE: Any = BaseException.__dict__["__cause__"]
_SUPPRESS: Any = BaseException.__dict__["__suppress_context__"]


def _add_cause(exception: BaseException, remote: RemoteTraceback) -> None:
    """Make the remote traceback the cause of an exception, or of the first of its causes if it has any.

    This works even if the class forbids setting attributes, as frozen data classes do.
    """
    first, seen = exception, {id(exception)}
    while True:
        cause = _CAUSE.__get__(first)
        if cause is None or isinstance(cause, RemoteTraceback) or id(cause) in seen:
            break
        first = cause
        seen.add(id(first))
    is_suppressed = _SUPPRESS.__get__(first)
    _CAUSE.__set__(first, remote)
    _SUPPRESS.__set__(first, is_suppressed)


def _place(failure: m.Failure, function: str) -> str:
    """The function, worker and attempt of the task, as far as they are known."""
    parts = [f"task {function}" if function else "a task"]
    if failure.worker:
        parts.append(f"on {failure.worker}")
    parts.append(f"attempt {max(1, failure.attempts)}")
    return ", ".join(parts)
