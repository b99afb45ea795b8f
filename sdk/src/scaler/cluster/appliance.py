"""Where the appliance's programs are on this machine: the scheduler, the user interface, and `scaler_top`.

Rule: the SDK starts them as processes and imports nothing of them; each may be a binary that was downloaded.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from typing import List

from scaler.exceptions import ProgramStartError

PROGRAM_VARIABLE = "SCALER_SCHEDULER"
INTERFACE_VARIABLE = "SCALER_UI"
TOP_VARIABLE = "SCALER_TOP"


def scheduler_command() -> List[str]:
    """The command that runs a scheduler here. Raises ProgramStartError if there is none."""
    return _command("scheduler", PROGRAM_VARIABLE, "scaler_appliance", "scaler_scheduler")


def interface_command() -> List[str]:
    """The command that runs the user interface here. Raises ProgramStartError if there is none."""
    return _command("user interface", INTERFACE_VARIABLE, "scaler_appliance.ui", "scaler_ui")


def top_command() -> List[str]:
    """The command that shows the scheduler in a terminal here. Raises ProgramStartError if there is none."""
    return _command("scaler_top", TOP_VARIABLE, "scaler_appliance.top", "scaler_top")


def _command(what: str, variable: str, module: str, name: str) -> List[str]:
    """What the environment says, else the appliance installed beside this package, else the program on the PATH."""
    command = os.environ.get(variable)
    if command:
        return shlex.split(command)
    if importlib.util.find_spec("scaler_appliance") is not None:
        return [sys.executable, "-m", module]
    program = shutil.which(name)
    if program is not None:
        return [program]
    raise ProgramStartError(
        f"there is no {what} on this machine: `pip install scaler-sdk[local]`, or put the {name} binary on the PATH, or"
        f" name it in the environment variable {variable}"
    )
