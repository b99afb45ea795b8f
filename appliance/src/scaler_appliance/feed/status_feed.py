"""The status stream of one scheduler, read from its socket: the only module of monitoring that needs libzmq.

Rules:
- A monitor that missed a publication subscribes again, which makes the scheduler publish a snapshot; until then it
  ignores increments.
- Malformed publications are counted and dropped: they never end a monitor.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Optional

import zmq

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_appliance.feed.silence import SilenceProbe, why_silent
from scaler_appliance.feed.task_history import TaskHistory
from scaler_protocol import MalformedMessageError, decode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.wire.secure_zmtp import ClientSecurity

STATUS_TOPIC = b"status"
TASKS_TOPIC = b"tasks"
HIGH_WATER_MARK_MESSAGES = 1000
SILENT_AFTER_SECONDS = 3.5
SNAPSHOT_INTERVAL_SECONDS = 2.0  # between requests for one
PROBE_AFTER_SECONDS = 1.5  # without a first publication
RECONNECT_MILLISECONDS = 100
RECONNECT_AT_MOST_MILLISECONDS = 1000

logger = logging.getLogger("scaler")


class Feed:
    """Receives what a scheduler publishes, and keeps the state that follows from it.

    Parameters:
        address: the scheduler's monitor address; the scheduler may start later.
        wants_tasks: whether to subscribe to the runs of tasks, too.
        clock: seconds of a monotonic clock.
        security: the keys to use; None: none are needed, as at a Unix domain socket of this user.

    Attributes:
        cluster, task_log: the state.
        malformed: how many messages were malformed.

    Raises AddressError if the address is malformed.
    """

    def __init__(
        self,
        address: str,
        wants_tasks: bool = True,
        clock: Callable[[], float] = time.monotonic,
        security: Optional[ClientSecurity] = None,
    ) -> None:
        parse_address(address)
        self.address = address
        self.cluster = ClusterModel()
        self.task_log = TaskHistory()
        self.malformed = 0
        self._clock = clock
        self._silence = SilenceProbe(address, why_silent)
        self._last_sequence: Optional[int] = None  # None: only a snapshot helps
        self._heard_at: Optional[float] = None
        self._began = self._asked_at = clock()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK_MESSAGES)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_AT_MOST_MILLISECONDS)
        self._socket.setsockopt(zmq.IPV6, int("[" in address))
        self._socket.setsockopt(zmq.SUBSCRIBE, STATUS_TOPIC)
        if wants_tasks:
            self._socket.setsockopt(zmq.SUBSCRIBE, TASKS_TOPIC)
        if security is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, security.server_key)
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, security.keys.public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, security.keys.secret)
        self._socket.connect(address)

    def fileno(self) -> int:
        """The descriptor for event loops. It is edge-triggered: call `receive`, which reads all messages."""
        return int(self._socket.getsockopt(zmq.FD))

    def poll(self, timeout_seconds: float) -> bool:
        """Wait until there is something to `receive`; returns whether there is."""
        return bool(self._socket.poll(int(timeout_seconds * 1000)))

    def receive(self) -> bool:
        """Process all received messages; returns whether there were any."""
        has_any = False
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return has_any
            has_any = True
            try:
                self._on_frames(frames)
            except MalformedMessageError as error:
                self.malformed += 1
                self._last_sequence = None
                logger.log(
                    logging.WARNING if self.malformed == 1 else logging.DEBUG,
                    "malformed status from %s ignored: %s", self.address, error,
                )  # fmt: skip
                self._wish_for_snapshot()

    def _on_frames(self, frames: list[bytes]) -> None:
        if len(frames) != 2:
            raise MalformedMessageError(f"{len(frames)} frames instead of a topic and a message")
        message = decode(frames[1])
        if isinstance(message, m.SchedulerStatus):
            self._heard_at = self._clock()
            self._on_status(message)
        elif isinstance(message, m.TaskRuns):
            scheduler = self.cluster.scheduler
            if scheduler is not None and message.scheduler_id == scheduler.scheduler_id:
                self.task_log.append(message)
                self.cluster.note_runs(message)

    def _on_status(self, status: m.SchedulerStatus) -> None:
        scheduler = self.cluster.scheduler
        is_next = (
            scheduler is not None
            and scheduler.scheduler_id == status.scheduler_id
            and self._last_sequence is not None
            and status.sequence == self._last_sequence + 1
        )
        if not (is_next or status.is_snapshot):
            self._last_sequence = None
            self._wish_for_snapshot()
            return
        generation = self.cluster.generation
        self._last_sequence = None  # in case it is malformed
        self.cluster.apply(status)
        self._last_sequence = status.sequence
        if self.cluster.generation != generation:
            self.task_log.clear()

    def _wish_for_snapshot(self) -> None:
        now = self._clock()
        if now - self._asked_at < SNAPSHOT_INTERVAL_SECONDS:
            return
        self._asked_at = now
        self._socket.setsockopt(zmq.UNSUBSCRIBE, STATUS_TOPIC)
        self._socket.setsockopt(zmq.SUBSCRIBE, STATUS_TOPIC)

    def age_seconds(self) -> float:
        """Seconds since the last publication; before the first, since the start."""
        return self._clock() - (self._began if self._heard_at is None else self._heard_at)

    def is_connected(self) -> bool:
        """Whether the scheduler publishes, so that the state is current."""
        return self._heard_at is not None and self.age_seconds() < SILENT_AFTER_SECONDS

    def silence_reason(self) -> str:
        """Why nothing is received, in words; empty while the scheduler publishes, or if it is unknown yet."""
        if self.is_connected():
            self._silence.forget()
            return ""
        return self._silence.reason() if self.age_seconds() >= PROBE_AFTER_SECONDS else ""

    def close(self) -> None:
        self._socket.close()
        self._context.term()
