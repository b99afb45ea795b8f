"""Loads the functions that a worker serves by name (see `served_functions`).

Rule: it imports user code, so only processors use it.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Callable, Optional, Sequence, Tuple

from scaler.values.codecs import NEUTRAL_CODECS, Buffer
from scaler.values.named_functions import ServedFunction
from scaler.worker.served_functions import FunctionPlace


def load_served(definition: Buffer) -> Tuple[Callable[..., Any], Optional[ServedFunction]]:
    """In a processor: the function of a definition, and how to call it if its codec is not Python's own.

    Raises LookupError when it is not served, and any exception that importing raises.
    """
    name, codec, found, names = json.loads(bytes(definition[1:]))
    if found is None:
        raise LookupError(f"this worker does not serve the function {name!r}; it serves {', '.join(names)}")
    place = FunctionPlace(*found)
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
