"""The objects of a processor by id: functions and values, loaded when first used and kept until dropped.

Rules:
- Content is kept as received (bytes, or the path of a file to map) until it is first used; then it is replaced by the
  loaded object.
- A function that cannot be loaded is kept as its error: each of its tasks fails the same way, at the cost of one
  attempt.
- A value is loaded once per processor and shared by the tasks that name it, so arrays in it are read-only. The result
  of a graph's node is loaded separately for each node that uses it, which may write to it.
- A function runs with the versions of its classes that came with it, even if another function brought newer ones.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from scaler.exceptions import MissingObjects
from scaler.serializer import Serializer
from scaler.values.code_notes import NO_CODE, Notice, read_note, without_note
from scaler.values.coroutines import awaited
from scaler.values.named_functions import ServedFunction
from scaler.values.payload import Loader, load_function, load_value
from scaler.values.pickling import ClassesOfLoad
from scaler.worker.frames import ContentPlace
from scaler.worker.processor.function_loading import load_served
from scaler.worker.processor.imported_code import ImportedCode, explain_missing
from scaler.worker.served_functions import MARK
from scaler_protocol.host.segments import map_object

Buffer = Union[bytes, memoryview]
Reader = Union[Serializer, ServedFunction]
"""Reads a function's arguments and writes its results, if not the default way."""


class _Definition(NamedTuple):
    place: int
    content: memoryview  # or the path of the file


class DefinedObjects:
    """Functions and values of one processor, by object id.

    Parameters:
        code: compares the modules that functions need with those that are imported here; by default, of this process.
    """

    def __init__(self, code: Optional[ImportedCode] = None) -> None:
        self._definitions: Dict[int, _Definition] = {}
        self._functions: Dict[int, Tuple[Callable[..., Any], Optional[Reader]]] = {}
        self._function_errors: Dict[int, BaseException] = {}
        self._classes: Dict[int, ClassesOfLoad] = {}  # that travelled by value, of the functions that have some
        self._values: Dict[int, Any] = {}
        self._code = ImportedCode() if code is None else code
        self.notices: List[Notice] = []  # about code that was loaded, for the client of the task

    def define(self, object_id: int, place: int, content: memoryview) -> None:
        """Keep the content of an object, or the path of the file that has it, for later use."""
        self._definitions[object_id] = _Definition(place, content)

    def drop(self, object_ids: Iterable[int]) -> None:
        """Forget objects; mapped memory lives on as long as user code holds views of it."""
        for object_id in object_ids:
            self._definitions.pop(object_id, None)
            self._functions.pop(object_id, None)
            self._function_errors.pop(object_id, None)
            self._classes.pop(object_id, None)
            self._values.pop(object_id, None)

    @property
    def is_empty(self) -> bool:
        return not self._definitions

    def is_loaded(self, object_id: int) -> bool:
        """Whether a function is available without running user code."""
        return object_id in self._functions or object_id in self._function_errors

    def function(self, object_id: int) -> Tuple[Callable[..., Any], Optional[Reader]]:
        """A function (an `async def` one is wrapped to return its result), and its Serializer or how it is served.

        Raises the exception that loading it raised, the same one each time.
        """
        known = self._functions.get(object_id)
        if known is not None:
            if object_id in self._classes:
                self._classes[object_id].restore()
            return known
        if object_id in self._function_errors:
            raise self._function_errors[object_id]
        note = NO_CODE
        try:
            content = self.content(object_id)
            is_served = len(content) and content[0] == MARK
            if not is_served:
                note = read_note(content)
            if note.modules and self._code.before_loading(note):
                self._unload_all()
            load = load_served if is_served else load_function
            with ClassesOfLoad() as classes:
                function, reader = load(content)
                known = self._functions[object_id] = awaited(function), reader
            if classes:
                self._classes[object_id] = classes
            if note.modules:
                self.notices += self._code.after_loading(note, without_note(content))
        except ModuleNotFoundError as error:
            explain_missing(error, note)
            self._function_errors[object_id] = error
            raise
        except BaseException as error:  # unpickling runs user code, which may raise anything
            self._function_errors[object_id] = error
            raise
        return known

    def _unload_all(self) -> None:
        """Load everything again on next use: it may refer to modules that have been reloaded."""
        self._functions.clear()
        self._function_errors.clear()
        self._classes.clear()
        self._values.clear()

    def content(self, object_id: int) -> Buffer:
        """The bytes of an object.

        Raises MissingObjects when it is gone.
        """
        definition = self._definitions.get(object_id)
        if definition is None:
            raise MissingObjects(f"object {object_id:x} is not known to this processor (any more)")
        if definition.place == ContentPlace.INLINE:
            return definition.content
        path = str(definition.content, "utf-8", "surrogateescape")
        try:
            return map_object(path)
        except FileNotFoundError:
            raise MissingObjects(f"object {object_id:x} does not exist any more") from None

    def loader(self, object_id: int, serializer: Optional[Serializer]) -> Loader:
        """A loader for a value, called if arguments refer to it."""

        def load(is_shared: bool) -> Any:
            if not is_shared:
                return load_value(self.content(object_id), serializer)
            values = self._values
            if object_id not in values:
                values[object_id] = load_value(self.content(object_id), serializer, is_shared=True)
            return values[object_id]

        return load
