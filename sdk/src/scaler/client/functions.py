"""The functions that the scheduler already has: each is serialised and sent again only when it has changed.

Rules:
- A function is known by identity while it lives and what it captures stays the same (`scaler.values.captures`), and
  by the digest of its serialised form: two equal lambdas are one object.
- When the function object here is gone, its copy at the scheduler is deleted, once the tasks that need it are done. Of
  functions that have changed, the small ones used most recently are kept, because many change back and forth.
- It is serialised again when the code changes that it needs to be imported (`scaler.client.code`).
- A callable without support for weak references is known by digest only; the most recently used ones are kept.
- A record may be deleted at any moment by another thread, which submits the same function with other captures. So a
  thread that submits with a record checks `is_deleted` afterwards, and asks the shell whether the task was accepted.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import sys
import threading
import time
import types
import weakref
from collections import OrderedDict, deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

from scaler.client.code import ClientCode
from scaler.client.shell.left_locks import regained, reset_lock
from scaler.client.signatures import ANY_ARITY, arity_of
from scaler.serializer import Serializer
from scaler.values.captures import Captures, Reference, by_value_modules
from scaler.values.payload import INLINE_BYTES, Parts, dump_function, parts_size
from scaler.values.pickling import captures_of
from scaler.values.source_versions import versions

logger = logging.getLogger("scaler")

# Looked up once, because `find` runs at every submission.
_modules: Dict[str, Any] = sys.modules
_looked_for = versions.pending

RECENT_FUNCTIONS = 128

SLOW_CHECK_SECONDS = 0.01
SLOW_CHECKS_BEFORE_WARNING = 10


class FunctionRecord:
    __slots__ = (
        "object_id",
        "name",
        "digest",
        "takes_profiling",
        "fewest",
        "most",
        "is_small",
        "is_deleted",
        "uses",
        "code_stamp",
    )

    def __init__(self, object_id: int, name: str, digest: bytes, takes_profiling: bool, is_small: bool = True) -> None:
        self.object_id = object_id
        self.name = name
        self.digest = digest
        self.takes_profiling = takes_profiling  # has a parameter named `profiling`
        self.fewest, self.most = ANY_ARITY  # positional arguments that it takes
        self.is_small = is_small
        self.is_deleted = False  # its deletion was sent to the scheduler, or is about to be
        self.code_stamp = 0  # when it was serialised last
        self.uses = 0  # live function objects here, plus one while it is among the recent


class _SlowCaptures:
    """Captures that take long to compare: logs a warning once, after a function has been submitted often."""

    def __init__(self, captures: Captures, name: str, seconds: float) -> None:
        self._captures = captures
        self._name = name
        self._seconds = seconds
        self._checks = 0

    def holds(self, function: Callable[..., Any]) -> bool:
        self._checks += 1
        if self._checks == SLOW_CHECKS_BEFORE_WARNING:
            logger.warning(
                "each submission of %s spends %.0f ms on comparing the data that it refers to with what was sent: pass"
                " large lists and dictionaries as arguments, or send them once with send_object()",
                self._name,
                self._seconds * 1000,
            )
        return self._captures.holds(function)


class _Known(NamedTuple):
    reference: weakref.ref[Any]  # of the function, or of the object whose method it is
    record: FunctionRecord
    captures: Union[Captures, _SlowCaptures, None]  # None: only serialising it shows whether it has changed


_Key = Union[int, Tuple[int, int]]
"""The identity of a function; for a method, which is a new object at each access, those of its object and function."""


_ModuleFunction = Tuple[FunctionRecord, str, Dict[str, Any], str, types.ModuleType, int]
"""A function that is found in its module by a name without dots, while no code is shipped: its record, the name, where
it is looked up, the module's name, the module, and the number of `versions` when it was serialised. A bare tuple, since
it is unpacked at every submission."""


class FunctionRegistry:
    """Functions by identity and by content; thread safe.

    Parameters:
        serializer: the user's, or None.
        send: called with the parts of a new function; returns its object id.
        delete: called with the object id of a function that is no longer used.
        code: what functions need to be imported; None: what every client's do.
    """

    def __init__(
        self,
        serializer: Optional[Serializer],
        send: Callable[[Parts, str], int],
        delete: Callable[[int], None],
        code: Optional[ClientCode] = None,
    ) -> None:
        self._code = ClientCode((), send, delete) if code is None else code
        self._code.on_changed = self.forget_all
        self._serializer = serializer
        self._send = send
        self._delete = delete
        self._known: Dict[_Key, _Known] = {}
        self._in_modules: Dict[_Key, _ModuleFunction] = {}  # of the known ones, those that are found in their modules
        self._by_digest: Dict[bytes, FunctionRecord] = {}
        self._recent: OrderedDict[bytes, FunctionRecord] = OrderedDict()
        self._dead: Deque[Tuple[_Key, weakref.ref[Any]]] = deque()  # filled by the garbage collector, in any thread
        self._let_go: Deque[FunctionRecord] = deque()  # filled at any moment in any thread
        self._lock = threading.RLock()

    def after_fork_in_child(self) -> None:
        """In a fork of the client's process."""
        reset_lock(self._lock)

    def find(self, function: Callable[..., Any]) -> Optional[FunctionRecord]:
        """The record of a function that is known, and serialises to the same bytes as when it was added."""
        named = self._in_modules.get(id(function))
        if named is not None:
            record, name, namespace, module_name, module, number = named
            if (
                namespace.get(name) is function
                and _modules.get(module_name) is module
                and number == versions.number
                and not _looked_for
                and not by_value_modules
            ):
                return record
        known = self._known.get(id(function))
        if known is None:
            return self._find_method(function) if type(function) is types.MethodType else None
        reference, record, captures = known
        if reference() is function and captures is not None and captures.holds(function):
            return record if record.code_stamp == self._code.stamp() else None
        return None

    def _find_method(self, method: types.MethodType) -> Optional[FunctionRecord]:
        known = self._known.get((id(method.__self__), id(method.__func__)))
        if known is None or known.reference() is not method.__self__ or known.captures is None:
            return None
        if not known.captures.holds(method) or known.record.code_stamp != self._code.stamp():
            return None
        return known.record

    def add(self, function: Callable[..., Any]) -> FunctionRecord:
        """Serialise a function, and send it unless an equal one was sent before.

        Raises whatever serialising it raises: any exception at all.
        """
        with regained(self._lock):
            self._forget_dead()
        code_stamp = self._code.stamp()
        captures = captures_of(function)
        parts = dump_function(function, self._serializer)
        archives = self._code.note(parts)
        trusted = None if captures is None else self._trusted(captures, function)
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part)
        with regained(self._lock):
            record = self._by_digest.get(digest.digest())
            if record is None or record.is_deleted:
                name, takes_profiling = function_name(function), takes_keyword(function, "profiling")
                object_id = self._send(parts, name)
                is_small = parts_size(parts) < INLINE_BYTES
                record = FunctionRecord(object_id, name, digest.digest(), takes_profiling, is_small)
                record.fewest, record.most = arity_of(function)
                self._code.keep(object_id, archives)
                self._by_digest[record.digest] = record
            record.code_stamp = code_stamp
            self._hold(function, record, trusted)
            return record

    def add_once(self, function: Callable[..., Any], name: str) -> FunctionRecord:
        """Serialise a function, and send it even if an equal one was sent before; it is held once.

        Raises whatever serialising it raises: any exception at all.
        """
        parts = dump_function(function, self._serializer)
        archives = self._code.note(parts)
        with regained(self._lock):
            record = FunctionRecord(self._send(parts, name), name, b"", False)
            record.uses = 1
            self._code.keep(record.object_id, archives)
            return record

    def _trusted(self, captures: Captures, function: Callable[..., Any]) -> Union[Captures, _SlowCaptures, None]:
        """Captures that cover everything that serialising has read; None with a user's Serializer, or if another thread
        has made a change in the meantime."""
        if self._serializer is not None and not isinstance(captures, Reference):
            return None
        begin = time.perf_counter()
        if not captures.holds(function):
            return None
        seconds = time.perf_counter() - begin
        return captures if seconds < SLOW_CHECK_SECONDS else _SlowCaptures(captures, function_name(function), seconds)

    def _hold(
        self,
        function: Callable[..., Any],
        record: FunctionRecord,
        captures: Union[Captures, _SlowCaptures, None],
    ) -> None:
        owner: Any = function
        key: _Key = id(function)
        if type(function) is types.MethodType:
            owner = function.__self__
            key = (id(owner), id(function.__func__))
        try:
            reference = weakref.ref(owner, lambda dead: self._dead.append((key, dead)))
        except TypeError:
            self._hold_recent(record)
            return
        before = self._known.get(key)
        record.uses += 1  # first, so that Ctrl-C in between keeps the function too long rather than too short
        self._known[key] = _Known(reference, record, captures)
        named = self._module_function(record, captures)
        if named is not None:
            self._in_modules[id(function)] = named
        else:
            self._in_modules.pop(id(function), None)
        if before is not None:  # it has changed, or its predecessor at the same address has just died
            if before.record is not record and before.record.is_small:
                self._hold_recent(before.record)
            self._release(before.record)

    def _module_function(
        self, record: FunctionRecord, captures: Union[Captures, _SlowCaptures, None]
    ) -> Optional[_ModuleFunction]:
        """The cheapest way to check that a function of a module is unchanged; None for any other function."""
        if not isinstance(captures, Reference) or "." in captures.name or self._code.ships_code:
            return None
        module = _modules.get(captures.module)
        if type(module) is not types.ModuleType:
            return None
        return (record, captures.name, vars(module), captures.module, module, versions.number)

    def _hold_recent(self, record: FunctionRecord) -> None:
        if record.digest in self._recent:
            self._recent.move_to_end(record.digest)
            return
        record.uses += 1
        self._recent[record.digest] = record
        if len(self._recent) > RECENT_FUNCTIONS:
            _, oldest = self._recent.popitem(last=False)
            self._release(oldest)

    def hold(self, record: FunctionRecord) -> bool:
        """Keep a function until `let_go`, however many others are used meanwhile; False when it has been deleted."""
        with regained(self._lock):
            if not record.is_deleted:
                record.uses += 1
            return not record.is_deleted

    def let_go(self, record: FunctionRecord) -> None:
        with regained(self._lock):
            self._release(record)

    def let_go_later(self, record: FunctionRecord) -> None:
        """As `let_go`, and may be called by the garbage collector, at any moment in any thread."""
        self._let_go.append(record)

    def forget_all(self) -> None:
        """Forget all functions: they have to be serialised again, with different code."""
        with regained(self._lock):
            known = [*(each.record for each in self._known.values()), *self._recent.values()]
            self._in_modules.clear()
            self._known.clear()
            self._recent.clear()
            for record in known:
                self._release(record)

    def forget_dead(self) -> None:
        """Delete functions at the scheduler that no longer exist here. Called by the I/O thread, which must not wait
        and which Ctrl-C does not interrupt; a thread that holds the lock does it by itself."""
        if (self._dead or self._let_go) and self._lock.acquire(blocking=False):
            try:
                self._forget_dead()
            finally:
                self._lock.release()

    def _forget_dead(self) -> None:
        """The caller holds the lock."""
        while self._let_go:
            self._release(self._let_go.popleft())
        while self._dead:
            key, reference = self._dead.popleft()
            known = self._known.get(key)
            if known is not None and known.reference is reference:
                del self._known[key]
                self._in_modules.pop(key, None)
                self._release(known.record)

    def _release(self, record: FunctionRecord) -> None:
        record.uses -= 1
        if record.uses == 0:
            record.is_deleted = True
            if self._by_digest.get(record.digest) is record:
                del self._by_digest[record.digest]
            self._delete(record.object_id)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function in errors and monitors. Never fails, whatever the function's attributes do."""
    try:
        function = getattr(function, "function", function)  # of a chunk of `map`
        name = getattr(function, "__qualname__", None)
    except Exception:
        name = None
    return name if isinstance(name, str) and name else type(function).__qualname__


def actor_method_in(function: Any) -> Optional[Any]:
    """The method of an actor's handle that this is, or that a chunk of a `map` or an executor's function calls."""
    while type(function).__module__.startswith("scaler.") and hasattr(function, "function"):
        function = function.function
    return function if getattr(type(function), "_is_actor_method", False) is True else None


def takes_keyword(function: Callable[..., Any], keyword: str) -> bool:
    """Whether a keyword argument is the function's own: it has such a parameter, or its parameters are not known."""
    try:
        parameters: List[inspect.Parameter] = list(inspect.signature(function).parameters.values())
    except Exception:  # no signature, or a custom one that fails
        return True  # cannot be known: the keyword is the function's
    return any(p.name == keyword or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
