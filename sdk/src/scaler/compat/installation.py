"""The warning about another distribution that is imported as `scaler`, too.

    site-packages/scaler/              whose files are these?
        client/client.py               ours, if we were installed last
        about.py, scheduler/, …        left over from `scaler` 1.x or `opengris-scaler` 2.x

Rules:
- It is looked for once in a process, when its first client or cluster is made, and never inside a task.
- It reads the names in a few folders, and imports nothing: `importlib.metadata` would take longer than connecting.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import List

from scaler import nesting

OTHER_DISTRIBUTIONS = ("opengris_scaler", "opengris-scaler", "scaler")
_SUFFIXES = (".dist-info", ".egg-info", ".egg-link")

_is_told = False


def warn_of_another_installation() -> None:
    """Warn once in this process if another distribution is imported by the same name."""
    global _is_told
    if _is_told or nesting.priority_of_task is not None:
        return
    _is_told = True
    others = other_installations(sys.path)
    if others:
        warnings.warn(explanation(others), RuntimeWarning, stacklevel=4)


def other_installations(folders: List[str]) -> List[str]:
    """The other distributions that are installed in some folders, such as `opengris-scaler 2.9.0`."""
    found: List[str] = []
    for folder in dict.fromkeys(folders):
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # a zip file, or not there
            continue
        for entry in entries:
            stem, suffix = os.path.splitext(entry)
            if suffix in _SUFFIXES:
                name, _, version = stem.partition("-")
                if name.lower() in OTHER_DISTRIBUTIONS:
                    found.append(f"{name.replace('_', '-').lower()} {version}".rstrip())
    return found


def package_folder() -> str:
    """Where the package `scaler` is that this process has imported."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def explanation(others: List[str]) -> str:
    """What is wrong, why, and what to do."""
    names = sorted({other.partition(" ")[0] for other in others})
    return (
        f"{' and '.join(others)} is installed beside scaler-sdk, and both are imported as `scaler`: this process uses"
        f" {package_folder()}, where modules of the other may be left. To keep this one:"
        f" `pip uninstall {' '.join(names)} scaler-sdk`, then `pip install scaler-sdk`"
    )
