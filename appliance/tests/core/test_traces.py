"""Recorded conversations are played to the core: it answers as it did when they were recorded.

Rules: what came in before the next answer came in one burst. Heartbeats' echoes count what was there at that moment,
so only their sequence is compared. What the shell adds to a Welcome is added here, too; tokens are not compared.
Messages to one peer are compared in order; those to several peers need no order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Dict, List, Tuple

import pytest
from scheduler_harness import Harness
from trace_files import Line, lines_of, names

from scaler_appliance.core.effects import PeerError, Send, SendChunk, Stop, StoreChunk
from scaler_protocol import MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.session.resumable_sessions import TOKEN_BYTES, ResumableSessions

Sent = Tuple[Any, bytes]


class Replay:
    """The core in the place of the recorded scheduler."""

    def __init__(self, lines: List[Line]) -> None:
        self._files: Dict[int, bytearray] = defaultdict(bytearray)
        self.sent: Dict[str, List[Sent]] = defaultdict(list)
        self._harness = Harness(**_settings(lines))
        self._shared = _shared_files(lines)
        self._is_stopped = False
        self._sessions = ResumableSessions(lambda: bytes(TOKEN_BYTES))

    def hear(self, line: Line) -> None:
        core, now, peer = self._harness.core, self._harness.now, line.peer.encode()
        if self._is_stopped:
            return  # later messages are not read
        if line.message == "closed":
            core.on_peer_gone(now, peer)
            return
        header, *payload = line.frames
        try:
            message = decode(header)
            if isinstance(message, m.Hello):
                self._sessions.on_hello(peer, b"", message)
            core.on_message(now, peer, message, b"".join(payload))
        except MalformedMessageError as error:
            core.on_peer_error(now, peer, PeerError(m.RefusalReason.MALFORMED, str(error)))
        core.state.check_invariants()

    def decide(self) -> None:
        self._harness.core.tick(self._harness.now)
        for effect in self._harness.core.take_effects():
            if isinstance(effect, Send):
                message = effect.message
                if isinstance(message, m.Welcome):
                    message = self._sessions.begin(effect.peer, b"", message)
                self._note(effect.peer, message, b"".join(effect.payload))
            elif isinstance(effect, Stop):
                self._is_stopped = True
            elif isinstance(effect, StoreChunk):
                self._files[effect.object_id] += effect.chunk
            elif isinstance(effect, SendChunk):
                file = self._files[effect.object_id] or self._shared[effect.object_id]
                content = bytes(file[effect.offset : effect.offset + effect.length])
                response = m.ObjectResponse(id=effect.object_id, offset=effect.offset, size=effect.size)
                self._note(effect.peer, response, content)

    def _note(self, peer: bytes, message: m.Member, payload: bytes) -> None:
        self.sent[peer.decode()].append((_comparable(decode(encode(message))), payload))


def _settings(lines: List[Line]) -> Dict[str, Any]:
    """Those of the scheduler that was recorded, as its first Welcome tells them."""
    for line in lines:
        if line.message == "Welcome":
            welcome = decode(line.frames[0])
            assert isinstance(welcome, m.Welcome)
            return {
                "last_session": welcome.session - 1,
                "scheduler_id": welcome.scheduler_id,
                "object_directory": welcome.object_directory,
                "object_directory_token": welcome.object_directory_token,
                "monitor_address": welcome.monitor_address,
                "implementation": welcome.implementation,
                "heartbeat_interval_seconds": welcome.heartbeat_interval_milliseconds / 1000,
                "client_timeout_seconds": welcome.timeout_milliseconds / 1000,
                "worker_timeout_seconds": welcome.timeout_milliseconds / 1000,
                "protected": welcome.protected,
            }
    return {}


def _shared_files(lines: List[Line]) -> Dict[int, bytes]:
    """Files that a peer wrote into the shared directory, as far as others were sent them."""
    files: Dict[int, bytes] = {}
    for line in lines:
        message = decode(line.frames[0]) if line.message == "ObjectResponse" and not line.is_from_peer else None
        if isinstance(message, m.ObjectResponse):
            files[message.id] = files.get(message.id, b"") + b"".join(line.frames[1:])
    return files


def _comparable(message: Any) -> Any:
    if isinstance(message, m.HeartbeatEcho):
        return m.HeartbeatEcho(sequence=message.sequence)
    if isinstance(message, m.Welcome):
        message.resume_token = bytes(len(message.resume_token))
    if isinstance(message, m.DisconnectRequest):
        return m.DisconnectRequest(reason=message.reason)
    if isinstance(message, m.Refusal):
        return m.Refusal(reason=message.reason, message=message.message, major=message.major)
    return message


def _without_farewell(sent: List[Sent]) -> List[Sent]:
    """Without the answer to a farewell, for which a peer may not have waited."""
    return sent[:-1] if sent and isinstance(sent[-1][0], m.DisconnectResponse) else sent


@pytest.mark.parametrize("name", names())
def test_the_core_answers_as_it_did(name: str) -> None:
    lines = lines_of(name)
    replay = Replay(lines)
    recorded: Dict[str, List[Sent]] = defaultdict(list)
    for line, following in zip(lines, [*lines[1:], None]):
        if line.is_from_peer:
            replay.hear(line)
            if following is None or not following.is_from_peer:
                replay.decide()
        else:
            header, *payload = line.frames
            recorded[line.peer].append((_comparable(decode(header)), b"".join(payload)))
    assert {peer: _without_farewell(sent) for peer, sent in replay.sent.items()} == {
        peer: _without_farewell(sent) for peer, sent in recorded.items()
    }
