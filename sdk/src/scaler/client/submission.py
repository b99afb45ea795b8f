"""One task, from a call to the command that is posted: its function, its payload and what it needs.

Rules: invalid arguments fail here, with a named error; only what can be sent is posted.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from scaler import nesting
from scaler.client.client_options import Options
from scaler.client.core.commands import NumberFuture, SubmitTask
from scaler.client.functions import FunctionRecord, actor_method_in, function_name
from scaler.client.future import ScalerFuture
from scaler.client.future_arguments import dump_with_futures
from scaler.client.shell.client_shell import ClientShell
from scaler.client.shell.future_internals import has_failed
from scaler.client.signatures import check_call
from scaler.exceptions import (
    ArgumentTypeError,
    DisconnectedError,
    InvalidArgumentError,
    MissingObjects,
    ModuleUploadError,
    SerializeObjectError,
    TooManyReferences,
)
from scaler.serializer import Serializer
from scaler.values.payload import (
    BY_DEPENDENCY,
    INLINE_BYTES,
    RESULT_IS_OBJECT,
    ObjectReference,
    Parts,
    dump_value,
    join,
    parts_size,
    results_header,
)
from scaler.values.texts import description_of
from scaler_protocol.wire import messages as m

MAXIMUM_DEPENDENCIES = 0xFFFF  # of one task


class Submission:
    """Submits tasks with certain options through one client's shell."""

    _shell: ClientShell
    _future_kind: Any = ScalerFuture
    _graph_future_kind: Any
    """The classes of the futures that are made for tasks, and for tasks of graphs."""

    _serializer: Optional[Serializer]
    _options: Options
    _task_options: Optional[m.TaskOptions]  # the message for `_options`; None: all are defaults

    def _register(self, fn: Callable[..., Any]) -> FunctionRecord:
        if not callable(fn):
            raise ArgumentTypeError(f"a task needs a function to call, not {type(fn).__name__}")
        method = actor_method_in(fn)
        if method is not None:
            raise ArgumentTypeError(
                f"{method!r} cannot be submitted: call it, which returns a future, as in"
                f" [actor.{method._name}(item) for item in items]"
            )
        self._shell.check_open()
        try:
            return self._shell.functions.add(fn)
        except (DisconnectedError, ModuleUploadError, OSError):
            raise
        except Exception as error:
            raise SerializeObjectError(
                f"function {function_name(fn)} cannot be serialised: {description_of(error)};"
                " what it closes over must be picklable (locks, sockets and open files are not)"
            ) from error

    def _submit_checked(
        self, record: FunctionRecord, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> ScalerFuture[Any]:
        if kwargs or not record.fewest <= len(args) <= record.most:
            check_call(fn, args, kwargs)
        return self._submit_general(record, fn, args, kwargs)

    def _submit_general(
        self, record: FunctionRecord, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> ScalerFuture[Any]:
        """Serialise any arguments: large ones become an object of their own."""
        shell = self._shell
        while not shell.functions.hold(record):
            record = self._register(fn)
        try:
            return self._submit_held(record, fn, args, kwargs)
        finally:
            shell.functions.let_go(record)

    def _submit_held(
        self,
        record: FunctionRecord,
        fn: Callable[..., Any],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        made: Optional[List[ScalerFuture[Any]]] = None,
    ) -> ScalerFuture[Any]:
        """
        Parameters:
            made: gets the future before its task is posted, for callers that are interrupted before they have it.
        """
        shell = self._shell
        references: List[ObjectReference] = []
        try:
            parts, found = dump_with_futures(shell, args, kwargs, self._serializer, references)
        except Exception as error:
            raise SerializeObjectError(
                f"an argument of {function_name(fn)} cannot be serialised: {description_of(error)}"
            ) from error
        needed, large = found.futures, found.large
        future: ScalerFuture[Any] = self._future_kind(self, record)
        if made is not None:
            made.append(future)
        if needed and self._options.actor:
            raise InvalidArgumentError(
                f"an argument of {function_name(fn)} has the future {needed[0]!r}, which is not done: calls of an actor"
                " run in their order and wait for no other task; pass its result()"
            )
        if needed and self._ends_at_once(future, needed):
            return future
        count = len(references) + len(needed) + len(large)
        if count >= MAXIMUM_DEPENDENCIES:  # with the arguments themselves, which may be an object
            raise TooManyReferences(
                f"the arguments of {function_name(fn)} refer to {count} objects and futures, and a task can have at"
                f" most {MAXIMUM_DEPENDENCIES - 1}: gather some in one first"
            )
        dependencies = [self._check_reference(reference) for reference in references]
        options = self._travelling_options()
        header = results_header([RESULT_IS_OBJECT] * len(large)) if large else b""
        # SCL-CLT-009
        if parts_size(parts) >= INLINE_BYTES:
            task = SubmitTask(future, record.object_id, header + BY_DEPENDENCY, options, dependencies, needed)
            shell.submit_with_objects(task, parts, large)
        elif large:
            payload = header + join(parts)
            shell.submit_with_objects(SubmitTask(future, record.object_id, payload, options, dependencies), None, large)
        elif dependencies or needed:
            shell.submit(SubmitTask(future, record.object_id, join(parts), options, dependencies, needed))
        else:
            shell.submit_plain(future, record.object_id, join(parts), options)
        return future

    def _ends_at_once(self, future: ScalerFuture[Any], predecessors: Sequence[ScalerFuture[Any]]) -> bool:
        """Whether a task already has its outcome, because one that it needs has failed or was cancelled."""
        is_cancelled = any(each.cancelled() for each in predecessors)
        failed = next((each for each in predecessors if each.done() and has_failed(each)), None)
        if failed is None and not is_cancelled:
            return False
        self._shell.check_open()
        if is_cancelled or failed is None:
            future._set_cancelled()
        else:
            future._set_failed_after(failed)
        self._shell.post(NumberFuture(future))
        return True

    def _send_object(self, obj: Any, name: Optional[str]) -> ObjectReference:
        """As `Client.send_object`."""
        self._shell.check_open()
        name = name if name is not None else type(obj).__name__
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the name of an object must be a str, not {type(name).__name__}")
        try:
            content = dump_value(obj, self._serializer)
        except Exception as error:
            raise SerializeObjectError(
                f"an object of type {type(obj).__name__} cannot be serialised: {description_of(error)}"
            ) from error
        parts: Parts = content if isinstance(content, list) else [content]
        object_id = self._shell.send_object(parts, name, m.ObjectKind.VALUE)
        self._shell.value_objects.add(object_id)
        return ObjectReference(name, parts_size(parts), object_id)

    def _travelling_options(self) -> Optional[m.TaskOptions]:
        return self._task_options if nesting.priority_of_task is None else nesting.message_inside(self._options)

    def _check_reference(self, reference: ObjectReference) -> int:
        shell = self._shell
        if shell.is_own_object(reference.object_id) and reference.object_id not in shell.value_objects:
            raise MissingObjects(
                f"object {reference.name!r} does not exist any more: it was cleared, send it again with send_object()"
            )
        return reference.object_id
