"""Ctrl-C at any moment costs the call that it interrupts, and no other."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import Any, Callable, Optional

from scaler import Client

TIMEOUT_SECONDS = 30.0
OURS = ("scaler/client/", "scaler_protocol/", "threading.py")


def interrupted_at(number: int, call: Callable[[], object]) -> bool:
    """Have KeyboardInterrupt raised at the so-and-so-many-th line, call or return within a call; whether it came."""
    events = 0

    def trace(frame: FrameType, event: str, _: Any) -> Optional[Callable[..., Any]]:
        nonlocal events
        name = frame.f_code.co_filename
        if not any(part in name for part in OURS):
            return None
        # A `with` is a line once more when it is left, at which no signal is looked for.
        if event != "line" or not linecache.getline(name, frame.f_lineno).lstrip().startswith("with "):
            events += 1
            if events == number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_submit_may_be_interrupted_anywhere(any_client: Client) -> None:
    number = 1
    while interrupted_at(number, lambda: any_client.submit(abs, -1)):
        assert any_client.submit(abs, -2).result(TIMEOUT_SECONDS) == 2, number
        number += 7
    assert number > 10


def test_a_condition_is_left_free(any_client: Client) -> None:
    future = any_client.submit(abs, -1)
    future.result(TIMEOUT_SECONDS)
    number = 1
    while interrupted_at(number, future.done):
        assert not any_client._core.outcomes.condition._is_owned(), number  # type: ignore[attr-defined]
        number += 1
