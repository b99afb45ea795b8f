"""Bugs of sessions that go on over another connection. Written down before any was tried."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SESSION, PlantedBug

LINK_BUGS: Dict[str, PlantedBug] = {
    "a resumed peer is sent what it has acknowledged": PlantedBug(
        "session",
        f"{SESSION}.resumable_sessions:ResumableSessions.on_hello",
        "session.acknowledge(hello.received)",
        "pass",
    ),
    "a peer sends everything again that was not acknowledged before": PlantedBug(
        "session",
        f"{SESSION}.resumption:Resumption.on_second_message",
        "log.acknowledge(message.received)",
        "pass",
    ),
    "heartbeats of the scheduler do not count": PlantedBug(
        "session",
        f"{SESSION}.resumption:Resumption.on_message",
        "self.log.received += 1",
        "self.log.received += not isinstance(message, m.Heartbeat)",
    ),
    "a count that comes late is taken back": PlantedBug(
        "session",
        f"{SESSION}.session_log:SessionLog.acknowledge",
        "while sent - len(kept) < count:",
        "while sent - len(kept) <= count and kept:",
    ),
    "what is sent while there is no connection is not kept": PlantedBug(
        "session",
        f"{SESSION}.session_log:SessionLog.add",
        "self.sent += 1",
        "if self.kept_bytes >= 1000: return\n    self.sent += 1",
    ),
    "a session of which not all is kept is resumed": PlantedBug(
        "session",
        f"{SESSION}.session_log:SessionLog.can_resume",
        "return self.sent - len(self._kept) <= count <= self.sent and not self._is_over",
        "return True",
    ),
    "the second connection is closed before its answer has come": PlantedBug(
        "session",
        f"{SESSION}.resumption:Resumption.on_time",
        "LeaveSecond() if self._is_greeted else CloseSecond()",
        "CloseSecond()",
    ),
    "any token resumes a session": PlantedBug(
        "session",
        f"{SESSION}.resumable_sessions:ResumableSessions.on_hello",
        "not compare_digest(token, session.welcome.resume_token)",
        "not token",
    ),
    "a suspect session is never tried to resume": PlantedBug(
        "session",
        f"{SESSION}.resumption:Resumption.on_second_up",
        "if not self._has_second or hello is None or log is None:",
        "if True:",
    ),
    "a session is resumed though its peer had wanted to leave before": PlantedBug(
        "session",
        f"{SESSION}.resumption:Resumption.before_sending",
        "self._hello = None",
        "pass",
    ),
}
