"""One outbreak in one town, after Reed and Frost.

Nothing here knows of clusters, files or options: it can be called, tested and profiled by itself.
"""

from __future__ import annotations

import random


def infected(vaccinated: float, contacts: float, seed: int, people: int = 1000) -> int:
    """How many catch an illness that one visitor brings.

    Parameters:
        vaccinated: the share of the people who cannot catch it, from 0 to 1.
        contacts: how many one ill person infects in a town where all can still catch it.
        seed: of all chance: the same seed gives the same outbreak, on every machine.
        people: in the town.

    Raises:
        ValueError: the share is not one.
    """
    if not 0 <= vaccinated <= 1:
        raise ValueError(f"a share is between 0 and 1, not {vaccinated}")
    chance = random.Random(f"{vaccinated} {contacts} {seed}")
    healthy = round(people * (1 - vaccinated))
    ill = 1
    total = 0
    while ill:
        staying_healthy = (1 - contacts / people) ** ill
        ill = sum(chance.random() > staying_healthy for _ in range(healthy))
        healthy -= ill
        total += ill
    return total
