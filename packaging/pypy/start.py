"""Starts a program of an unpacked copy; the files in its folder `programs` import this.

Rule: what cannot be imported from a copy means that the copy lost something. It is not used again: the launcher unpacks
a new one at the next start.
"""

from __future__ import annotations

import importlib
import os
import sys

COPY = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))


def start(module: str, function: str) -> None:
    """Run `function` of `module` and end with its exit code."""
    try:
        main = getattr(importlib.import_module(module), function)
    except (ImportError, SyntaxError, ValueError, EOFError) as error:
        name = os.path.basename(sys.argv[0])
        try:
            os.unlink(os.path.join(COPY, "complete"))
            hint = f"start {name} again, and it is unpacked anew"
        except OSError:
            hint = f"delete that folder and start {name} again"
        sys.exit(f"{name}: {error}: what was unpacked to {COPY} is damaged; {hint}")
    sys.exit(main())
