"""Tables of the core that are divided into chunks when they have a few entries, as others are at 32 768."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from random import Random
from typing import Iterator

from scaler_appliance.core import large_tables

SIZES = (2, 7, large_tables.LARGE)


def use_chunks_of(entries: int) -> None:
    """From now on, tables are large that have so many entries."""
    for name, module in list(sys.modules.items()):
        if name.startswith("scaler_appliance.core.") and hasattr(module, "LARGE"):
            setattr(module, "LARGE", entries)  # noqa: B010  # no type checker knows that it is there


@contextmanager
def drawn_chunks(seed: int) -> Iterator[None]:
    """Let a seed decide how many these are, within a run."""
    use_chunks_of(Random(f"tables: {seed}").choice(SIZES))
    try:
        yield
    finally:
        use_chunks_of(SIZES[-1])
