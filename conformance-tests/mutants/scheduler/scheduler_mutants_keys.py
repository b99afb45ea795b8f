"""Schedulers that each break one requirement: who is served with which key."""

from __future__ import annotations

from mutants import mutant
from mutants.scheduler.reference_scheduler import ReferenceScheduler
from mutants.servers.curve_server import CurveServer
from mutants.servers.zmtp_server import Connection, ZmtpServer
from scaler_conformance.codec.schema_codec import Message

KEYS = "scheduler/keys"
_LARGE_BYTES = 64 << 10


class _CuttingServer(CurveServer):
    def send_sealed(self, connection: Connection, flags: int, content: bytes) -> None:
        super().send_sealed(connection, flags, content[:_LARGE_BYTES])


@mutant(breaks="SCL-SEC-015", caught_by=f"{KEYS}/admitted-keys-are-served")
class CutsWhatIsLarge(ReferenceScheduler):
    keyed_server_class = _CuttingServer


class _ServesAnotherMechanism(CurveServer):
    mechanism = b""

    def __init__(self, address: str, header_limit: int, message_limit: int, folder: str) -> None:
        self.unsealed: set[Connection] = set()
        super().__init__(address, header_limit, message_limit, folder)

    def role_of(self, connection: Connection) -> str:
        return "client" if connection in self.unsealed else super().role_of(connection)

    def take_one(self, connection: Connection) -> bool:
        received = connection.received
        if not connection.is_greeted and received[12 : 12 + len(self.mechanism) + 1] == self.mechanism + b"\0":
            self.unsealed.add(connection)
        return super().take_one(connection)

    def check_mechanism(self, mechanism: bytes) -> None:
        if mechanism != self.mechanism:
            super().check_mechanism(mechanism)

    def on_command(self, connection: Connection, body: bytes) -> None:
        if connection in self.unsealed:
            ZmtpServer.on_command(self, connection, body)
        else:
            super().on_command(connection, body)

    def on_frame(self, connection: Connection, body: bytes, more: bool) -> None:
        if connection in self.unsealed:
            ZmtpServer.on_frame(self, connection, body, more)
        else:
            super().on_frame(connection, body, more)

    def send(self, connection: Connection, frames: list[bytes]) -> None:
        if connection in self.unsealed:
            ZmtpServer.send(self, connection, frames)
        else:
            super().send(connection, frames)


class _ServesNull(_ServesAnotherMechanism):
    mechanism = b"NULL"


@mutant(breaks="SCL-SEC-015", caught_by=f"{KEYS}/peers-without-a-key-are-not-served")
class ServesPeersWithoutAKey(ReferenceScheduler):
    keyed_server_class = _ServesNull


class _ServesPlain(_ServesAnotherMechanism):
    mechanism = b"PLAIN"


@mutant(breaks="SCL-SEC-015", caught_by=f"{KEYS}/passwords-are-not-served")
class ServesPasswords(ReferenceScheduler):
    keyed_server_class = _ServesPlain


class _AdmitsAllKeysServer(CurveServer):
    ended = False

    def check_key(self, key: bytes) -> None:
        if self.ended:
            super().check_key(key)

    def end_revoked(self) -> None:
        self.ended = True
        super().end_revoked()


@mutant(breaks="SCL-SEC-015", caught_by=f"{KEYS}/unknown-keys-are-not-served")
class RefusesUnknownKeysOnlyByMessage(ReferenceScheduler):
    keyed_server_class = _AdmitsAllKeysServer


@mutant(breaks="SCL-SEC-016", caught_by=f"{KEYS}/keys-have-a-role")
class HasOneRoleForAllKeysOfWork(ReferenceScheduler):
    def check_key_of_hello(self, connection: Connection, hello: Message) -> None:
        if self.key_role(connection) not in ("client", "worker"):
            super().check_key_of_hello(connection, hello)


@mutant(breaks="SCL-SEC-016", caught_by=f"{KEYS}/keys-of-clients-stop-nothing")
class LetsClientsStopWorkers(ReferenceScheduler):
    def may_stop(self, connection: Connection) -> bool:
        return True


@mutant(breaks="SCL-SEC-016", caught_by=f"{KEYS}/tasks-need-a-clients-key")
class TakesTasksOfAdministrators(ReferenceScheduler):
    def check_key_of_message(self, connection: Connection, message: Message) -> None:
        """All that a role of Hello may send is taken."""


class _KeepsRevokedServer(CurveServer):
    def end_revoked(self) -> None:
        """They end when their peers leave."""


@mutant(breaks="SCL-SEC-019", caught_by=f"{KEYS}/revoked-keys-end-their-sessions")
class KeepsSessionsOfRevokedKeys(ReferenceScheduler):
    keyed_server_class = _KeepsRevokedServer


@mutant(breaks="SCL-MON-009", caught_by=f"{KEYS}/scheduler-with-keys-is-not-called-insecure")
class CallsItselfInsecureInSnapshots(ReferenceScheduler):
    def says_insecure(self, is_snapshot: bool) -> bool:
        return is_snapshot or super().says_insecure(is_snapshot)
