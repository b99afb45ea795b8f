"""A scheduler, clients and workers that live for long keep nothing of what has ended.

Each round brings a new client, a new worker, functions, named functions, objects, graphs and code that were never there
before; then all of it ends. Monitors of all kinds watch. What the cores, the monitors and modules hold is counted after
each round of the second quarter, and of the last one.
"""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from long_lives.reachable_sizes import grown, module_sizes, sizes_of
from long_lives.watchers import LIMITS as LIMITS_OF_WATCHERS
from long_lives.watchers import Watchers
from whole_system import users as users_module
from whole_system.simulated_world import FAULTS, THEMES_OFF, Plan
from whole_system.system import System

from scaler.values.named_functions import NamedFunction
from scaler.worker.agent.core import task_durations
from scaler.worker.agent.core.function_ids import named_function_ids
from scaler_appliance.core.monitoring import status_changes
from scaler_appliance.core.placement import able_workers
from scaler_appliance.core.tasks import batches, figures_by_function, pace
from scaler_appliance.ui import metrics
from scaler_protocol.session.session_table import SessionState
from scaler_protocol.wire import capnproto, small_frames

ROUNDS = 16
STEPS = 6
ROUND_SECONDS = 120.0
ROUNDS_OF_A_LOOK = 4
LIMIT = 8
"""Of what is kept on purpose: the test makes these limits small, to see that they are kept to."""

MOST_GROWTH = LIMIT
"""What may be added to each container from the second quarter of the rounds to the last one, besides a quarter."""

LIMITS = (
    (task_durations, "MAXIMUM_FUNCTIONS"),
    (figures_by_function, "MAXIMUM_FUNCTIONS"),
    (pace, "FUNCTIONS_OF_A_WORKER"),
    (status_changes, "MAXIMUM_IDLE_FUNCTIONS"),
    (batches, "_PLAIN_LIMIT"),
    (able_workers, "MAXIMUM_NEEDS_KNOWN"),
    (named_function_ids, "MAXIMUM_NAMED_FUNCTIONS"),
    (small_frames, "_TEXTS_KNOWN"),
    (capnproto, "_POINTERS_KNOWN"),
    *LIMITS_OF_WATCHERS,
)
RATES = {
    **dict.fromkeys(("objects", "predecessors", "graphs", "large_arguments", "named_functions", "code"), 0.3),
    **dict.fromkeys(("large_objects", "large_results", "raising", "runs", "at_most_once", "retries"), 0.3),
    **dict.fromkeys(("cancel", "force", "give_up", "questions", "lone_tasks", "stale_functions"), 0.3),
    "large_nodes": 0.3,
    "monitors": 1.0,
    "exact_times": 1.0,
    "shared_files": 0.5,
}


class LongLife(System):
    """Of the clients and workers that stay, one of each gets another session in each round. Another client and another
    worker come and go."""

    def __init__(self, seed: int) -> None:
        super().__init__(Plan(seed, frozenset({*FAULTS, THEMES_OFF}), peers=1))
        self.world.rates.update(dict.fromkeys(self.world.rates, 0.0), **RATES)
        self._rounds = 0
        self.watchers = Watchers(self)
        self._add_user()
        self._add_worker()

    def _add_worker(self, takes_all: bool = True) -> None:
        super()._add_worker(takes_all=True)  # and leaves neither when it is idle nor at the end of its life

    def round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """New peers work, then they leave, and nothing is left to do."""
        world = self.world
        world.events = 0
        self._rounds += 1
        names = [f"example.org/many/{self._rounds}/{number}" for number in range(10)]
        monkeypatch.setattr(users_module, "_NAMED_FUNCTIONS", list(map(NamedFunction, names)))
        self._add_user()
        self._add_worker()
        self._run_until(lambda: all(each.host.is_open for each in self.users) and all_open(self.workers))
        for _ in range(STEPS):
            for user in self.users:
                user.act()
            world.run(world.now + 0.3)
            self.watchers.listen()
        self._run_until(lambda: all(user.is_done for user in self.users))
        for user in self.users:
            user.let_go_of_all()
            user._code_of_functions.clear()
        self.users.pop().host.leave()
        self.workers.pop().stop()
        self._run_until(lambda: self._is_empty() and self._are_only_those_who_stay())
        for peer in (self.users[1].host, self.workers[1], self.users[1].host):
            assert peer.connection is not None
            peer.connection.snap()
            self._run_until(lambda peer=peer: peer.has_session)
        world.run(world.now + 40.0)
        self.watchers.listen()
        if not self._rounds % ROUNDS_OF_A_LOOK:
            self.watchers.look()

    def _run_until(self, condition: Any) -> None:
        self.world.run(self.world.now + ROUND_SECONDS, condition)
        assert condition()

    def _is_empty(self) -> bool:
        state = self.scheduler.core.state
        return not (state.dispatches or len(state.objects) or self.scheduler.files)

    def _are_only_those_who_stay(self) -> bool:
        state = self.scheduler.core.state
        return len(state.clients) == len(self.users) and len(state.workers) == len(self.workers)

    def sizes(self) -> Dict[str, int]:
        """By place; the cores of peers have numbers."""
        found = {**sizes_of(self.scheduler.core), **self.watchers.sizes(), **module_sizes()}
        clients = [sizes_of(each.host.core, each.host.session) for each in self.users]
        workers = [sizes_of(each.core) for each in self.workers]
        for number, sizes in [*enumerate(clients), *enumerate(workers)]:
            found.update({f"{number} {place}": size for place, size in sizes.items()})
        return found


def all_open(workers: List[Any]) -> bool:
    return all(each.core.session.state is SessionState.OPEN for each in workers)


SEEDS = [
    0,
    pytest.param(1, marks=pytest.mark.slow),
    *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.exhaustive]) for seed in range(2, 5)),
]
"""What happens in each round differs with the seed, but each round of each seed has all kinds of work: two suffice."""


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_kept_of_what_has_ended(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in LIMITS:
        monkeypatch.setattr(module, limit, LIMIT)
    monkeypatch.setattr(metrics.FunctionTotals.__init__, "__defaults__", (LIMIT,))
    system = LongLife(seed)
    largest: Dict[str, int] = {}  # in the second quarter
    smallest: Dict[str, int] = {}  # in the last one: what grows with history is larger by then
    for number in range(ROUNDS):
        system.round(monkeypatch)
        quarter = number * 4 // ROUNDS
        if quarter == 1:
            largest = {**largest, **{place: max(size, largest.get(place, 0)) for place, size in system.sizes().items()}}
        elif quarter == 3:
            sizes = system.sizes()
            smallest = {place: min(size, sizes.get(place, 0)) for place, size in (smallest or sizes).items()}
    assert system.watchers.feed.malformed == 0
    assert grown(largest, smallest, MOST_GROWTH) == {}
    system.watchers.feed.close()
