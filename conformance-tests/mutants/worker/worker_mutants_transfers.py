"""Workers that each break one requirement: fetching from one another."""

from __future__ import annotations

import math
from functools import partial

from mutants import part_mutant
from mutants.reference_holder import Ticket
from mutants.worker.reference_worker import ReferenceWorker
from mutants.worker.worker_mutants_objects import object_mutant
from mutants.worker.worker_objects import WorkerObjects
from mutants.worker.worker_transfers import DirectFetch, WorkerTransfers
from scaler_conformance.codec.schema_codec import Message

transfer_mutant = partial(part_mutant, ReferenceWorker, "make_transfers")
"""Makes a mutant whose transfers are of this class."""


# As a holder --------------------------------------------------------------------------------------------------------


@transfer_mutant(breaks="SCL-OBJ-030", caught_by="worker/transfers/ticket-opens-one-object")
class TakesATicketOnce(WorkerTransfers):
    def on_request(self, identity: bytes, request: Message) -> None:
        super().on_request(identity, request)
        if request.length > 10:
            self.tickets.pop(request.ticket, None)


@transfer_mutant(breaks="SCL-OBJ-030", caught_by="worker/transfers/ticket-that-is-unknown-is-refused")
class ServesWithoutATicket(WorkerTransfers):
    def fault_of(self, identity: bytes, request: Message) -> str:
        if request.ticket not in self.tickets:
            self.tickets[request.ticket] = Ticket(Message("Ticket", {"id": request.id, "lifetimeMilliseconds": 9000}))
        return super().fault_of(identity, request)


@transfer_mutant(breaks="SCL-OBJ-030", caught_by="worker/transfers/ticket-for-another-object-is-refused")
class TakesATicketForAnyObject(WorkerTransfers):
    def is_for_object(self, ticket: Ticket, request: Message) -> bool:
        return True


@transfer_mutant(breaks="SCL-OBJ-030", caught_by="worker/transfers/ticket-of-another-connection-is-refused")
class TakesAStolenTicket(WorkerTransfers):
    def is_for_connection(self, ticket: Ticket, identity: bytes) -> bool:
        return True


@transfer_mutant(breaks="SCL-OBJ-030", caught_by="worker/transfers/ticket-that-has-expired-is-refused")
class TakesAnOldTicket(WorkerTransfers):
    def on_ticket(self, message: Message) -> None:
        is_again = message.secret in self.tickets
        super().on_ticket(message)
        if not is_again and message.secret in self.tickets:
            self.tickets[message.secret].expires_at = math.inf


@transfer_mutant(breaks="SCL-OBJ-036", caught_by="worker/transfers/ticket-that-was-taken-back-is-refused")
class KeepsWhatIsTakenBack(WorkerTransfers):
    def on_ticket(self, message: Message) -> None:
        if message.lifetimeMilliseconds or message.secret not in self.tickets:
            super().on_ticket(message)


# As a fetcher -------------------------------------------------------------------------------------------------------


@transfer_mutant(breaks="SCL-OBJ-028", caught_by="worker/transfers/object-is-fetched-from-its-holder")
class KeepsACopyToItself(WorkerTransfers):
    def tell_hold(self, object_id: int) -> None:
        pass


@transfer_mutant(breaks="SCL-OBJ-045", caught_by="worker/transfers/copy-from-the-scheduler-counts")
class KeepsACopyOfTheSchedulersToItself(WorkerTransfers):
    def report_copy_of_scheduler(self, object_id: int) -> None:
        pass


@object_mutant(breaks="SCL-OBJ-029", caught_by="worker/transfers/object-is-fetched-from-its-holder")
class ForgetsItsCopy(WorkerObjects):
    def keep_copy(self, object_id: int) -> None:
        pass


@transfer_mutant(breaks="SCL-OBJ-044", caught_by="worker/transfers/requests-to-a-holder-are-few-and-then-not-many")
class AsksAHolderForAllAtOnce(WorkerTransfers):
    def request_next(self, object_id: int, fetch: DirectFetch) -> None:
        chunk_bytes, size = self.owner.objects.chunk_bytes, fetch.size
        if not self.owner.objects.fetches[object_id].content:
            for offset in range(0, size, chunk_bytes):
                self.request(object_id, fetch, offset)


@transfer_mutant(breaks="SCL-OBJ-028", caught_by="worker/transfers/holder-that-cannot-be-reached-is-replaced")
class BlamesNoHolder(WorkerTransfers):
    def on_failed(self, object_id: int, fetch: DirectFetch) -> None:
        self.stop(object_id)
        is_begun = bool(self.owner.objects.fetches[object_id].content)
        self.fetch(object_id, fetch.ticket.holder if is_begun else 0)


@transfer_mutant(breaks="SCL-OBJ-034", caught_by="worker/transfers/holder-that-answers-too-little-is-replaced")
class GoesOnWithLess(WorkerTransfers):
    def is_part(self, length: int, wanted: int) -> bool:
        return length <= wanted


@transfer_mutant(breaks="SCL-OBJ-034", caught_by="worker/transfers/holder-that-answers-too-much-is-replaced")
class TakesMore(WorkerTransfers):
    def is_part(self, length: int, wanted: int) -> bool:
        return length >= wanted


@transfer_mutant(breaks="SCL-OBJ-034", caught_by="worker/transfers/holder-that-contradicts-the-size-is-replaced")
class BelievesAnySize(WorkerTransfers):
    def is_size(self, size: int, fetch: DirectFetch) -> bool:
        return True


@object_mutant(breaks="SCL-OBJ-032", caught_by="worker/transfers/fetch-goes-on-where-it-was")
class BeginsAgain(WorkerObjects):
    def fetch_from_scheduler(self, object_id: int) -> None:
        self.fetches[object_id].content.clear()
        self.fetches[object_id].size = None
        super().fetch_from_scheduler(object_id)
