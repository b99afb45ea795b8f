"""The simulation catches bugs that break what actors promise, so it would find others, too."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
from simulation.simulated_run import Run, simulate

from scaler_appliance.core.actor_calls.actor_placement import ActorPlacement
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_appliance.core.placement.ready_class import ReadyClass
from scaler_appliance.core.tasks.requeue import Requeue
from scaler_appliance.core.tasks.task_outcomes import TaskOutcomes

pytestmark = pytest.mark.exhaustive_on_pypy  # which planted bugs are caught does not depend on it

SEEDS = 60
_add, _place_calls = ReadyClass.add, ActorPlacement._place_calls


def _lose_nothing(self: Any, batch: Any, start: int, stop: int, what: str) -> None:
    """An actor that has lost its worker may have another one, and its calls wait for that, as tasks do."""
    self._state.actors.find(batch.function).why_lost = ""
    self.requeue(batch, start, stop)


def _add_in_front(self: Any, span: Any, *, in_front: bool = False, cancelled: int = 0) -> None:
    """New calls go before those that wait."""
    _add(self, span, in_front=in_front or bool(span.batch.options.actor), cancelled=cancelled)


def _choose_again(self: Any, actor: Any, ready_class: Any, is_first: bool = False) -> int:
    """An actor that is idle moves to any worker."""
    if actor.worker and not actor.open_calls:
        self._state.workers[actor.worker].remove_actor(actor)
    return int(_place_calls(self, actor, ready_class, is_first))


PLANTED: Dict[str, Tuple[type, str, Any]] = {
    "calls of a lost worker run elsewhere": (Requeue, "_lose_calls", _lose_nothing),
    "a call overtakes those before it": (ReadyClass, "add", _add_in_front),
    "an idle actor moves": (ActorPlacement, "_place_calls", _choose_again),
    "a lost actor begins again": (ActorPlacement, "on_worker_gone", lambda self, worker, why: None),
    "any worker gets actors": (WorkerSession, "runs_actors", True),
    "actors do not use what they need": (WorkerSession, "has_room_for_actor", lambda self, capabilities: True),
    "calls wait though their actor is idle": (
        TaskOutcomes,
        "_unassign_calls",
        lambda self, worker, dispatch, count: worker.unassign_calls(
            dispatch, self._state.actors.find(dispatch.batch.function), count
        ),
    ),
}


def test_some_seeds_have_actors_and_others_have_none() -> None:
    with_actors = [seed for seed in range(SEEDS) if Run(seed, 8).world.actors.is_used]
    assert SEEDS // 5 < len(with_actors) < SEEDS * 4 // 5


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_catches_what_breaks_a_promise_of_actors(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = PLANTED[bug]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            simulate(seed, 1000)
