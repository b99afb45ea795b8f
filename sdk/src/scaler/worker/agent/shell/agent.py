"""The agent: connects one worker to the scheduler, and its core to processors, clocks and signals.

    scheduler ◀─ connection, session ─▶ agent ◀─ handles ─▶ processors
                                         ▲ │
                          core, objects ─┘ └─▶ fork server

Rules:
- No user code runs here, so the agent answers whatever user code does.
- Events change the core and the object store; what follows from a round of events is done once, in `_turn`.
  So one TaskResult carries what all processors delivered in the meantime.
- An exception that nobody foresaw ends the worker, loudly: its tasks are run elsewhere, which is better than
  a worker that half works.
- However the worker ends, nothing stays behind: the fork server sees to that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Type

from scaler.worker import frames
from scaler.worker.agent.core.code_sets import CodeSets
from scaler.worker.agent.core.effects import Deliver, Effect, KillProcessor, Send, SpawnProcessor, StopProcessor
from scaler.worker.agent.core.task_flow import TICK_SECONDS, AgentCore, CoreSettings
from scaler.worker.agent.core.worker_objects import ObjectStore
from scaler.worker.agent.shell.process_statistics import HeartbeatFigures
from scaler.worker.agent.shell.processor_handle import ProcessorHandle
from scaler.worker.agent.shell.rounds import Rounds
from scaler.worker.agent.shell.scheduler_connection import SchedulerConnection
from scaler.worker.agent.shell.session import Session
from scaler.worker.exit_codes import EXIT_ERROR, EXIT_NO_SCHEDULER, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from scaler.worker.fork_server.client import ForkServerClient, ForkServerReport, ReportKind
from scaler.worker.fork_server.stacks import user_stack
from scaler.worker.frames import Frame, FrameKind
from scaler.worker.progress_page import ProgressPage
from scaler.worker.resident_memory import private_bytes
from scaler.worker.served_functions import ServedFunctions
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import MAXIMUM_SESSION
from scaler_protocol import messages as m

# Programs of the second generation import `scaler.worker.agent.shell.agent.processor`: see `scaler.compat`.
__path__: List[str] = []

logger = logging.getLogger("scaler")

GOODBYE_TIMEOUT_SECONDS = 1.0


class Agent:
    """One worker's agent.

    Parameters:
        fork_server: the control socket of a fork server that was forked before.
        page: the progress page that was made before that.

    Raises AddressError when the scheduler's address is none.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        fork_server: ForkServerClient,
        page: ProgressPage,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._fork_server = fork_server
        self._loop = loop
        self._name = settings.names[0] if len(settings.names) == 1 else f"{socket.gethostname()}-{os.getpid()}"
        self._effects: List[Effect] = []
        self._served = ServedFunctions(settings.functions)
        self._objects = ObjectStore(self._effects, fork_server.remove_at_end)
        core_settings = CoreSettings(settings.slots, self._name, settings.task_timeout_seconds)
        code_sets = CodeSets(self._objects)
        self._core = AgentCore(core_settings, page.entry, self._objects, self._effects, private_bytes, code_sets)
        self._objects.on_available = self._core.on_object_available
        self._objects.on_missing = self._core.on_object_missing
        self._objects.on_no_room = self._core.on_no_room_for_object
        self._objects.on_served = self._core.on_object_served
        self._objects.on_unserved = self._core.on_object_unserved
        self._handles: Dict[int, ProcessorHandle] = {}
        # SCL-WRK-030
        self._rounds = Rounds(loop, self._turn)
        self._connection = SchedulerConnection(
            loop, self._rounds, settings.address, self._on_message, self._on_congestion, self._on_lost
        )
        figures = HeartbeatFigures(self._core, self._objects)
        self._session = Session(
            loop,
            settings,
            self._connection,
            self._name,
            self._served.names,
            figures.heartbeat,
            self._on_session_ended,
            lambda: self._finish(EXIT_NO_SCHEDULER),
        )
        self._write_prefix = ""  # of large results, as processors were told last
        self._finished: asyncio.Future[int] = loop.create_future()
        self._tick_scheduled = False
        self._suspended_reported = 0
        self._clients_expected = False
        self._leaving = False
        self._draining = False
        self._exit_code = EXIT_OK
        self._message_handlers: Dict[Type[Any], Callable[[Any, bytes], object]] = {
            m.Task: self._on_task,
            m.TaskCancel: lambda message, _: self._core.on_cancel(message),
            m.BalanceRequest: lambda message, _: self._core.on_balance(message),
            m.ObjectInstruction: self._on_object_instruction,
            m.ObjectRequest: lambda message, _: self._objects.on_request(message),
            m.ObjectResponse: self._objects.on_response,
            # SCL-SES-014
            m.Heartbeat: lambda message, _: self._session.send(m.HeartbeatEcho(sequence=message.sequence)),
            m.HeartbeatEcho: self._on_heartbeat_echo,
        }

    # Life ----------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve the scheduler until told to stop; the exit code of the program."""
        loop = self._loop
        loop.set_exception_handler(self._on_unforeseen)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        self._rounds.add_reader(self._fork_server.fileno(), self._on_fork_server)
        try:
            if self._settings.exit_when_stdin_closes:
                self._watch_stdin()
            self._core.pool.fill()
            self._perform()
            self._session.greet()
            self._start_garbage_timer()
            return loop.run_until_complete(self._finished)
        finally:
            self._close()

    def _close(self) -> None:
        self._end_processors()
        for handle in self._handles.values():
            handle.close()
        self._objects.close()
        self._connection.close(0 if self._leaving else GOODBYE_TIMEOUT_SECONDS)
        self._rounds.close()

    def _end_processors(self) -> None:
        """Close the fork server's control socket: it kills all processors and ends."""
        self._core.pool.close()
        if self._fork_server.fileno() >= 0:
            self._rounds.remove_reader(self._fork_server.fileno())
            self._fork_server.close()

    def _finish(self, exit_code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(exit_code)

    def _leave(self, exit_code: int, reason: str) -> None:
        """Say goodbye, and finish when it was heard, or soon."""
        if self._leaving:
            return
        self._leaving = True
        self._exit_code = exit_code
        logger.info("Worker: %s, leaving", reason)
        self._perform()
        self._end_processors()
        self._session.say_goodbye(reason)
        self._loop.call_later(GOODBYE_TIMEOUT_SECONDS, self._finish, exit_code)

    def _on_signal(self, number: int) -> None:
        if self._leaving:
            self._finish(self._exit_code)  # asked twice: at once
        self._leave(EXIT_OK, f"asked to stop by {signal.Signals(number).name}")

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        logger.critical("Worker: %s", context["message"], exc_info=context.get("exception"))
        self._finish(EXIT_ERROR)

    def _watch_stdin(self) -> None:
        try:
            self._loop.add_reader(0, self._read_stdin)
        except OSError:
            logger.error("--exit-when-stdin-closes needs a pipe or a terminal as standard input")
            self._finish(EXIT_USAGE)

    def _read_stdin(self) -> None:
        try:
            if os.read(0, 4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a terminal that hung up
        self._loop.remove_reader(0)
        self._leave(EXIT_OK, "standard input was closed")

    # From the scheduler --------------------------------------------------------------------------------------------

    def _on_message(self, message: m.Message, payload: bytes) -> None:
        self._session.heard()
        handler = self._message_handlers.get(type(message))
        if handler is not None:
            # SCL-SES-001
            if not self._session.number or self._leaving:
                return
            try:
                handler(message, payload)
            except ValueError as error:
                logger.error("Worker: the scheduler's messages contradict each other (%s), reconnecting", error)
                self._session.greet()
        elif isinstance(message, m.Welcome):
            self._on_welcome(message)
        elif isinstance(message, m.Refusal):
            self._on_refusal(message)
        elif isinstance(message, m.DisconnectRequest):
            self._on_disconnect_request(message)
        elif isinstance(message, m.DisconnectResponse):
            if self._leaving:
                self._finish(self._exit_code)
        else:
            # SCL-VER-001
            logger.debug("Worker: a %s is not for workers, ignored", type(message).__name__)

    def _on_welcome(self, welcome: m.Welcome) -> None:
        if self._session.number or self._leaving:
            return
        # SCL-SES-007
        if not 0 < welcome.session <= MAXIMUM_SESSION:
            logger.error(
                "Worker: the program at %s grants session %d, and sessions are from 1 to %d: it is not a Scaler"
                " scheduler, or an incompatible one",
                self._settings.address, welcome.session, MAXIMUM_SESSION,
            )  # fmt: skip
            self._finish(EXIT_REFUSED)
            return
        self._core.reset(welcome.limits.maximum_message_bytes)
        self._objects.start_session(welcome)
        self._session.welcomed(welcome)
        self._write_prefix = self._objects.write_prefix
        for handle in self._handles.values():
            handle.send(frames.object_directory_frame(self._write_prefix))
        sharing = "shares the scheduler's memory" if self._objects.shared else "has a memory of its own"
        logger.info("Worker: connected as session %d, %s", welcome.session, sharing)
        self._session.beat()

    def _on_session_ended(self) -> None:
        """What it was about is nobody's business any more, and its tasks are others'."""
        # SCL-WRK-028: at once, since a task that ends before the next Welcome would let one of them start.
        self._core.reset()
        for effect in self._effects:
            if isinstance(effect, Send):
                self._drop(effect.message)
        self._effects[:] = [effect for effect in self._effects if not isinstance(effect, Send)]
        self._loop.call_soon(self._turn)

    def _drop(self, message: m.Member) -> None:
        """The message is of a session that has ended: nobody knows of the files that it speaks of."""
        if isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.CREATE:
            self._objects.discard(message.ids)

    def _on_refusal(self, refusal: m.Refusal) -> None:
        # SCL-SES-009
        if refusal.reason == m.RefusalReason.NOT_GREETED:
            if self._session.number:
                logger.warning("Worker: the scheduler does not know this worker (any more), reconnecting")
                self._session.greet()
        elif refusal.reason == m.RefusalReason.SHUTTING_DOWN:
            self._session.ended()
        # SCL-SES-008, SCL-VER-004
        elif not self._leaving:
            reason = getattr(refusal.reason, "name", str(refusal.reason))
            logger.error("Worker: refused by the scheduler (%s): %s", reason, refusal.message)
            self._finish(EXIT_REFUSED)

    def _on_disconnect_request(self, request: m.DisconnectRequest) -> None:
        # SCL-SES-020
        if request.reason == m.DisconnectReason.DRAINING:
            if not self._draining:
                logger.info("Worker: finishing what runs, then leaving: %s", request.message or "draining")
            self._draining = True
            self._core.drain()
            return
        # SCL-SES-018, SCL-VER-004
        logger.info("Worker: the scheduler asks to stop: %s", request.message or "shutdown")
        self._connection.send(m.DisconnectResponse())
        self._finish(self._exit_code)

    def _on_heartbeat_echo(self, echo: m.HeartbeatEcho, payload: bytes) -> None:
        self._session.on_echo(echo)
        self._core.watch(echo.is_watched)

    def _on_task(self, message: m.Task, payload: bytes) -> None:
        if not message.function:
            definition = self._served.definition(message.function_name, message.codec)
            message.function = self._objects.named_function(definition)
        self._core.on_tasks(message, payload)

    def _on_object_instruction(self, message: m.ObjectInstruction, payload: bytes) -> None:
        deleted = self._objects.on_instruction(message, payload)
        if deleted:
            self._core.on_object_deleted(set(deleted))

    def _on_lost(self, reason: str) -> None:
        """The connection has ended: what its session was about is not ours any more."""
        # SCL-SES-023
        if self._leaving or self._draining:
            self._finish(self._exit_code)
            return
        if self._session.number:
            logger.warning("Worker: the connection to the scheduler was lost (%s), reconnecting", reason)
        self._session.greet()

    def _on_congestion(self, congested: bool) -> None:
        """The scheduler takes less than processors deliver: they wait, not our memory grows."""
        for handle in self._handles.values():
            handle.read_on(not congested)

    # From processors -----------------------------------------------------------------------------------------------

    def _on_frames(self, number: int, received: List[Frame]) -> None:
        core = self._core
        try:
            for frame in received:
                if frame.kind == FrameKind.RESULTS:
                    core.on_results(number, frames.parse_results(frame.flags, frame.body))
                elif frame.kind == FrameKind.GIVEN_BACK:
                    core.on_given_back(number, frames.parse_given_back(frame.body))
                elif frame.kind == FrameKind.BLOCKED:
                    self._expect_clients()
                    core.on_blocked(number)
                elif frame.kind == FrameKind.RESUMED:
                    core.on_resumed(number)
                elif frame.kind == FrameKind.LOG:
                    core.on_log(number, *frames.parse_log(frame.body))
                else:
                    raise frames.FrameError(f"a frame of unknown kind {frame.kind}")
        except frames.FrameError as error:
            self._on_broken(number, error)

    def _on_broken(self, number: int, error: frames.FrameError) -> None:
        logger.error("%s: %s; it is replaced", self._processor_name(number), error)
        self._core.on_processor_broken(number, str(error))

    def _expect_clients(self) -> None:
        """Some task uses a client, and others will: processors forked from now on shall have it imported."""
        if not self._clients_expected and not self._leaving:
            self._clients_expected = True
            self._fork_server.import_module("scaler.client")

    def _on_fork_server(self) -> None:
        reports = self._fork_server.reports()
        if reports is None:
            logger.critical("Worker: the fork server, which forks and watches processors, has ended")
            self._leave(EXIT_ERROR, "the fork server has ended")
            return
        for report in reports:
            self._on_report(report)

    def _on_report(self, report: ForkServerReport) -> None:
        if report.event == ReportKind.SPAWNED:
            self._core.on_processor_started(report.number, report.process_id)
            level = logging.INFO if report.number < self._settings.slots else logging.DEBUG  # else a spare
            logger.log(level, "%s started", self._processor_name(report.number))
            return
        handle = self._handles.pop(report.number, None)
        if handle is None:
            return
        handle.read_rest()
        handle.close()
        text = report.text if report.event == ReportKind.FAILED else _describe_end(report.status)
        state = self._core.pool.get(report.number)
        stack = user_stack(report.text) if report.event == ReportKind.DIED else ""
        name = self._processor_name(report.number)
        if state is not None and not state.killed:
            logger.warning("%s: process %d %s", name, report.process_id, text)
        elif state is not None and state.kill_reason is not None:
            level = logging.DEBUG if state.kill_reason.kind is None else logging.INFO  # a cancel is everyday life
            logger.log(level, "%s: process %d: %s. %s", name, report.process_id, state.kill_reason.message, stack)
        self._objects.remove_leftovers(f"{report.process_id}-")
        self._core.on_processor_died(report.number, text, time.monotonic(), stack)
        if self._core.is_watched and not self._leaving:
            self._session.beat_soon()  # so that monitors hear of its successor before of what that ran

    def _processor_name(self, number: int) -> str:
        names = self._settings.names
        return names[number] if len(names) > 1 and number < len(names) else f"Processor[{number}]"

    # Doing ---------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """What follows from the events since the last turn."""
        if self._leaving:
            self._effects.clear()
            return
        self._core.finish_turn(time.monotonic())
        self._perform()
        if self._core.needs_tick and not self._tick_scheduled:
            self._tick_scheduled = True
            self._loop.call_later(TICK_SECONDS, self._tick)
        if self._core.pool.suspended != self._suspended_reported:
            self._suspended_reported = self._core.pool.suspended
            self._session.beat_soon()  # the scheduler shall know how many slots are free
        if self._draining and self._core.is_empty:
            self._connection.send(m.DisconnectResponse())
            self._finish(EXIT_OK)

    def _tick(self) -> None:
        self._tick_scheduled = False
        self._core.tick(time.monotonic())
        self._turn()

    def _start_garbage_timer(self) -> None:
        self._loop.call_later(self._settings.garbage_collect_interval_seconds, self._collect_garbage)

    def _collect_garbage(self) -> None:
        settings = self._settings
        self._core.collect_garbage(
            time.monotonic(), settings.object_retention_seconds, settings.trim_memory_threshold_bytes
        )
        self._turn()
        self._start_garbage_timer()

    def _perform(self) -> None:
        effects = self._effects
        while effects:
            batch, effects[:] = list(effects), []
            for effect in batch:
                if isinstance(effect, Deliver):
                    handle = self._handles.get(effect.number)
                    if handle is not None:
                        handle.send(effect.buffers)
                elif isinstance(effect, Send):
                    if not self._session.send(effect.message, bytes(effect.payload)):
                        self._drop(effect.message)
                elif isinstance(effect, SpawnProcessor):
                    self._spawn(effect)
                elif isinstance(effect, KillProcessor):
                    self._kill(effect.number, effect.wants_stack)
                elif isinstance(effect, StopProcessor):
                    self._handles[effect.number].send(frames.signal_frame(FrameKind.STOP))

    def _spawn(self, effect: SpawnProcessor) -> None:
        handle = self._handles[effect.number] = ProcessorHandle(
            self._rounds, effect.number, self._on_frames, self._on_broken
        )
        handle.read_on(not self._connection.congested)
        if self._write_prefix:  # also between two sessions: tasks of the old one run on
            handle.send(frames.object_directory_frame(self._write_prefix))
        if effect.delay_seconds:
            self._loop.call_later(effect.delay_seconds, self._fork, handle)
        else:
            self._fork(handle)

    def _fork(self, handle: ProcessorHandle) -> None:
        if self._handles.get(handle.number) is handle and not self._leaving:
            name = f"{self._name} {self._processor_name(handle.number)}"
            handle.release_processor_end(lambda end: self._fork_server.spawn(handle.number, name, end))

    def _kill(self, number: int, wants_stack: bool) -> None:
        handle = self._handles.get(number)
        if handle is not None and handle.waits_for_fork:
            del self._handles[number]
            handle.close()
            self._core.on_processor_died(number, "was not started", time.monotonic())
        elif wants_stack and not self._leaving:
            self._fork_server.stop(number)
        elif not self._leaving:
            self._fork_server.kill(number)


def _describe_end(status: int) -> str:
    """How a process ended, for people."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "unknown"
        return f"was ended by signal {number} ({name})"
    return f"exited with code {os.WEXITSTATUS(status)}"


def make_event_loop(kind: str) -> asyncio.AbstractEventLoop:
    """An event loop, `builtin` or `uvloop`.

    Raises ImportError when uvloop is wanted and not there.
    """
    if kind == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()
