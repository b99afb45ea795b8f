"""The check for another distribution that is also imported as `scaler`.

    site-packages/scaler/              whose files are these?
        client/client.py               ours, if scaler-sdk was installed last
        about.py, worker/agent/, …     left over from `scaler` 1.x or `opengris-scaler` 2.x: workers cannot start


Rules:
- Files of both in one folder are an error, because some modules belong to the other. Another distribution in another
  folder is a warning: the order of folders decides which one is imported.
- The check runs once per process, when its first client or cluster is created, and never inside a task.
- It reads the names in a few folders, and imports nothing: `importlib.metadata` would take longer than connecting.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import List

from scaler import nesting
from scaler.exceptions import ScalerError

OTHER_DISTRIBUTIONS = ("opengris_scaler", "opengris-scaler", "scaler")
_SUFFIXES = (".dist-info", ".egg-info", ".egg-link")

_OTHERS_FILE = "about.py"  # a module of both earlier generations, but not of this one

_has_warned = False


def check_installation(stack_level: int = 4) -> None:
    """Once per process, warn if another distribution is imported by the same name.

    Parameters:
        stack_level: of the user's call, as of `warnings.warn`.

    Raises ScalerError if it has left files among ours.
    """
    global _has_warned
    if _has_warned or nesting.priority_of_task is not None:
        return
    others = other_installations(sys.path)
    if is_mixed(package_folder()):
        raise ScalerError(explanation(others or ["an earlier generation of Scaler"], "are mixed"))
    _has_warned = True
    if others:
        warnings.warn(explanation(others, "are both installed"), RuntimeWarning, stacklevel=stack_level)


def is_mixed(folder: str) -> bool:
    """Whether another distribution has files in the folder of our package."""
    return os.path.exists(os.path.join(folder, _OTHERS_FILE))


def other_installations(folders: List[str]) -> List[str]:
    """The other distributions that are installed in the given folders, such as `opengris-scaler 2.9.0`."""
    found: List[str] = []
    for folder in dict.fromkeys(folders):
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # a zip file, or missing
            continue
        for entry in entries:
            stem, suffix = os.path.splitext(entry)
            if suffix in _SUFFIXES:
                name, _, version = stem.partition("-")
                if name.lower() in OTHER_DISTRIBUTIONS:
                    found.append(f"{name.replace('_', '-').lower()} {version}".rstrip())
    return found


def package_folder() -> str:
    """The folder of the package `scaler` that this process has imported."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def explanation(others: List[str], how: str) -> str:
    """What is wrong, why, and what to do."""
    names = sorted({other.partition(" ")[0] for other in others} - {"an"} or {"scaler"})
    return (
        f"scaler-sdk and {' and '.join(others)} {how}, and both are imported as scaler: this process uses"
        f" {package_folder()}; to keep only scaler-sdk, run `pip uninstall {' '.join(names)} scaler-sdk`, remove that"
        " folder if it still exists, then run `pip install scaler-sdk`"
    )
