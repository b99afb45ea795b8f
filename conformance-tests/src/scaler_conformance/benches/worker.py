"""The bench for workers: the suite is their scheduler.

    bench.greeted()    a worker that has said Hello and waits for its answer
    bench.welcomed()   one that serves a session: most cases begin here

Rules:
- A worker has as many slots as it says; a case that needs them full holds a task in each.
- Named functions are those of protocol-spec/conformance-codec.md. A case that needs one that the worker does not list
  does not apply.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, Optional

from scaler_conformance.bench import Bench
from scaler_conformance.conversation import Conversation, Transport, check
from scaler_conformance.peers import RouterTransport
from scaler_conformance.verdicts import Violation
from scaler_conformance.worker_session import WorkerSession

MAJOR = 1
HEARTBEAT_MILLISECONDS = 1000
TIMEOUT_MILLISECONDS = 60_000
SCHEDULER_ID = bytes(range(16))


class RoleBench(Bench):
    """One worker, and the scheduler that it was told to serve."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.router = RouterTransport(self._make_session)
        self.at_end(self.router.close)
        self.sessions = 0
        self.last_session: Optional[WorkerSession] = None

    def _make_session(self, name: str, transport: Transport) -> Conversation:
        return WorkerSession(name, transport, self.settings, self._log, self.how_it_ended)

    # Joining --------------------------------------------------------------------------------------------------------

    def accept(self) -> WorkerSession:
        """The next connection that says something; the worker is started if it is not yet."""
        if self.running is None:
            self.start({"address": self.router.address})
        waiting = Conversation("nobody", self.router, self.settings, self._log, self.how_it_ended)
        session: WorkerSession = waiting.wait_until(self.router.take_new, "a worker to connect and say Hello")
        self.last_session = session
        return session

    def greeted(self, requirement: Optional[str] = None) -> WorkerSession:
        """A worker whose Hello has come and was not answered.

        Raises Violation when something else comes first.
        """
        session = self.accept()
        first = session.wait_until(lambda: session.first, "Hello", requirement)
        check(first.type == "Hello", "Hello to be the first message", first, requirement)
        session.hello = session.expect("Hello")
        implementation = session.hello.implementation
        self._identification.said(implementation.name, implementation.version, implementation.language)
        return session

    def welcomed(self, **fields: Any) -> WorkerSession:
        """A worker that was told Welcome; `fields` are of that, in place of the usual ones."""
        session = self.greeted()
        self.welcome(session, **fields)
        return session

    def welcome(self, session: WorkerSession, **fields: Any) -> None:
        """Answer a Hello."""
        self.sessions += 1
        session.number = fields.get("session", self.sessions)
        minor = session.hello.minorMax
        session.send("Welcome", **{**usual_welcome(session.number, minor), **fields})
        session.is_open = True

    def restart_scheduler(self) -> None:
        """End all connections, and be a scheduler that has just been started at the same address."""
        self._log.note("the scheduler is started anew")
        self.router.restart()
        self.last_session = None

    def object_directory(self) -> Dict[str, Any]:
        """The fields of a Welcome that offer a directory of shared objects."""
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        path = tempfile.mkdtemp(prefix="scaler-conformance-", dir=base)
        self.at_end(lambda: shutil.rmtree(path, ignore_errors=True))
        token = self.random.getrandbits(256).to_bytes(32, "little")
        with open(os.path.join(path, "token"), "wb") as file:
            file.write(token)
        return {"objectDirectory": path, "objectDirectoryToken": token}

    # The end --------------------------------------------------------------------------------------------------------

    def idle(self) -> None:
        try:
            self.router.pump(0)
        except Violation:
            pass  # what it says while it ends is of no interest

    def say_goodbye(self) -> None:
        self.router.is_ending = True
        if self.last_session is not None and self.last_session.is_open:
            self.last_session.send("DisconnectRequest", reason="shutdown", message="the case is over")
        elif self.running is not None:
            self.running.terminate()


def usual_welcome(session: int, minor: int) -> Dict[str, Any]:
    """What a Welcome says when a case does not mind."""
    return {
        "major": MAJOR,
        "minor": minor,
        "implementation": {"name": "scaler-conformance", "version": "", "language": "Python"},
        "schedulerId": SCHEDULER_ID,
        "session": session,
        "limits": {
            "maximumMessageBytes": 1 << 30,
            "maximumObjectBytes": 1 << 40,
            "chunkBytes": 64 * 1024,
            "inlineBytes": 64 * 1024,
        },
        "heartbeatIntervalMilliseconds": HEARTBEAT_MILLISECONDS,
        "timeoutMilliseconds": TIMEOUT_MILLISECONDS,
    }
