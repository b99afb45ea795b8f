"""What executes this program, by name and version, as peers and people are told.

The standard library's `platform` says the same; importing it takes longer than many programs that only want to say it.
"""

from __future__ import annotations

import sys

_NAMES = {"cpython": "CPython", "pypy": "PyPy"}


def interpreter_name() -> str:
    """Such as "CPython"."""
    return _NAMES.get(sys.implementation.name, sys.implementation.name)


def python_version() -> str:
    """Such as "3.11.7" or "3.14.0rc1"."""
    return sys.version.split(maxsplit=1)[0]


def language() -> str:
    """Such as "Python 3.11.7 (CPython)", for `Implementation`."""
    return f"Python {python_version()} ({interpreter_name()})"
