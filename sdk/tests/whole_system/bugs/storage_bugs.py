"""Bugs of objects that find no room: who needs one is told so, and not that it has ended."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, SCHEDULER, PlantedBug

STORAGE_BUGS: Dict[str, PlantedBug] = {
    "a worker is told to read a file that may have no room": PlantedBug(
        "scheduler", f"{SCHEDULER}.objects.object_table:_storage_of", " and not record.is_being_written", ""
    ),
    "a function that has no room is said to have ended": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.acceptance:Acceptance._why_to_reject",
        "failure_of_missing(batch.function, function)",
        "failure_of_missing(batch.function, None)",
    ),
    "the later parts of an object hide that there was no room for the first": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions.on_unreadable",
        " or record.place == ObjectPlace.NOWHERE",
        "",
    ),
    "who asks for an object that has no room is not told why it is missing": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_table:ObjectTable.serve",
        "self.refuse(request.peer, record.object_id, request.offset, record.missing_reason)",
        "self.refuse(request.peer, record.object_id, request.offset)",
    ),
    "who waits for an object that has no room is not told why it is missing": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_table:ObjectTable.answer_some",
        "self.refuse(request.peer, record.object_id, request.offset, record.missing_reason)",
        "self.refuse(request.peer, record.object_id, request.offset)",
    ),
    "a worker does not say that the scheduler had no room": PlantedBug(
        "agent",
        f"{AGENT}.worker_objects:WorkerObjects.on_response",
        'self._give_up(object_id, "" if has_room else NO_ROOM_AT_SCHEDULER, message.missing_reason)',
        "self._give_up(object_id)",
    ),
}
