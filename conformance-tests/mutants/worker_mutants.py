"""Workers that each break one requirement: joining, staying and leaving."""

from __future__ import annotations

from mutants import EVERYTHING, mutant
from mutants.reference_worker import ReferenceWorker


@mutant(breaks="SCL-SES-001", caught_by="worker/session/says-hello-first", also_caught_by=EVERYTHING)
class SpeaksBeforeHello(ReferenceWorker):
    def say_hello(self) -> None:
        self.send("Heartbeat", sequence=1)
        super().say_hello()
