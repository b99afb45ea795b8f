"""How much the containers hold that can be reached from some objects, by the place of the container.

Rules:
- A place is a path of attributes, such as `SchedulerCore.state.objects._records[]`: items of one container share
  theirs. So a container that grows, or many small ones that pile up in another, is one number that grows.
- Only instances of the product's classes are entered, and containers of the standard library. What the product shares
  with a test, such as a callback, is not followed.
- Modules are entered like objects: what they keep for good is kept as well.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import Counter, OrderedDict, deque
from types import ModuleType
from typing import Any, Deque, Dict, Iterator, List, Set, Tuple

PRODUCT = ("scaler", "scaler_protocol", "scaler_appliance")
_MAPPINGS = (dict, OrderedDict, weakref.WeakValueDictionary, weakref.WeakKeyDictionary)
_SEQUENCES = (list, set, deque, tuple, frozenset, weakref.WeakSet)
_FLAT = (array, bytearray)


def sizes_of(*roots: Any) -> Dict[str, int]:
    """The sum of the lengths of all containers, by place."""
    found: Counter[str] = Counter()
    seen: Set[int] = set()
    kept: List[Any] = []  # so that identities stay those of the objects
    waiting: Deque[Tuple[str, Any]] = deque((type(root).__name__, root) for root in roots)
    while waiting:
        place, each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        kept.append(each)
        if isinstance(each, _FLAT):
            found[place] += len(each)
        elif isinstance(each, _MAPPINGS):
            found[place] += len(each)
            for key, value in list(each.items()):
                waiting.append((f"{place}.keys()", key))
                waiting.append((f"{place}[]", value))
        elif isinstance(each, _SEQUENCES):
            if not isinstance(each, (tuple, frozenset)):
                found[place] += len(each)
            waiting.extend((f"{place}[]", item) for item in list(each))
        elif _is_of_product(each):
            waiting.extend((f"{place}.{name}", value) for name, value in _attributes(each))
    return dict(found)


def modules() -> List[ModuleType]:
    """All modules of the product that are imported."""
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in PRODUCT]


def module_sizes() -> Dict[str, int]:
    """The same for what modules keep."""
    found: Dict[str, int] = {}
    for module in modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, (*_MAPPINGS, *_SEQUENCES, *_FLAT)) and not name.startswith("__"):
                found[f"{module.__name__}.{name}"] = len(value)
    return found


def grown(before: Dict[str, int], after: Dict[str, int], most: int) -> Dict[str, Tuple[int, int]]:
    """The places whose containers hold more than before, by more than a quarter and `most` elements."""
    return {
        place: (before.get(place, 0), size)
        for place, size in after.items()
        if size > 1.25 * before.get(place, 0) + most
    }


def _is_of_product(each: Any) -> bool:
    return str(type(each).__module__).partition(".")[0] in PRODUCT and not isinstance(each, type)


def _attributes(each: Any) -> Iterator[Tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for base in type(each).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(each, name):
                yield name, getattr(each, name)
