"""Clients that each break one requirement: sessions that go on over another connection."""

from __future__ import annotations

from typing import Any, Dict

from mutants import mutant
from mutants.client.reference_client import ReferenceClient


@mutant(breaks="SCL-SES-029", caught_by="client/resuming/heartbeats-count-what-was-received")
class CountsNothingInEchoes(ReferenceClient):
    def with_count(self, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        return fields


@mutant(breaks="SCL-SES-030", caught_by="client/resuming/silence-is-answered-by-a-hello-with-the-token")
class CountsFromZero(ReferenceClient):
    def resuming_hello(self) -> Dict[str, Any]:
        return {**super().resuming_hello(), "received": 0}


@mutant(breaks="SCL-SES-032", caught_by="client/resuming/what-was-not-received-is-sent-again")
class SendsNothingAgain(ReferenceClient):
    def send_rest(self) -> None:
        self.unacknowledged.clear()
