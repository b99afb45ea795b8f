"""How the reference scheduler lets sessions go on over other connections.

Rule: one method, one duty: so that a mutant can break just that.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any, Dict, List, Optional

from mutants.resuming import COUNTED, RESUME
from mutants.scheduler.scheduler_state import Peer
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import Message


class SessionKeeper:
    """What was sent in sessions, and how they are resumed."""

    server: ZmtpServer
    sessions: Dict[Connection, Peer]

    # Counting ---------------------------------------------------------------------------------------------------------

    def token_fields(self, peer: Peer) -> Dict[str, Any]:
        """What a Welcome has more for a peer that can resume its session."""
        if not self.offers(peer.hello):
            return {}
        peer.token = secrets.token_bytes(32)
        return {"resumeToken": peer.token}

    def offers(self, hello: Message) -> bool:
        return RESUME in hello.features

    def with_count(self, peer: Peer, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        """The fields of a message that is about to be sent."""
        return {**fields, "received": self.received_count(peer)} if peer.token and type_ in COUNTED else fields

    def received_count(self, peer: Peer) -> int:
        return peer.received

    def keep_sent(self, peer: Peer, type_: str, frames: List[bytes]) -> None:
        if peer.token and type_ != "Welcome":
            peer.kept.append(frames)

    def acknowledge(self, peer: Peer, count: int) -> None:
        while peer.acknowledged < count and peer.kept:
            peer.kept.pop(0)
            peer.acknowledged += 1

    # Resuming ---------------------------------------------------------------------------------------------------------

    def resumes(self, connection: Connection, hello: Message) -> bool:
        """Whether a Hello resumes a session, or is outdated: then it is answered."""
        peer = self.session_of(connection, hello)
        if peer is None:
            return False
        if self.is_outdated(peer, hello):
            self.close_connection(connection)
            return True
        peer.attempt = hello.resumeAttempt
        if not peer.acknowledged <= hello.received <= peer.acknowledged + len(peer.kept):
            self.end_session(peer.connection)
            return False
        self.acknowledge(peer, hello.received)
        self.move(peer, connection)
        return True

    def session_of(self, connection: Connection, hello: Message) -> Optional[Peer]:
        found = [each for each in self.sessions.values() if each.number == hello.previousSession and each.token]
        if not found or not self.is_its_token(found[0], hello) or not self.is_its_key(found[0], connection):
            return None
        return found[0]

    def is_its_token(self, peer: Peer, hello: Message) -> bool:
        return hmac.compare_digest(peer.token, hello.resumeToken)

    def is_its_key(self, peer: Peer, connection: Connection) -> bool:
        keys: Dict[Connection, bytes] = getattr(self.server, "peer_keys", {})
        return keys.get(peer.connection) == keys.get(connection)

    def is_outdated(self, peer: Peer, hello: Message) -> bool:
        return bool(hello.resumeAttempt <= peer.attempt)

    def move(self, peer: Peer, connection: Connection) -> None:
        """The session of a peer is on this connection now."""
        former, peer.connection = peer.connection, connection
        del self.sessions[former]
        self.close_connection(former)
        self.sessions[connection] = peer
        connection.has_session = True
        fields = {**self.welcome_fields(peer), **self.resumed_fields(peer)}
        self.server.send(connection, self.frames_of("Welcome", b"", fields))
        for frames in self.rest(peer):
            self.server.send(connection, frames)

    def resumed_fields(self, peer: Peer) -> Dict[str, Any]:
        return {"resumeToken": peer.token, "isResumed": True, "received": self.received_count(peer)}

    def rest(self, peer: Peer) -> List[List[bytes]]:
        return peer.kept

    # What the scheduler has -------------------------------------------------------------------------------------------

    def close_connection(self, connection: Connection) -> None:
        raise NotImplementedError

    def end_session(self, connection: Connection, left: bool = False) -> None:
        raise NotImplementedError

    def welcome_fields(self, peer: Peer) -> Dict[str, Any]:
        raise NotImplementedError

    def frames_of(self, type_: str, payload: bytes, fields: Dict[str, Any]) -> List[bytes]:
        raise NotImplementedError
