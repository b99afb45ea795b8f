"""The warnings about tasks that the end of a client's `with` block, or of the program, has cancelled."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack
from types import FrameType
from typing import Optional

from scaler.exceptions import UnfinishedTasksWarning

_NOT_THE_USERS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, ExitStack.__exit__.__code__.co_filename)
_REMEDY = "wait for the futures before it ends, for example with future.result() or client.wait(futures)"


def warn_of_cancelled(count: int) -> None:
    """Warn at the user's `with` statement that its end has cancelled `count` tasks."""
    warnings.warn(
        f"{_were_cancelled(count)} because the client's `with` block ended: {_REMEDY}",
        UnfinishedTasksWarning,
        stacklevel=_users_level(),
    )


def is_program_ending_well() -> bool:
    """Whether no error ends the program: else that is what the user has to hear of."""
    return getattr(sys, "last_value", None) is None


def warn_at_the_end(count: int) -> None:
    """Warn that the end of the program has cancelled `count` tasks: no line of it is to blame."""
    if count:
        warnings.warn_explicit(
            f"{_were_cancelled(count)} because the program ended: {_REMEDY}",
            UnfinishedTasksWarning,
            "sys",
            1,
        )


def _were_cancelled(count: int) -> str:
    return "1 unfinished task was cancelled" if count == 1 else f"{count} unfinished tasks were cancelled"


def _users_level() -> int:
    """The `stacklevel` of the first caller that is neither of this package nor of `contextlib`."""
    level = 1
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
        level += 1
    return level
