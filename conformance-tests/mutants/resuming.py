"""How the reference client and worker resume a session on another connection. A mixin of their loops.

Rules:
- The first connection is left as it is when the second is opened: a reference need not wait until that is up.
- One method, one duty: so that a mutant can break just that.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence, Tuple

import zmq

from scaler_conformance.codec.schema_codec import SCHEMA, Message

RESUME = "resume"
MISSED_HEARTBEATS = 3
COUNTED = ("Heartbeat", "HeartbeatEcho")


class Resuming:
    """What both loops have for it."""

    socket: Any
    monitor: Any
    session: int
    welcome: Any
    last_heard: float

    def __init__(self) -> None:
        self.token = b""
        self.unacknowledged: List[Sequence[bytes]] = []
        self.received = self.acknowledged = self.resume_attempts = 0
        self.is_resuming = False
        self.former: List[Tuple[Any, Any]] = []  # connections on which the session was

    # What the loop calls ----------------------------------------------------------------------------------------------

    def begin_counting(self, welcome: Message) -> None:
        """A session has begun."""
        self.stop_resuming()
        if RESUME in welcome.features:
            self.token = welcome.resumeToken

    def stop_resuming(self) -> None:
        """There is no session any more."""
        self.token = b""
        self.unacknowledged.clear()
        self.received = self.acknowledged = self.resume_attempts = 0
        self.is_resuming = False
        self.close_former()

    def close_former(self) -> None:
        for each, monitor in self.former:
            each.disable_monitor()
            monitor.close(0)
            each.close(0)
        self.former.clear()

    def with_count(self, type_: str, fields: Dict[str, Any]) -> Dict[str, Any]:
        """The fields of a message that is about to be sent."""
        return {**fields, "received": self.received_count()} if self.token and type_ in COUNTED else fields

    def received_count(self) -> int:
        return self.received

    def keep_sent(self, frames: Sequence[bytes]) -> bool:
        """Keep what is sent; returns whether it is sent later."""
        if self.token:
            self.unacknowledged.append(frames)
        return self.is_resuming

    def on_received(self, message: Message) -> bool:
        """A message has come; returns whether it is none of the session."""
        if self.is_resuming:
            if message.type == "Welcome":
                self.on_answer(message)
            return True
        if self.token:
            self.received += 1
            if message.type in COUNTED:
                self.acknowledge(message.received)
        return False

    def acknowledge(self, count: int) -> None:
        while self.acknowledged < count and self.unacknowledged:
            self.unacknowledged.pop(0)
            self.acknowledged += 1

    def listen_for_silence(self, now: float, interval_seconds: float) -> None:
        """To be called often."""
        if self.token and now - self.last_heard > MISSED_HEARTBEATS * interval_seconds:
            self.resume()

    # Resuming ---------------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Try another connection."""
        self.resume_attempts += 1
        self.former.append((self.socket, self.monitor))
        self.open_connection()
        self.last_heard = time.monotonic()
        self.is_resuming = True
        self.socket.send(SCHEMA.encode("Hello", {**self.hello(), **self.resuming_hello()}), zmq.NOBLOCK)

    def resuming_hello(self) -> Dict[str, Any]:
        return {
            "previousSession": self.session,
            "resumeToken": self.token,
            "received": self.received,
            "resumeAttempt": self.resume_attempts,
        }

    def on_answer(self, welcome: Message) -> None:
        self.close_former()
        self.is_resuming = False
        if welcome.isResumed:
            self.acknowledge(welcome.received)
            self.send_rest()
        else:
            self.end_session()
            self.on_welcome(welcome)

    def send_rest(self) -> None:
        for frames in self.unacknowledged:
            self.socket.send_multipart(frames, zmq.NOBLOCK)

    # What the loop has ------------------------------------------------------------------------------------------------

    def open_connection(self) -> None:
        raise NotImplementedError

    def hello(self) -> Dict[str, Any]:
        raise NotImplementedError

    def end_session(self) -> None:
        raise NotImplementedError

    def on_welcome(self, message: Message) -> None:
        raise NotImplementedError
