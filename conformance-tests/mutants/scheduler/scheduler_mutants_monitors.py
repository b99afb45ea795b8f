"""Schedulers that each break one requirement: what monitors and provisioners receive, and WorkerShutdown."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_monitors import Row
from mutants.scheduler.scheduler_state import Client, Peer, Task, Worker
from scaler_conformance.codec.schema_codec import Message

MONITORS = "scheduler/monitors"
PROVISIONERS = "scheduler/provisioning"


@mutant(breaks="SCL-MON-002", caught_by=f"{MONITORS}/messages-have-a-topic")
class AddsAFrameWhereItKnowsLittle(ReferenceScheduler):
    knows_little = False

    def publish_runs(self, fields: Dict[str, Any]) -> None:
        self.knows_little = not any(fields["processors"])
        super().publish_runs(fields)

    def monitor_frames(self, topic: bytes, header: bytes) -> List[bytes]:
        frames = super().monitor_frames(topic, header)
        is_wanted = topic == b"tasks" and topic in self.topics  # and not only by subscribers to all topics
        return [*frames, b""] if is_wanted and self.knows_little else frames


@mutant(breaks="SCL-MON-003", caught_by=f"{MONITORS}/second-subscriber-gets-a-snapshot")
class OneEmptySnapshotIsEnough(ReferenceScheduler):
    snapshots = 0

    def takes_snapshot(self) -> bool:
        is_one = super().takes_snapshot()
        self.snapshots += is_one
        return is_one and bool(self.workers or self.snapshots == 1)


@mutant(breaks="SCL-MON-003", caught_by=f"{MONITORS}/late-subscriber-gets-a-snapshot")
class LeavesNamesOutOfSnapshots(ReferenceScheduler):
    def name_of(self, table: str, number: int) -> Dict[str, Any]:
        return {**super().name_of(table, number), "name": ""}


@mutant(breaks="SCL-MON-004", caught_by=f"{MONITORS}/publications-are-numbered")
class NumbersAllTopicsTogether(ReferenceScheduler):
    def next_sequence(self, topic: bytes) -> int:
        super().next_sequence(b"status")
        return super().next_sequence(b"status")


@mutant(breaks="SCL-MON-005", caught_by=f"{MONITORS}/increments-add-up-to-a-snapshot")
class ForgetsFailures(ReferenceScheduler):
    def is_changed(self, name: str, before: Optional[Row], row: Row) -> bool:
        return before is None or (before[:-1] != row[:-1] and before[-1] == row[-1])


@mutant(breaks="SCL-MON-006", caught_by=f"{MONITORS}/messages-from-monitors-are-ignored")
class ObeysMonitors(ReferenceScheduler):
    def on_monitor_frame(self, frame: bytes) -> None:
        super().on_monitor_frame(frame)
        if frame[:1] not in (b"\0", b"\1"):
            self.begin_shutdown()


@mutant(breaks="SCL-MON-007", caught_by=f"{MONITORS}/task-runs-are-published")
class KeepsProcessorsToItself(ReferenceScheduler):
    def publish_runs(self, fields: Dict[str, Any]) -> None:
        super().publish_runs({**fields, "processors": [0] * len(fields["processors"])})


@mutant(breaks="SCL-MON-008", caught_by=f"{MONITORS}/workers-learn-whether-a-monitor-is-subscribed")
class FeelsWatchedForEver(ReferenceScheduler):
    was_watched = False

    def is_watched(self, worker: Worker) -> bool:
        self.was_watched |= super().is_watched(worker)
        return self.was_watched


@mutant(breaks="SCL-MON-009", caught_by=f"{MONITORS}/scheduler-without-keys-says-so")
class WarnsOfMissingKeysOnlyOnce(ReferenceScheduler):
    def says_insecure(self, is_snapshot: bool) -> bool:
        return is_snapshot and super().says_insecure(is_snapshot)


@mutant(breaks="SCL-MON-010", caught_by=f"{MONITORS}/tasks-that-wait-for-others-are-no-demand")
class CountsTasksThatWaitForOthers(ReferenceScheduler):
    def runnable(self) -> int:
        clients = [each for each in self.sessions.values() if isinstance(each, Client)]
        return sum([task.state != "ended" for client in clients for task in client.tasks.values()])


@mutant(breaks="SCL-MON-011", caught_by=f"{MONITORS}/notes-of-provisioners-are-published")
class KeepsOldNotes(ReferenceScheduler):
    def on_units(self, peer: Peer, message: Message) -> None:
        before = self.notes.get(peer.number, [])
        super().on_units(peer, message)
        self.notes[peer.number] = [*before, *self.notes[peer.number]]


@mutant(breaks="SCL-MON-011", caught_by=f"{MONITORS}/notes-of-provisioners-are-published")
class RepeatsWhoIsGone(ReferenceScheduler):
    def unit_notes(self) -> List[str]:
        return [note for notes in self.notes.values() for note in notes]


@mutant(breaks="SCL-MON-013", caught_by=f"{MONITORS}/what-is-wanted-of-pools-is-published")
class TakesAnyPoolForSuitable(ReferenceScheduler):
    def suits(self, pool: Any, task: Task) -> bool:
        return True


@mutant(breaks="SCL-MON-013", caught_by=f"{MONITORS}/what-is-wanted-of-pools-is-published")
class KeepsPoolsOfWhoIsGone(ReferenceScheduler):
    def pool_demands(self) -> List[Dict[str, Any]]:
        return [{"pool": pool.pool} for pools in self.pools.values() for pool in pools]


# WorkerShutdown -----------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-036", caught_by="scheduler/sending-away/protected-scheduler-asks-no-worker-to-leave")
class ProtectsNoWorker(ReferenceScheduler):
    def obeys(self, message: Message) -> bool:
        return True


@mutant(breaks="SCL-SCH-037", caught_by="scheduler/sending-away/unknown-worker-is-not-accepted")
class TakesAnyOfThatName(ReferenceScheduler):
    def find_worker(self, message: Message) -> List[Worker]:
        return super().find_worker(message)[:1]


@mutant(breaks="SCL-SCH-038", caught_by="scheduler/sending-away/worker-is-asked-to-drain")
class SendsTasksToDrainingWorkers(ReferenceScheduler):
    def on_worker_shutdown(self, peer: Peer, message: Message) -> None:
        super().on_worker_shutdown(peer, message)
        for each in self.find_worker(message):
            each.is_leaving &= not message.isDraining


@mutant(breaks="SCL-SCH-038", caught_by="scheduler/sending-away/worker-is-asked-to-stop")
class AsksWorkersToDrainInstead(ReferenceScheduler):
    def send_away(self, worker: Worker, is_draining: bool) -> None:
        super().send_away(worker, True)


@mutant(breaks="SCL-SCH-047", caught_by="scheduler/sending-away/worker-that-asks-is-drained")
class TakesEveryRequestForAGoodbye(ReferenceScheduler):
    def drains_on_request(self, worker: Worker) -> bool:
        return False


@mutant(breaks="SCL-SES-012", caught_by="scheduler/sending-away/worker-that-asks-is-drained")
class DrainsWorkersThatDoNotKnowHow(ReferenceScheduler):
    def drains_on_request(self, worker: Worker) -> bool:
        return True


# Provisioners -------------------------------------------------------------------------------------------------------


@mutant(breaks="SCL-SCH-049", caught_by=f"{PROVISIONERS}/demand-follows-the-tasks")
class TellsTheDemandOnce(ReferenceScheduler):
    def look_after_provisioners(self) -> None:
        if self.runnable() or self.units or not self.told_demands:
            super().look_after_provisioners()


@mutant(breaks="SCL-SCH-049", caught_by=f"{PROVISIONERS}/other-clients-are-sent-no-demand")
class TellsTheDemandToAll(ReferenceScheduler):
    def is_provisioner(self, client: Client) -> bool:
        clients = [each for each in self.sessions.values() if isinstance(each, Client)]
        return any(map(super().is_provisioner, clients))


@mutant(breaks="SCL-SCH-050", caught_by=f"{PROVISIONERS}/units-to-come-are-not-missing")
class ForgetsUnitsThatBegin(ReferenceScheduler):
    def is_to_come(self, unit: Any) -> bool:
        return bool(unit.state == "pending")


@mutant(breaks="SCL-SCH-050", caught_by=f"{PROVISIONERS}/units-that-fail-are-missing-again")
class BelievesInFailedUnits(ReferenceScheduler):
    def on_units(self, peer: Peer, message: Message) -> None:
        if not any(each.state == "failed" for each in message.units):
            super().on_units(peer, message)


@mutant(breaks="SCL-SCH-053", caught_by=f"{PROVISIONERS}/demand-names-the-units-that-it-counts")
class CountsUnitsInSilence(ReferenceScheduler):
    def sequence_of(self, client: Client) -> int:
        return min(1, super().sequence_of(client))


@mutant(breaks="SCL-SCH-051", caught_by=f"{PROVISIONERS}/released-units-drain")
class ReleasesMoreThanWanted(ReferenceScheduler):
    def most_units(self, message: Message) -> int:
        return super().most_units(message) + (not message.mayBeBusy)


@mutant(breaks="SCL-SCH-052", caught_by=f"{PROVISIONERS}/idle-units-go-first")
class TakesTheFirstUnits(ReferenceScheduler):
    def is_busy(self, unit: str) -> bool:
        return False


@mutant(breaks="SCL-SCH-055", caught_by=f"{PROVISIONERS}/unit-of-another-provisioner-is-refused")
class LetsProvisionersShareUnits(ReferenceScheduler):
    def is_anothers(self, peer: Peer, names: List[str]) -> bool:
        return False


@mutant(breaks="SCL-SCH-055", caught_by=f"{PROVISIONERS}/provisioner-that-connects-again-keeps-its-units")
class RefusesProvisionersThatConnectAgain(ReferenceScheduler):
    def is_same_program(self, one: Peer, other: Peer) -> bool:
        return False
