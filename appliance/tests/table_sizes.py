"""Tables of the core that are divided into chunks when they have a few entries, as others are at 32 768."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import lru_cache
from random import Random
from types import ModuleType
from typing import Iterator, List

from scaler_appliance.core import large_tables

SIZES = (2, 7, large_tables.LARGE)


def use_chunks_of(entries: int) -> None:
    """From now on, tables are large that have so many entries."""
    for module in _modules_with_large_tables(len(sys.modules)):
        setattr(module, "LARGE", entries)  # noqa: B010  # no type checker knows that it is there


@lru_cache(maxsize=1)
def _modules_with_large_tables(module_count: int) -> List[ModuleType]:
    """
    Parameters:
        module_count: of all that are imported: when there are more, they are looked through again.
    """
    modules = list(sys.modules.items())
    return [each for name, each in modules if name.startswith("scaler_appliance.core.") and hasattr(each, "LARGE")]


@contextmanager
def drawn_chunks(seed: int) -> Iterator[None]:
    """Let a seed decide how many these are, within a run."""
    use_chunks_of(Random(f"tables: {seed}").choice(SIZES))
    try:
        yield
    finally:
        use_chunks_of(SIZES[-1])
