"""The fork server: a single-threaded process that forks processors when the agent orders it, and reaps them.

    agent ── SPAWN (with a socket), KILL, STOP … ──▶ fork server ──fork──▶ processor …
    agent ◀── SPAWNED, DIED, FAILED ──────────────── fork server ◀─SIGCHLD─ processor …

Rules:
- It is forked from the program before that has threads, ZeroMQ or an event loop, and never gets any. So forking it is
  safe and cheap: it has imported what processors need, and shares that memory with them.
- It ends when the agent's end of the control socket is closed for any reason: it kills the processors and all processes
  that they started, removes the registered files, and exits. On Linux, processors also die with the fork server.
- It does not end for an error of the system, because its processors would end with it: it tries again.
- Each processor leads its own process group, so that killing it also kills its subprocesses, and Ctrl-C in the terminal
  reaches only the agent.
- On macOS, whose own libraries may not be used in a fork, processors are started as programs (`processor_process`).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import glob
import importlib
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler.exceptions import PreloadError
from scaler.values.source_versions import versions
from scaler.worker.fork_server import processor_process, stacks
from scaler.worker.fork_server.agent_connection import AgentConnection, AgentGoneError, Order
from scaler.worker.fork_server.fork_server_client import ForkServerClient, OrderKind, ReportKind
from scaler.worker.fork_server.preload import preload
from scaler.worker.fork_server.processor_process import ProcessorProcess
from scaler.worker.processor.processor import ProcessorSettings
from scaler.worker.progress_page import ProgressPage
from scaler_protocol.host.spill import remove_file

logger = logging.getLogger("scaler")

_PAUSE_SECONDS = 0.05  # before the system is asked again for what it could not do
_POLL_SECONDS = 0.005  # at the end, until killed processes are gone

_UNKNOWN_STATUS = 255 << 8  # an exit code that no processor has


class _Ending(NamedTuple):
    """When to kill a processor that was asked to stop, and the latest time for that."""

    kill_at: float
    latest: float


class ForkServerSettings(NamedTuple):
    """The fork server's settings, which it gets when it is forked."""

    scheduler_address: str
    preloads: Sequence[str] = ()
    drain_signals: Sequence[int] = ()  # besides those that end programs


def start_fork_server(page: ProgressPage, settings: ForkServerSettings) -> Tuple[ForkServerClient, int]:
    """Fork the fork server; returns the control socket and the fork server's process id.

    The calling process must still be single-threaded.
    """
    agent_end, server_end = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    process_id = os.fork()
    if process_id == 0:
        status = 1
        try:
            agent_end.close()
            status = _ForkServer(server_end, page, settings).run()
        except BaseException:
            logger.exception("fork server: internal error")
        finally:
            os._exit(status)
    server_end.close()
    return ForkServerClient(agent_end), process_id


class _ForkServer:
    def __init__(self, control: socket.socket, page: ProgressPage, settings: ForkServerSettings) -> None:
        self._agent = AgentConnection(control)
        self._page = page
        self._settings = settings
        self._process_id = os.getpid()
        self._children: Dict[int, int] = {}  # process id -> processor number
        self._stack_files: Dict[int, int] = {}  # process id -> descriptor
        self._endings: Dict[int, _Ending] = {}  # by process id, of those that were asked to stop
        self._patterns: List[str] = []
        self._wakeup_read, self._wakeup_write = os.pipe()

    def run(self) -> int:
        """Serve until the agent is gone; returns the exit code of the process."""
        _ignore_signals(self._settings.drain_signals)
        processor_process.buffer_lines()
        _close_standard_input()
        self._watch_children()
        processor_process.prctl(processor_process.PR_SET_CHILD_SUBREAPER, 1)
        try:
            preload(self._settings.preloads)
        except PreloadError as error:
            logger.error("%s", error, exc_info=error.__cause__)
            self._agent.report(ReportKind.FAILED, text=str(error))
            return 1
        self._watch_children()  # again, in case a preloaded module handles signals
        versions.start()  # early, before files are edited: processors inherit the versions of preloaded modules
        _freeze()
        try:
            self._serve()
        finally:
            self._end()
        return 0

    def _watch_children(self) -> None:
        os.set_blocking(self._wakeup_write, False)
        os.set_blocking(self._wakeup_read, False)
        signal.set_wakeup_fd(self._wakeup_write)
        signal.signal(signal.SIGCHLD, _ignore)

    def _serve(self) -> None:
        """Until the agent is gone."""
        has_failed = False
        while True:
            try:
                self._serve_once(has_failed)
                has_failed = False
            except AgentGoneError:
                return
            except (OSError, MemoryError) as error:
                has_failed = True
                logger.debug("fork server: %s; it tries again", error)
                time.sleep(_PAUSE_SECONDS)

    def _serve_once(self, is_retry: bool) -> None:
        """
        Parameters:
            is_retry: whether to look for processes that have ended though no signal says so: the last call failed.
        """
        agent = self._agent.fileno()
        writing = [agent] if self._agent.has_unsent else []
        timeout_seconds = self._kill_overdue()
        ready, writable, _ = select.select(
            [agent, self._wakeup_read], writing, [], 0.0 if is_retry else timeout_seconds
        )
        if writable:
            self._agent.flush()
        if self._wakeup_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup_read, 4096)
        if is_retry or self._wakeup_read in ready:
            self._reap()
        if agent in ready:
            order = self._agent.receive()
            if order is not None:
                self._obey(order)

    def _kill_overdue(self) -> Optional[float]:
        """Kill processors that did not stop in time; returns seconds until the next check, None if none is needed."""
        if not self._endings:
            return None
        now, is_one_late = time.monotonic(), False
        for process_id, (kill_at, latest) in list(self._endings.items()):
            if now < latest and stacks.has_not_run(process_id):
                # When it runs at last, it has time to write.
                self._endings[process_id] = _Ending(min(now + stacks.GRACE_SECONDS, latest), latest)
                is_one_late = True
            elif now >= kill_at:
                del self._endings[process_id]
                _kill_group(process_id)
        if is_one_late:
            return _PAUSE_SECONDS
        return max(0.0, min(self._endings.values()).kill_at - now) if self._endings else None

    def _obey(self, order: Order) -> None:
        if order.kind == OrderKind.SPAWN and order.descriptors:
            self._spawn(order.number, order.text.decode("utf-8", "replace"), order.descriptors[0])
        elif order.kind == OrderKind.SPAWN:  # the system discards descriptors for which this process has no room
            why = f"cannot fork a processor: {os.strerror(errno.EMFILE)}"
            self._agent.report(ReportKind.FAILED, order.number, text=why)
        elif order.kind in (OrderKind.KILL, OrderKind.STOP):
            for process_id, child_number in self._children.items():
                if child_number == order.number:
                    self._end_child(process_id, at_once=order.kind == OrderKind.KILL)
        elif order.kind == OrderKind.IMPORT:
            self._import(order.text.decode())
        elif order.kind == OrderKind.REMOVE:
            self._add_pattern(os.fsdecode(order.text))

    def _add_pattern(self, pattern: str) -> None:
        """A worker has one for each session; those in directories that are gone, with their schedulers, are dropped."""
        living = [each for each in self._patterns if each != pattern and glob.glob(os.path.dirname(each))]
        self._patterns = [*living, pattern]

    def _end_child(self, process_id: int, at_once: bool) -> None:
        if at_once:
            _kill_group(process_id)
        elif process_id not in self._endings:
            now = time.monotonic()
            self._endings[process_id] = _Ending(now + stacks.GRACE_SECONDS, now + stacks.LONGEST_GRACE_SECONDS)
            with contextlib.suppress(OSError):
                stacks.ask_for_stack(process_id)  # it is not reaped yet, so the id is still its own

    def _import(self, name: str) -> None:
        try:
            importlib.import_module(name)
        except Exception:  # then each processor tries by itself, and reports the error to its task
            logger.debug("fork server: %s cannot be imported", name, exc_info=True)
        _freeze()

    def _spawn(self, number: int, name: str, descriptor: int) -> None:
        stack_file = -1
        try:
            stack_file = stacks.make_stack_file()
            process_id = self._start_processor(number, name, descriptor, stack_file)
        except (OSError, MemoryError) as error:
            if stack_file >= 0:
                _close(stack_file)
            why = error.strerror if isinstance(error, OSError) else os.strerror(errno.ENOMEM)
            self._agent.report(ReportKind.FAILED, number, text=f"cannot fork a processor: {why}")
            return
        finally:
            _close(descriptor)
        with contextlib.suppress(OSError):
            os.setpgid(process_id, process_id)  # the child does so too, so that it does not matter which is first
        self._children[process_id] = number
        self._stack_files[process_id] = stack_file
        self._agent.report(ReportKind.SPAWNED, number, process_id)

    def _start_processor(self, number: int, name: str, descriptor: int, stack_file: int) -> int:
        process = ProcessorProcess(
            self._process_id, number, descriptor, stack_file, ProcessorSettings(name, self._settings.scheduler_address)
        )
        if processor_process.SPAWNS:
            return processor_process.spawn(process, self._page, self._settings.preloads)
        process_id = os.fork()
        if process_id:
            return process_id
        try:
            self._become_processor(process)
        except BaseException:
            logger.exception("processor %s: internal error", name)
            os._exit(1)
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)

    def _become_processor(self, process: ProcessorProcess) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for unneeded in (self._wakeup_read, self._wakeup_write, *self._stack_files.values()):
            os.close(unneeded)
        self._agent.close()
        processor_process.run(process, self._page)

    def _reap(self) -> None:
        while True:
            try:
                process_id, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if process_id == 0:
                break
            self._on_end(process_id, status)
        for process_id in list(self._children):
            if not _exists(
                process_id
            ):  # a preloaded module has waited for it, or the system does, for a handler of its
                self._on_end(process_id, _UNKNOWN_STATUS)

    def _on_end(self, process_id: int, status: int) -> None:
        number = self._children.pop(process_id, None)
        if number is not None:  # otherwise it is an orphan of a processor
            with contextlib.suppress(OSError):
                os.killpg(process_id, signal.SIGKILL)  # what the processor started and did not end
            self._endings.pop(process_id, None)
            stack_file = self._stack_files.pop(process_id)
            self._agent.report(ReportKind.DIED, number, process_id, status, stacks.read_stack_file(stack_file))
            _close(stack_file)

    def _end(self) -> None:
        """Kill all processors and remove all files."""
        signal.set_wakeup_fd(-1)
        for process_id in self._children:
            _kill_group(process_id)
        while True:
            children = _children_of(self._process_id)
            for process_id in children:
                with contextlib.suppress(OSError):
                    os.kill(process_id, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                if not children:
                    break
            except (OSError, MemoryError):
                pass
            time.sleep(_POLL_SECONDS)
        for pattern in self._patterns:
            for path in glob.glob(pattern):
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        remove_file(path)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same
        os.close(descriptor)


def _ignore(signal_number: int, frame: Any) -> None:
    """A handler, not SIG_IGN: programs that user code starts would inherit the latter."""


def _freeze() -> None:
    """Exclude existing objects from garbage collection in processors, so that their memory stays shared."""
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()


def _ignore_signals(others: Sequence[int]) -> None:
    """Ignore signals: only the agent reacts to Ctrl-C and to a service manager, and the fork server ends with it.

    Processors inherit that for the others.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *others):
        signal.signal(number, _ignore)


def _close_standard_input() -> None:
    """It may be a pipe whose end stops the cluster: only the agent reads it."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.close(descriptor)


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it runs as another user
    return True


def _kill_group(process_id: int) -> None:
    try:
        os.killpg(process_id, signal.SIGKILL)
    except OSError:  # the child has not created its group yet; or EPERM: for a group of zombies on macOS
        with contextlib.suppress(OSError):
            os.kill(process_id, signal.SIGKILL)


def _children_of(parent: int) -> List[int]:
    """Process ids of the direct children of a process, including adopted orphans."""
    children: List[int] = []
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:  # not Linux
        return _children_by_psutil(parent)
    except (OSError, MemoryError):
        return children
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if int(fields[1]) == parent:
                    children.append(int(name))
            except (OSError, MemoryError, IndexError, ValueError):
                continue
    return children


def _children_by_psutil(parent: int) -> List[int]:
    try:
        import psutil

        return [each.pid for each in psutil.Process(parent).children()]
    except Exception:  # not installed, or the system refuses: subprocesses of tasks have groups of their own
        return []
