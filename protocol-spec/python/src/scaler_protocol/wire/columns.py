"""Shared code of the generated batch checks: comparing the lengths of columns, and the errors.

Rules: the schema alone, in columns.capnp, says which columns belong together.

Source: SCL-SCH-002, SCL-WRK-015, SCL-CLT-011.
"""

from __future__ import annotations

from typing import Sequence, Sized

from scaler_protocol.wire.errors import MalformedMessageError


def columns_differ(message: str, name: str, column: Sized, entries: str, count: int) -> MalformedMessageError:
    """The error for a column whose length differs from the batch's."""
    return MalformedMessageError(f"{message}: {name} has {len(column)} entries, {entries} has {count}")


def sum_differs(message: str, name: str, total: int, what: str, length: int) -> MalformedMessageError:
    """The error for a column whose sum differs from the length that it describes."""
    return MalformedMessageError(f"{message}: the sum of {name} is {total}, the length of {what} is {length}")


def check_lengths(batch: object, entries: str, needed: Sequence[str], optional: Sequence[str]) -> None:
    """Raise MalformedMessageError unless columns have as many entries as `entries`; optional ones may be empty."""
    count = len(getattr(batch, entries))
    for name in needed:
        column = getattr(batch, name)
        if len(column) != count:
            raise columns_differ(type(batch).__name__, name, column, entries, count)
    for name in optional:
        column = getattr(batch, name)
        if column and len(column) != count:
            raise columns_differ(type(batch).__name__, name, column, entries, count)
