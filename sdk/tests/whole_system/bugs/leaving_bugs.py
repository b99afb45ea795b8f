"""Bugs of workers that drain, and of the end of their lives."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, SCHEDULER, PlantedBug

LEAVING_BUGS: Dict[str, PlantedBug] = {
    # The worker -------------------------------------------------------------------------------------------------------
    "a worker that asks to be drained begins more tasks": PlantedBug(
        "agent", f"{AGENT}.agent_core:AgentCore._drain", "self.tasks.drain()", "pass"
    ),
    "a worker that asks to be drained stops its tasks at once": PlantedBug(
        "agent", f"{AGENT}.departure:Departure.limit", "now + self._settings.drain_timeout_seconds", "now"
    ),
    "a worker leaves before the scheduler has answered": PlantedBug(
        "agent",
        f"{AGENT}.agent_core:AgentCore.finish_turn",
        "if self.session.state is _DRAINING and",
        "if self.session.state in (_ASKING, _DRAINING) and",
    ),
    "a signal that comes both ways counts twice": PlantedBug(
        "agent", f"{AGENT}.departure:Departure.count_signal", "max(self._signals)", "sum(self._signals)"
    ),
    "a worker does not say when it leaves": PlantedBug(
        "agent",
        f"{AGENT}.agent_core:AgentCore.on_connected",
        "self._hello.remaining_milliseconds = self._departure.remaining_milliseconds(now)",
        "pass",
    ),
    "the time for tasks is kept for the goodbye at the end of a life": PlantedBug(
        "agent",
        f"{AGENT}.departure:Departure.start",
        "self._drains_at + kept_seconds * timeout_seconds / whole_seconds",
        "self._drains_at",
    ),
    # The scheduler ----------------------------------------------------------------------------------------------------
    "a worker that asked to be drained gets more tasks": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_shutdown_reactions:WorkerShutdownReactions._ask",
        "self._placement.remove_worker(worker)",
        "pass",
    ),
    "a task goes to a worker that leaves before its end": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.offers",
        "(seconds and now + seconds > self.stays_until) or",
        "",
    ),
    "a task goes to any worker because some could run it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.able_workers:AbleWorkers.suit_everyone",
        "needs.capabilities or needs.time_request_seconds",
        "needs.capabilities",
    ),
    "a task that has to begin at once waits behind others": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prefetch:PrefetchCredit.of",
        "if is_timed or",
        "if",
    ),
}
