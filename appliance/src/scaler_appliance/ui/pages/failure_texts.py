"""Why tasks failed, from the payload of a failed task, which is untrusted.

Rule: bytes that are not a Failure are shown as unreadable; they do not raise an error.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional

from scaler_protocol import MalformedMessageError, decode_struct
from scaler_protocol import messages as m

SUMMARY_LENGTH = 300
UNREADABLE = "the failure cannot be read"


def read_failure(payload: bytes) -> Optional[m.Failure]:
    """None for bytes that are no Failure."""
    try:
        return decode_struct(m.Failure, payload)
    except MalformedMessageError:
        return None


def summary(payload: bytes) -> Optional[str]:
    """Such as "ZeroDivisionError: division by zero", on one line; None where there is none."""
    if not payload:
        return None
    failure = read_failure(payload)
    if failure is None:
        return UNREADABLE
    text = failure.message.strip().partition("\n")[0]
    name = _type_name(failure)
    line = f"{name}: {text}" if name and text else name or text or _kind(failure)
    return line if len(line) <= SUMMARY_LENGTH else f"{line[: SUMMARY_LENGTH - 1]}…"


def details(payload: bytes) -> Dict[str, Optional[object]]:
    """The parts of one failure that a page shows; all None if there is none."""
    failure = read_failure(payload) if payload else None
    if failure is None:
        message = UNREADABLE if payload else None
        return {
            "error_kind": None, "error_type": None, "error_message": message, "traceback": None,
            "error_worker": None, "attempts": None,
        }  # fmt: skip
    return {
        "error_kind": _kind(failure),
        "error_type": _type_name(failure) or None,
        "error_message": failure.message,
        "traceback": failure.traceback or None,
        "error_worker": failure.worker or None,
        "attempts": failure.attempts or None,
    }


def mentions(text: str) -> Callable[[bytes], bool]:
    """A test of payloads: whether type, message or traceback contain a text, ignoring case."""
    wanted = text.casefold()
    rough = wanted.encode() if wanted.isascii() else b""  # a cheap first test, which accepts too much

    def test(payload: bytes) -> bool:
        if rough not in payload.lower():
            return False
        failure = read_failure(payload)
        if failure is None:
            return False
        return any(wanted in each.casefold() for each in (failure.type_name, failure.message, failure.traceback))

    return test


def _type_name(failure: m.Failure) -> str:
    name = failure.type_name
    return name[len("builtins.") :] if name.startswith("builtins.") else name


def _kind(failure: m.Failure) -> str:
    try:
        return m.FailureKind(failure.kind).name.lower()
    except ValueError:
        return f"kind {int(failure.kind)}"
