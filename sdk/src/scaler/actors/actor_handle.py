"""Handles of actors, whose calls are tasks that return futures.

    counter = client.actor(Counter, 10)     counter.add(5) ──▶ ScalerFuture
    with the client that made it: ends it   in a task: the same actor, by way of a copy of the client

Rules:
- Calls through one client run one at a time, in the order in which they are submitted.
- An actor ends with the handle that `client.actor` returned: `close`, the end of a `with` block, or garbage collection.
  Calls that were submitted before still run. Copies of the handle, which arrive in tasks, do not keep it.
- A handle never makes a second instance: if the actor is lost, each call raises or ends with ActorLostError.
- A name is a label for people, in errors and monitors: nothing is looked up by it, and several may have the same.
"""

from __future__ import annotations

import pickle
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Optional, Tuple, Type

from scaler.actors.actor_function import ATTRIBUTE, CREATE, ActorFunction
from scaler.client.core.deferring import ACTORS
from scaler.client.functions import FunctionRecord, function_name, takes_keyword
from scaler.client.signatures import check_call
from scaler.client.submission import Submission
from scaler.exceptions import (
    ActorLostError,
    ActorsNotSupportedError,
    ArgumentTypeError,
    DisconnectedError,
    InvalidArgumentError,
    ModuleUploadError,
    SerializeObjectError,
)
from scaler.notebook import Row, card
from scaler.values.payload import INLINE_BYTES, PROTOCOL, is_plain
from scaler.values.texts import description_of

if TYPE_CHECKING:
    from scaler.client.client_options import Options

_OWN_ATTRIBUTES = frozenset({"_submission", "_record", "_session", "_methods", "_end", "created"})
SHOWN_METHODS = 20  # in a notebook
MAXIMUM_NAME = 100  # characters of the name that a user gives an actor


class _Call:
    """Stands for a call in error messages.

    Parameters:
        name: such as `Counter.add`.
    """

    __slots__ = ("__qualname__",)

    def __init__(self, name: str) -> None:
        self.__qualname__ = name


class ActorMethod:
    """A method of an actor: calling it returns a future. It may be an argument of tasks, but not their function."""

    __slots__ = ("_actor", "_name")
    _is_actor_method = True

    def __init__(self, actor: Actor, name: str) -> None:
        self._actor = actor
        self._name = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._actor._submit(self._name, args, kwargs)

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._actor!r}>"


class Actor:
    """An instance that lives in one process of the cluster; made by `Client.actor`.

    Its methods are those of the instance's class: each call returns a future at once. `close`, `call`, `read` and
    `created` are the handle's own: call methods of these names with `call`.

    Attributes:
        created: a future, done when the instance exists; it raises ActorCreationError if it could not be made.

    It is a context manager, `with` or `async with`, and its end ends the actor. Its attributes cannot be set: those of
    the instance change in its methods.
    """

    def __init__(
        self,
        submission: Submission,
        record: FunctionRecord,
        session: int,
        methods: Optional[FrozenSet[str]],
        is_owner: bool,
    ) -> None:
        self._submission = submission
        self._record = record
        self._session = session
        self._methods = methods
        self._end: Optional[Callable[[], Any]] = None
        self.created: Any = None
        if is_owner:
            end = weakref.finalize(self, submission._shell.functions.let_go_later, record)
            end.atexit = False
            self._end = end.detach

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_"):
            raise AttributeError(
                f"an actor's handle has no attribute {name!r}; actor.call({name!r}) calls such a method"
            )
        methods = self._methods
        if methods is not None and name not in methods:
            raise AttributeError(
                f"{self._record.name} has no method {name!r}; actor.read({name!r}) reads an attribute of the instance"
            )
        return ActorMethod(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _OWN_ATTRIBUTES:
            raise AttributeError(
                f"{self._record.name}.{name} cannot be set here: an actor changes in its methods; call one that sets it"
            )
        object.__setattr__(self, name, value)

    def __dir__(self) -> List[str]:
        return sorted({*object.__dir__(self), *(self._methods or ())})

    def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call any method by its name, and return its future.

        Raises as a call of the method: ActorLostError, SerializeObjectError, InvalidArgumentError, DisconnectedError.
        """
        if not isinstance(method, str) or not method or method.startswith(ATTRIBUTE):
            raise ArgumentTypeError(f"method must be the name of a method, got {method!r}")
        return self._submit(method, args, kwargs)

    def read(self, attribute: Any) -> Any:
        """A future of a copy of an attribute, as it is after the calls before.

        Raises as `call`.
        """
        if not isinstance(attribute, str) or not attribute:
            raise ArgumentTypeError(f"attribute must be the name of an attribute, got {attribute!r}")
        return self._submit(ATTRIBUTE + attribute, (), {})

    def close(self) -> None:
        """End the actor after the calls that were submitted before. Idempotent.

        The copy of a handle, as tasks get it, cannot end the actor: closing it only makes it unusable.
        """
        end, self._end = self._end, None
        if end is not None and end() is not None:
            self._submission._shell.functions.let_go(self._record)
        self._session = 0

    def __enter__(self) -> Actor:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    async def __aenter__(self) -> Actor:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _submit(self, method: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        submission, record = self._submission, self._record
        shell = submission._shell
        check_loop = getattr(shell, "check_loop", None)
        if check_loop is not None:
            check_loop()
        if self._session != shell.welcome.session and (self._end is not None or not self._session):
            raise self._lost()
        if not kwargs and submission._serializer is None and is_plain(args):
            payload = pickle.dumps((method, *args), PROTOCOL)
            if len(payload) < INLINE_BYTES:
                future = submission._future_kind(submission, record)
                shell.submit_plain(future, record.object_id, payload, submission._travelling_options())
                return future
        if not shell.functions.hold(record):
            raise self._lost()
        try:
            call: Any = _Call(f"{record.name}.{method}" if method else record.name)
            return submission._submit_held(record, call, (method, *args), kwargs)
        finally:
            shell.functions.let_go(record)

    def _lost(self) -> ActorLostError:
        if not self._session:
            return ActorLostError(f"the actor {self._record.name} is closed: make a new one with client.actor(...)")
        return ActorLostError(
            f"the actor {self._record.name} was lost when its client lost the connection to the scheduler: make a new"
            " one with client.actor(...)"
        )

    def __reduce__(self) -> Tuple[Any, ...]:
        submission: Any = self._submission
        if not self._session:
            raise self._lost()
        record = self._record
        state = (submission._options, record.object_id, self._session, record.name, self._methods)
        return _restored, (submission._for_tasks(), *state)

    def __repr__(self) -> str:
        return f"<actor {self._record.name}{'' if self._session else ', closed'}>"

    def _repr_html_(self) -> str:
        methods = "" if self._methods is None else ", ".join(sorted(self._methods)[:SHOWN_METHODS])
        rows: List[Row] = [("actor", self._record.name), ("state", self._known_state()), ("methods", methods)]
        return card("Actor", rows)

    def _known_state(self) -> str:
        """What this process knows, without a request."""
        if not self._session:
            return "closed"
        if self._end is None:
            return "a copy of the handle, as tasks get it"
        if self._session != self._submission._shell.welcome.session:
            return "lost with the connection to the scheduler"
        if not self.created.done():
            return "being made"
        return "made" if not self.created._has_failed else "could not be made, or was lost"


def _restored(
    client: Any, options: Options, object_id: int, session: int, name: str, methods: Optional[FrozenSet[str]]
) -> Actor:
    """A handle that was passed to another process, with its client."""
    record = FunctionRecord(object_id, name, b"", False)
    record.uses = 1
    return Actor(client._view(options), record, session, methods, is_owner=False)


def make_actor(submission: Any, maker: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Actor:
    """Make an actor.

    Parameters:
        submission: a client, or a view of one; its options are those of the calls.

    Raises as `Client.actor`.
    """
    shell = submission._shell
    if not callable(maker):
        raise ArgumentTypeError(f"an actor needs a class, not {type(maker).__name__}")
    label: Optional[str] = None
    if "name" in kwargs and not takes_keyword(maker, "name"):
        label = _checked_name(kwargs.pop("name"))
    options = submission._options
    if options.retries:
        raise InvalidArgumentError("retries: calls of an actor are not repeated; leave it out, or set it to 0")
    initialize: Any = getattr(maker, "__init__", None)
    if type(maker) is type and getattr(maker, "__new__", None) is object.__new__:
        check_call(initialize, (None, *args), kwargs)
    else:
        check_call(maker, args, kwargs)
    shell.check_open()
    if ACTORS not in shell.core.features:
        speaks = shell.welcome.implementation
        raise ActorsNotSupportedError(
            f"the scheduler at {shell.address} ({speaks.name} {speaks.version}) knows no actors: install a newer one"
        )
    name = function_name(maker)
    if label is not None:
        name = f"{name} {label!r}"
    session = shell.welcome.session
    try:
        record = shell.functions.add_once(ActorFunction(maker, name), name)
    except (DisconnectedError, ModuleUploadError, OSError):
        raise
    except Exception as error:
        raise SerializeObjectError(
            f"{name} cannot be serialised: {description_of(error)}; what it refers to must be picklable"
        ) from error
    calls = submission._view(options._replace(actor=True, progress=False))
    actor = Actor(calls, record, session, _methods_of(maker), is_owner=True)
    actor.created = actor._submit(CREATE, args, kwargs)
    return actor


def _checked_name(name: Any) -> Optional[str]:
    """The name that a user gives an actor; None: none."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of an actor must be a str, got {type(name).__name__}")
    if not 0 < len(name) <= MAXIMUM_NAME or not name.isprintable():
        raise InvalidArgumentError(
            f"the name of an actor must have 1 to {MAXIMUM_NAME} printable characters, got {name[:MAXIMUM_NAME]!r}"
        )
    return name


def _methods_of(maker: Any) -> Optional[FrozenSet[str]]:
    """The public methods of a class; None if any name may be one."""
    if not isinstance(maker, type) or hasattr(maker, "__getattr__"):
        return None
    names = [name for name in dir(maker) if not name.startswith("_")]
    return frozenset(name for name in names if callable(getattr(maker, name, None)))
