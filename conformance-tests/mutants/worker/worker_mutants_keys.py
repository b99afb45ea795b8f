"""Workers that each break one requirement: keys."""

from __future__ import annotations

import zmq

from mutants import mutant
from mutants.peer_keys import offered_mechanism
from mutants.worker.reference_worker import ReferenceWorker

KEYS = "worker/keys"


@mutant(breaks="SCL-SEC-017", caught_by=f"{KEYS}/key-is-proved")
class ProvesANewKeyEachTime(ReferenceWorker):
    def secure(self) -> None:
        super().secure()
        self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-without-a-mechanism")
class GoesDownToNull(ReferenceWorker):
    def secure(self) -> None:
        if offered_mechanism(self.address) != "NULL":
            super().secure()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-with-plain")
class GoesDownToPlain(ReferenceWorker):
    def secure(self) -> None:
        if offered_mechanism(self.address) == "PLAIN":
            self.socket.plain_username, self.socket.plain_password = b"worker", b"worker"
        else:
            super().secure()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-to-a-scheduler-with-another-key")
class GivesUpItsKeyIfTheHandshakeFails(ReferenceWorker):
    attempts = 0

    def secure(self) -> None:
        self.attempts += 1
        if self.attempts == 1 or offered_mechanism(self.address) != "CURVE":
            super().secure()
