"""What adapters that start workers elsewhere have in common: the options of a unit's worker, and whose it is."""

from __future__ import annotations

import hashlib
from typing import List, Optional

from scaler.provision.core.pool import PoolSettings

_DIGEST_CHARACTERS = 6


def digest_of(address: str) -> str:
    """A few characters that differ between schedulers: names and labels of units have them."""
    return hashlib.sha256(address.encode()).hexdigest()[:_DIGEST_CHARACTERS]


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
        words += ["--capabilities", ",".join(f"{name}={amount:g}" for name, amount in pool.capabilities.items())]
    if key_file:
        words += ["--key-file", key_file]
    if insecure:
        words.append("--insecure")
    return words
