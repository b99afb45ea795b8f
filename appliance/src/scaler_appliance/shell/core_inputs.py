"""The one way into the core: everything that happens passes through here, in order.

    socket, clock, signals, disk ──▶ CoreInputs ──▶ SchedulerCore ──▶ effects

Rules:
- An input is a kind, a time and arguments that can be recorded; nothing else reaches the core. So a list of inputs
  determines every decision.
- The core handles faults of peers. Any other exception from the core is a bug of ours, whichever message was being
  handled: the state may be half changed, and BrokenInvariantError says at which input.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Callable, Counter, Dict, List, Optional, Protocol, Sequence

from scaler_appliance.core.effects import Effect, PeerError
from scaler_appliance.core.pending_work import LateWork
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_protocol import MalformedMessageError, decode
from scaler_protocol import messages as m


class InputKind(IntEnum):
    """The kinds of inputs of a scheduler."""

    FRAMES = 1  # a peer sent a message: peer, frames
    TICK = 2  # a burst has been read
    PEER_GONE = 3  # peer
    CONGESTION = 4  # peer, whether it leaves much unread
    OBJECT_UNREADABLE = 5  # object id; if it could not be stored: why, whether there was no room
    OBJECT_SPILLED = 6  # object id
    OBJECT_SPILL_FAILED = 7  # object id, why
    SHUT_DOWN = 8  # why
    SUBSCRIPTIONS = 9  # whether there are any to the status, and to runs
    TAKE_STATUS = 10  # whether it is a snapshot
    TAKE_RUNS = 11  # Unix time in microseconds
    EFFECTS = 12  # the effects are taken, without a tick before
    STOOD_STILL = 13  # this process was stopped for a while
    MEMORY_USED = 14  # bytes of this process's heap
    AUTHENTICATED = 15  # peer, role, tenant and name of its key
    TAKE_VIEW = 16  # of the status that was taken: tenant
    TAKE_RUNS_VIEW = 17  # of the runs that were taken: tenant
    OPTIONS_CHANGED = 18  # the settings that have other values now, by name


class Reception(IntEnum):
    """What a message of a peer was."""

    WORK = 1  # it is about tasks or objects, and was accepted
    NO_WORK = 2  # it is allowed
    REFUSED = 3  # it is malformed, or the peer may not send it
    CANCEL = 4  # work that can wait


WORK = frozenset(
    {m.Task, m.GraphTask, m.TaskResult, m.TaskCancel, m.TaskCancelConfirm, m.BalanceResponse, m.TaskLog}
    | {m.ObjectInstruction, m.ObjectRequest, m.ObjectResponse}
)
"""Messages that are about tasks and objects; what else a peer sends is no reason to keep others waiting."""

MAXIMUM_ELEMENTS = 16_384
"""In the lists of structs and of texts of one message (SCL-SEC-014): decoding them takes CPython 3.11 some 6 ms."""

ANSWERS = frozenset(
    {m.Refusal, m.Welcome, m.HeartbeatEcho, m.DisconnectResponse, m.Info, m.Explanation}
    | {m.ClientShutdownResponse, m.WorkerShutdownResponse}
)
"""What the scheduler sends because of messages that are no work."""

EXIT_BROKEN_INVARIANT = 70  # EX_SOFTWARE of sysexits.h


class BrokenInvariantError(Exception):
    """A bug in the core or in performing its effects; the state can no longer be trusted."""


class Recorder(Protocol):
    """Records inputs, each before the core gets it."""

    def on_frames(self, now: float, peer: bytes, frames: Sequence[bytes]) -> None: ...

    def on_input(self, kind: InputKind, now: float, arguments: Sequence[Any]) -> None: ...

    def on_effects(self, now: float, effects: Sequence[Effect]) -> None: ...


class CoreInputs:
    """Passes inputs to a core.

    Parameters:
        core: changed by these inputs only.
        received: counts messages by name.
        recorder: records them, if given.
    """

    def __init__(self, core: SchedulerCore, received: Counter[str], recorder: Optional[Recorder] = None) -> None:
        self.on_count: Callable[[bytes, int], None] = lambda peer, count: None
        """Called when a peer has said how many messages it has received."""
        self._core = core
        self._received = received
        self._recorder = recorder
        self._calls: Dict[InputKind, Callable[..., Any]] = {
            InputKind.PEER_GONE: core.on_peer_gone,
            InputKind.CONGESTION: core.on_congestion,
            InputKind.OBJECT_UNREADABLE: core.on_object_unreadable,
            InputKind.OBJECT_SPILLED: core.on_object_spilled,
            InputKind.OBJECT_SPILL_FAILED: core.on_object_spill_failed,
            InputKind.SHUT_DOWN: core.shut_down,
            InputKind.STOOD_STILL: core.on_stood_still,
            InputKind.AUTHENTICATED: core.on_authenticated,
            InputKind.OPTIONS_CHANGED: core.on_options_changed,
            InputKind.MEMORY_USED: core.on_memory_used,
            InputKind.SUBSCRIPTIONS: lambda now, has_status, has_runs: core.watch(has_status, has_runs),
            InputKind.TAKE_STATUS: core.take_status,
            InputKind.TAKE_RUNS: core.take_runs,
            InputKind.TAKE_VIEW: core.take_view,
            InputKind.TAKE_RUNS_VIEW: core.take_runs_view,
        }

    @property
    def has_work(self) -> bool:
        """Whether the next tick has something to do at once."""
        return self._core.has_work

    @property
    def late_work(self) -> LateWork:
        """What the last tick has done for earlier messages."""
        return self._core.late_work

    def take_useless(self) -> Dict[bytes, int]:
        """Work that has led to nothing since the last call, in units, by the peers that caused it."""
        state = self._core.state
        useless, state.useless = state.useless, {}
        return useless

    def is_working_for(self, peer: bytes) -> bool:
        """Whether the next message of a peer would have to wait for the one before."""
        return self._core.is_working_for(peer)

    def has_backlog(self, peer: bytes) -> bool:
        """Whether what a peer submits would only wait for long."""
        return self._core.state.has_backlog(peer)

    def frames(self, now: float, peer: bytes, frames: Sequence[bytes]) -> Reception:
        """A peer sent a message of these frames, which may be wrong."""
        if self._recorder is not None:
            self._recorder.on_frames(now, peer, frames)
        try:
            try:
                # SCL-SEC-002
                if not 1 <= len(frames) <= 2:
                    raise MalformedMessageError(f"a message of {len(frames)} frames instead of a header and a payload")
                message = decode(frames[0], MAXIMUM_ELEMENTS)
            except MalformedMessageError as error:
                self._received["malformed"] += 1
                self._core.on_peer_error(now, peer, PeerError(m.RefusalReason.MALFORMED, str(error)))
                return Reception.REFUSED
            except MemoryError:  # before anything has changed
                text = f"a message of {sum(map(len, frames))} bytes finds no room in memory"
                self._core.on_peer_error(now, peer, PeerError(m.RefusalReason.LIMIT_EXCEEDED, text))
                return Reception.REFUSED
            self._received[type(message).__name__] += 1
            # SCL-TRN-004
            if not self._core.on_message(now, peer, message, frames[1] if len(frames) == 2 else b""):
                return Reception.REFUSED
            if type(message) not in WORK:
                if isinstance(message, (m.Heartbeat, m.HeartbeatEcho)):
                    self.on_count(peer, message.received)
                return Reception.NO_WORK
            return Reception.WORK if type(message) is not m.TaskCancel else Reception.CANCEL
        except Exception as error:
            raise _broken(InputKind.FRAMES, (peer,), error) from error

    def tick(self, now: float) -> List[Effect]:
        """All messages of a burst were passed on; returns the effects since the last call."""
        if self._recorder is not None:
            self._recorder.on_input(InputKind.TICK, now, ())
        try:
            self._core.tick(now)
        except Exception as error:
            raise _broken(InputKind.TICK, (), error) from error
        return self._take_effects(now)

    def effects(self, now: float) -> List[Effect]:
        """The effects since the last call, without a tick before."""
        if self._recorder is not None:
            self._recorder.on_input(InputKind.EFFECTS, now, ())
        return self._take_effects(now)

    def _take_effects(self, now: float) -> List[Effect]:
        effects = self._core.take_effects()
        if self._recorder is not None:
            self._recorder.on_effects(now, effects)
        return effects

    def call(self, kind: InputKind, now: float, *arguments: Any) -> Any:
        """Any other input; returns the result of the core's method."""
        if self._recorder is not None:
            self._recorder.on_input(kind, now, arguments)
        try:
            return self._calls[kind](now, *arguments)
        except Exception as error:
            raise _broken(kind, arguments, error) from error


def _broken(kind: InputKind, arguments: Sequence[Any], error: Exception) -> BrokenInvariantError:
    shown = ", ".join(each.hex() if isinstance(each, bytes) else repr(each) for each in arguments)
    return BrokenInvariantError(f"the core failed at {kind.name} ({shown}): {type(error).__name__}: {error}")
