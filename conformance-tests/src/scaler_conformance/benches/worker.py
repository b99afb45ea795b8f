"""The bench for workers: the suite plays their scheduler.

    bench.greeted()    a worker that has sent Hello and waits for the answer
    bench.welcomed()   a worker with a session: most cases begin here

Rules:
- A worker has as many slots as its Hello says; a case that needs all of them busy holds a task in each.
- Named functions are those of protocol-spec/conformance-codec.md. A case that needs one that the worker does not list
  does not apply.
"""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Optional

from scaler_conformance.benches.played_scheduler import PlayedScheduler
from scaler_conformance.codec.schema_codec import Schema
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import Conversation, Transport, check
from scaler_conformance.playing.curve_keys import ServerSecurity
from scaler_conformance.playing.transports import RouterTransport
from scaler_conformance.playing.worker_session import FIRST_INSTANCE, WorkerSession

MAJOR = 1
TIMEOUT_MILLISECONDS = 60_000
SCHEDULER_ID = bytes(range(16))


class RoleBench(PlayedScheduler):
    """One worker, and the scheduler that it connects to."""

    peer_role = "worker"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.router = self.open_router()
        self.at_end(self.router.close)
        self.sessions = 0
        self._instances = itertools.count(FIRST_INSTANCE)  # never reused, not even in another session
        self.last_session: Optional[WorkerSession] = None
        self._newcomers: List[WorkerSession] = []  # connections that have not sent Hello
        self.play_with_keys_if_all_do()

    def _make_session(self, name: str, transport: Transport) -> Conversation:
        session = WorkerSession(name, transport, self.settings, self._log, self.how_it_ended)
        session.instances = self._instances
        return session

    def open_router(self, security: Optional[ServerSecurity] = None) -> RouterTransport:
        return RouterTransport(self._make_session, security)

    def need_keys(self) -> None:
        if not self._launcher.has_variant("keys"):
            raise NotApplicable("the configuration has no variant keys, which gives the worker a key")

    # Joining --------------------------------------------------------------------------------------------------------

    def start_once(self) -> None:
        """Start the worker if it has not been started."""
        if self.running is None:
            self.start(self.start_values())

    def accept(self) -> WorkerSession:
        """The next connection on which something was sent; starts the worker if it has not been started."""
        self.start_once()
        session: WorkerSession = self._any_session().wait_until(
            self.router.take_new, "the worker to connect and send Hello"
        )
        self.last_session = session
        return session

    def greeted(self, requirement: Optional[str] = None) -> WorkerSession:
        """A worker whose Hello has arrived and has not been answered.

        Raises Violation if another message arrives first.
        """
        session = self.accept()
        first = session.wait_until(lambda: session.first, "Hello", requirement)
        check(first.type == "Hello", "Hello as the first message", first, requirement)
        session.hello = session.expect("Hello")
        implementation = session.hello.implementation
        self._identification.said(implementation.name, implementation.version, implementation.language)
        return session

    def welcomed(self, **fields: Any) -> WorkerSession:
        """A worker that was sent a Welcome; `fields` replace the default ones."""
        session = self.greeted()
        self.welcome(session, **fields)
        return session

    def welcome(self, session: WorkerSession, /, **fields: Any) -> None:
        """Answer a Hello."""
        self.sessions += 1
        session.number = fields.get("session", self.sessions)
        minor = session.hello.minorMax
        session.object_directory = fields.get("objectDirectory", "")
        usual = usual_welcome(session.number, minor, self.heartbeat_milliseconds)
        session.send("Welcome", **{**usual, **fields})
        session.is_open = True

    def rejoined(
        self,
        old: Optional[WorkerSession] = None,
        expected: str = "the worker to reconnect and send Hello",
        requirement: Optional[str] = None,
        **fields: Any,
    ) -> WorkerSession:
        """The worker's next session, welcomed: over a new connection, or over that of the `old` one.

        A peer that sends something else first on a new connection is refused with notGreeted, as by any scheduler.
        """
        session: WorkerSession = self._any_session().wait_until(lambda: self._next_hello(old), expected, requirement)
        session.hello = session.expect("Hello")
        self.last_session = session
        self.welcome(session, **fields)
        return session

    def _next_hello(self, old: Optional[WorkerSession]) -> Optional[WorkerSession]:
        if old is not None and old.waiting("Hello"):
            renewed = self.router.renew(old)
            assert isinstance(renewed, WorkerSession)
            renewed.take_over(old)
            return renewed
        new = self.router.take_new()
        while new is not None:
            assert isinstance(new, WorkerSession)
            self._newcomers.append(new)
            new = self.router.take_new()
        for each in self._newcomers:
            if each.waiting("Hello"):
                self._newcomers.remove(each)
                return each
            if each.first is not None and each.first.type != "Hello" and not each.was_refused:
                each.was_refused = True
                each.send("Refusal", reason="notGreeted", message="send Hello first")
        return None

    def _any_session(self) -> Conversation:
        return Conversation("any session", self.router, self.settings, self._log, self.how_it_ended)

    def still_serving(self, session: WorkerSession, requirement: Optional[str] = None) -> WorkerSession:
        """The session if it continues, or else the next one.

        For faults after which a worker may end its session, but must serve a new one.
        """
        sequence = 5_000_000 + self.random.getrandbits(20)
        session.send("Heartbeat", sequence=sequence)
        self._any_session().wait_until(
            lambda: self._is_answered(session, sequence) or session.waiting("Hello") or self._has_newcomer(),
            "the worker to answer a Heartbeat, or to send Hello again",
            requirement,
        )
        if self._is_answered(session, sequence):
            return session
        return self.rejoined(session, requirement=requirement)

    def _is_answered(self, session: WorkerSession, sequence: int) -> bool:
        return any(each.sequence == sequence for each in session.echoes)

    def _has_newcomer(self) -> bool:
        new = self.router.take_new()
        if new is not None:
            assert isinstance(new, WorkerSession)
            self._newcomers.append(new)
        return bool(self._newcomers)

    def welcome_as(self, session: WorkerSession, /, schema: Schema, **fields: Any) -> None:
        """Answer a Hello with only these fields, as another version of the protocol encodes them."""
        self.sessions += 1
        session.number = self.sessions
        session.send("Welcome", schema=schema, session=session.number, **fields)
        session.is_open = True

    def restart_scheduler(self) -> None:
        """Close all connections, and act as a scheduler that was just started at the same address."""
        self._log.note("the scheduler restarts")
        self.router.restart()
        self._newcomers.clear()
        self.last_session = None

    # The end --------------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        self.router.is_ending = True
        if self.last_session is not None and self.last_session.is_open:
            self.last_session.send("DisconnectRequest", reason="shutdown", message="the case is over")
        elif self.running is not None:
            self.running.terminate()


def usual_welcome(session: int, minor: int, heartbeat_milliseconds: int) -> Dict[str, Any]:
    """The default fields of a Welcome."""
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
        "heartbeatIntervalMilliseconds": heartbeat_milliseconds,
        "timeoutMilliseconds": TIMEOUT_MILLISECONDS,
    }
