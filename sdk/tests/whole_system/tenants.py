"""Which tenant each peer of a simulated system is of, and what each tenant may have.

Rules:
- Its chance is its own: a history without tenants stays what it was.
- Clients are of one of two tenants, workers of one of these or of all. Some clients are owners, who see all and may ask
  all workers to leave; they own no more than others.
"""

from __future__ import annotations

from random import Random
from typing import Any, List, NamedTuple, Optional, Sequence, TypeVar

from whole_system.simulated_world import World

from scaler_protocol.keys.allow_list import ANY_TENANT, DEFAULT_TENANT

_T = TypeVar("_T")

NAMES = ("a", "b")
WEIGHTS = (1.0, 1.0, 4.0)
MOST_WAITING = (-1, -1, -1, 2, 10)
MOST_RUNNING = ((-1,), (-1, 1, 2, 6))
MOST_OBJECT_BYTES = (-1, -1, -1, 0, 1500, 80_000)


class Key(NamedTuple):
    """What a peer's key is admitted as."""

    role: str
    tenant: str


OWNER = Key("owner", DEFAULT_TENANT)


class Limits(NamedTuple):
    """Of one tenant, as `Settings.tenants` has them."""

    name: str
    weight: float
    maximum_waiting: int
    maximum_running: int
    maximum_object_bytes: int


class Tenants:
    def __init__(self, world: World) -> None:
        self._random = Random(f"tenants: {world.plan.seed}")
        self._rate = world.rates["tenants"]
        self.are_there = self._rate > 0.0
        draw = self._random.choice
        names = NAMES if self.are_there else ()
        most_running = draw(MOST_RUNNING)
        self.limits = [
            Limits(name, draw(WEIGHTS), draw(MOST_WAITING), draw(most_running), draw(MOST_OBJECT_BYTES))
            for name in names
        ]

    def limits_of(self, tenant: str) -> Optional[Limits]:
        return next((each for each in self.limits if each.name == tenant), None)

    @property
    def settings(self) -> List[List[Any]]:
        return [list(each) for each in self.limits]

    def of_client(self) -> Key:
        """The key of a new client; at a low rate, most are of one tenant."""
        if not self.are_there:
            return OWNER
        is_any = self._random.random() < self._rate
        tenant = self._random.choice(NAMES) if is_any else NAMES[0]
        return Key(self._random.choice(("client", "client", "owner")), tenant)

    def of_nested_client(self, tenant: str) -> Key:
        """The key of a client in a task of a tenant."""
        return Key("client", tenant) if self.are_there else OWNER

    def of_worker(self, serves_all: bool) -> Key:
        """The key of a new worker."""
        if not self.are_there:
            return OWNER
        return Key("worker", ANY_TENANT if serves_all else self._random.choice((*NAMES, ANY_TENANT, ANY_TENANT)))

    def choose(self, among: Sequence[_T]) -> _T:
        return self._random.choice(among) if self.are_there else among[0]

    def submits_many(self) -> bool:
        """Whether a client submits many tasks now: so that tenants compete."""
        return self.are_there and self._random.random() < 0.2

    def is_spying(self) -> bool:
        """Whether a client asks for what is another's now."""
        return self.are_there and self._random.random() < 0.3


def serves(worker: Key, tenant: str) -> bool:
    """Whether a worker with this key runs a tenant's tasks."""
    return worker.tenant in (tenant, ANY_TENANT)


def sees_all(key: Key) -> bool:
    """Whether a peer with this key may know of all tenants."""
    return key.role == "owner" or key.tenant == ANY_TENANT
