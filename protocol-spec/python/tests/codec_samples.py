"""One message object of each kind with every field set, and the ways to make random ones.

Rules of this module: pure Python and Hypothesis, so that it serves PyPy too; what it knows of the schema it reads off
the message classes.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from enum import IntEnum
from typing import Any, Dict, List, Tuple, Type

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from scaler_protocol import InvalidFieldError, encode_struct
from scaler_protocol import messages as m
from scaler_protocol.wire.capnproto import Struct

INTEGER_RANGES = [(-(2**31), 2**31 - 1), (0, 2**64 - 1), (0, 2**32 - 1), (0, 2**16 - 1), (0, 2**8 - 1)]
ALL_CLASSES: Tuple[Type[Struct], ...] = tuple(
    each
    for each in vars(m).values()
    if isinstance(each, type) and issubclass(each, Struct) and hasattr(each, "DATA_WORDS")
)


def repetitions(count: int) -> int:
    """How often a loop over random frames goes round: as of examples, SCALER_EXAMPLES_PERCENT of the number."""
    return max(1, count * int(os.environ.get("SCALER_EXAMPLES_PERCENT", "100")) // 100)


def examples(count: int) -> settings:
    """Hypothesis settings: the same examples on every run, unless SCALER_EXPLORE=N asks for N times as many others.

    With SCALER_EXAMPLES_PERCENT there are that many percent of them (see conftest.py of the tree).
    """
    factor = int(os.environ.get("SCALER_EXPLORE", "0"))
    count = repetitions(count)
    return settings(
        derandomize=not factor,
        database=None,
        deadline=None,
        max_examples=count * max(factor, 1),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def element_class(struct_class: Type[Struct], name: str) -> Type[Any]:
    """str or a message class: what the list field `name` holds."""
    match = re.fullmatch(r"List\[(\w+)\]", struct_class.__annotations__[name])
    assert match, name
    return str if match.group(1) == "str" else getattr(m, match.group(1))


def fits(struct_class: Type[Struct], name: str, value: int) -> bool:
    probe = struct_class()
    setattr(probe, name, value)
    try:
        encode_struct(probe)
    except InvalidFieldError:
        return False
    return True


_integer_ranges: Dict[Tuple[Type[Struct], str], Tuple[int, int]] = {}


def integer_range(struct_class: Type[Struct], name: str) -> Tuple[int, int]:
    """The lowest and the highest number that the field takes."""
    known = _integer_ranges.get((struct_class, name))
    if known is not None:
        return known
    for low, high in INTEGER_RANGES:
        if fits(struct_class, name, low) and fits(struct_class, name, high):
            return _integer_ranges.setdefault((struct_class, name), (low, high))
    raise AssertionError(f"{struct_class.__name__}.{name} takes no known range of integers")


# --- samples: deterministic, every field different from its default ---

MISREAD = b'"#()'
"""Within a text between quotes, the program capnp 0.9.2 may take these bytes for its end, a comment or a bracket."""


def sample(struct_class: Type[Struct], seed: int = 1) -> Any:
    """An instance with every field set; another seed, other values."""
    fields: Dict[str, Any] = {}
    for position, (name, default) in enumerate(default_fields(struct_class)):
        fields[name] = sample_value(struct_class, name, default, seed + position)
    return struct_class(**fields)


def sample_value(struct_class: Type[Struct], name: str, default: Any, seed: int) -> Any:
    if isinstance(default, bool):
        return True
    if isinstance(default, IntEnum):
        members = list(type(default))
        return members[1 + seed % (len(members) - 1)]
    if isinstance(default, int):
        low, high = integer_range(struct_class, name)
        return low + seed if low else high - seed
    if isinstance(default, float):
        return 0.5 + seed
    if isinstance(default, str):
        return f"{name} {seed} \N{SNOWMAN}"
    if isinstance(default, bytes):
        return bytes(0xFF if (seed + i) % 256 in MISREAD else (seed + i) % 256 for i in range(3 + seed))
    if isinstance(default, array):
        highest = 256**default.itemsize - 1
        return array(default.typecode, [highest - seed, *range(seed)])
    if isinstance(default, list):
        element = element_class(struct_class, name)
        if element is str:
            return [f"{name} {i}" * i for i in range(seed % 4 + 1)]
        return [sample(element, seed + i) for i in range(seed % 3 + 1)]
    return sample(type(default), seed)


def default_fields(struct_class: Type[Struct]) -> List[Tuple[str, Any]]:
    empty = struct_class()
    return [(name, getattr(empty, name)) for name in struct_class.__slots__]


SAMPLES = [sample(member, discriminant + 1) for discriminant, member in enumerate(m.MEMBERS)]


# --- strategies: random instances ---


_instances: Dict[Type[Struct], st.SearchStrategy[Any]] = {}


def instances(struct_class: Type[Struct]) -> st.SearchStrategy[Any]:
    if struct_class not in _instances:
        fields = {name: field_values(struct_class, name, default) for name, default in default_fields(struct_class)}
        _instances[struct_class] = st.builds(struct_class, **fields)
    return _instances[struct_class]


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def field_values(struct_class: Type[Struct], name: str, default: Any) -> st.SearchStrategy[Any]:
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, IntEnum):
        return st.sampled_from(type(default))
    if isinstance(default, int):
        low, high = integer_range(struct_class, name)
        return st.one_of(st.integers(low, high), st.sampled_from([low, high]))
    if isinstance(default, float):
        return st.floats(allow_nan=False)
    if isinstance(default, str):
        return texts()
    if isinstance(default, bytes):
        return st.binary(max_size=20)
    if isinstance(default, array):
        numbers = st.lists(st.integers(0, 256**default.itemsize - 1), max_size=9)
        typecode = default.typecode
        return numbers.map(lambda values: array(typecode, values))
    if isinstance(default, list):
        element = element_class(struct_class, name)
        return st.lists(texts() if element is str else instances(element), max_size=3)
    return instances(type(default))


any_member: st.SearchStrategy[Any] = st.one_of([instances(member) for member in m.MEMBERS])
any_struct: st.SearchStrategy[Any] = st.one_of([instances(each) for each in ALL_CLASSES])


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
