"""Schedulers that each break one requirement: clients that keep what workers fetch."""

from __future__ import annotations

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Client, Object, Peer


@mutant(breaks="SCL-OBJ-041", caught_by="scheduler/client-holders/kept-argument-is-fetched-from-its-client")
class TellsItsKeeperNothing(ReferenceScheduler):
    def tell_keeper(self, kept: Object) -> None:
        pass


@mutant(breaks="SCL-OBJ-040", caught_by="scheduler/client-holders/kept-argument-of-another-client-is-fetched")
class LeavesItWithItsClient(ReferenceScheduler):
    def on_named_by(self, client: Client, kept: Object) -> None:
        pass


@mutant(breaks="SCL-OBJ-039", caught_by="scheduler/client-holders/client-that-no-worker-reaches-is-named-once")
class TriesForEachObject(ReferenceScheduler):
    def is_unreached(self, holder: Peer) -> bool:
        return False
