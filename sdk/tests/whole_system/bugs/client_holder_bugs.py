"""Bugs in how workers fetch from clients. Rule: as of `transfer_bugs`, some are quiet, and unit tests find these."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import CLIENT, SCHEDULER, PlantedBug

_REACTIONS = f"{SCHEDULER}.objects.object_reactions:ObjectReactions"
_TABLE = f"{SCHEDULER}.objects.object_table:ObjectTable"
_TRANSFERS = f"{SCHEDULER}.objects.object_transfers:ObjectTransfers"
_OBJECTS = f"{CLIENT}.client_objects:ClientObjects"

CLIENT_HOLDER_BUGS: Dict[str, PlantedBug] = {
    "a client does not learn of the end of what it keeps": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes._tell_keeper",
        "keeper.ended_objects.append(object_id)",
        "pass",
    ),
    "what a client keeps is asked for again while answers are under way": PlantedBug(
        "scheduler",
        f"{_REACTIONS}.on_unreadable",
        " or (source is not None and record.is_kept_by_client)",
        "",
    ),
    "a client keeps what it served in a session that has ended": PlantedBug(
        "client", f"{_OBJECTS}.start_session", "served, self._served = self._served, {}", "served = {}"
    ),
    "a client keeps what has ended": PlantedBug(
        "client", f"{_OBJECTS}.on_instruction", "self._drop_unneeded(ended)", "pass"
    ),
}
QUIET_CLIENT_HOLDER_BUGS: Dict[str, PlantedBug] = {
    "a client that is gone still holds what it kept": PlantedBug(
        "scheduler", f"{_REACTIONS}._lose_client", "objects.lose_holder(record, client.number)", "pass"
    ),
    "a client that no worker reaches is tried for each object": PlantedBug(
        "scheduler", f"{_TRANSFERS}.request", "self.reach.fail(failed, fetcher.number)", "pass"
    ),
    "any worker can say that no one reaches a client": PlantedBug(
        "scheduler", f"{_TRANSFERS}.request", "failed == named and self._is_client(failed)", "self._is_client(failed)"
    ),
    "what tasks of another client need stays with the first one": PlantedBug(
        "scheduler", f"{_TABLE}.refer", "self.fetch(record)", "pass"
    ),
    "a client that does not serve may keep": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_transfers:serves_workers",
        " and bool(client.hello.data_address)",
        "",
    ),
    "what is let go is discarded while workers fetch it": PlantedBug(
        "client", f"{_OBJECTS}._drop_unneeded", " and not self._is_served(kept)", ""
    ),
    "functions are kept by their client": PlantedBug(
        "client", f"{_OBJECTS}.announcement", " and kept.kind != m.ObjectKind.FUNCTION", ""
    ),
}
