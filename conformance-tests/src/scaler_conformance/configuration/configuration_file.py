"""The file of `--config`: what is known about one implementation.

name = "my worker"                 # in reports; by default what it says about itself
time-scale = 2.0                   # multiplies the one deadline of every wait
missing = ["memory-limit"]         # features of `scaler-conformance --features` that it does not have
[variants]                         # arguments that follow the command for cases that need a scheduler configured so
protected = ["--protected"]
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import FrozenSet, List, Mapping, NamedTuple

from scaler_conformance.configuration.features import FEATURES, VARIANTS
from scaler_conformance.configuration.toml_files import load_toml

_KEYS = {"name", "time-scale", "missing", "variants"}


class Configuration(NamedTuple):
    """Of one implementation."""

    name: str = ""
    time_scale: float = 1.0
    missing: FrozenSet[str] = frozenset()
    variants: Mapping[str, List[str]] = MappingProxyType({})

    @classmethod
    def load(cls, path: Path) -> Configuration:
        """Raises OSError, or ValueError that says what is wrong with the file."""
        table = load_toml(path)
        unknown = sorted(set(table) - _KEYS)
        if unknown:
            raise ValueError(f"{path}: there is no option {unknown[0]}; there are {', '.join(sorted(_KEYS))}")
        missing = table.get("missing", [])
        unknown = sorted(set(missing) - set(FEATURES))
        if unknown:
            raise ValueError(f"{path}: there is no feature {unknown[0]}; there are {', '.join(FEATURES)}")
        time_scale = table.get("time-scale", 1.0)
        if not isinstance(time_scale, (int, float)) or time_scale <= 0:
            raise ValueError(f"{path}: time-scale must be a number above 0")
        variants = {name: list(map(str, arguments)) for name, arguments in table.get("variants", {}).items()}
        unknown = sorted(set(variants) - set(VARIANTS))
        if unknown:
            raise ValueError(f"{path}: there is no variant {unknown[0]}; there are {', '.join(VARIANTS)}")
        return cls(str(table.get("name", "")), float(time_scale), frozenset(missing), variants)
