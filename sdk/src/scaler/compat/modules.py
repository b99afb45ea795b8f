"""Imports by the module names of earlier generations.

    import scaler.utility.exceptions ─▶ no such file ─▶ EarlierModules ─▶ table ─▶ a module that forwards each name

Rules:
- `scaler` adds the finder after all others, so that it never shadows an existing module.
- A forwarding module imports nothing by itself: a name is looked up on access.
- A module that is missing on purpose says why; a module that is not in the table is missing like any other.
"""

from __future__ import annotations

import importlib
import warnings
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, List, Optional

from scaler.compat.compatibility_table import MODULES, WITHOUT_COUNTERPART


def find_spec(name: str) -> Optional[ModuleSpec]:
    """The spec of a module by an earlier name, or None.

    Raises ModuleNotFoundError for a module that is missing on purpose.
    """
    if name in MODULES:
        return ModuleSpec(name, _Forwarder(), origin="scaler.compat.compatibility_table", is_package=is_package(name))
    why = reason_for_absence(name)
    if why:
        raise ModuleNotFoundError(
            f"No module named {name!r}: it belongs to an earlier generation of Scaler; {why}", name=name
        )
    return None


def is_package(name: str) -> bool:
    """Whether the table has modules below this one."""
    return any(other.startswith(f"{name}.") for other in MODULES)


def reason_for_absence(name: str) -> str:
    """Why a module is missing on purpose; empty if it is not in the table."""
    while name != "scaler":
        if name in WITHOUT_COUNTERPART:
            return WITHOUT_COUNTERPART[name]
        name = name.rpartition(".")[0]
    return ""


_ONLY_HERE = {"scaler.compat.names", "scaler.compat.earlier_settings", "scaler.compat.worker_manager"}
"""The homes of names without a better location: programs may keep importing them by the earlier name."""


class _Forwarder(Loader):
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        places = MODULES[name]
        homes = sorted({home for home, _, _ in (place.partition(":") for place in places.values())} - _ONLY_HERE)
        if homes:
            warnings.warn(
                f"{name} is a module of an earlier generation of Scaler; import its names from {' and '.join(homes)}",
                DeprecationWarning,
                stacklevel=2,
            )

        def look_up(attribute: str) -> Any:
            if attribute not in places:
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            home, _, original = places[attribute].partition(":")
            value = getattr(importlib.import_module(home), original)
            setattr(module, attribute, value)
            return value

        def names() -> List[str]:
            return sorted(places)

        module.__doc__ = "Names of an earlier generation of Scaler; see scaler.compat."
        vars(module).update(__getattr__=look_up, __dir__=names, __all__=names())
