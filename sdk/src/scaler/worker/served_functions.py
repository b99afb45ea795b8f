"""Which Python function a worker runs for a name.

    --functions 'example.org/thumbnail=images:thumbnail'      one function
    --functions 'example.org/text/*=texts'                     all public functions of a module

Rules:
- Names are only resolved to places (module and attribute) here; user code is imported in processors only.
- Every importable function is served as "python:MODULE:NAME", on all workers but those that serve only named ones.
- If a whole module is served, this means its public functions: those in `__all__`, or without that, functions that it
  defines whose name does not begin with "_".
"""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

PYTHON_NAMES = "python:"

MARK = 0x06
"""The first byte of a definition; no other function begins like that (see `scaler.values.payload`)."""


class FunctionPlace(NamedTuple):
    """Where a function is.

    Parameters:
        is_listed: it must be public in its module.
    """

    module: str
    attribute: str
    is_listed: bool = False


class ServedFunctions:
    """The functions that a worker serves by name.

    Parameters:
        served: pairs of a name, or the beginning of names and `*`, and MODULE:FUNCTION, or MODULE.
        only_named: no others are served.
    """

    def __init__(self, served: Sequence[Tuple[str, str]] = (), only_named: bool = False) -> None:
        self._only_named = only_named
        self._exact: Dict[str, FunctionPlace] = {}
        self._modules: Dict[str, str] = {}  # by the beginning of names
        for name, target in served:
            module, _, attribute = target.partition(":")
            if name.endswith("*"):
                self._modules[name[:-1]] = module
            else:
                self._exact[name] = FunctionPlace(module, attribute)

    @property
    def names(self) -> List[str]:
        """The names for `Hello.functions`."""
        any_place = [] if self._only_named else [f"{PYTHON_NAMES}*"]
        return [*any_place, *self._exact, *(f"{prefix}*" for prefix in self._modules)]

    def find(self, name: str) -> Optional[FunctionPlace]:
        """Where the function of a name is; None when the name is not served."""
        if name in self._exact:
            return self._exact[name]
        if name.startswith(PYTHON_NAMES):
            if self._only_named:
                return None
            module, _, attribute = name[len(PYTHON_NAMES) :].partition(":")
            return FunctionPlace(module, attribute) if module and attribute else None
        prefixes = [prefix for prefix in self._modules if name.startswith(prefix) and name != prefix]
        if not prefixes:
            return None
        prefix = max(prefixes, key=len)
        return FunctionPlace(self._modules[prefix], name[len(prefix) :], is_listed=True)

    def definition(self, name: str, codec: str) -> bytes:
        """The definition that processors get as the function's object; see `load_served`."""
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
