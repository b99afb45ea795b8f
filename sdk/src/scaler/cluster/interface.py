"""Where the program of the user interface is on this machine."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from typing import List

from scaler.exceptions import ScalerError

PROGRAM_VARIABLE = "SCALER_UI"


def interface_command() -> List[str]:
    """The command that runs the user interface here: that of the environment variable SCALER_UI if it is set, else the
    appliance installed beside this package, else `scaler_ui` on the PATH.

    Raises ScalerError when there is none.
    """
    command = os.environ.get(PROGRAM_VARIABLE)
    if command:
        return shlex.split(command)
    if importlib.util.find_spec("scaler_appliance") is not None:
        return [sys.executable, "-m", "scaler_appliance.ui"]
    program = shutil.which("scaler_ui")
    if program is not None:
        return [program]
    raise ScalerError(
        "there is no user interface on this machine: `pip install scaler-sdk[local]`, or put the scaler_ui binary on"
        f" the PATH, or name it in the environment variable {PROGRAM_VARIABLE}"
    )
