"""`submit` refuses at once what a function does not take, and never what it would take."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Callable, Dict, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler import Client
from scaler.client.signatures import ANY_ARITY, arity_of, check_call


def add(a: int, b: int, c: int = 0) -> int:
    return a + b + c


def with_keyword_only(a: int, *, scale: int) -> int:
    return a * scale


class Adder:
    def __call__(self, a: int, b: int) -> int:
        return a + b

    def method(self, a: int) -> int:
        return a

    @classmethod
    def class_method(cls, a: int) -> int:
        return a


def lies(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator whose function takes other arguments than it claims."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args, 1)

    return call


WRONG = [
    (add, (), {}, "missing a required argument: 'a'"),
    (add, (1,), {}, "missing a required argument: 'b'"),
    (add, (1, 2, 3, 4), {}, "too many positional arguments"),
    (add, (1, 2), {"d": 3}, "unexpected keyword argument 'd'"),
    (add, (1, 2), {"a": 3}, "multiple values for argument 'a'"),
    (with_keyword_only, (1, 2), {}, "too many positional arguments"),
    (with_keyword_only, (1,), {}, "missing a required (keyword-only )?argument: 'scale'"),
    (functools.partial(add, 1, 2, 3), (4,), {}, "too many positional arguments"),
    (functools.partial(add, a=1), (1, 2), {}, "multiple values for argument 'a'"),
    (Adder(), (1,), {}, "missing a required argument: 'b'"),
    (Adder().method, (), {}, "missing a required argument: 'a'"),
    (Adder.class_method, (1, 2), {}, "too many positional arguments"),
]

RIGHT = [
    (add, (1, 2), {}),
    (add, (1,), {"b": 2, "c": 3}),
    (with_keyword_only, (1,), {"scale": 2}),
    (functools.partial(with_keyword_only, scale=2), (1,), {}),
    (functools.partial(with_keyword_only, scale=2), (1,), {"scale": 3}),
    (Adder(), (1, 2), {}),
    (Adder().method, (1,), {}),
    (Adder.class_method, (1,), {}),
    (lies(add), (1,), {}),
    (pow, (1,), {}),  # of builtins nothing is known
    (dict, (), {"anything": 1}),  # nor of classes
    (lambda **anything: 0, (), {"self": 1, "function": 2}),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "reason"), WRONG)
def test_a_call_that_cannot_work_is_refused_with_its_reason(
    function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], reason: str
) -> None:
    with pytest.raises(TypeError, match=reason):
        check_call(function, args, kwargs)
    if not kwargs:
        arity = arity_of(function)
        assert not arity.fewest <= len(args) <= arity.most


@pytest.mark.parametrize(("function", "args", "kwargs"), RIGHT)
def test_a_call_that_may_work_passes(
    function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> None:
    check_call(function, args, kwargs)


def test_the_message_shows_the_parameters_but_no_values_of_defaults() -> None:
    def scale(data: Any, by: Any = b"x" * 10_000) -> None: ...

    with pytest.raises(TypeError) as failure:
        check_call(scale, (), {})
    assert str(failure.value).endswith(
        "scale(data, by=Ellipsis) cannot be called with these arguments: missing a required argument: 'data'"
    )


def test_a_function_that_has_changed_is_looked_at_as_it_is() -> None:
    def changing(a: int, b: int) -> int:
        return a + b

    before = arity_of(changing)
    changing.__defaults__ = (2,)
    assert before.fewest == 2  # stale, so that the function itself is asked
    check_call(changing, (1,), {})

    class Rebound:
        def __call__(self, a: int) -> int:
            return a

    def call(self: Rebound, a: int, b: int) -> int:
        return a + b

    instance = Rebound()
    rebound: Any = Rebound
    rebound.__call__ = call
    check_call(instance, (1, 2), {})


class _OwnCall(type):
    def __call__(cls, *anything: Any) -> Any:
        made: Any = object.__new__
        return made(cls)


class _Descriptor:
    def __get__(self, instance: object, owner: object) -> Callable[..., int]:
        return lambda *anything: len(anything)


class _CalledByDescriptor:
    __call__ = _Descriptor()


def test_callables_whose_parameters_are_not_known_take_anything() -> None:
    class Made(metaclass=_OwnCall):
        def __init__(self, never_called: int) -> None: ...

    for unknown in (Made, _CalledByDescriptor(), len, print, "".join, functools.lru_cache(add)):
        assert arity_of(unknown) == ANY_ARITY
        check_call(unknown, (1, 2, 3, 4, 5), {"any": 1})


_NAMES = ["a", "b", "c", "d"]


@st.composite
def _parameter_lists(draw: st.DrawFn) -> str:
    """Such as `a, /, b=0, *rest, c, **others`."""
    kinds = sorted(draw(st.lists(st.integers(0, 2), max_size=4)))
    defaults_from = draw(st.integers(0, 4))
    has_rest, has_others = draw(st.booleans()), draw(st.booleans())
    parts, names = [], iter(_NAMES)
    for kind in (0, 1, 2):
        if kind == 2 and (has_rest or 2 in kinds):
            parts.append("*rest" if has_rest else "*")
        for _ in range(kinds.count(kind)):
            name = next(names)
            position = _NAMES.index(name)
            has_default = position >= defaults_from if kind < 2 else draw(st.booleans())
            parts.append(f"{name}=0" if has_default else name)
        if kind == 0 and 0 in kinds:
            parts.append("/")
    return ", ".join([*parts, *(["**others"] if has_others else [])])


@given(
    parameters=_parameter_lists(),
    count=st.integers(0, 5),
    keywords=st.sets(st.sampled_from([*_NAMES, "unknown"])),
    bound=st.integers(0, 2),
    bound_keywords=st.sets(st.sampled_from(_NAMES), max_size=1),
)
def test_it_says_what_a_call_says(
    parameters: str, count: int, keywords: set[str], bound: int, bound_keywords: set[str]
) -> None:
    namespace: Dict[str, Any] = {}
    exec(f"def function({parameters}): return None", namespace)
    function: Callable[..., Any] = namespace["function"]
    if bound or bound_keywords:
        function = functools.partial(function, *range(bound), **dict.fromkeys(bound_keywords, 1))
    args, kwargs = tuple(range(count)), dict.fromkeys(keywords, 1)
    try:
        function(*args, **kwargs)
        works = True
    except TypeError:
        works = False
    try:
        check_call(function, args, kwargs)
        passes = True
    except TypeError:
        passes = False
    # `Signature.bind` of 3.13 takes a keyword for a positional-only parameter: the worker says that it is missing.
    is_lenient = sys.version_info >= (3, 13) and "/" in parameters and "**" in parameters
    assert passes == works or (passes and is_lenient), inspect.signature(namespace["function"])
    if not kwargs:
        arity = arity_of(function)
        assert works == (arity.fewest <= count <= arity.most)


def test_submit_refuses_at_once(client: Client) -> None:
    untyped: Any = client  # a type checker refuses these calls as well
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        untyped.submit(add, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'd'"):
        untyped.submit(add, 1, 2, d=3)
    with pytest.raises(TypeError, match="too many positional arguments"):
        untyped.options(retries=1).submit(add, 1, 2, 3, 4)
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        client.submit_verbose(add, (1,), {})
    assert not client._shell.core.futures
    assert client.submit(with_keyword_only, 2, scale=3).result() == 6
    assert client.submit(add, 1, 2, profiling=True).result() == 3
