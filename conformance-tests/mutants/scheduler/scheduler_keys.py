"""What the reference scheduler, if it requires keys, allows a peer by the role of its key."""

from __future__ import annotations

from typing import Any, Dict

from mutants.scheduler.scheduler_state import Refused
from mutants.servers.curve_server import CurveServer
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import Message

HELLO_ROLES = {"client": "client", "worker": "worker", "admin": "client"}
"""The role that a key may have in a Hello, by its own."""
WORK = {"Task", "GraphTask", "TaskCancel", "ExplanationRequest", "ObjectInstruction", "ObjectRequest", "ObjectResponse"}


class KeyChecks:
    """Mixin of ReferenceScheduler."""

    server: ZmtpServer
    sessions: Dict[Any, Any]

    def key_role(self, connection: Connection) -> str:
        """Empty without keys."""
        return self.server.role_of(connection) if isinstance(self.server, CurveServer) else ""

    def requires_keys(self) -> bool:
        return isinstance(self.server, CurveServer)

    def check_key_of_hello(self, connection: Connection, hello: Message) -> None:
        if self.requires_keys() and HELLO_ROLES.get(self.key_role(connection)) != hello.role:
            raise Refused("notAllowed", f"this key is not for a {hello.role}")

    def check_key_of_message(self, connection: Connection, message: Message) -> None:
        if self.key_role(connection) == "admin" and message.type in WORK:
            raise Refused("notAllowed", "this key is not for tasks")

    def may_stop(self, connection: Connection) -> bool:
        """Whether the key of a peer lets it stop workers and the scheduler."""
        return not self.requires_keys() or self.key_role(connection) == "admin"

    def reload_keys(self) -> None:
        """The list of admitted keys has changed."""
        if isinstance(self.server, CurveServer):
            self.server.read_roles()
            self.server.end_revoked()
