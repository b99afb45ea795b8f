"""The agent: connects one worker to the scheduler, and its core to processors, clocks and signals.

    scheduler ◀─ connection ─▶ agent ◀─ handles ─▶ processors
                                 ▲ │
                  core, objects ─┘ └─▶ nursery

Rules:
- No user code runs here, so the agent answers whatever user code does. - Events change the core and the
object store; what follows from a round of events is done once, in `_turn`. So one TaskResult carries what
all processors delivered in the meantime. - An exception that nobody foresaw ends the worker, loudly: its
tasks are run elsewhere, which is better than a worker that half works. - However the worker ends, nothing
stays behind: the nursery sees to that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Type

from scaler.version import __version__
from scaler.worker import frames
from scaler.worker.agent_core import TICK_SECONDS, AgentCore, CoreSettings
from scaler.worker.connection import Connection
from scaler.worker.effects import Deliver, Effect, Kill, Send, Spawn, Stop
from scaler.worker.frames import Frame, Kind
from scaler.worker.nursery import Event, NurseryClient, Report
from scaler.worker.object_store import ObjectStore
from scaler.worker.processor_handle import ProcessorHandle
from scaler.worker.resident_memory import resident_bytes
from scaler.worker.shared_progress import ProgressPage
from scaler.worker.statistics import ProcessStatistics, free_memory_bytes
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m

logger = logging.getLogger("scaler")

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_REFUSED = 4
EXIT_NO_SCHEDULER = 5

WELCOME_TIMEOUT_SECONDS = 10.0
"""A Hello without an answer for so long is said again, on a new connection."""

GOODBYE_TIMEOUT_SECONDS = 1.0
DEFAULT_TIMEOUT_SECONDS = 60.0
CODEC = "cloudpickle"


class Agent:
    """One worker's agent.

    Parameters:
        nursery: the control socket of a nursery that was forked before.
        page: the progress page that was made before that.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        nursery: NurseryClient,
        page: ProgressPage,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._nursery = nursery
        self._loop = loop
        self._host = socket.gethostname()
        self._name = settings.names[0] if len(settings.names) == 1 else f"{self._host}-{os.getpid()}"
        self._effects: List[Effect] = []
        self._objects = ObjectStore(self._effects, nursery.remove_at_end)
        core_settings = CoreSettings(settings.slots, self._name, settings.task_timeout_seconds)
        self._core = AgentCore(core_settings, page.entry, self._objects, self._effects, resident_bytes)
        self._objects.on_available = self._core.on_object_available
        self._objects.on_missing = self._core.on_object_missing
        self._objects.on_served = self._core.on_object_served
        self._handles: Dict[int, ProcessorHandle] = {}
        self._connection = Connection(loop, settings.address, settings.io_threads, self._on_message)
        self._statistics = ProcessStatistics()
        self._finished: asyncio.Future[int] = loop.create_future()
        self._turn_scheduled = False
        self._tick_scheduled = False
        self._session = 0  # 0: not welcomed (yet)
        self._previous_session = 0
        self._timeout_seconds = DEFAULT_TIMEOUT_SECONDS
        self._heartbeat_seconds = settings.heartbeat_interval_seconds
        self._heartbeat_sequence = 0
        self._heartbeat_sent_at = 0.0
        self._latency_microseconds = 0
        self._suspended_reported = 0
        self._clients_expected = False
        self._last_heard = self._hello_sent_at = time.monotonic()
        self._leaving = False
        self._draining = False
        self._exit_code = EXIT_OK
        self._message_handlers: Dict[Type[Any], Callable[[Any, bytes], None]] = {
            m.Task: self._on_task,
            m.TaskCancel: lambda message, _: self._core.on_cancel(message),
            m.BalanceRequest: lambda message, _: self._core.on_balance(message),
            m.ObjectInstruction: self._on_object_instruction,
            m.ObjectRequest: lambda message, _: self._objects.on_request(message),
            m.ObjectResponse: self._objects.on_response,
            m.Heartbeat: self._on_heartbeat,
            m.HeartbeatEcho: self._on_heartbeat_echo,
        }

    # Life ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve the scheduler until told to stop; the exit code of the program."""
        loop = self._loop
        loop.set_exception_handler(self._on_unforeseen)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_reader(self._nursery.fileno(), self._on_nursery)
        if self._settings.exit_when_stdin_closes:
            self._watch_stdin()
        self._core.pool.fill()
        self._perform()
        self._greet()
        self._heartbeat_timer()
        self._garbage_timer()
        try:
            return loop.run_until_complete(self._finished)
        finally:
            self._close()

    def _close(self) -> None:
        self._end_processors()
        for handle in self._handles.values():
            handle.close()
        self._objects.close()
        self._connection.close(0 if self._leaving else int(GOODBYE_TIMEOUT_SECONDS * 1000))

    def _end_processors(self) -> None:
        """Close the nursery's control socket: it kills all processors and ends."""
        self._core.pool.close()
        if self._nursery.fileno() >= 0:
            self._loop.remove_reader(self._nursery.fileno())
            self._nursery.close()

    def _finish(self, exit_code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(exit_code)

    def _leave(self, exit_code: int, reason: str) -> None:
        """Say goodbye, and finish when it was heard, or soon."""
        if self._leaving:
            return
        self._leaving = True
        logger.info("Worker: %s, leaving", reason)
        self._perform()
        self._end_processors()
        self._exit_code = exit_code
        self._connection.send(m.DisconnectRequest(reason=m.DisconnectReason.LEAVING, message=reason))
        self._loop.call_later(GOODBYE_TIMEOUT_SECONDS, self._finish, exit_code)

    def _on_signal(self, number: int) -> None:
        if self._leaving:
            self._finish(EXIT_OK)  # asked twice: at once
        self._leave(EXIT_OK, f"asked to stop by {signal.Signals(number).name}")

    def _on_unforeseen(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        logger.critical("Worker: %s", context["message"], exc_info=context.get("exception"))
        self._finish(EXIT_ERROR)

    def _watch_stdin(self) -> None:
        def read() -> None:
            try:
                if os.read(0, 4096):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            self._loop.remove_reader(0)
            self._leave(EXIT_OK, "standard input was closed")

        self._loop.add_reader(0, read)

    # Session ------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        """Start a new session: a new connection, and Hello."""
        self._previous_session, self._session = self._session or self._previous_session, 0
        self._connection.open()
        self._hello_sent_at = time.monotonic()
        language = f"Python {platform.python_version()} ({platform.python_implementation()})"
        self._connection.send(
            m.Hello(
                major=PROTOCOL_MAJOR,
                minor_min=PROTOCOL_MINOR_MIN,
                minor_max=PROTOCOL_MINOR_MAX,
                role=m.Role.WORKER,
                implementation=m.Implementation(name="scaler", version=__version__, language=language),
                codecs=[CODEC],
                host=self._host,
                process_id=os.getpid(),
                name=self._name,
                slots=self._settings.slots,
                queue_size=self._settings.per_worker_queue_size,
                previous_session=self._previous_session,
                heartbeat_interval_milliseconds=int(self._settings.heartbeat_interval_seconds * 1000),
            )
        )

    def _on_welcome(self, welcome: m.Welcome) -> None:
        if self._session:
            return
        self._session = welcome.session
        self._core.reset()
        self._objects.start_session(welcome)
        if welcome.timeout_milliseconds:
            self._timeout_seconds = welcome.timeout_milliseconds / 1000
        if welcome.heartbeat_interval_milliseconds:
            self._heartbeat_seconds = welcome.heartbeat_interval_milliseconds / 1000
        prefix = self._objects.write_prefix
        for handle in self._handles.values():
            handle.send(frames.object_directory_frame(prefix))
        sharing = "shares the scheduler's memory" if self._objects.shared else "has a memory of its own"
        logger.info("Worker: connected as session %d, %s", welcome.session, sharing)
        self._send_heartbeat()

    def _on_refusal(self, refusal: m.Refusal) -> None:
        if refusal.reason == m.RefusalReason.NOT_GREETED:
            if self._session:
                logger.warning("Worker: the scheduler does not know this worker (any more), connecting anew")
                self._greet()
        elif refusal.reason == m.RefusalReason.SHUTTING_DOWN:
            self._session = 0  # another scheduler may come: Hello is said again, until the death timeout
        else:
            reason = getattr(refusal.reason, "name", str(refusal.reason))
            logger.error("Worker: refused by the scheduler (%s): %s", reason, refusal.message)
            self._finish(EXIT_REFUSED)

    def _on_disconnect_request(self, request: m.DisconnectRequest) -> None:
        if request.reason == m.DisconnectReason.DRAINING:
            self._draining = True
            self._schedule_turn()
            return
        logger.info("Worker: the scheduler asks to stop: %s", request.message or "shutdown")
        self._connection.send(m.DisconnectResponse())
        self._finish(EXIT_OK)

    # Messages -----------------------------------------------------------------------------------------------

    def _on_message(self, message: m.Message, payload: bytes) -> None:
        self._last_heard = time.monotonic()
        handler = self._message_handlers.get(type(message))
        if handler is not None:
            if not self._session or self._leaving:
                return
            try:
                handler(message, payload)
            except ValueError as error:
                logger.error("Worker: the scheduler contradicts itself (%s), connecting anew", error)
                self._greet()
            self._schedule_turn()
        elif isinstance(message, m.Welcome):
            self._on_welcome(message)
            self._schedule_turn()
        elif isinstance(message, m.Refusal):
            self._on_refusal(message)
        elif isinstance(message, m.DisconnectRequest):
            self._on_disconnect_request(message)
        elif isinstance(message, m.DisconnectResponse):
            if self._leaving:
                self._finish(self._exit_code)
        else:
            logger.debug("Worker: a %s is not for workers, ignored", type(message).__name__)

    def _on_task(self, message: m.Task, payload: bytes) -> None:
        self._core.on_tasks(message, payload)

    def _on_object_instruction(self, message: m.ObjectInstruction, payload: bytes) -> None:
        deleted = self._objects.on_instruction(message, payload)
        if deleted:
            self._core.on_object_deleted(set(deleted))

    def _on_heartbeat(self, message: m.Heartbeat, payload: bytes) -> None:
        self._connection.send(m.HeartbeatEcho(sequence=message.sequence))

    def _on_heartbeat_echo(self, message: m.HeartbeatEcho, payload: bytes) -> None:
        if message.sequence == self._heartbeat_sequence:
            self._latency_microseconds = int((time.monotonic() - self._heartbeat_sent_at) * 500_000)

    # Processors ---------------------------------------------------------------------------------------------

    def _on_frames(self, number: int, received: List[Frame]) -> None:
        core = self._core
        try:
            for frame in received:
                if frame.kind == Kind.RESULTS:
                    core.on_results(number, frames.parse_results(frame.flags, frame.body))
                elif frame.kind == Kind.GIVEN_BACK:
                    core.on_given_back(number, frames.parse_given_back(frame.body))
                elif frame.kind == Kind.BLOCKED:
                    self._expect_clients()
                    core.on_blocked(number)
                elif frame.kind == Kind.RESUMED:
                    core.on_resumed(number)
                elif frame.kind == Kind.LOG:
                    core.on_log(number, *frames.parse_log(frame.body))
                else:
                    raise frames.FrameError(f"a frame of unknown kind {frame.kind}")
        except frames.FrameError as error:
            logger.error("%s: %s; it is replaced", self._processor_name(number), error)
            state = core.pool.get(number)
            if state is not None:
                core.pool.kill(state)
        self._schedule_turn()

    def _expect_clients(self) -> None:
        """Some task uses a client, and others will: processors forked from now on shall have it imported."""
        if not self._clients_expected:
            self._clients_expected = True
            self._nursery.import_module("scaler.client")

    def _on_nursery(self) -> None:
        reports = self._nursery.reports()
        if reports is None:
            logger.critical("Worker: the nursery, which forks and watches processors, has ended")
            self._leave(EXIT_ERROR, "the nursery has ended")
            return
        for report in reports:
            self._on_report(report)
        self._schedule_turn()

    def _on_report(self, report: Report) -> None:
        if report.event == Event.SPAWNED:
            self._core.on_processor_started(report.number, report.process_id)
            level = logging.INFO if report.number < self._settings.slots else logging.DEBUG  # else a spare
            logger.log(level, "%s started", self._processor_name(report.number))
            return
        handle = self._handles.pop(report.number, None)
        if handle is None:
            return
        handle.read_rest()
        handle.close()
        text = report.text if report.event == Event.FAILED else _describe_end(report.status)
        state = self._core.pool.get(report.number)
        if not self._leaving and not (state is not None and state.killed):
            logger.warning("%s: process %d %s", self._processor_name(report.number), report.process_id, text)
        self._objects.remove_leftovers(f"{report.process_id}-")
        self._core.on_processor_died(report.number, text)

    def _processor_name(self, number: int) -> str:
        names = self._settings.names
        return names[number] if len(names) > 1 and number < len(names) else f"Worker[{number}]"

    # Doing --------------------------------------------------------------------------------------------------

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """What follows from the events since the last turn."""
        self._turn_scheduled = False
        if self._leaving:
            self._effects.clear()
            return
        self._core.finish_turn(time.monotonic())
        self._perform()
        if self._core.needs_tick and not self._tick_scheduled:
            self._tick_scheduled = True
            self._loop.call_later(TICK_SECONDS, self._tick)
        if self._core.pool.suspended != self._suspended_reported and self._session:
            self._send_heartbeat()  # the scheduler shall know at once how many slots are free
        if self._draining and self._core.is_empty:
            self._connection.send(m.DisconnectResponse())
            self._finish(EXIT_OK)

    def _tick(self) -> None:
        self._tick_scheduled = False
        self._core.tick(time.monotonic())
        self._schedule_turn()

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
                    if self._session:
                        self._connection.send(effect.message, bytes(effect.payload))
                elif isinstance(effect, Spawn):
                    self._spawn(effect)
                elif isinstance(effect, Kill):
                    self._kill(effect.number)
                elif isinstance(effect, Stop):
                    self._handles[effect.number].send(frames.signal_frame(Kind.STOP))

    def _spawn(self, effect: Spawn) -> None:
        handle = self._handles[effect.number] = ProcessorHandle(self._loop, effect.number, self._on_frames)
        if self._session:
            handle.send(frames.object_directory_frame(self._objects.write_prefix))
        if effect.delay_seconds:
            self._loop.call_later(effect.delay_seconds, self._fork, handle)
        else:
            self._fork(handle)

    def _fork(self, handle: ProcessorHandle) -> None:
        if self._handles.get(handle.number) is handle and not self._leaving:
            name = f"{self._name} {self._processor_name(handle.number)}"
            handle.release_processor_end(lambda end: self._nursery.spawn(handle.number, name, end))

    def _kill(self, number: int) -> None:
        handle = self._handles.get(number)
        if handle is not None and handle.waits_for_fork:
            del self._handles[number]
            handle.close()
            self._core.on_processor_died(number, "was not started")
        elif not self._leaving:
            self._nursery.kill(number)

    # Timers -------------------------------------------------------------------------------------------------

    def _heartbeat_timer(self) -> None:
        self._loop.call_later(self._heartbeat_seconds, self._heartbeat_timer)
        if self._leaving:
            return
        now = time.monotonic()
        silence = now - self._last_heard
        if silence > self._settings.death_timeout_seconds:
            logger.error(
                "Worker: no scheduler answered at %s for %d seconds (death_timeout_seconds), giving up",
                self._settings.address,
                silence,
            )
            self._finish(EXIT_NO_SCHEDULER)
        elif self._session and silence > self._timeout_seconds:
            logger.warning("Worker: the scheduler has been silent for %d seconds, connecting anew", silence)
            self._greet()
        elif self._session:
            self._send_heartbeat()
        elif now - self._hello_sent_at > WELCOME_TIMEOUT_SECONDS:
            self._greet()

    def _send_heartbeat(self) -> None:
        now = time.monotonic()
        pool = self._core.pool
        self._suspended_reported = pool.suspended
        own = self._statistics.usage(os.getpid(), now)
        statuses = []
        for state in sorted(pool.states(), key=lambda state: state.number):
            usage = self._statistics.usage(state.process_id, now) if state.process_id else None
            status = m.ProcessorStatus(process_id=state.process_id, initialized=state.process_id > 0)
            status.has_task, status.suspended = bool(state.chunks), state.suspended
            status.queued = max(0, state.outstanding - 1)
            if usage is not None:
                status.cpu_permille, status.resident_bytes = usage
            statuses.append(status)
        self._statistics.keep_only([os.getpid(), *(state.process_id for state in pool.states())])
        self._heartbeat_sequence += 1
        self._heartbeat_sent_at = now
        self._connection.send(
            m.Heartbeat(
                sequence=self._heartbeat_sequence,
                shares_object_directory=self._objects.shared,
                cpu_permille=own.cpu_permille,
                resident_bytes=own.resident_bytes,
                free_bytes=free_memory_bytes(),
                latency_microseconds=self._latency_microseconds,
                queued=self._core.queue.count + self._core.waiting.count,
                processors=statuses,
            )
        )

    def _garbage_timer(self) -> None:
        settings = self._settings
        self._loop.call_later(settings.garbage_collect_interval_seconds, self._garbage_timer)
        self._core.collect_garbage(
            time.monotonic(), settings.object_retention_seconds, settings.trim_memory_threshold_bytes
        )
        self._schedule_turn()


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
