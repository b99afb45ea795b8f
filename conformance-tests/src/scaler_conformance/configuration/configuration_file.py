"""The file of `--config`: properties of one implementation.

name = "my worker"                 # in reports; by default the name that it reports
time-scale = 2.0                   # multiplies the deadline of every wait
missing = ["memory-limit"]         # features of `scaler-conformance --features` that it lacks
[variants]                         # arguments that are appended for cases that need such a scheduler
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
    """The properties of one implementation."""

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
            raise ValueError(f"{path}: unknown option {unknown[0]}; the options are {', '.join(sorted(_KEYS))}")
        missing = table.get("missing", [])
        unknown = sorted(set(missing) - set(FEATURES))
        if unknown:
            raise ValueError(f"{path}: unknown feature {unknown[0]}; the features are {', '.join(FEATURES)}")
        time_scale = table.get("time-scale", 1.0)
        if not isinstance(time_scale, (int, float)) or time_scale <= 0:
            raise ValueError(f"{path}: time-scale must be a number > 0, got {time_scale!r}")
        variants = {name: list(map(str, arguments)) for name, arguments in table.get("variants", {}).items()}
        unknown = sorted(set(variants) - set(VARIANTS))
        if unknown:
            raise ValueError(f"{path}: unknown variant {unknown[0]}; the variants are {', '.join(VARIANTS)}")
        return cls(str(table.get("name", "")), float(time_scale), frozenset(missing), variants)
