"""The running scheduler: drives the core from its socket, its clock and its signals.

    something arrived ─▶ read ready connections ─▶ a round of turns: core.on_message … ─▶ core.tick ─▶ effects
                            ▲                                                                           │
                            └───────────────── while messages arrive, or wait for a turn ───────────────┘

Rules:
- All connections are read before anything is placed: bursts make batches. But a peer's turn takes TURN_SECONDS, and a
  round ROUND_SECONDS: messages beyond that wait, while others' arrive and tasks are placed.
- Who causes a cost is charged for it, in its turns: reading, work that the core does later. What is no work, answers
  included, also counts against its allowance, and what callers cost against that of all callers.
- Each part of an object that a peer has requested is read and sent in a turn of that peer: between two of them, others
  have theirs, however many it has requested at once.
- Memory is measured by time, and after messages that may have filled much of it.
- Inputs have the time before they were read. If this process was stopped, what its peers sent in time is not late.
- All inputs reach the core through `CoreInputs`. A peer's fault ends only that peer's session.
- An exception from the core, or one in performing its effects that the environment does not explain, is a bug of ours:
  the state can no longer be trusted. Nothing is sent after it, and `run` raises BrokenInvariantError. The program's
  supervisor restarts it, and clients resubmit unfinished tasks.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from math import inf
from typing import Any, Callable, Counter, Dict, Generator, List, Optional, Set, Type

from scaler_appliance.core.effects import (
    Effect,
    Forget,
    Log,
    RemoveObject,
    Send,
    SendChunk,
    SpillObject,
    StoreChunk,
)
from scaler_appliance.core.effects import Stop as StopEffect
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.shell.acceptor import Acceptor
from scaler_appliance.shell.admission import Admission
from scaler_appliance.shell.allowances import Allowances
from scaler_appliance.shell.connections import READING_SECONDS_PER_BYTE, Connections
from scaler_appliance.shell.core_inputs import (
    ANSWERS,
    BrokenInvariantError,
    CoreInputs,
    InputKind,
    Reception,
    Recorder,
)
from scaler_appliance.shell.fair_turns import Answer, at_work
from scaler_appliance.shell.links.resuming_peers import ResumingPeers
from scaler_appliance.shell.memory_use import STEP_INTERVAL_SECONDS, MemoryUse
from scaler_appliance.shell.object_files import ObjectEffects, ObjectFiles
from scaler_appliance.shell.publishing.status_publisher import StatusPublisher
from scaler_appliance.shell.publishing.status_reporter import StatusReporter
from scaler_appliance.shell.spilling import Copied
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import Grant
from scaler_protocol.programs.event_loop import Completion, EventLoop
from scaler_protocol.programs.repeated_lines import report_repetitions
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.programs.startup import has_terminal

TICK_INTERVAL_SECONDS = 1.0
STOOD_STILL_SECONDS = 2.0  # between two rounds, of which there is one a second at least
TURN_SECONDS = 0.0005
ROUND_SECONDS = 0.004
IDLE_WAIT_SECONDS = 0.001
SECONDS_PER_UNIT = 1e-6  # of the core's work
MAXIMUM_DRAIN_SECONDS = 0.1
MESSAGE_BYTES = 1024  # about what a small one takes in memory
PAUSES_PER_TIMEOUT = 4  # at least: a peer that is not read is not heard either

logger = logging.getLogger("scaler")


class Server:
    """One scheduler: core, sockets and object files, on an event loop."""

    def __init__(
        self,
        loop: EventLoop,
        core: SchedulerCore,
        peers: Connections,
        monitor: StatusPublisher,
        files: ObjectFiles,
        recorder: Optional[Recorder] = None,
        memory: Optional[MemoryUse] = None,
        admission: Optional[Admission] = None,
        service_manager: Optional[ServiceManager] = None,
        reload_options: Callable[[], Dict[str, Any]] = dict,
    ) -> None:
        self._objects, self._budget = core.state.objects, core.state.budget
        self._memory = memory
        self._admission = admission or Admission()
        self._reload_options = reload_options
        self._peers = peers
        self._monitor = monitor
        self._files = files
        self._loop = loop
        self._stopped: Completion[str] = Completion(loop)
        self._is_stopping = False
        self._is_replaced = False  # by a scheduler elsewhere, for which this program stands by
        self._gone: Dict[bytes, None] = {}
        self._congestion: Dict[bytes, bool] = {}  # changes, by peer
        self._sweep: Optional[Generator[None, None, None]] = None  # that is not finished
        timeouts = core.state.settings.client_timeout_seconds, core.state.settings.worker_timeout_seconds
        self._allowances = Allowances(min(timeouts) / PAUSES_PER_TIMEOUT)
        self._idle_seconds: Dict[bytes, float] = {}  # besides turns, to be charged with the next one
        self._service_manager = service_manager or ServiceManager("Scheduler", {})
        self._status = f"listening at {peers.address}"
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._inputs = CoreInputs(core, self.received, recorder)
        self._resuming = ResumingPeers(peers, self._inputs, lambda: core.shutdown.has_begun)
        now = self._awake = self._loop.time()
        self._reporter = StatusReporter(
            core, self._inputs, monitor, peers.address, self.sent, self.received, now, self._admission.is_insecure
        )
        self._object_effects = ObjectEffects(core.state.objects, files, self._inputs, self._loop)
        self._performers: Dict[Type[object], Callable[..., None]] = {
            Send: self._send_or_wait,
            SendChunk: self._send_later,
            StoreChunk: self._object_effects.store_chunk,
            SpillObject: self._object_effects.spill,
            RemoveObject: lambda effect: files.remove(effect.object_id),
            Forget: self._forget,
            Log: lambda effect: logger.log(getattr(logging, effect.level), effect.text),
            StopEffect: self._stop,
        }
        self._answer_performers: Dict[Type[object], Callable[..., None]] = {
            Send: self._send,
            SendChunk: lambda effect: self._send(self._object_effects.read_part(effect)),
        }

    def take_signals(self, expects_restart: bool = False) -> None:
        """Handle signals, SIGTERM like SIGUSR1 if a restart is expected; before the address is published."""
        on_term = self._make_way if expects_restart else self._on_signal
        self._loop.add_signal_handler(signal.SIGINT, self._on_signal, "SIGINT")
        self._loop.add_signal_handler(signal.SIGTERM, on_term, "SIGTERM")
        self._loop.add_signal_handler(signal.SIGUSR1, self._make_way, "SIGUSR1")
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup, has_terminal())

    def run(self, exit_when_stdin_closes: bool) -> None:
        """Serve until stopped by a client, a signal or the parent process.

        Raises BrokenInvariantError after a bug of ours.
        """
        self._loop.set_exception_handler(self._on_callback_error)
        self._loop.add_reader(self._peers.fileno(), self._drain)
        self._loop.add_reader(self._monitor.fileno(), self._serve_monitors)
        if exit_when_stdin_closes:
            self._loop.add_reader(sys.stdin.fileno(), self._on_stdin)
        self._service_manager.ready(self._status)
        self._on_timer()
        try:
            why = self._stopped.wait()
        finally:
            self._loop.remove_reader(self._peers.fileno())
            self._loop.remove_reader(self._monitor.fileno())
        if not self._is_replaced:
            self._service_manager.stopping(why)
        logger.info("Scheduler: stopped: %s", why)

    def peer_gone(self, peer: bytes) -> None:
        """A connection has ended; the core is notified after the current effects, and the peer's last messages."""
        self._gone[peer] = None

    def authenticated(self, peer: bytes, grant: Grant) -> None:
        """It is known who a peer is, before its first message."""
        now = self._loop.time()
        self._inputs.call(InputKind.AUTHENTICATED, now, peer, grant.role, grant.tenant, grant.name)

    def congestion(self, peer: bytes, is_congested: bool) -> None:
        """A peer leaves many bytes unread, or has read most of them; the core is notified before its next decision."""
        self._congestion[peer] = is_congested

    # Input ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Serve while messages keep arriving, so that the event loop costs nothing while there is work."""
        if self._stopped.done():
            return
        turns = self._peers.turns
        begin = now = self._loop.time()
        self._peers.receive(now, 0.0)
        while True:
            if self._peers.newcomer_seconds or self._peers.local_newcomer_seconds:
                self._charge_newcomers(now)
            if now > self._awake + STOOD_STILL_SECONDS:
                self._inputs.call(InputKind.STOOD_STILL, now)
            self._awake = now
            if self._memory is not None:
                received_bytes, self._peers.received_bytes = self._peers.received_bytes, 0
                self._watch_memory(self._memory, now, received_bytes)
            if turns:
                self._take_turns(now)
            self._settle(now)
            if self._stopped.done():
                return
            if self._reporter.is_unfinished:
                self._report_status(self._reporter.go_on)
            now = self._loop.time()
            has_work = bool(turns or self._inputs.has_work or self._reporter.is_unfinished)
            if now > begin + MAXIMUM_DRAIN_SECONDS:
                if has_work:
                    self._loop.call_soon(self._drain)  # of which the event loop does not know
                return
            # The core works on large messages in parts: between them, others get their turn.
            has_work |= bool(self._gone)
            is_ready = self._peers.receive(now, 0.0 if has_work else IDLE_WAIT_SECONDS)
            if not (is_ready or has_work or self._congestion or self._gone):
                return

    def _serve_monitors(self) -> None:
        if self._stopped.done():
            return
        now, monitor = self._loop.time(), self._monitor
        monitor.serve(now, self._allowances)
        seconds, monitor.newcomer_seconds = monitor.newcomer_seconds, 0.0
        pause_seconds = self._allowances.charge_monitor_callers(now, seconds)
        self._pause_accepting(monitor.acceptor, pause_seconds)

    def _watch_memory(self, memory: MemoryUse, now: float, added_bytes: int) -> None:
        """So much may have been added to what is in use: measure it, if that is time."""
        if not memory.is_due(now, added_bytes):
            return
        heap_bytes = memory.measure(now, self._budget.alarming_heap_bytes)
        if heap_bytes is not None:
            self._inputs.call(InputKind.MEMORY_USED, now, heap_bytes)
        if self._budget.is_short and memory.give_back(now, self._budget.level):
            self._loop.call_later(STEP_INTERVAL_SECONDS, self._drain)

    def _take_turns(self, now: float) -> None:
        """Handle messages, of those peers first that have cost least, for as long as a round lasts.

        A peer on whose message the core is still working is passed over, and that costs it a turn: what it sends
        meanwhile waits here, where it is bounded.
        """
        turns, take_in, clock = self._peers.turns, self._resuming.frames, time.perf_counter
        is_busy, has_backlog, work = self._inputs.is_working_for, self._inputs.has_backlog, Reception.WORK
        passed_over: Set[bytes] = set()
        end = begin = clock()
        while turns and end - begin < ROUND_SECONDS:
            peer, messages = turns.next()
            if is_busy(peer):
                if peer in passed_over:
                    return
                passed_over.add(peer)
                turns.end_turn(TURN_SECONDS)
                continue
            if self._peers.reads_too_little(peer):
                turns.pause(peer)
                continue
            begin_turn = end
            idle_seconds = 0.0  # spent on messages that are no work
            is_refused = can_wait = False
            handled = 0
            while messages and end - begin_turn < TURN_SECONDS and not is_busy(peer):
                before = end
                frames = messages.popleft()
                handled += 1
                if not isinstance(frames, list):
                    if self._peers.may_be_answered(peer):
                        self._perform(self._answer_performers, frames)
                    end = clock()
                    continue
                reception = take_in(now, peer, frames)
                end = clock()
                if reception is Reception.CANCEL:
                    can_wait = True
                elif reception is not work:
                    is_refused |= reception is Reception.REFUSED
                    idle_seconds += end - before + READING_SECONDS_PER_BYTE * sum(map(len, frames))
            pause_seconds = 0.0
            if idle_seconds or peer in self._idle_seconds:
                idle_seconds = at_work(idle_seconds) + self._idle_seconds.pop(peer, 0.0)
                pause_seconds = self._allowances.charge(peer, now, idle_seconds, is_refused)
            if can_wait or has_backlog(peer):
                turn_seconds = at_work(end - begin_turn)
                pause_seconds = max(pause_seconds, self._allowances.charge_backlog(now, turn_seconds))
            if pause_seconds and not self._peers.is_ending(peer):
                turns.pause(peer)
                self._peers.stop_reading(peer)
                self._loop.call_later(pause_seconds, self._resume, peer)
            else:
                turns.end_turn(at_work(end - begin_turn))
            if self._memory is not None:
                self._watch_memory(self._memory, now, handled * MESSAGE_BYTES)

    def _charge_newcomers(self, now: float) -> None:
        peers, allowances = self._peers, self._allowances
        seconds, peers.newcomer_seconds = peers.newcomer_seconds, 0.0
        self._pause_accepting(peers.acceptor, allowances.charge_newcomers(now, seconds))
        seconds, peers.local_newcomer_seconds = peers.local_newcomer_seconds, 0.0
        self._pause_accepting(peers.local_acceptor, allowances.charge_local_newcomers(now, seconds))

    def _pause_accepting(self, acceptor: Acceptor, seconds: float) -> None:
        """Accept no callers for so long, unless a pause is under way."""
        if seconds and acceptor.is_accepting:
            acceptor.set_accepting(False)
            self._loop.call_later(seconds, acceptor.set_accepting, True)

    def _charge_idle(self, peer: bytes, seconds: float) -> None:
        """What a peer has caused that is no work has taken time outside its turn, maybe after its connection ended."""
        if self._peers.is_connected(peer):
            self._idle_seconds[peer] = self._idle_seconds.get(peer, 0.0) + seconds
        else:
            self._peers.charge_newcomers(peer, seconds)

    def _resume(self, peer: bytes) -> None:
        """A peer that took more than its share is served again."""
        self._peers.go_on_reading(peer)
        if not self._peers.reads_too_little(peer):
            self._peers.turns.resume(peer)
        self._drain()

    def _on_timer(self) -> None:
        if self._stopped.done():
            return  # its sockets may be closed
        self._loop.call_later(TICK_INTERVAL_SECONDS, self._on_timer)
        now = self._loop.time()
        self._files.restore()
        self._drain()
        self._peers.sweep(now)
        self._monitor.sweep(now)
        if self._admission.has_expired():
            self._review()
        if self._sweep is None:
            self._sweep_files()
        self._report_status(self._reporter.report)
        if self._reporter.is_unfinished:
            self._loop.call_soon(self._drain)
        report_repetitions()
        self._service_manager.working(self._loop.time())

    def _report_status(self, report: Callable[[float], None]) -> None:
        try:
            report(self._loop.time())
        except BrokenInvariantError:
            raise
        except Exception:  # an error in monitoring must not stop the scheduler
            logger.exception("Scheduler: internal error; monitors miss a publication")

    def _on_signal(self, name: str) -> None:
        if self._stopped.done():
            return
        if self._is_stopping:
            logger.warning("Scheduler: second %s: stopping at once", name)
            self._stop(StopEffect(f"second {name}"))
            return
        self._begin_stop(name)

    def _make_way(self, name: str) -> None:
        """End at once, for the next scheduler at this address: peers are not asked to leave, and connect to that one.

        What has arrived still counts, and what waits for peers is sent; clients send again what is unfinished then.
        """
        if not self._stopped.done():
            self._service_manager.stopping(name)
            self._drain()
            self._stop(StopEffect(f"{name}; its peers wait for the next scheduler at this address"))

    def make_way_for_another(self, why: str) -> bool:
        """End at once, for a scheduler at another address that peers have: this program goes on, to stand by for it.

        Returns whether it does: if this scheduler is being stopped, that goes on instead.
        """
        if self._stopped.done() or self._is_stopping:
            return False
        self._drain()
        if not self._stopped.done():
            self._is_replaced = True
            self._stop(StopEffect(f"{why}; peers of this scheduler connect to it"))
        return self._is_replaced

    def _on_hangup(self, had_terminal: bool) -> None:
        """Load options and keys again; or stop, if our terminal has gone."""
        if had_terminal and not has_terminal():
            self._on_signal("SIGHUP")
        elif not self._stopped.done():
            self._service_manager.reloading()
            changes = self._reload_options()
            if changes:
                self._use(changes)
            if self._admission.reload():
                self._review()
            self._service_manager.ready(self._status)

    def _use(self, changes: Dict[str, Any]) -> None:
        """Settings of the core have new values."""
        if "maximum_peers" in changes:
            self._peers.limit_peers(changes["maximum_peers"])
        timeouts = [value for name, value in changes.items() if name.endswith("_timeout_seconds")]
        self._allowances.shorten_pauses(min(timeouts, default=inf) / PAUSES_PER_TIMEOUT)
        self._inputs.call(InputKind.OPTIONS_CHANGED, self._loop.time(), changes)
        self._drain()

    def _review(self) -> None:
        """End the connections of all whose keys are not admitted any more."""
        self._peers.review()
        self._monitor.review()
        self._drain()

    def _on_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._loop.remove_reader(sys.stdin.fileno())
            self._begin_stop("the process that started the scheduler is gone")

    def _begin_stop(self, why: str) -> None:
        self._is_stopping = True
        self._service_manager.stopping(why)
        self._inputs.call(InputKind.SHUT_DOWN, self._loop.time(), why)
        self._drain()

    # Output ---------------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Let the core decide, and perform its effects, until there are no more."""
        if self._congestion:
            self._report_congestion(now)
        effects = self._tick(now)
        while effects or self._gone:
            for effect in effects:
                self._perform(self._performers, effect)
            gone = [peer for peer in self._gone if peer not in self._peers.turns]
            if gone:
                effects = self._end_sessions(now, gone)
            elif effects:
                effects = self._inputs.effects(now)
            else:
                return  # the others have messages that were not handled yet

    def _tick(self, now: float) -> List[Effect]:
        """Let the core decide, and charge peers for what it did for their earlier messages."""
        effects = self._inputs.tick(now)
        for peer, units in self._inputs.late_work.items():
            self._peers.charge(peer, units * SECONDS_PER_UNIT)
        for peer, units in self._inputs.take_useless().items():
            self._charge_idle(peer, units * SECONDS_PER_UNIT)
        return effects

    def _end_sessions(self, now: float, gone: List[bytes]) -> List[Effect]:
        """Connections have ended: let the core decide what follows."""
        begin = time.perf_counter()
        for peer in gone:
            del self._gone[peer]
            self._peers.turns.forget(peer)
            unpaid_seconds = self._allowances.forget(peer, now) + self._idle_seconds.pop(peer, 0.0)
            self._peers.charge_newcomers(peer, unpaid_seconds)
            self._inputs.call(InputKind.PEER_GONE, now, peer)
        effects = self._tick(now)
        seconds = at_work(time.perf_counter() - begin) / len(gone)
        for peer in gone:
            self._peers.charge_newcomers(peer, seconds)
        return effects

    def _report_congestion(self, now: float) -> None:
        congestion, self._congestion = self._congestion, {}
        for peer, is_congested in congestion.items():
            self._inputs.call(InputKind.CONGESTION, now, peer, is_congested)

    def _perform(self, performers: Dict[Type[object], Callable[..., None]], effect: Effect) -> None:
        try:
            performers[type(effect)](effect)
        except OSError:  # later effects do not depend on it
            logger.exception("Scheduler: this effect could not be performed: %.200r", effect)
        except BrokenInvariantError:
            raise
        except Exception as error:
            text = f"an effect could not be performed: {type(error).__name__}: {error}: {effect!r:.200}"
            raise BrokenInvariantError(text) from error

    def _send_or_wait(self, effect: Send) -> None:
        """Send a message; a part of an object waits for its turn."""
        if type(effect.message) is m.ObjectResponse:
            self._send_later(effect)
        else:
            self._send(effect)

    def _send_later(self, answer: Answer) -> None:
        """Send a part of an object in one of its peer's turns."""
        if self._peers.may_be_answered(answer.peer):
            self._peers.turns.add_answer(answer.peer, answer)

    def _send(self, effect: Send) -> None:
        message = effect.message
        self.sent[type(message).__name__] += 1
        is_answer = type(message) in ANSWERS
        begin = time.perf_counter() if is_answer else 0.0
        self._resuming.send(effect)
        if is_answer:
            self._charge_idle(effect.peer, at_work(time.perf_counter() - begin))

    def _forget(self, effect: Forget) -> None:
        self._peers.turns.drop_answers(effect.peer)  # of its session: it may have another one on this connection
        self._peers.forget(effect.peer, self._loop.time())
        self._files.end_session(effect.session)

    def _sweep_files(self) -> None:
        """Remove some files without an owner, and the others between messages."""
        if self._sweep is None:
            self._sweep = self._files.sweep(lambda object_id: self._objects.find(object_id) is not None)
        if self._stopped.done() or next(self._sweep, True):
            self._sweep.close()
            self._sweep = None
        else:
            self._loop.call_soon(self._sweep_files)

    def copied(self, copied: Copied) -> None:
        """An object file has been copied to disk, or could not be. Any thread."""
        with suppress(RuntimeError):  # the loop may have been closed
            self._loop.call_soon_threadsafe(self._finish_spill, copied)

    def _finish_spill(self, copied: Copied) -> None:
        if self._stopped.done():
            return
        self._object_effects.on_copied(copied)
        self._settle(self._loop.time())
        if self._inputs.has_work:
            self._loop.call_soon(self._drain)

    # The end --------------------------------------------------------------------------------------------------------

    def _on_callback_error(self, loop: EventLoop, context: Dict[str, Any]) -> None:
        """A callback of the event loop raised an exception."""
        error = context.get("exception")
        if not isinstance(error, BrokenInvariantError):
            loop.default_exception_handler(context)
        elif not self._stopped.done():
            self._stopped.set_exception(error)

    def _stop(self, effect: StopEffect) -> None:
        if not self._stopped.done():
            self._stopped.set_result(effect.reason)
