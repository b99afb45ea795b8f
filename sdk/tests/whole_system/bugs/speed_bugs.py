"""Bugs of the placement at workers of different speed, which only cost time."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

QUIET_SPEED_BUGS: Dict[str, PlantedBug] = {
    "tasks wait for quicker workers however long that takes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.part_of",
        "if since is not None and",
        "if False and",
    ),
    "a worker that is gone is still quick": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.remove",
        "price = self._prices.pop(worker.number, None)",
        "price = None",
    ),
    "tasks that a quicker worker cannot run wait for it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._place_round",
        " and self.able.suit_everyone(ready_class.requirement.needs)",
        "",
    ),
    "the last of what waits counts one round too few": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.worthwhile",
        "max(0, count - rounds * slots)",
        "max(0, count - (rounds - 1) * slots)",
    ),
    "what quicker workers hold does not count": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.worthwhile",
        "(ends_microseconds - held_microseconds)",
        "ends_microseconds",
    ),
    "a worker that was asked to give tasks back is waited for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds._preferred_to",
        "is_late or ",
        "",
    ),
    "what a task has run counts as if it were left": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.left_microseconds",
        "if self.assigned > self.slots:",
        "if True:",
    ),
    "a task that is overdue ends at once": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession.left_microseconds",
        "abs(each.late_by_microseconds(now))",
        "max(0.0, -each.late_by_microseconds(now))",
    ),
    "a worker that leaves is waited for": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.speeds:Speeds._preferred_to", "worker.leaving or ", ""
    ),
    "a slot of a slow worker is free for what is sooner done in line at a quick one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "if self._placement.speeds.price_of(worker) < rounds",
        "",
    ),
    "a slot is free for what waits behind others though a task that waits could have it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        " if not _could_take(worker, waiting, now)",
        "",
    ),
    "tasks that wait for what no free slot has keep others behind others": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "any(map(self._placement.able.suit_everyone, waiting))",
        "waiting",
    ),
    "a worker whose answer was of no use is asked for as few tasks again": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "count << donor.useless_answers",
        "count",
    ),
    "a worker whose answer was of no use is asked again at once": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance._note_use",
        "worker.not_asked_until = now + pause_seconds",
        "pass",
    ),
    "an answer that was of use does not end the pauses": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance._note_use",
        "worker.useless_answers, worker.not_asked_until = 0, now",
        "pass",
    ),
    "any number of free slots is compared with what waits": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance._next",
        "return idle[first : first + COMPARISONS // len(waiting)]",
        "return idle",
    ),
    "the next task does not begin a new wait": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._hand_out",
        "ready_class.waits_since = None",
        "pass",
    ),
    "tasks are compared without regard to who ran those before them": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:Typical.compare",
        "microseconds / factor",
        "microseconds",
    ),
    "what others need is nothing to be spared": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._place_class",
        "self.speeds.want(",
        "len(",
    ),
    "what was wanted once is wanted for ever": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.speeds:Speeds.begin", "del self._wanted_until[name]", "pass"
    ),
    "chance makes workers slow": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:Pace.measure",
        "by_chance = _MOST_BY_CHANCE *",
        "by_chance = 0.0 *",
    ),
}
