"""Configuration files: which sections there are, and how one is read.

Rules:
- One file holds sections for all programs. Each reads its own, and knows the names of the others', so that a typing
  error in a name is told by whoever sees it.
- A name that is not known is an error that names the nearest. Keys may be written with dashes or underscores.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional

Section = Mapping[str, Any]

SECTIONS = ("scaler", "scheduler", "cluster", "ui", "top")
"""All sections that a file may have; a program's is in its table."""

OTHER_NAMES = {"worker": "cluster", "workers": "cluster", "webui": "ui", "gui": "ui", "worker_manager": "cluster"}
"""What sections are called elsewhere."""

LEFT_TO_THE_SCHEDULER = ("object_storage_server",)
"""Sections of a later generation's files, of which nothing is left to say here: objects are the scheduler's."""


class ConfigurationError(Exception):
    """A configuration that cannot be used; the message says where it is wrong and what to write instead."""


def read_sections(path: str) -> Dict[str, List[Section]]:
    """The sections of a file, each as a list: it has several entries when the file says `[[name]]`.

    Raises ConfigurationError.
    """
    sections: Dict[str, List[Section]] = {}
    for given, value in _read_toml(path).items():
        name = OTHER_NAMES.get(given, given)
        entries = value if isinstance(value, list) else [value]
        if not entries or not all(isinstance(entry, dict) for entry in entries):
            raise ConfigurationError(
                f"{path}: the key {given!r} is outside a section: write it below one, such as [{SECTIONS[1]}]"
            )
        if name in LEFT_TO_THE_SCHEDULER:
            continue
        if name not in SECTIONS:
            hint = nearest(given, SECTIONS) or f"there are {', '.join(f'[{each}]' for each in SECTIONS)}"
            raise ConfigurationError(f"{path}: there is no section [{given}]; {hint}")
        if name in sections:
            raise ConfigurationError(f"{path}: [{given}] and [{name}] are the same section: write one of them")
        sections[name] = entries
    return sections


def _read_toml(path: str) -> Dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            document: Dict[str, Any] = tomllib.load(file)
            return document
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: invalid TOML: {error}") from None


def nearest(name: str, names: Iterable[str]) -> str:
    """`did you mean …?`, or nothing when no name is near."""
    found = closest(name, names, 0.5)
    return f"did you mean {found!r}?" if found else ""


def closest(name: str, names: Iterable[str], cutoff: float) -> str:
    """The name that is most like another one; empty when none is like it by as much as the cutoff, from 0 to 1."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), "")


def choose_entry(path: str, name: str, entries: List[Section], number: Optional[int]) -> Section:
    """The one of a section's entries that a program shall read.

    Parameters:
        number: from 1; None when the user has not said.

    Raises ConfigurationError when that is not clear.
    """
    if number is None and len(entries) > 1:
        count = len(entries)
        raise ConfigurationError(
            f"{path}: there are {count} sections [[{name}]]: choose one with --config-entry, from 1 to {count}"
        )
    if number is not None and number > len(entries):
        raise ConfigurationError(f"{path}: there are {len(entries)} sections [{name}], and no number {number}")
    return entries[(number or 1) - 1] if entries else {}
