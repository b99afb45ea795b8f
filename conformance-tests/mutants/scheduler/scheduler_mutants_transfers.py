"""Schedulers that each break one requirement: workers that fetch from one another, and from clients."""

from __future__ import annotations

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Client, Object, Peer, Refused, Worker
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-OBJ-026", caught_by="scheduler/transfers/ticket-is-told-to-both-ends")
class TellsTheFetcherAlone(ReferenceScheduler):
    def tell_holder(self, holder: Peer, object_id: int, secret: bytes, key: bytes) -> None:
        pass


@mutant(breaks="SCL-OBJ-026", caught_by="scheduler/transfers/ticket-is-told-to-both-ends")
class TellsTheHolderAnotherSecret(ReferenceScheduler):
    def tell_holder(self, holder: Peer, object_id: int, secret: bytes, key: bytes) -> None:
        super().tell_holder(holder, object_id, secret[::-1], key)


@mutant(breaks="SCL-OBJ-026", caught_by="scheduler/transfers/ticket-is-told-to-both-ends")
class TellsTheSecretToAll(ReferenceScheduler):
    def tell_holder(self, holder: Peer, object_id: int, secret: bytes, key: bytes) -> None:
        for worker in list(self.workers):
            super().tell_holder(worker if worker.hello.dataKey != key else holder, object_id, secret, key)


@mutant(breaks="SCL-OBJ-025", caught_by="scheduler/transfers/ticket-request-is-always-answered")
class AnswersNothingWithoutAHolder(ReferenceScheduler):
    def answer_without_holder(self, peer: Peer, object_id: int) -> None:
        pass


@mutant(breaks="SCL-OBJ-035", caught_by="scheduler/transfers/ticket-of-a-lost-fetcher-is-taken-back")
class LeavesTicketsValid(ReferenceScheduler):
    def take_back_tickets(self, fetcher: Peer) -> None:
        pass


@mutant(breaks="SCL-OBJ-046", caught_by="scheduler/transfers/copy-without-a-ticket-counts")
class WantsATicketForEachCopy(ReferenceScheduler):
    def on_copy(self, peer: Peer, message: Message) -> None:
        if not any(id_ in message.ids for _, id_, _ in self.issued_tickets.get(peer.number, [])):
            raise Refused("protocolViolation", "a copy without a ticket")


@mutant(breaks="SCL-OBJ-033", caught_by="scheduler/transfers/older-worker-knows-of-no-transfers")
class SendsAllToWorkers(ReferenceScheduler):
    def is_held_for(self, worker: Worker, kept: Object) -> bool:
        return kept.is_kept


@mutant(breaks="SCL-OBJ-033", caught_by="scheduler/transfers/older-worker-knows-of-no-transfers")
class GivesTicketsToAll(ReferenceScheduler):
    def fetches_from_workers(self, peer: Peer) -> bool:
        return isinstance(peer, Worker)

    def is_held_for(self, worker: Worker, kept: Object) -> bool:
        return kept.is_kept and "peerFetch" in worker.hello.features


@mutant(breaks="SCL-OBJ-041", caught_by="scheduler/transfers/kept-argument-is-fetched-from-its-client")
class TellsItsKeeperNothing(ReferenceScheduler):
    def tell_keeper(self, kept: Object) -> None:
        pass


@mutant(breaks="SCL-OBJ-040", caught_by="scheduler/transfers/kept-argument-of-another-client-is-fetched")
class LeavesItWithItsClient(ReferenceScheduler):
    def on_named_by(self, client: Client, kept: Object) -> None:
        pass


@mutant(breaks="SCL-OBJ-039", caught_by="scheduler/transfers/client-that-no-worker-reaches-is-named-once")
class TriesForEachObject(ReferenceScheduler):
    def is_unreached(self, holder: Peer) -> bool:
        return False
