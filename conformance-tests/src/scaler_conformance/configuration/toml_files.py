"""Reading TOML, on Pythons older than its module too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Dict

_tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def load_toml(path: Path) -> Dict[str, Any]:
    """The content of a file.

    Raises OSError, or ValueError when it is no TOML.
    """
    with path.open("rb") as file:
        try:
            tables: Dict[str, Any] = _tomllib.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return tables
