"""What adapters that start workers elsewhere have in common: the options of a unit's worker, and whose it is."""

from __future__ import annotations

import hashlib
import re
from typing import List, Mapping, Optional

from scaler.provision.core.pool import PoolSettings

UNIT = r"-[0-9a-f]+-[0-9]+"
"""What follows the name of a pool in the ids of its units, as a pattern: see `ProvisionCore`."""

_DIGEST_CHARACTERS = 6


def digest_of(address: str) -> str:
    """A few characters that differ between schedulers: names and labels of units have them."""
    return hashlib.sha256(address.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def is_unit_of(unit: str, pool: str, address: str) -> bool:
    """Whether an id is that of a unit of a pool, started by a program whose `instance` begins with the digest."""
    return bool(re.fullmatch(f"{re.escape(pool)}(?=-{digest_of(address)}){UNIT}", unit, re.ASCII))


def number_text(number: float) -> str:
    """A number for a command line, as it is: not rounded, and without an exponent that a shell cannot compute with."""
    return f"{number:.15g}"


def amounts_text(amounts: Mapping[str, float], separator: str = ",") -> str:
    """Amounts by name, as in `gpu=1,memory=17179869184`."""
    return separator.join([f"{name}={number_text(amount)}" for name, amount in amounts.items()])


def worker_arguments(
    pool: PoolSettings, unit: str, address: str, key_file: Optional[str] = None, insecure: bool = False
) -> List[str]:
    """The arguments of the worker of a unit.

    Parameters:
        address: of the scheduler, as workers reach it.
        key_file: the key of workers; None: they look for it themselves.
        insecure: workers connect without keys.
    """
    words = [address, "--num-of-workers", str(pool.slots), "--unit", unit]
    if pool.capabilities:
        words += ["--capabilities", amounts_text(pool.capabilities)]
    if key_file:
        words += ["--key-file", key_file]
    if insecure:
        words.append("--insecure")
    return words
