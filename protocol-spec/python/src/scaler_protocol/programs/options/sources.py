"""Configuration files: their sections, and how to read one.

Rules:
- One file holds sections for all programs. Each program reads its own, and knows the names of the others, so that any
  program reports a misspelt name.
- An unknown name is an error that suggests the nearest one. Keys may be written with dashes or underscores.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional

Section = Mapping[str, Any]

SECTIONS = ("scaler", "scheduler", "cluster", "ui", "top", "provision")
"""All sections that a file may have; each program's table names its section."""

OTHER_NAMES = {"worker": "cluster", "workers": "cluster", "webui": "ui", "gui": "ui", "worker_manager": "cluster"}
"""Other names of sections."""

LEFT_TO_THE_SCHEDULER = ("object_storage_server",)
"""Sections in files of another generation that are ignored: the scheduler stores objects."""


class ConfigurationError(Exception):
    """An invalid configuration; the message says where it is invalid and what to write instead."""


def read_sections(path: str) -> Dict[str, List[Section]]:
    """The sections of a file, each as a list: it has several entries if the file repeats `[[name]]`.

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
    """`did you mean …?`, or nothing if no name is similar."""
    found = closest(name, names, 0.5)
    return f"did you mean {found!r}?" if found else ""


def closest(name: str, names: Iterable[str], cutoff: float) -> str:
    """The most similar name; empty if none is more similar than the cutoff, from 0 to 1."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), "")


def choose_entry(path: str, name: str, entries: List[Section], number: Optional[int]) -> Section:
    """The entry of a section that a program should read.

    Parameters:
        number: from 1; None if the user has not chosen.

    Raises ConfigurationError if the choice is ambiguous or out of range.
    """
    if number is None and len(entries) > 1:
        count = len(entries)
        raise ConfigurationError(
            f"{path}: there are {count} sections [[{name}]]: choose one with --config-entry, from 1 to {count}"
        )
    if number is not None and number > len(entries):
        raise ConfigurationError(
            f"{path}: --config-entry {number} is above the number of [{name}] sections, {len(entries)}"
        )
    return entries[(number or 1) - 1] if entries else {}


_HEADING = re.compile(r"\s*\[\[?\s*([\w-]+)\s*\]")
_KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*[=.]")


def line_of(path: str, section: str, entry: int, key: str) -> int:
    """The line, from 1, in which a key of a section is set; 0 if it is not found, as in an inline table.

    TOML readers do not say where a value was. This looks at the beginnings of lines only, which is enough for an error.

    Parameters:
        entry: which of several sections of this name, from 1.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            is_inside = False
            for number, line in enumerate(file, 1):
                heading, found = _HEADING.match(line), _KEY.match(line)
                if heading is not None:
                    is_section = OTHER_NAMES.get(heading[1], heading[1]) == section
                    entry -= is_section
                    is_inside = is_section and not entry
                elif is_inside and found is not None and found[1] == key:
                    return number
    except OSError:
        pass
    return 0
