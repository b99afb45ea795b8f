"""PyPy's just-in-time compiler, switched off while a program starts.

Modules are executed once: compiling the loops in them takes a sixth of a start, and gives nothing. See ADR 0028.
"""

from __future__ import annotations

try:
    from pypyjit import set_param  # type: ignore[import-not-found]  # mypy runs on CPython
except ImportError:  # CPython

    def set_param(setting: str) -> None:
        """There is no compiler to be set."""


def pause_compiling() -> None:
    """Execute everything as it is read, until `resume_compiling`."""
    set_param("off")


def resume_compiling() -> None:
    """Compile what is executed often."""
    set_param("default")
