"""Bugs of the placement at workers of different speed, which only cost time."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

QUIET_SPEED_BUGS: Dict[str, PlantedBug] = {
    "tasks wait for quicker workers however long that takes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prices:Prices.part_of",
        "if since is not None and",
        "if False and",
    ),
    "a worker that is gone is still quick": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prices:Prices.remove",
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
        f"{SCHEDULER}.placement.prices:Prices.worthwhile",
        "max(0, count - rounds * slots)",
        "max(0, count - (rounds - 1) * slots)",
    ),
    "what quicker workers hold does not count": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prices:Prices.worthwhile",
        "(ends_microseconds - held_microseconds)",
        "ends_microseconds",
    ),
    "a worker that was asked to give tasks back is waited for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prices:Prices._preferred_to",
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
        "scheduler", f"{SCHEDULER}.placement.prices:Prices._preferred_to", "worker.leaving or ", ""
    ),
    "a slot of a slow worker is free for what is sooner done in line at a quick one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "if min(each.of(worker) for each in prices) < rounds",
        "",
    ),
    "tasks are asked for to run where their function is slow": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance",
        "self._placement.speeds.of(each)",
        "self._placement.speeds.usual",
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
        f"{SCHEDULER}.placement.ready_class:ReadyClass.note_taken",
        "self.waits_since = None",
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
        "scaler_appliance.core.tasks.pace:Pace.settle",
        "by_chance = errors *",
        "by_chance = 0.0 *",
    ),
    "a worker is as quick at one function as at all others": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:WorkerPace.of",
        "self.exceptions.get(function, self.factor)",
        "self.factor",
    ),
    "a few reports of a function say as much as many": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:WorkerPace.measure",
        "Pace(self.factor, _FEW_REPORTS)",
        "Pace(self.factor)",
    ),
    "the pace of a function is not that of its worker, of which more is known": PlantedBug(
        "scheduler", "scaler_appliance.core.tasks.pace:WorkerPace.measure", "each.settle(self.factor)", "pass"
    ),
    "any number of functions of a worker is known": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:WorkerPace.measure",
        "len(known) > FUNCTIONS_OF_A_WORKER",
        "False",
    ),
    "a function that is forgotten keeps its price": PlantedBug(
        "scheduler",
        "scaler_appliance.core.tasks.pace:WorkerPace.measure",
        "is_changed |= known.popitem(last=False)[0] in self.exceptions",
        "known.popitem(last=False)",
    ),
    "functions that all workers are equally quick at keep prices of their own": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.speeds:Speeds.remove", "if prices.is_empty:", "if False:"
    ),
    "the least price of a function is what it was when it was first asked for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.of",
        "prices.compared_at != self._changes",
        "prices.compared_at < 0",
    ),
    "workers with another price for a function have their usual one as well": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.prices:FunctionPrices._levels",
        "if each.number not in self._prices",
        "",
    ),
    "a worker gets what is behind a task that it is quick at": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._fill",
        "is_other = prices is not None and self.speeds.of(function) is not prices",
        "is_other = False",
    ),
    "tasks wait behind one that others are preferred for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.part_of",
        "if ready_class.bring_forward(share_ahead, partial(self._is_quick_at, worker)):",
        "if False:",
    ),
    "a task is passed for others however long that takes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.part_of",
        "if since is not None and",
        "if False and",
    ),
    "a task is passed for others when no one is waited for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds._may_look",
        "return prices.has_preferred_to(worker)",
        "return True",
    ),
    "the next of a batch is not passed for as long as the one before": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.note_taken",
        "self._passed.pop(batch, None)",
        "pass",
    ),
    "any number of batches is passed": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.may_be_passed",
        "return len(self._passed) < MOST_PASSED",
        "return True",
    ),
    "all tasks of a batch come before the one that is passed": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.bring_forward",
        "min(run[1], run[0] + count)",
        "run[1]",
    ),
    "batches that have ended are still passed": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.ready_class:ReadyClass.may_be_passed", " if each.unfinished", ""
    ),
    "batches of clients without a turn are still passed": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.ready_class:ReadyClass._leave_turns", " if each.client != client", ""
    ),
    "what was cancelled comes forward": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.ready_class:ReadyClass.bring_forward", "if run is None:", "if False:"
    ),
    "who has interrupted a turn has the next one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.resume_turn",
        "len(self._turns) if taken else turn",
        "1",
    ),
    "who was to interrupt a turn and got nothing comes last": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.resume_turn",
        "len(self._turns) if taken else turn",
        "len(self._turns)",
    ),
    "a turn that is interrupted is over": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.resume_turn",
        "self._turns[0] = client",
        "self._turns[0] = other",
    ),
    "a turn that is interrupted begins again": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_class:ReadyClass.resume_turn",
        "self._turn_microseconds = microseconds",
        "pass",
    ),
    "what was not found once is not looked for again": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.speeds:Speeds.begin", "self._nothing_for.clear()", "pass"
    ),
    "tasks behind the next are looked at for each worker of a kind": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds.part_of",
        "self._nothing_for.add(self._likes(ready_class, worker))",
        "pass",
    ),
    "tasks behind the next are looked at for any number of kinds of workers": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.speeds:Speeds._may_look",
        "len(self._nothing_for) >= MAXIMUM_LOOKS or ",
        "",
    ),
}
