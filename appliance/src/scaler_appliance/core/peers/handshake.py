"""Which peers get a session, and how the scheduler answers a Hello.

Rule: pure functions of the message and the settings; `scheduler` keeps the connected peers.
"""

from __future__ import annotations

from typing import Container, Optional

from scaler_appliance.core.actor_calls.actor_table import ACTORS
from scaler_appliance.core.effects import PeerError
from scaler_appliance.core.peers.authority import check_role, may_stop
from scaler_appliance.core.peers.sessions import MAXIMUM_LABEL_CHARACTERS, Session
from scaler_appliance.core.state import Settings
from scaler_appliance.core.tasks.capabilities import check_capabilities
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import Grant
from scaler_protocol.session.features import (
    DRAIN_REQUESTS,
    KEPT_ARGUMENTS,
    KEPT_RESULTS,
    PEER_FETCH,
    PREDECESSORS,
    PROVISIONING,
)
from scaler_protocol.session.ids import MAXIMUM_SESSION

CONNECTION_LOST = "its connection was lost"
NOT_GREETED = "say Hello first: this connection has no session (any more)"
PEERS_PER_SECOND = 150
"""So many more peers make the interval of heartbeats a second longer, see ADR 0045."""
HEARTBEATS_PER_TIMEOUT = 4  # at least
SELDOMEST_SECONDS = 15.0
"""The longest of these intervals: after three of them without an answer, a peer looks for another way."""


def check_hello(
    hello: m.Hello, grant: Optional[Grant], last_session: int, is_stopping: bool, peers: int, maximum_peers: int
) -> Grant:
    """What the peer may do, or PeerError unless it can have a session.

    Parameters:
        grant: of the peer, if it has one.
        last_session: the last number that was granted.
        is_stopping: whether the scheduler is shutting down.
        peers: how many others have a session.
        maximum_peers: how many may have one; 0: no limit.
    """
    speaks = hello.implementation
    name, version = speaks.name[:MAXIMUM_LABEL_CHARACTERS], speaks.version[:MAXIMUM_LABEL_CHARACTERS]
    # SCL-SES-003
    if hello.major != PROTOCOL_MAJOR or hello.minor_min > PROTOCOL_MINOR_MAX or hello.minor_max < PROTOCOL_MINOR_MIN:
        raise PeerError(
            m.RefusalReason.VERSION_MISMATCH,
            f"this scheduler speaks protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MIN} to"
            f" {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX}, {name or 'the peer'} {version} speaks"
            f" {hello.major}.{hello.minor_min} to {hello.major}.{hello.minor_max}: install versions that overlap",
        )
    # SCL-SES-005
    if hello.role not in (m.Role.CLIENT, m.Role.WORKER):
        raise PeerError(m.RefusalReason.ROLE_NOT_SERVED, "a scheduler serves clients and workers only")
    granted = check_role(grant, hello)
    # SCL-SES-006
    if hello.role == m.Role.WORKER and hello.slots == 0:
        raise PeerError(m.RefusalReason.PROTOCOL_VIOLATION, "a worker needs at least one slot")
    check_capabilities(hello.capabilities)
    # SCL-SES-022
    if is_stopping:
        raise PeerError(m.RefusalReason.SHUTTING_DOWN, "the scheduler is shutting down")
    if 0 < maximum_peers <= peers:
        text = f"the scheduler serves {peers} peers already: start it with a larger --maximum-peers"
        raise PeerError(m.RefusalReason.LIMIT_EXCEEDED, text)
    if last_session >= MAXIMUM_SESSION:
        raise PeerError(m.RefusalReason.LIMIT_EXCEEDED, "the scheduler has granted all its sessions: restart it")
    return granted


def timeout_seconds(settings: Settings, hello: m.Hello, worker_hosts: Container[str]) -> float:
    """How long the next peer may be silent before it is lost.

    A client on the host of a worker may be in one of its tasks. It is lost like the worker: the task runs again, and
    those that it has submitted would go on beside the new ones.

    Parameters:
        worker_hosts: on which there are workers, as they call them.
    """
    if hello.role == m.Role.WORKER:
        return settings.worker_timeout_seconds
    if hello.host in worker_hosts:
        return min(settings.client_timeout_seconds, settings.worker_timeout_seconds)
    return settings.client_timeout_seconds


def heartbeat_interval_seconds(settings: Settings, peers: int, timeout_seconds: float) -> float:
    """How often the next peer should send a heartbeat: more seldom if there are many, who would keep us busy by that.

    Parameters:
        peers: that have sessions.
        timeout_seconds: after which this peer is lost, if it is silent.
    """
    seldom_seconds = min(peers / PEERS_PER_SECOND, timeout_seconds / HEARTBEATS_PER_TIMEOUT, SELDOMEST_SECONDS)
    return max(settings.heartbeat_interval_seconds, seldom_seconds)


def welcome(settings: Settings, session: Session, grant: Grant) -> m.Welcome:
    """The answer to a peer that gets a session."""
    number, hello = session.number, session.hello
    return m.Welcome(
        major=PROTOCOL_MAJOR,
        # SCL-SES-004
        minor=min(hello.minor_max, PROTOCOL_MINOR_MAX),
        implementation=settings.implementation,
        scheduler_id=settings.scheduler_id,
        session=number,
        features=[PREDECESSORS, ACTORS, KEPT_RESULTS, KEPT_ARGUMENTS, PEER_FETCH, DRAIN_REQUESTS, PROVISIONING],
        limits=m.Limits(
            maximum_message_bytes=settings.maximum_message_bytes,
            maximum_object_bytes=settings.maximum_object_bytes,
            chunk_bytes=settings.chunk_bytes,
            inline_bytes=settings.inline_bytes,
            tasks_in_flight=settings.client_tasks_in_flight,
            bytes_in_flight=settings.client_bytes_in_flight,
        ),
        heartbeat_interval_milliseconds=int(session.heartbeat_interval_seconds * 1000),
        timeout_milliseconds=int(session.timeout_seconds * 1000),
        object_directory=settings.object_directory,
        object_directory_token=settings.object_directory_token,
        protected=not may_stop(grant, settings.protected),
        monitor_address=settings.monitor_address,
    )


def refusal(settings: Settings, reason: m.RefusalReason, text: str) -> m.Refusal:
    """The answer to a peer that has no session, or whose session ends because of its fault."""
    return m.Refusal(
        reason=reason,
        message=text,
        major=PROTOCOL_MAJOR,
        minor_min=PROTOCOL_MINOR_MIN,
        minor_max=PROTOCOL_MINOR_MAX,
        implementation=settings.implementation,
    )
