"""What nuitka compiles: the appliance's programs, as their entries in the wheel start them.

Rules: the name of the file, or of a link to it, is the program that is meant; any other name is the scheduler. What
only one of them needs, the others do not import.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    # `sys.argv[0]` is the file itself, whatever link to it was called; nuitka keeps what the caller said.
    name = os.path.basename(__compiled__.original_argv0)  # type: ignore[name-defined]  # nuitka has it  # noqa: F821
    if name == "scaler_top":
        from scaler_appliance.top.__main__ import main as run
    elif name == "scaler_ui":
        _without_tls()
        from scaler_appliance.ui.__main__ import main as run
    else:
        from scaler_appliance.__main__ import main as run
    return run()


def _without_tls() -> None:
    """Let libraries mention `ssl`, which is not in this file."""
    import asyncio  # noqa: F401  imported early, so that it sees that a module is missing

    import scaler_without_tls  # type: ignore[import-not-found]  # build.py puts it beside this file

    sys.modules["ssl"] = scaler_without_tls


if __name__ == "__main__":
    sys.exit(main())
