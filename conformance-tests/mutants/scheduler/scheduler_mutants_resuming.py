"""Schedulers that each break one requirement: sessions that go on over another connection."""

from __future__ import annotations

from typing import Any, Dict, List

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.scheduler.scheduler_state import Peer
from scaler_conformance.codec.schema_codec import Message


@mutant(breaks="SCL-SES-027", caught_by="scheduler/resuming/token-is-for-peers-that-list-the-feature")
class TellsAllPeersTokens(ReferenceScheduler):
    def offers(self, hello: Message) -> bool:
        return True


@mutant(breaks="SCL-SES-029", caught_by="scheduler/resuming/echoes-count-what-was-received")
class CountsNothingInEchoes(ReferenceScheduler):
    def with_count(self, peer: Peer, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        return fields


@mutant(breaks="SCL-SES-031", caught_by="scheduler/resuming/session-goes-on-over-another-connection")
class SendsNothingAgain(ReferenceScheduler):
    def rest(self, peer: Peer) -> List[List[bytes]]:
        return []


@mutant(breaks="SCL-SES-033", caught_by="scheduler/resuming/outdated-attempt-resumes-nothing")
class TakesOutdatedAttempts(ReferenceScheduler):
    def is_outdated(self, peer: Peer, hello: Message) -> bool:
        return False


@mutant(breaks="SCL-SEC-033", caught_by="scheduler/resuming/wrong-token-leaves-the-session-alone")
class TakesTokensThatBeginAlike(ReferenceScheduler):
    def is_its_token(self, peer: Peer, hello: Message) -> bool:
        return bool(peer.token[:31] == hello.resumeToken[:31])
