"""Bugs of the placement of large tasks."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

_ROOM = f"{SCHEDULER}.placement.memory_room:MemoryRoom"
_PLACEMENT = f"{SCHEDULER}.placement.task_placement:Placement"
_NEEDS = f"{SCHEDULER}.tasks.memory_needs:MemoryNeeds"

MEMORY_BUGS: Dict[str, PlantedBug] = {
    "a class is parked when all its tasks were set apart": PlantedBug(
        "scheduler", f"{_PLACEMENT}.place", "elif ready_class.count and not", "elif waiting and not"
    ),
    "no one looks for memory again": PlantedBug(
        "scheduler",
        f"{_ROOM}.is_looked_at",
        "self._state.now >= until or changes != self._state.memory_needs.changes",
        "until == 0.0",
    ),
    "tasks that are set apart are lost": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.ready_queues:ReadyQueues.set_large_apart", "self.add(span)", "pass"
    ),
}
"""They show in whole systems."""

QUIET_MEMORY_BUGS: Dict[str, PlantedBug] = {
    "workers of one host do not share its memory": PlantedBug(
        "scheduler", f"{_ROOM}.most_for", "if any(_share(worker, each) for each in others):", "if False:"
    ),
    "workers with memory of their own share it": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "if each is not worker and not _share(worker, each):", "if False:"
    ),
    "the memory of tasks that have begun counts twice": PlantedBug(
        "scheduler",
        f"{_ROOM}._room_of",
        "size += sum([process.size for process in each.large_processes.values()])",
        "pass",
    ),
    "a smaller task of a function hides a large one": PlantedBug(
        "scheduler", f"{_NEEDS}.see", "max(float(size), self._seen.get(function) or 0.0)", "float(size)"
    ),
    "what was seen of a function outlives it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes.forget_object",
        "self._state.memory_needs.forget(object_id)",
        "pass",
    ),
    "one task that needed more than others is never forgotten": PlantedBug(
        "scheduler", f"{_NEEDS}.on_ended", "seen *= KEPT**count", "pass"
    ),
    "a limit counts although a task has ended that was small": PlantedBug(
        "scheduler",
        f"{_NEEDS}.of",
        "return (self._seen.get(function) or 0.0) if",
        "return (self._seen.get(function) or limit) if",
    ),
    "what a process kept is taken for what the next task needs": PlantedBug(
        "scheduler", f"{_ROOM}.on_heartbeat", "else last.size", "else 0"
    ),
    "a worker that has just come has all the memory that there is": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "return Room(0.0, tasks > 0)", "return Room(inf, tasks > 0)"
    ),
    "the first heartbeat of a worker is no reason to look again": PlantedBug(
        "scheduler", f"{_ROOM}.on_heartbeat", "self._state.memory_needs.changes += 1", "pass"
    ),
    "the end of a large task is no reason to look again": PlantedBug(
        "scheduler", f"{_NEEDS}.on_ended", "self.changes += 1", "pass"
    ),
    "large tasks do not wait": PlantedBug(
        "scheduler", f"{_ROOM}.most_for", "(room.is_used and not self._is_impatient(ready_class))", "False"
    ),
    "large tasks wait for ever": PlantedBug(
        "scheduler",
        f"{_ROOM}._is_impatient",
        "return self._state.now - ready_class.waits_since >= seconds",
        "return False",
    ),
    "tasks that take long wait no longer than others": PlantedBug(
        "scheduler",
        f"{_ROOM}._is_impatient",
        "max(PATIENCE_SECONDS, PATIENCE * (microseconds or 0.0) / 1e6)",
        "PATIENCE_SECONDS",
    ),
    "small tasks wait behind large ones": PlantedBug(
        "scheduler", f"{_PLACEMENT}._set_large_apart", "if ready_class.requirement.is_large or", "if True or"
    ),
    "a large task behind a small one goes with it": PlantedBug(
        "scheduler",
        f"{_PLACEMENT}._fill",
        "if not urgent and self._state.memory_needs.of(span.batch) > need:",
        "if False:",
    ),
    "large nested tasks wait for memory": PlantedBug(
        "scheduler", f"{_PLACEMENT}._fill", "if not urgent and self._state", "if self._state"
    ),
    "large tasks line up behind others": PlantedBug(
        "scheduler", f"{_PLACEMENT}._place_round", "if need and candidates is not self._workers.idle:", "if False:"
    ),
    "large tasks go where their bytes are though there is no room": PlantedBug(
        "scheduler", f"{_PLACEMENT}._place_by_bytes", "not self.memory.has_room(worker, need)", "False"
    ),
    "a large task that waits for nested ones keeps others from its host": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "tasks -= each.slots - each.hello.slots", "pass"
    ),
    "only the first hosts are looked at": PlantedBug(
        "scheduler",
        f"{_ROOM}.most_for",
        "if any(_share(worker, each) for each in others):",
        "if len(looked_at) > ENOUGH_HOSTS:",
    ),
    "hosts are looked at for each message": PlantedBug(
        "scheduler", f"{_ROOM}.is_looked_at", "return self._state.now >= until or", "return True or"
    ),
    "while large tasks wait no tasks are moved": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_queues:ReadyQueues._totals_of",
        "if requirement.is_large:",
        "if False:",
    ),
}
"""They only cost time, or memory."""
