"""Clients that each break one requirement: actors and their calls."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict

from mutants import mutant, part_mutant
from mutants.client.client_actors import ClientActors
from mutants.client.client_tasks import Task
from mutants.client.reference_client import ReferenceClient

actor_mutant = partial(part_mutant, ReferenceClient, "make_actors")
"""Makes a mutant whose actors are of this class."""


@actor_mutant(breaks="SCL-CLT-015", caught_by="client/actors/calls-have-no-predecessors")
class LeavesTheWaitToTheScheduler(ClientActors):
    def needs_more(self, call: Task) -> bool:
        return False

    def fields(self, call: Task) -> Dict[str, Any]:
        needed = [each for each in call.results if each in self.client.tasks]
        ids = [self.client.tasks[each].id for each in needed]
        return {**super().fields(call), "predecessorCounts": [len(ids)], "predecessors": ids}


@mutant(breaks="SCL-CLT-015", caught_by="client/actors/calls-are-no-nodes")
class CallsAnActorInAGraph(ReferenceClient):
    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        if type_ == "GraphTask" and self.actors.made:
            fields["options"] = {"actor": True}
        super().send(type_, payload, **fields)


@actor_mutant(breaks="SCL-CLT-016", caught_by="client/actors/calls-stay-in-their-session")
class SendsCallsAgain(ClientActors):
    def may_be_sent_again(self, call: Task) -> bool:
        return True


@actor_mutant(breaks="SCL-CLT-016", caught_by="client/actors/calls-stay-in-their-session")
class CallsALostActor(ClientActors):
    def is_lost(self, call: Task) -> bool:
        return False
