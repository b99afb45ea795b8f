"""Workers that each break one requirement: sessions that go on over another connection."""

from __future__ import annotations

from typing import Any, Dict

from mutants import mutant
from mutants.worker.reference_worker import ReferenceWorker


@mutant(breaks="SCL-SES-029", caught_by="worker/resuming/heartbeats-count-what-was-received")
class CountsNothingInEchoes(ReferenceWorker):
    def with_count(self, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        return fields


@mutant(breaks="SCL-SES-030", caught_by="worker/resuming/silence-is-answered-by-a-hello-with-the-token")
class CountsFromZero(ReferenceWorker):
    def resuming_hello(self) -> Dict[str, Any]:
        return {**super().resuming_hello(), "received": 0}


@mutant(breaks="SCL-SES-032", caught_by="worker/resuming/what-was-not-received-is-sent-again")
class SendsNothingAgain(ReferenceWorker):
    def send_rest(self) -> None:
        self.unacknowledged.clear()
