"""PyPy's just-in-time compiler: off while a program starts, and quick to compile when it serves.

Modules are executed once: compiling the loops in them takes a sixth of a start, and gives nothing. Then most functions
are called once for a message, which is seldom for a compiler that waits for thousands of calls. See ADR 0028.
"""

from __future__ import annotations

try:
    from pypyjit import set_param  # type: ignore[import-not-found]  # mypy runs on CPython
except ImportError:  # CPython

    def set_param(setting: str) -> None:
        """There is no compiler to be set."""


SETTINGS = "threshold=100,function_threshold=150,trace_eagerness=50"
"""After how many turns of a loop, calls of a function, and failures of a guard PyPy compiles. Its own settings are
1039, 1619 and 200."""


def pause_compiling() -> None:
    """Execute everything as it is read, until `resume_compiling`."""
    set_param("off")


def resume_compiling() -> None:
    """Compile what is executed often, as `SETTINGS` say."""
    set_param("default")
    set_param(SETTINGS)
