"""Clients that each break one requirement: what they keep for workers."""

from __future__ import annotations

from typing import Any

from mutants import mutant
from mutants.client.client_serving import ClientServing
from mutants.client.reference_client import ReferenceClient
from mutants.reference_holder import Ticket
from scaler_conformance.codec.schema_codec import Message


class SendsOtherBytes(ClientServing):
    def part(self, content: bytes, request: Message) -> bytes:
        part = super().part(content, request)
        return bytes(len(part)) if request.offset >= 1000 else part


@mutant(breaks="SCL-OBJ-042", caught_by="client/kept-objects/ticket-opens-a-kept-object")
class GivesWorkersOtherBytes(ReferenceClient):
    serving_class = SendsOtherBytes


class NeedsNoTicket(ClientServing):
    def fault_of_unknown(self) -> str:
        return ""


@mutant(breaks="SCL-OBJ-042", caught_by="client/kept-objects/unknown-ticket-gets-no-kept-object")
class GivesBytesWithoutATicket(ReferenceClient):
    serving_class = NeedsNoTicket


class TakesAnyObject(ClientServing):
    def is_for_object(self, ticket: Ticket, request: Message) -> bool:
        return True


@mutant(breaks="SCL-OBJ-042", caught_by="client/kept-objects/foreign-ticket-gets-no-kept-object")
class GivesAnyObjectForATicket(ReferenceClient):
    serving_class = TakesAnyObject


class TakesAnyConnection(ClientServing):
    def is_for_connection(self, ticket: Ticket, identity: bytes) -> bool:
        return True


@mutant(breaks="SCL-OBJ-042", caught_by="client/kept-objects/used-ticket-gets-no-kept-object")
class TakesATicketTwice(ReferenceClient):
    serving_class = TakesAnyConnection


class NeverExpires(ClientServing):
    def has_expired(self, ticket: Ticket) -> bool:
        return False


@mutant(breaks="SCL-OBJ-042", caught_by="client/kept-objects/late-ticket-gets-no-kept-object")
class TakesLateTickets(ReferenceClient):
    serving_class = NeverExpires


class ForgetsEarly(ClientServing):
    def on_deleted(self, object_id: int) -> None:
        self.kept.pop(object_id, None)


@mutant(breaks="SCL-OBJ-043", caught_by="client/kept-objects/kept-object-stays-until-it-has-ended")
class ForgetsWhatItsUserHasDeleted(ReferenceClient):
    serving_class = ForgetsEarly


class KeepsAnywhere(ClientServing):
    def is_known(self, welcome: Any) -> bool:
        return True


@mutant(breaks="SCL-OBJ-038", caught_by="client/kept-objects/older-scheduler-is-asked-to-keep-nothing")
class KeepsAtAnOlderScheduler(ReferenceClient):
    serving_class = KeepsAnywhere
