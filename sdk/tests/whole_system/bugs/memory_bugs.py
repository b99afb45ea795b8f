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
        "scheduler", f"{SCHEDULER}.placement.ready_queues:ReadyQueues.set_large_apart", "if waiting:", "if False:"
    ),
}
"""They show in whole systems."""

QUIET_MEMORY_BUGS: Dict[str, PlantedBug] = {
    "workers of one host do not share its memory": PlantedBug(
        "scheduler", f"{_ROOM}.most_for", "if worker.place in rooms or free <= 0:", "if free <= 0:"
    ),
    "the memory of tasks that have begun counts twice": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "size += process.size - process.had_bytes", "pass"
    ),
    "what idle processes keep is lost": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "size += sum(sorted(idle)[: max(0, len(idle) - len(each.actors))])", "pass"
    ),
    "what the idle processes of actors keep is room": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "len(idle) - len(each.actors)", "len(idle)"
    ),
    "memory that a process gives back is not needed again": PlantedBug(
        "scheduler", f"{_ROOM}.on_heartbeat", "had = min(had, size)", "pass"
    ),
    "objects that tasks have mapped count for each of them": PlantedBug(
        "scheduler", f"{_ROOM}._mapped", "sum([record.size for record in objects if record is not None])", "0"
    ),
    "large tasks wait for quick workers": PlantedBug(
        "scheduler", f"{_PLACEMENT}._place_round", "self.speeds.differ and not need and", "self.speeds.differ and"
    ),
    "a blocked worker that was filled up still seems to be idle": PlantedBug(
        "scheduler", f"{_PLACEMENT}._place_urgent", "self._workers.on_placed(worker)", "pass"
    ),
    "large tasks go beside those of others though there is no room": PlantedBug(
        "scheduler",
        f"{_PLACEMENT}._place_beside_others",
        "if need and not self.memory.has_room(worker, need):",
        "if False:",
    ),
    "tasks of a function that are large no more wait for others that are": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.ready_queues:ReadyQueues.set_large_apart",
        "large=batch.function_key",
        "large=True",
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
        "scheduler", f"{_ROOM}.most_for", "(is_impatient or not room.is_used)", "True"
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
        "scheduler", f"{SCHEDULER}.placement.large_tasks:LargePlacement.make_way", "if batch is None or", "if True or"
    ),
    "free slots are not offered again after a large task that goes behind others": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.large_tasks:LargePlacement.has_gone_behind",
        "self._need_behind > 0 and",
        "False and",
    ),
    "a large task behind a small one goes with it": PlantedBug(
        "scheduler",
        f"{_PLACEMENT}._fill",
        "is_other or (not urgent and self._state.memory_needs.of(span.batch) > need)",
        "is_other",
    ),
    "large nested tasks wait for memory": PlantedBug(
        "scheduler", f"{_PLACEMENT}._fill", "(not urgent and self._state", "(self._state"
    ),
    "large tasks go to workers with a free slot only": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.large_tasks:LargePlacement.workers_for", "islice(able, LOOKED_AT)", "()"
    ),
    "large tasks go where their bytes are though there is no room": PlantedBug(
        "scheduler", f"{_PLACEMENT}._place_by_bytes", "self.memory.has_room_for(worker, span.batch)", "True"
    ),
    "a large task that waits for nested ones keeps others from its host": PlantedBug(
        "scheduler", f"{_ROOM}._room_of", "tasks -= process.suspended", "pass"
    ),
    "only the first hosts are looked at": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.large_tasks:LargePlacement.workers_for",
        "self._workers.rotate(LOOKED_AT)",
        "pass",
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
