"""The agent's shell: passes events to the core, and performs its effects.

    workers ◀─── DataConnections ─────▶ ┌───────┐
    scheduler ◀── ResumingConnection ─▶ │       │ ◀─ ProcessorHandle ─▶ processors
                 signals, clock ──────▶ │ Agent │ ◀─ ForkServerClient ─▶ fork server
                 WorkerFiles ◀────────▶ └───────┘ ◀─▶ AgentCore

Rules:
- The core decides, and no user code runs here, so the agent stays responsive whatever user code does.
- Events change the core; the consequences of a round of events are processed once, in `_turn`.
- The time that is judged was taken before reading: after a stop of this process, what waits is read first.
- An error of the system costs what it concerns: a connection, a processor, an object.
- An exception that the environment does not explain is a bug of ours: the state may be half changed. Nothing more is
  done with it, and the program ends with its own exit code: its supervisor restarts it, and its tasks run elsewhere,
  which is better than a worker that only half works.
- When the worker ends for any reason, the fork server cleans up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Type

from scaler.data_serving.data_address import data_address_of
from scaler.data_serving.data_connections import NOWHERE, DataConnections
from scaler.data_serving.rounds import ERROR_PAUSE_SECONDS, Rounds
from scaler.data_serving.side_work import SideWork
from scaler.exceptions import ObjectStorageFullError
from scaler.values.failures import failure_payload
from scaler.values.texts import too_large
from scaler.worker import frames
from scaler.worker.agent.core.agent_core import AgentCore
from scaler.worker.agent.core.agent_identity import AgentIdentity, Chance
from scaler.worker.agent.core.dead_processors import FOR_LACK_OF_MEMORY
from scaler.worker.agent.core.effects import (
    Deliver,
    EndProcessors,
    Finish,
    ImportModule,
    KillProcessor,
    Log,
    MeasureMemory,
    MeasureProcesses,
    Send,
    SpawnProcessor,
    StopProcessor,
)
from scaler.worker.agent.shell import notice_file
from scaler.worker.agent.shell.agent_recording import RecordedAgentCore, agent_recorder
from scaler.worker.agent.shell.notice_address import NoticeAddress
from scaler.worker.agent.shell.process_statistics import ProcessStatistics, free_memory_bytes
from scaler.worker.agent.shell.processor_handle import ProcessorHandle
from scaler.worker.agent.shell.resuming_connection import ResumingConnection
from scaler.worker.agent.shell.worker_files import WorkerFiles
from scaler.worker.exit_codes import EXIT_BROKEN_INVARIANT, EXIT_ERROR, EXIT_USAGE
from scaler.worker.fork_server.fork_server_client import ForkServerClient, ForkServerReport, ReportKind
from scaler.worker.fork_server.stacks import user_stack
from scaler.worker.forwarded_signals import FORWARDED_AS
from scaler.worker.frames import FrameError, FrameKind
from scaler.worker.progress_page import ProgressPage
from scaler.worker.resident_memory import MemoryKills, private_bytes
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import messages as m
from scaler_protocol.host.interpreter import language
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.programs.event_loop import Completion, EventLoop, Timer
from scaler_protocol.programs.repeated_lines import report_repetitions
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.session.effects import Connect, Disconnect, StopConnecting
from scaler_protocol.session.object_numbers import SECRET_BYTES, object_numbers
from scaler_protocol.session.peer_session import NEVER

logger = logging.getLogger("scaler")

MAXIMUM_REPORT_FAILURES = 500
"""After so many failures in a row to read its reports the fork server counts as ended: some seconds."""

LOOK_INTERVAL_SECONDS = 1.0
"""How often the file is looked for by which the worker is told to drain."""

CLOSE_TIMEOUT_SECONDS = 1.0
"""How long to send waiting messages to the scheduler when the worker ends."""


class Agent:
    """One worker's agent.

    Parameters:
        fork_server: the control socket of a fork server, which is already running.
        page: the progress page, which was made before the fork server.
        service_manager: notified when the worker is ready, and that it works; None: there is none.

    Raises AddressError when the scheduler's address is malformed, RecordingPathError when the recording cannot be made.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        fork_server: ForkServerClient,
        page: ProgressPage,
        loop: EventLoop,
        service_manager: Optional[ServiceManager] = None,
    ) -> None:
        self._settings = settings
        self._fork_server = fork_server
        self._loop = loop
        self._service_manager = service_manager or ServiceManager("Worker", {})
        host = socket.gethostname()
        name = settings.names[0] if len(settings.names) == 1 else f"{host}-{os.getpid()}"
        self._identity = AgentIdentity(name, host, os.getpid(), language())
        self._recorder = agent_recorder(settings, self._identity)
        chance = Chance(random.random, object_numbers(os.urandom(SECRET_BYTES)))
        parts = settings, self._identity, page.entry, self._too_large_payload, chance
        recorder = self._recorder
        self._core = AgentCore(*parts) if recorder is None else RecordedAgentCore(*parts, recorder)
        self._is_broken = False
        self._statistics = ProcessStatistics()
        self._handles: Dict[int, ProcessorHandle] = {}
        self._memory_kills = MemoryKills()
        # SCL-WRK-030
        self._rounds = Rounds(loop, self._turn)
        credentials = Credentials(settings.address, settings.key_file, settings.insecure or None, "worker")
        self._credentials = credentials
        self._connection = ResumingConnection(self._rounds, loop, credentials, self)
        self._data_connections = DataConnections(self._rounds, loop, self)
        self._files = WorkerFiles(self._core, fork_server.remove_at_end, self._data_connections, SideWork(self._rounds))
        self._data_address = data_address_of(settings.data_address)
        self._notice_address: Optional[NoticeAddress] = None
        self._finished: Completion[int] = Completion(loop)
        self._timer: Optional[Timer] = None
        self._timer_at = NEVER
        self._has_ended_processors = False
        self._report_failures = 0  # in a row
        self._operations: Dict[Type[Any], Callable[[Any], None]] = {
            Connect: lambda _: self._connection.open(),
            StopConnecting: lambda _: self._connection.stop_connecting(),
            Disconnect: lambda _: self._connection.drop(),
            SpawnProcessor: self._spawn,
            KillProcessor: self._kill,
            StopProcessor: self._stop,
            ImportModule: lambda effect: self._fork_server.import_module(effect.name),
            EndProcessors: lambda _: self._end_processors(),
            MeasureProcesses: self._measure_processes,
            MeasureMemory: self._measure_memory,
            Log: lambda effect: logger.log(effect.level, "%s", effect.text),
            Finish: lambda effect: self._finish(effect.exit_code),
            **self._files.operations,
            **self._data_connections.operations,
        }

    # Life ----------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve the scheduler until asked to stop; returns the program's exit code."""
        loop = self._loop
        loop.set_exception_handler(self._on_unforeseen)
        for number, forwarded in FORWARDED_AS.items():
            loop.add_signal_handler(forwarded, self._on_signal, number, True)
            loop.add_signal_handler(number, self._on_signal, number, False)
        try:
            self._rounds.add_reader(self._fork_server.fileno(), self._on_fork_server)
            if self._settings.exit_when_stdin_closes:
                self._watch_stdin()
            self._expect_notice()
            self._core.start(time.monotonic())
            self._turn()
            self._service_manager.ready(f"connecting to {self._settings.address}")
            self._service_manager.watch(loop)
            return self._finished.wait()
        except Exception as error:
            self._break(f"{type(error).__name__}: {error}", error)
            return self._finished.result()
        finally:
            self._close()
            if self._recorder is not None:
                self._recorder.close()

    def _close(self) -> None:
        with contextlib.ExitStack() as steps:  # each is done, whatever happens in another
            if self._notice_address is not None:
                steps.callback(self._notice_address.close)
            steps.callback(self._rounds.close)
            steps.callback(self._connection.close, CLOSE_TIMEOUT_SECONDS)
            steps.callback(self._data_connections.close)
            steps.callback(self._files.close)
            for handle in self._handles.values():
                steps.callback(handle.close)
            steps.callback(self._end_processors)

    def _end_processors(self) -> None:
        """Close the fork server's control socket: it kills all processors and ends."""
        if not self._has_ended_processors:
            self._has_ended_processors = True
            self._rounds.remove_reader(self._fork_server.fileno())
            self._fork_server.close()

    def _finish(self, exit_code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(exit_code)

    def _on_signal(self, number: signal.Signals, is_forwarded: bool) -> None:
        self._core.on_signal(number.name, is_forwarded, time.monotonic())
        self._turn()

    def _expect_notice(self) -> None:
        """Let the worker be told to drain in the ways that its options name."""
        settings = self._settings
        if settings.drain_file is not None:
            self._loop.call_soon(self._look_for_notice, settings.drain_file)
        if settings.drain_signal is not None:
            number = signal.Signals[settings.drain_signal]
            self._loop.add_signal_handler(number, self._on_notice, f"notice by {number.name} (drain_signal)")
        if settings.drain_url is not None:
            self._notice_address = NoticeAddress(
                settings.drain_url,
                settings.drain_url_headers,
                settings.drain_url_text,
                lambda text: self._loop.call_soon_threadsafe(self._on_notice, text),
            )
            self._ask_for_notice(self._notice_address)

    def _ask_for_notice(self, address: NoticeAddress) -> None:
        if not address.start():
            self._loop.call_later(LOOK_INTERVAL_SECONDS, self._ask_for_notice, address)

    def _on_notice(self, text: str) -> None:
        if not self._is_broken:
            self._core.on_notice(text, time.monotonic())
            self._turn()

    def _look_for_notice(self, path: str) -> None:
        """Look again and again whether a file is there by which the worker is told to drain."""
        try:
            is_notice = notice_file.is_there(path)
        except OSError as error:
            is_notice = False
            logger.warning("Worker: %s", error)  # again and again, of which the log shows a few
        if is_notice:
            self._on_notice(f"the file {path} is there (drain_file)")
        else:
            self._loop.call_later(LOOK_INTERVAL_SECONDS, self._look_for_notice, path)

    def _on_unforeseen(self, loop: EventLoop, context: Dict[str, Any]) -> None:
        self._break(context["message"], context.get("exception"))

    def _break(self, text: str, error: Optional[BaseException]) -> None:
        """Nothing that the core decides is trusted any more."""
        if self._is_broken:
            return
        self._is_broken = True
        logger.critical("Worker: %s", text, exc_info=error)
        if error is None or isinstance(error, OSError):
            self._finish(EXIT_ERROR)
            return
        kept = self._recorder.keep() if self._recorder is not None else None
        if kept is not None:
            where = f"what led to it is recorded: scaler replay {kept}"
        elif self._recorder is not None:
            where = f"what led to it is not recorded, since the recording {self._recorder.path} had ended before"
        else:
            where = "what led to it is not recorded; start it with --record FILE to find out more"
        text = "Worker: a bug in the worker: it ends with exit code %d, to be started again by its supervisor; %s"
        logger.critical(text, EXIT_BROKEN_INVARIANT, where)
        self._finish(EXIT_BROKEN_INVARIANT)

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
        self._core.on_stop_requested("its parent process has ended", time.monotonic())
        self._turn()

    # Turns ---------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Process the consequences of the events since the last turn."""
        core = self._core
        if self._is_broken:
            return
        core.finish_turn(time.monotonic())
        while core.effects:
            has_answers = False
            for effect in core.take_effects():
                if type(effect) is Deliver:
                    handle = self._handles.get(effect.number)
                    if handle is not None:
                        handle.send(effect.buffers)
                elif type(effect) is Send:
                    self._connection.send(effect.message, bytes(effect.payload))
                else:
                    self._operations[type(effect)](effect)
                    has_answers = True
            if has_answers:
                core.finish_turn(time.monotonic())
        if core.next_time < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._core.next_time
        self._timer = self._loop.call_later(max(0.0, self._timer_at - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        if self._is_broken:
            return
        now = time.monotonic()
        self._rounds.read()
        self._fork_server.flush()
        report_repetitions()
        self._core.on_time(now)
        self._turn()

    # The scheduler -------------------------------------------------------------------------------------------------

    def on_connected(self) -> None:
        place = NOWHERE
        if self._data_address is not None:
            try:
                local_host = self._connection.local_host
                security = self._credentials.security() if local_host else None
                place = self._data_connections.listen(self._data_address, local_host, security)
            except (KeyFileError, MissingLibraryError, MemoryError) as error:
                logger.warning("Worker: objects are not fetched from other workers: %s", error)
        self._core.on_connected(time.monotonic(), place.address, place.key)

    def on_connect_failed(self, reason: str) -> None:
        self._core.on_connect_failed(reason, time.monotonic())

    def on_disconnected(self, reason: str) -> None:
        self._service_manager.status(f"not connected to {self._settings.address}: {reason}")
        self._core.on_disconnected(reason, time.monotonic())

    def on_message(self, message: m.Message, payload: bytes) -> None:
        self._core.on_message(message, payload, time.monotonic())
        if type(message) is m.Welcome:
            self._service_manager.status(f"connected to {self._settings.address}")
            self._turn()  # so that it is known where objects are before the next message is processed

    def on_congestion(self, is_congested: bool) -> None:
        """The scheduler reads more slowly than processors deliver: pause them, so that memory stays bounded."""
        for handle in self._handles.values():
            handle.read_on(not is_congested)

    # Other workers -------------------------------------------------------------------------------------------------

    def on_data_accepted(self, connection: int, key: bytes) -> None:
        self._core.on_data_accepted(connection, key, time.monotonic())

    def on_data_connected(self, connection: int) -> None:
        self._core.on_data_connected(connection, time.monotonic())

    def on_data_message(self, connection: int, message: m.Message, payload: bytes) -> None:
        self._core.on_data_message(connection, message, payload, time.monotonic())

    def on_data_closed(self, connection: int, reason: str) -> None:
        self._core.on_data_closed(connection, reason)

    # Processors ----------------------------------------------------------------------------------------------------

    def _on_broken(self, number: int, error: FrameError) -> None:
        self._core.on_processor_broken(number, str(error))

    def _on_fork_server(self) -> None:
        reports: Optional[List[ForkServerReport]] = []
        try:
            reports = self._fork_server.reports()
            self._report_failures = 0
        except (OSError, MemoryError):
            self._report_failures += 1
            time.sleep(ERROR_PAUSE_SECONDS)
        if reports is None or self._report_failures > MAXIMUM_REPORT_FAILURES:
            self._end_processors()
            self._core.on_fork_server_ended(time.monotonic())
        else:
            for report in reports or ():
                self._on_report(report)

    def _on_report(self, report: ForkServerReport) -> None:
        if report.event == ReportKind.SPAWNED:
            self._core.on_processor_started(report.number, report.process_id)
            return
        handle = self._handles.pop(report.number, None)
        if handle is None:
            return
        handle.read_rest()
        handle.close()
        is_failure = report.event == ReportKind.FAILED
        text = report.text if is_failure else self._describe_end(report.status)
        stack = "" if is_failure else user_stack(report.text)
        self._core.on_processor_died(report.number, text, time.monotonic(), stack)

    def _describe_end(self, status: int) -> str:
        """How a process ended, in words."""
        if not os.WIFSIGNALED(status):
            return f"exited with code {os.WEXITSTATUS(status)}"
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "unknown"
        text = f"was ended by signal {number} ({name})"
        is_for_lack_of_memory = number == signal.SIGKILL and self._memory_kills.is_another()
        return f"{text} {FOR_LACK_OF_MEMORY}" if is_for_lack_of_memory else text

    def _spawn(self, effect: SpawnProcessor) -> None:
        try:
            handle = ProcessorHandle(self._rounds, effect.number, self._core.on_frames, self._on_broken)
        except (OSError, MemoryError) as error:
            self._core.on_processor_died(effect.number, _why_not_started(error), time.monotonic())
            return
        self._handles[effect.number] = handle
        handle.read_on(not self._connection.congested)
        if effect.delay_seconds:
            self._loop.call_later(effect.delay_seconds, self._fork_later, handle)
        else:
            self._fork(handle)

    def _fork_later(self, handle: ProcessorHandle) -> None:
        self._fork(handle)
        self._turn()

    def _fork(self, handle: ProcessorHandle) -> None:
        if self._handles.get(handle.number) is handle and not self._has_ended_processors:
            name = f"{self._identity.name} {self._core.processor_name(handle.number)}"
            try:
                handle.release_processor_end(lambda end: self._fork_server.spawn(handle.number, name, end))
            except (OSError, MemoryError) as error:
                self._forget(handle, _why_not_started(error))

    def _forget(self, handle: ProcessorHandle, why: str) -> None:
        """There is no process for it."""
        del self._handles[handle.number]
        handle.close()
        self._core.on_processor_died(handle.number, why, time.monotonic())

    def _stop(self, effect: StopProcessor) -> None:
        handle = self._handles.get(effect.number)
        if handle is not None:  # else it has died in the same round
            handle.send(frames.signal_frame(FrameKind.STOP))

    def _kill(self, effect: KillProcessor) -> None:
        handle = self._handles.get(effect.number)
        if handle is not None and handle.waits_for_fork:
            self._forget(handle, "was not started")
        elif self._has_ended_processors:
            return
        elif effect.wants_stack:
            self._fork_server.stop(effect.number)
        else:
            self._fork_server.kill(effect.number)

    # Figures -------------------------------------------------------------------------------------------------------

    def _measure_processes(self, effect: MeasureProcesses) -> None:
        now = time.monotonic()
        usages = {process_id: self._statistics.usage(process_id, now) for process_id in effect.process_ids}
        self._statistics.keep_only(effect.process_ids)
        self._memory_kills.refresh()
        self._core.on_processes_measured(usages, free_memory_bytes(), now)

    def _measure_memory(self, effect: MeasureMemory) -> None:
        self._core.on_memory_measured({process_id: private_bytes(process_id) for process_id in effect.process_ids})

    def _too_large_payload(self, size: int, maximum: int, attempts: int, is_neutral: bool) -> bytes:
        return failure_payload(
            m.FailureKind.TASK_RAISED,
            exception=ObjectStorageFullError(f"the task ran, but {too_large(size, maximum)}"),
            worker=self._identity.name,
            attempts=attempts,
            is_neutral=is_neutral,
        )


def _why_not_started(error: Exception) -> str:
    reason = (error.strerror if isinstance(error, OSError) else None) or "out of memory"
    return f"could not be started ({reason})"
