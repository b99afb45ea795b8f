"""Exceptions of tasks arrive as their own type with their attributes, whatever their constructor takes."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import threading
from concurrent.futures import Future
from typing import Any, Callable, List, Optional

import pytest
from sdk_tasks import notes_of

from scaler import Client
from scaler.exceptions import RemoteTraceback, TaskExceptionNotSerializableError
from scaler.values.exception_pickling import MAXIMUM_CHAIN, NotSent
from scaler.values.failures import failure_payload, load_failure
from scaler.values.payload import INLINE_BYTES, dump_value, load_value
from scaler_protocol import messages as m

TIMEOUT_SECONDS = 30.0
needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no exception groups")


class RequiredError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"failed with {code}")
        self.code = code
        self.detail = detail


class OptionalError(Exception):
    """Its constructor takes its own text, and makes another one of that."""

    def __init__(self, user: str, code: int = 0) -> None:
        super().__init__(f"no user {user}")
        self.code = code


class NothingGivenOnError(Exception):
    def __init__(self, code: int, detail: str) -> None:
        self.code, self.detail = code, detail


class SlotError(Exception):
    __slots__ = ("code", "never_set")

    def __init__(self, code: int) -> None:
        self.code = code


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int
    detail: str = ""


class FileError(OSError):
    def __init__(self, path: str, code: int) -> None:
        super().__init__(2, "no such file", path)
        self.code = code


class ModuleError(ImportError):
    def __init__(self, module: str) -> None:
        super().__init__(f"no module {module}", name=module)


class DecodeError(UnicodeDecodeError):
    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8", data, 0, 1, "is no text")


class ExitError(SystemExit):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code)
        self.detail = detail


class MixedError(RequiredError, LookupError):
    pass


class MadeByNewError(Exception):
    def __new__(cls, code: int, detail: str) -> MadeByNewError:
        error = super().__new__(cls, f"{code}: {detail}")
        error.code = code  # type: ignore[attr-defined]  # users set what they like
        return error

    def __init__(self, *_: Any) -> None:
        pass


class ReducesItselfError(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.is_reduced = False

    def __reduce__(self) -> Any:
        return (_reduced, (self.code,))


def _reduced(code: int) -> ReducesItselfError:
    error = ReducesItselfError(code, "")
    error.is_reduced = True
    return error


class InheritsReductionError(ReducesItselfError):
    """That of its base does not fit its constructor."""

    def __init__(self) -> None:
        super().__init__(5, "")

    def __reduce__(self) -> Any:
        return (type(self), (self.code,))


class SetsItsStateError(Exception):
    def __init__(self, code: int, detail: str) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        self.code = state["code"] + 1


def sent(error: BaseException) -> BaseException:
    """What the client raises for an exception that a task raises."""
    try:
        raise error
    except BaseException as caught:
        payload = failure_payload(m.FailureKind.TASK_RAISED, exception=caught)
    assert len(payload) < INLINE_BYTES
    return load_failure(payload)


def returned(error: BaseException) -> BaseException:
    """What the client gets for an exception that a task returns."""
    value: BaseException = load_value(pickle_of(error), None)
    return value


def pickle_of(value: Any) -> bytes:
    dumped = dump_value(value, None)
    return b"".join(dumped) if isinstance(dumped, list) else dumped


@pytest.mark.parametrize("travelled", [sent, returned])
@pytest.mark.parametrize(
    "error",
    [
        RequiredError(5, detail="here"),
        OptionalError("me", 7),
        NothingGivenOnError(5, "here"),
        SlotError(5),
        FrozenError(code=5, detail="here"),
        FileError("/missing", 5),
        ModuleError("missing"),
        DecodeError(b"\xff"),
        ExitError(3, "here"),
        MixedError(5, detail="here"),
        MadeByNewError(5, "here"),
        KeyError("key"),
        OSError(13, "not allowed", "/file"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_type_arguments_text_and_attributes_are_as_they_were(error: BaseException, travelled: Any) -> None:
    arrived = travelled(error)
    assert type(arrived) is type(error)
    assert (arrived.args, str(arrived), repr(arrived)) == (error.args, str(error), repr(error))
    assert arrived.__dict__ == error.__dict__
    for name in ("code", "filename", "errno", "name", "object", "reason"):
        assert getattr(arrived, name, None) == getattr(error, name, None)


def test_a_reduction_of_its_own_is_used_while_it_works() -> None:
    own: Any = sent(ReducesItselfError(5, "here"))
    assert own.is_reduced and own.code == 5
    inherited: Any = sent(InheritsReductionError())
    assert type(inherited) is InheritsReductionError and inherited.code == 5
    state: Any = sent(SetsItsStateError(5, "here"))
    assert state.code == 6


def chained(error: BaseException, cause: Optional[BaseException], context: Optional[BaseException]) -> BaseException:
    try:
        if context is None:
            raise error from cause
        try:
            raise context
        except BaseException:
            if cause is None:
                raise error  # noqa: B904
            raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("error", [ValueError(1), RequiredError(1, detail=""), ReducesItselfError(1, "")])
def test_causes_and_contexts_arrive_and_the_remote_traceback_behind_them(error: BaseException) -> None:
    arrived = sent(chained(error, RequiredError(2, detail="cause"), chained(KeyError(3), OptionalError("me"), None)))
    cause, context = arrived.__cause__, arrived.__context__
    assert type(arrived) is type(error)
    assert type(cause) is RequiredError and cause.detail == "cause" and arrived.__suppress_context__
    assert type(context) is KeyError and type(context.__cause__) is OptionalError
    assert type(cause.__cause__) is RemoteTraceback and "failed with 2" in cause.__cause__.text


def test_a_context_that_is_the_cause_arrives_once() -> None:
    first = KeyError("first")
    arrived = sent(chained(ValueError(), first, first))
    assert type(arrived.__cause__) is KeyError and arrived.__context__ is arrived.__cause__


def test_a_context_alone_is_beside_the_remote_traceback() -> None:
    arrived = sent(chained(ValueError(), None, KeyError("first")))
    assert type(arrived.__context__) is KeyError and not arrived.__suppress_context__
    assert type(arrived.__cause__) is RemoteTraceback


def test_a_chain_without_end_is_cut() -> None:
    error: BaseException = ValueError(0)
    for number in range(1, 500):
        error = chained(ValueError(number), None, error)
    arrived: Optional[BaseException] = sent(error)
    length = 0
    while arrived is not None:
        assert arrived.args == (499 - length,)
        arrived = arrived.__context__
        length += 1
    assert length == MAXIMUM_CHAIN + 1
    one, other = ValueError(1), ValueError(2)
    one.__cause__, other.__cause__ = other, one
    assert type(sent(one).__cause__) is ValueError


def test_a_cause_that_cannot_be_sent_costs_the_cause_alone() -> None:
    class LockedError(Exception):
        lock = threading.Lock()

    arrived = sent(chained(RequiredError(5, detail="here"), LockedError("locked"), None))
    assert type(arrived) is RequiredError and type(arrived.__cause__) is RemoteTraceback
    assert "LockedError: locked" in arrived.__cause__.text


@needs_groups
def test_groups_arrive_with_their_members_and_what_these_hold() -> None:
    class Group(ExceptionGroup):  # type: ignore[name-defined, misc]  # of Python 3.11  # noqa: F821
        def __new__(cls, errors: List[Exception], code: int) -> Any:
            group = super().__new__(cls, f"{len(errors)} errors", errors)
            group.code = code
            return group

        def derive(self, errors: Any) -> Any:
            return Group(errors, self.code)

    member = chained(RequiredError(5, detail="here"), OptionalError("me"), None)
    locked = RequiredError(6, detail="there")
    locked.lock = threading.Lock()  # type: ignore[attr-defined]  # users set what they like
    inner = ExceptionGroup("inner", [member, locked])  # type: ignore[name-defined]  # of Python 3.11  # noqa: F821
    group: Any = sent(Group([inner, OptionalError("you", 7)], 3))
    assert type(group) is Group and group.code == 3 and group.message == "2 errors"
    assert [type(each) for each in group.exceptions[0].exceptions] == [RequiredError, RequiredError]
    first, second = group.exceptions[0].exceptions
    assert first.detail == "here" and type(first.__cause__) is OptionalError and type(second.lock) is NotSent
    assert group.exceptions[1].code == 7 and str(group.exceptions[1]) == "no user you"
    assert len(group.subgroup(OptionalError).exceptions) == 1


def test_what_cannot_be_sent_is_replaced_and_a_note_says_so() -> None:
    error: Any = RequiredError(5, detail="here")
    error.__notes__ = ["a note"]
    error.lock = threading.Lock()
    error.itself = [error]
    error.large = b"x" * INLINE_BYTES
    arrived: Any = sent(error)
    assert (arrived.code, arrived.detail, str(arrived)) == (5, "here", "failed with 5")
    assert arrived.itself[0] is arrived
    assert type(arrived.lock) is NotSent and "lock" in repr(arrived.lock) and "cannot pickle" in repr(arrived.lock)
    assert type(arrived.large) is NotSent and "too many" in arrived.large.reason
    notes = arrived.__notes__
    assert notes[0] == "a note" and len(notes) == 3
    assert notes[1].startswith("(attribute 'lock' could not be sent: TypeError: cannot pickle")


def test_a_text_that_is_too_large_is_shortened() -> None:
    arrived: Any = sent(ValueError("x" * INLINE_BYTES + "end"))
    assert type(arrived) is ValueError and str(arrived).endswith("end") and "characters ...]" in str(arrived)
    assert "argument 0 of 65539 characters was shortened" in notes_of(arrived)[0]


def test_only_an_exception_whose_class_cannot_be_sent_loses_its_type() -> None:
    class LockedError(Exception):
        lock = threading.Lock()

    arrived = sent(LockedError("locked"))
    assert type(arrived) is TaskExceptionNotSerializableError and "LockedError: locked" in str(arrived)


def test_values_are_pickled_as_pickle_does_where_that_works() -> None:
    for error in (KeyError("key"), ReducesItselfError(5, "here"), OSError(2, "none", "/file")):
        assert pickle.loads(pickle_of(error)).__dict__ == pickle.loads(pickle.dumps(error)).__dict__
    with pytest.raises(TypeError, match="lock"):
        locked: Any = RequiredError(5, detail="here")
        locked.lock = threading.Lock()
        pickle_of([locked])


# Every way in which a client raises -----------------------------------------------------------------------------------


def throw(_: Any = None) -> None:
    raise RequiredError(5, detail="here") from OptionalError("me")


def by_result(client: Client) -> None:
    client.submit(throw).result(TIMEOUT_SECONDS)


def by_map(client: Client) -> None:
    client.map(throw, range(3))


def by_get(client: Client) -> None:
    client.get({"a": (throw,), "b": (str, "a")}, ["b"])


def by_exception(client: Client) -> None:
    future: Future[Any] = client.submit(throw)
    error = future.exception(TIMEOUT_SECONDS)
    assert error is not None
    raise error


@pytest.mark.parametrize("way", [by_result, by_map, by_get, by_exception], ids=lambda way: way.__name__)
def test_tasks_raise_their_own_exceptions(any_client: Client, way: Callable[[Client], None]) -> None:
    with pytest.raises(RequiredError, match="failed with 5") as raised:
        way(any_client)
    assert (raised.value.code, raised.value.detail) == (5, "here")
    assert type(raised.value.__cause__) is OptionalError


def test_exceptions_as_arguments_and_results(any_client: Client) -> None:
    error = any_client.submit(lambda given: [given, given.detail], RequiredError(5, detail="here"))
    arrived, detail = error.result(TIMEOUT_SECONDS)
    assert type(arrived) is RequiredError and arrived.detail == detail == "here"


def test_exceptions_that_lead_to_each_other_are_taken_apart_once() -> None:
    error: Any = RequiredError(5, detail="here")
    error.lock = threading.Lock()
    error.others = [RequiredError(number, detail="") for number in range(50)]
    for other in error.others:
        other.all = error.others
        other.lock = threading.Lock()
    assert type(sent(error)) is RequiredError
