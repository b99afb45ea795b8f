"""Which Python function a worker runs for a name.

    --functions 'example.org/thumbnail=images:thumbnail'      one function
    --functions 'example.org/text/*=texts'                     all public functions of a module

Rules:
- Here names are only turned into places (module and attribute): user's code is imported in processors, never here.
- Whatever can be imported is served under "python:MODULE:NAME", on all workers.
- Of a module that is served as a whole only what it defines and does not hide is served: what is in `__all__`, or
  without that, functions of its own whose name does not begin with "_".
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler.values.codecs import NEUTRAL_CODECS, Buffer
from scaler.values.named_functions import ServedFunction

PYTHON_NAMES = "python:"

MARK = 0x06
"""The first byte of a definition; no other function begins like that (see `scaler.values.payload`)."""


class Place(NamedTuple):
    """Where a function is.

    Parameters:
        is_listed: it must be among what its module shows.
    """

    module: str
    attribute: str
    is_listed: bool = False


class ServedFunctions:
    """What a worker serves by name.

    Parameters:
        served: pairs of a name, or the beginning of names and `*`, and MODULE:FUNCTION, or MODULE.
    """

    def __init__(self, served: Sequence[Tuple[str, str]] = ()) -> None:
        self._exact: Dict[str, Place] = {}
        self._modules: Dict[str, str] = {}  # by the beginning of names
        for name, target in served:
            module, _, attribute = target.partition(":")
            if name.endswith("*"):
                self._modules[name[:-1]] = module
            else:
                self._exact[name] = Place(module, attribute)

    @property
    def names(self) -> List[str]:
        """As `Hello.functions` has them."""
        return [f"{PYTHON_NAMES}*", *self._exact, *(f"{prefix}*" for prefix in self._modules)]

    def find(self, name: str) -> Optional[Place]:
        """Where the function of a name is to be looked for; None when the name is not served."""
        if name in self._exact:
            return self._exact[name]
        if name.startswith(PYTHON_NAMES):
            module, _, attribute = name[len(PYTHON_NAMES) :].partition(":")
            return Place(module, attribute) if module and attribute else None
        prefixes = [prefix for prefix in self._modules if name.startswith(prefix) and name != prefix]
        if not prefixes:
            return None
        prefix = max(prefixes, key=len)
        return Place(self._modules[prefix], name[len(prefix) :], is_listed=True)

    def definition(self, name: str, codec: str) -> bytes:
        """What processors are given as the function's object; see `load_served`."""
        place = self.find(name)
        return bytes([MARK]) + json.dumps([name, codec, place, self.names]).encode()


def parse_served(text: str) -> Tuple[str, str]:
    """One pair of `ServedFunctions`.

    Raises ValueError.
    """
    name, _, target = (part.strip() for part in text.partition("="))
    module, _, attribute = target.partition(":")
    is_whole = name.endswith("*")
    if not name.rstrip("*") or "*" in name[:-1] or not module or is_whole == bool(attribute):
        raise ValueError(f"{text!r}: write NAME=MODULE:FUNCTION, or NAME*=MODULE for all functions of a module")
    if name.startswith(PYTHON_NAMES):
        raise ValueError(f"{text!r}: names that begin with {PYTHON_NAMES} are served by all workers")
    return name, target


def load_served(definition: Buffer) -> Tuple[Callable[..., Any], Optional[ServedFunction]]:
    """In a processor: the function of a definition, and how it is called when its codec is not Python's own.

    Raises LookupError when it is not served, and whatever importing raises.
    """
    name, codec, found, names = json.loads(bytes(definition[1:]))
    if found is None:
        raise LookupError(f"this worker does not serve the function {name!r}; it serves {', '.join(names)}")
    place = Place(*found)
    function: Any = importlib.import_module(place.module)
    if place.is_listed and place.attribute not in _listed(function):
        raise LookupError(f"the module {place.module} has no public function {place.attribute!r}")
    for part in place.attribute.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} is not a function: {place.module}:{place.attribute} is not callable")
    return function, ServedFunction(function, codec) if codec in NEUTRAL_CODECS else None


def _listed(module: Any) -> Sequence[str]:
    shown = getattr(module, "__all__", None)
    if shown is not None:
        return tuple(shown)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
