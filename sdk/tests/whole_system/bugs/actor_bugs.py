"""Bugs that break what actors promise, in the three cores that take part in it."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, CLIENT, SCHEDULER, PlantedBug

ACTOR_BUGS: Dict[str, PlantedBug] = {
    "calls that a processor gives back go behind the others": PlantedBug(
        "agent",
        f"{AGENT}.actor_flow.worker_actors:WorkerActor.put_back",
        "self._queue.appendleft(",
        "self._queue.append(",
    ),
    "an actor that has lost its processor begins again": PlantedBug(
        "agent",
        f"{AGENT}.actor_flow.worker_actors:WorkerActors.lose",
        "actor.why_lost = actor.why_lost or why",
        "pass",
    ),
    "calls go to any processor": PlantedBug(
        "agent",
        f"{AGENT}.processor_pool:ProcessorPool.take_back",
        "if state.killed or state.actor:",
        "if state.killed:",
    ),
    "an actor that has lost its worker gets another one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.actor_calls.actor_placement:ActorPlacement.on_worker_gone",
        "actor.why_lost = f",
        "ignored = f",
    ),
    "the calls of a former session are sent again": PlantedBug(
        "client", f"{CLIENT}.recovery:Recovery.start_session", "run.options.actor:", "run.options.actor and not again:"
    ),
    "calls that wait are sent in the next session": PlantedBug(
        "client", f"{CLIENT}.client_core:ClientCore._is_lost", "return isinstance(actor, int) and", "return False and"
    ),
}
