"""The core of one worker's agent: its session, tasks, objects and code, and how it leaves. Events in, effects out.

    scheduler ──── messages ────▶ ┌───────────┐
    processors ───── frames ────▶ │ AgentCore │ ──▶ effects ──▶ shell
    fork server ──── reports ───▶ │           │
    files, clock, signals ──────▶ │           │
    other workers ── messages ──▶ └───────────┘
                         PeerSession · TaskFlow · WorkerObjects · CodeSets

Rules:
- Sans-IO: `on_<event>` methods change state and append to `effects`, which the shell performs. The only input that is
  read rather than passed in is the progress page, through which processors report without a system call which task they
  run.
- After a round of events the shell calls `finish_turn` once, so that one TaskResult carries the outcomes of all
  processors. `next_time` says when `on_time` has to be called.
- Messages that follow the scheduler's Welcome are kept until it is known where objects are (`OpenObjects`).
- When a session ends, its tasks are dropped, because they run elsewhere, and nothing of it is sent any more.
- A leaving worker ignores all other events. Before it leaves it drains, unless it is to stop at once: see `departure`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, Type

from scaler.values.code_notes import CodeNote
from scaler.worker import frames
from scaler.worker.agent.core.agent_identity import AgentIdentity, Chance, hello_of, offer_transfers
from scaler.worker.agent.core.code_sets import CodeSets
from scaler.worker.agent.core.departure import Departure
from scaler.worker.agent.core.effects import (
    CRITICAL,
    DEBUG,
    ERROR,
    INFO,
    WARNING,
    Effect,
    EndProcessors,
    Finish,
    ImportModule,
    Log,
    MeasureProcesses,
    OpenObjects,
    RemoveLeftovers,
    Send,
)
from scaler.worker.agent.core.finished_tasks import TooLargePayload
from scaler.worker.agent.core.heartbeats import HeartbeatFigures, ProcessUsage
from scaler.worker.agent.core.session_reports import report_of_end, report_of_interruption
from scaler.worker.agent.core.task_flow import TICK_SECONDS, TaskFlow, TaskFlowSettings
from scaler.worker.agent.core.transfers.data_events import DataEvents
from scaler.worker.agent.core.worker_objects import WorkerObjects
from scaler.worker.exit_codes import EXIT_ERROR, EXIT_OK
from scaler.worker.frames import Frame, FrameError, FrameKind
from scaler.worker.served_functions import ServedFunctions
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m
from scaler_protocol.session.effects import Disconnect, Ended, Interrupted, Opened, SessionEffect, Transmit
from scaler_protocol.session.features import DRAIN_REQUESTS
from scaler_protocol.session.peer_session import NEVER, PeerSession, SessionSettings
from scaler_protocol.session.session_table import SessionState

LEAVE_TIMEOUT_SECONDS = 1.0
"""How long a leaving worker waits for the scheduler's answer."""

_OPEN, _ASKING, _DRAINING = SessionState.OPEN, SessionState.ASKING, SessionState.DRAINING
_FIRST_PAUSE_SECONDS = 0.1
_MAXIMUM_PAUSE_SECONDS = 2.0


class AgentCore(DataEvents):
    """The decisions of one worker's agent.

    Parameters:
        progress: gives the progress entry of a processor number.
        too_large_payload: see `FinishedTasks`.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        identity: AgentIdentity,
        progress: Callable[[int], memoryview],
        too_large_payload: TooLargePayload,
        chance: Chance,
    ) -> None:
        self.effects: List[Effect] = []
        self.next_time = NEVER
        """When `on_time` has to be called at the latest."""
        self._settings = settings
        self._served = ServedFunctions(settings.functions, settings.only_named)
        self.objects = WorkerObjects(self.effects, chance.numbers)
        self._code = CodeSets(self.objects, self.effects)
        flow_settings = TaskFlowSettings(
            settings.slots, identity.name, settings.task_timeout_seconds, settings.only_named
        )
        self.tasks = TaskFlow(flow_settings, progress, self.objects, self.effects, too_large_payload, self._code)
        self.objects.listener = self.tasks
        self._figures = HeartbeatFigures(identity.process_id, self.tasks)
        self._session_effects: List[SessionEffect] = []
        self._hello = hello_of(settings, identity, self._served.names)
        self.session = PeerSession(
            self._hello,
            SessionSettings(
                heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
                give_up_seconds=settings.death_timeout_seconds,
                leave_timeout_seconds=LEAVE_TIMEOUT_SECONDS,
                first_pause_seconds=_FIRST_PAUSE_SECONDS,
                maximum_pause_seconds=_MAXIMUM_PAUSE_SECONDS,
            ),
            self._session_effects,
            self._make_heartbeat,
            chance.random,
        )
        self._unanswered_openings = 0  # OpenObjects effects
        self._early: List[Tuple[m.Message, bytes]] = []  # messages that came while objects were opened
        self._usages: Mapping[int, ProcessUsage] = {}
        self._free_bytes = 0
        self._is_measuring = False
        self._is_unreachable = False  # a failed connection has been logged
        self._tick_at = self._garbage_at = NEVER
        self._reported_suspended = 0
        self._clients_are_expected = False
        self._departure = Departure(settings)
        self._takes_drain_requests = False  # the scheduler
        self._is_leaving = False
        self._now = 0.0  # when the last message came
        self._exit_code = EXIT_OK
        self._handlers: Dict[Type[Any], Callable[[Any, bytes], None]] = {
            m.Task: self._on_task,
            m.TaskCancel: lambda message, _: self.tasks.on_cancel(message),
            m.BalanceRequest: lambda message, _: self.tasks.on_balance(message),
            m.ObjectInstruction: self._on_object_instruction,
            m.ObjectRequest: lambda message, _: self.objects.served.on_request(message),
            m.ObjectResponse: self.objects.on_response,
            m.Ticket: lambda message, _: self._on_ticket(message),
            m.HeartbeatEcho: lambda message, _: self.tasks.watch(message.is_watched),
            m.DisconnectRequest: self._on_told_to_drain,
        }

    # Life ----------------------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin: fork processors, and connect to the scheduler. `now`, here and below: seconds of a monotonic clock."""
        self.tasks.pool.fill()
        self._garbage_at = now + self._settings.garbage_collect_interval_seconds
        self._departure.start(now)
        self.session.start(now)
        self._follow_session(now)

    def take_effects(self) -> List[Effect]:
        """Take the effects, in order; the list belongs to the caller."""
        taken, self.effects[:] = list(self.effects), []
        return taken

    def on_signal(self, name: str, is_forwarded: bool, now: float) -> None:
        """A signal asks the program to end: the worker drains, and after a second one stops at once.

        Parameters:
            name: such as SIGTERM.
            is_forwarded: it came from the supervisor.
        """
        number = self._departure.count_signal(name, is_forwarded)
        if number == 1:
            self._drain_in_time(m.DrainCause.SIGNAL, f"asked to stop by {name}", now)
        elif number:
            self.on_stop_requested(f"asked to stop again by {name}", now)

    def on_notice(self, text: str, now: float) -> None:
        """Notice was given, perhaps once more, that the machine will be taken away: the worker drains."""
        if self._departure.is_first_notice():
            self._drain_in_time(m.DrainCause.NOTICE, text, now)

    def _drain_in_time(self, cause: m.DrainCause, reason: str, now: float) -> None:
        """Drain within the time that there is for it, or leave at once if there is none."""
        if self._is_leaving:
            return
        timeout_seconds = self._settings.drain_timeout_seconds
        text = f" within {timeout_seconds:g} s, then leaving; a second SIGTERM or Ctrl-C stops it at once"
        if self._drain(cause, reason, text, now, timeout_seconds > 0.0):
            self._departure.limit(now)
            self._plan()

    def _drain(self, cause: m.DrainCause, reason: str, how: str, now: float, has_time: bool = True) -> bool:
        """Begin to drain, or leave at once if there is no time or no way to: returns whether it drains.

        Parameters:
            how: its running tasks end, for the log.
        """
        state = self.session.state
        # SCL-SES-026
        if not has_time or not (state in (_ASKING, _DRAINING) or (state is _OPEN and self._takes_drain_requests)):
            self._leave(EXIT_OK, reason, now)
            return False
        self._departure.begin(reason, now)
        self.tasks.drain()
        self._log(INFO, f"Worker: {reason}" + (", leaving" if self.tasks.is_empty else f": finishing what runs{how}"))
        self.session.ask_to_drain(cause, reason)
        self._follow_session(now)
        return True

    def on_stop_requested(self, reason: str, now: float) -> None:
        """The worker is asked to leave at once; asked twice, it does not even wait for an answer to its goodbye."""
        if self._is_leaving:
            self._finish(self._exit_code)
        else:
            self._leave(EXIT_OK, reason, now)

    def on_fork_server_ended(self, now: float) -> None:
        if not self._is_leaving:
            self._log(CRITICAL, "Worker: the fork server, which forks and watches processors, has ended")
            self._leave(EXIT_ERROR, "the fork server has ended", now)

    def _leave(self, exit_code: int, reason: str, now: float) -> None:
        """Send a goodbye, and finish when it is answered, or after a timeout."""
        self._exit_code = exit_code
        self._log(INFO, f"Worker: {reason}, leaving")
        self._is_leaving = True
        self.tasks.pool.close()
        self.effects.append(EndProcessors())
        self.session.leave(now, reason)
        self._follow_session(now)

    def _finish(self, exit_code: int) -> None:
        self._is_leaving = True
        self.effects.append(Finish(exit_code))

    def _log(self, level: int, text: str) -> None:
        self.effects.append(Log(level, text))

    # Time ----------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Update when something is due next. Not done in each turn, to save time: being called early does no harm."""
        if self._is_leaving:
            self.next_time = self.session.next_time
        else:
            waits_for_answer = self.session.is_open and (self._is_measuring or self._unanswered_openings)
            session_time = NEVER if waits_for_answer else self.session.next_time
            due = min(self._departure.next_time, self.objects.transfers.next_time)
            self.next_time = min(session_time, self._tick_at, self._garbage_at, due)

    def on_time(self, now: float) -> None:
        """Do what is due now."""
        if not self.session.is_open:
            self.session.on_time(now)
            self._follow_session(now)
        elif now >= self.session.next_time and not self._is_measuring and not self._unanswered_openings:
            self._is_measuring = True  # for the heartbeat that is due
            self.effects.append(MeasureProcesses(self._figures.process_ids()))
        if not self._is_leaving:
            reason = self._departure.due(now, self._is_idle)
            if reason is not None:
                self._drain(*reason, ", then leaving", now)
        if not self._is_leaving:
            if now >= self._tick_at:
                self._tick_at = NEVER
                self.tasks.tick(now)
            if now >= self.objects.transfers.next_time:
                self.objects.transfers.watch(now)
            if now >= self._garbage_at:
                settings = self._settings
                self._garbage_at = now + settings.garbage_collect_interval_seconds
                self.tasks.collect_garbage(now, settings.object_retention_seconds, settings.trim_memory_threshold_bytes)
        self._plan()

    def on_processes_measured(self, usages: Mapping[int, ProcessUsage], free_bytes: int, now: float) -> None:
        """Figures by process id, and memory of the host that could be used."""
        self._is_measuring = False
        self._usages, self._free_bytes = usages, free_bytes
        self.session.on_time(now)
        self._follow_session(now)

    def on_memory_measured(self, resident_bytes: Mapping[int, int]) -> None:
        """Resident memory by process id, without shared memory."""
        if not self._is_leaving:
            self.tasks.on_memory_measured(resident_bytes)

    def _beat_soon(self, now: float) -> None:
        self.session.beat_soon(now)
        self._plan()

    def _make_heartbeat(self, now: float) -> m.Heartbeat:
        return self._figures.heartbeat(now, self._usages, self._free_bytes, self.objects.is_shared)

    @property
    def _is_idle(self) -> bool:
        """Whether there are no tasks here, nor may be any among the messages that wait."""
        return self.tasks.is_empty and not self._unanswered_openings

    def finish_turn(self, now: float) -> None:
        """Process the consequences of the events since the last turn."""
        if self._is_leaving:
            return
        tasks = self.tasks
        tasks.finish_turn(now)
        if self._tick_at == NEVER and tasks.needs_tick:
            self._tick_at = now + TICK_SECONDS
            self._plan()
        if tasks.pool.suspended != self._reported_suspended:
            self._reported_suspended = tasks.pool.suspended
            self._beat_soon(now)  # tell the scheduler how many slots are free
        departure = self._departure
        if departure.watches_idleness and departure.note_idleness(self.session.state is _OPEN and self._is_idle, now):
            self._plan()
        # With an opening unanswered, there may be tasks among the early messages.
        if self.session.state is _DRAINING and tasks.is_empty and not self._unanswered_openings:
            if not self.objects.owes_results:  # SCL-OBJ-023
                self.session.drained(now)
                self._follow_session(now)
        if now >= departure.tasks_end_at and not self._is_leaving:
            if departure.is_over(now, self.objects.owes_results):
                self._leave(EXIT_OK, departure.text_of_end(now), now)
            else:
                self._plan()

    # The session ---------------------------------------------------------------------------------------------------

    def on_connected(self, now: float, data_address: str = "", data_key: bytes = b"") -> None:
        """An attempt to connect has succeeded.

        Parameters:
            data_address: where this worker can be reached by others; empty: nowhere.
            data_key: its public key there; empty: it has none.
        """
        self._is_unreachable = False
        offer_transfers(self._hello, data_address, data_key)
        self.objects.data_address = data_address
        self._hello.remaining_milliseconds = self._departure.remaining_milliseconds(now)
        self.session.on_connected(now)
        self._follow_session(now)

    def on_connect_failed(self, reason: str, now: float) -> None:
        # Logged once as a warning, and again when the worker gives up.
        self._log(DEBUG if self._is_unreachable else WARNING, f"Worker: {reason}: trying again")
        self._is_unreachable = True
        self.session.on_connect_failed(now, reason)
        self._follow_session(now)

    def on_disconnected(self, reason: str, now: float) -> None:
        """The connection has ended, and not because the core closed it."""
        self.session.on_disconnected(now, reason)
        self._follow_session(now)

    def on_message(self, message: m.Message, payload: bytes, now: float) -> None:
        """A message from the scheduler."""
        self._now = now
        is_for_us = self.session.on_message(now, message)
        if self._session_effects:
            self._follow_session(now)
        if not is_for_us:
            return
        if isinstance(message, m.Task):
            self.session.made_progress(now)
        if self._unanswered_openings:
            self._early.append((message, payload))
        else:
            self._handle(message, payload, now)

    def _handle(self, message: m.Message, payload: bytes, now: float) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            # SCL-VER-001
            self._log(DEBUG, f"Worker: a {type(message).__name__} is not for workers, ignored")
            return
        try:
            handler(message, payload)
        except MalformedMessageError as error:
            text = f"the scheduler's messages contradict each other ({error})"
            self._log(ERROR, f"Worker: {text}, reconnecting")
            self.session.interrupt(now, text)
            self._follow_session(now)

    def _follow_session(self, now: float) -> None:
        """Process the session's effects; the shell performs those that concern the connection."""
        while self._session_effects:
            taken, self._session_effects[:] = list(self._session_effects), []
            for effect in taken:
                if isinstance(effect, Transmit):
                    self.effects.append(Send(effect.message))
                elif isinstance(effect, Opened):
                    self._on_opened(effect.welcome)
                elif isinstance(effect, Interrupted):
                    self.effects.append(report_of_interruption(effect, self._settings.address))
                elif isinstance(effect, Ended):
                    self._on_ended(effect)
                else:
                    if isinstance(effect, Disconnect):
                        self._forget_session()
                    self.effects.append(effect)
        self._plan()

    def _on_opened(self, welcome: m.Welcome) -> None:
        self._takes_drain_requests = DRAIN_REQUESTS in welcome.features
        self.tasks.reset(welcome.limits.maximum_message_bytes)
        self.objects.start_session(welcome)
        self._unanswered_openings += 1
        self.effects.append(OpenObjects(welcome.object_directory, welcome.object_directory_token))

    def on_objects_opened(self, is_shared: bool, write_prefix: str, now: float) -> None:
        """Whether this host sees the scheduler's object directory, and how the paths of large results begin."""
        self._unanswered_openings -= 1
        if self._is_leaving or self._unanswered_openings or not self.session.is_open:
            return  # it belongs to a session that has ended
        self.objects.open(is_shared, write_prefix)
        self.tasks.pool.tell_prefix(write_prefix)
        sharing = "shares the scheduler's memory" if is_shared else "has a memory of its own"
        self._log(INFO, f"Worker: connected as session {self.session.number}, {sharing}")
        self._plan()
        early, self._early = self._early, []
        for message, payload in early:
            if self.session.is_open:
                self._handle(message, payload, now)

    def _forget_session(self) -> None:
        """The tasks and objects of the session end with it, at once: a task that ends later must not start another
        one."""
        # SCL-WRK-028
        self._early.clear()
        self.tasks.reset()
        for effect in self.effects:
            message = effect.message if isinstance(effect, Send) else None
            # These objects were never announced, so only this worker can remove their files.
            if isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.CREATE:
                self.objects.discard(message.ids)
        self.objects.forget_all()
        self.effects[:] = [effect for effect in self.effects if not isinstance(effect, Send)]

    def _on_ended(self, effect: Ended) -> None:
        log, exit_code = report_of_end(effect, self._settings)
        if log is not None:
            self.effects.append(log)
        self._finish(self._exit_code if exit_code is None else exit_code)

    # SCL-SES-020
    def _on_told_to_drain(self, request: m.DisconnectRequest, payload: bytes) -> None:
        text = request.message or "draining"
        if request.drain_cause in (m.DrainCause.UNKNOWN, m.DrainCause.OPERATOR):  # others are its own, and logged
            self._log(INFO, f"Worker: finishing what runs, then leaving: {text}")
        self._departure.begin(text, self.session.heard_at)
        self.tasks.drain()

    # From the scheduler --------------------------------------------------------------------------------------------

    def _on_task(self, message: m.Task, payload: bytes) -> None:
        if not message.function:
            definition = self._served.definition(message.function_name, message.codec)
            named = self.objects.named_functions
            if named.are_many:
                self.tasks.on_object_deleted(named.forget(self.tasks.needed_objects()))
            message.function = named.id_of(definition)
        else:
            message.function_name = ""  # what a client sends runs under no name
        self.tasks.on_tasks(message, payload)

    def _on_object_instruction(self, message: m.ObjectInstruction, payload: bytes) -> None:
        deleted = self.objects.on_instruction(message, payload)
        if deleted:
            self.tasks.on_object_deleted(set(deleted))

    # Other workers -------------------------------------------------------------------------------------------------

    def _on_ticket(self, ticket: m.Ticket) -> None:
        self.objects.transfers.on_ticket(ticket, self._now)
        self._plan()

    # From processors and the fork server ---------------------------------------------------------------------------

    def on_frames(self, number: int, received: Sequence[Frame]) -> None:
        """A frame from a processor."""
        if self._is_leaving:
            return
        tasks = self.tasks
        try:
            for frame in received:
                if frame.kind == FrameKind.RESULTS:
                    tasks.on_results(number, frames.parse_results(frame.flags, frame.body))
                elif frame.kind == FrameKind.GIVEN_BACK:
                    tasks.on_given_back(number, frames.parse_given_back(frame.body))
                elif frame.kind == FrameKind.BLOCKED:
                    self._expect_clients()
                    tasks.on_blocked(number)
                elif frame.kind == FrameKind.RESUMED:
                    tasks.on_resumed(number)
                elif frame.kind == FrameKind.LOG:
                    tasks.on_log(number, *frames.parse_log(frame.body))
                else:
                    raise FrameError(f"a frame of unknown kind {frame.kind}")
        except FrameError as error:
            self._replace_broken(number, str(error))

    def on_processor_broken(self, number: int, why: str) -> None:
        """A processor has sent an invalid frame."""
        self._replace_broken(number, why)

    def _replace_broken(self, number: int, why: str) -> None:
        if not self._is_leaving:
            self._log(ERROR, f"{self.processor_name(number)}: {why}; replacing it")
            self.tasks.on_processor_broken(number, why)

    def _expect_clients(self) -> None:
        """A task uses a client, so others probably will: processors forked from now on have it imported."""
        if not self._clients_are_expected:
            self._clients_are_expected = True
            self.effects.append(ImportModule("scaler.client"))

    def on_processor_started(self, number: int, process_id: int) -> None:
        if not self._is_leaving:
            self.tasks.on_processor_started(number, process_id)
            level = INFO if number < self._settings.slots else DEBUG  # the others are spares
            self._log(level, f"{self.processor_name(number)} started")

    def on_processor_died(self, number: int, description: str, now: float, stack: str = "") -> None:
        """A processor ended as described ("was ended by signal 9 (SIGKILL)"), after all its frames were processed.

        Parameters:
            stack: where its task was, if that was requested and is known.
        """
        state = self.tasks.pool.get(number)
        if self._is_leaving or state is None:
            return
        name, reason = self.processor_name(number), state.kill_reason
        if not state.killed:
            self._log(WARNING, f"{name}: process {state.process_id} {description}")
        elif reason is not None:
            level = DEBUG if reason.kind is None else INFO  # a cancellation is nothing unusual
            self._log(level, f"{name}: process {state.process_id}: {reason.message}. {stack}")
        if state.process_id:
            self.effects.append(RemoveLeftovers(state.process_id))
        self.tasks.on_processor_died(number, description, now, stack)
        if self.tasks.is_watched:
            self._beat_soon(now)  # so that monitors learn of its successor before the tasks that it runs

    def processor_name(self, number: int) -> str:
        """The name of a processor for display: its slot's, if each slot has one."""
        names = self._settings.names
        return names[number] if len(names) > 1 and number < len(names) else f"Processor[{number}]"

    # From files ----------------------------------------------------------------------------------------------------

    def on_note_read(self, function: int, note: CodeNote) -> None:
        self._code.on_note_read(function, note)
        self.tasks.on_object_available(function)

    def on_code_unpacked(self, digest: str, folder: str) -> None:
        for object_id in self._code.on_unpacked(digest, folder):
            self.tasks.on_object_available(object_id)

    def on_code_failed(self, digest: str, why: str) -> None:
        self.tasks.on_code_failed(self._code.on_unpacked(digest, ""), why)
