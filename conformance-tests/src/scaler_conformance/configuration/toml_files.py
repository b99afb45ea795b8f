"""Reading TOML, also on versions of Python without `tomllib`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Dict

_tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def load_toml(path: Path) -> Dict[str, Any]:
    """The content of a file.

    Raises OSError, or ValueError if it is not valid TOML.
    """
    with path.open("rb") as file:
        try:
            tables: Dict[str, Any] = _tomllib.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from None
    return tables
