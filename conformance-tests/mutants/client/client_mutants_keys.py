"""Clients that each break one requirement: keys."""

from __future__ import annotations

import zmq

from mutants import mutant
from mutants.client.reference_client import ReferenceClient
from mutants.peer_keys import offered_mechanism

KEYS = "client/keys"


@mutant(breaks="SCL-SEC-017", caught_by=f"{KEYS}/key-is-proved")
class ProvesANewKeyEachTime(ReferenceClient):
    def secure(self) -> None:
        super().secure()
        self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-without-a-mechanism")
class GoesDownToNull(ReferenceClient):
    def secure(self) -> None:
        if offered_mechanism(self.address) != "NULL":
            super().secure()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-with-plain")
class GoesDownToPlain(ReferenceClient):
    def secure(self) -> None:
        if offered_mechanism(self.address) == "PLAIN":
            self.socket.plain_username, self.socket.plain_password = b"client", b"client"
        else:
            super().secure()


@mutant(breaks="SCL-SEC-018", caught_by=f"{KEYS}/nothing-is-sent-to-a-scheduler-with-another-key")
class GivesUpItsKeyIfTheHandshakeFails(ReferenceClient):
    attempts = 0

    def secure(self) -> None:
        self.attempts += 1
        if self.attempts == 1 or offered_mechanism(self.address) != "CURVE":
            super().secure()
