"""Which method of a reference peer a message goes to."""

from __future__ import annotations

import re


def handler_name(type_: str) -> str:
    """`TaskCancel` is handled by `on_task_cancel`."""
    return "on" + re.sub("(?=[A-Z])", "_", type_).lower()
