"""scaler_cluster: a worker, and a supervisor process, which restarts it when it is killed.

    supervisor ──fork──▶ agent (`scaler.worker.worker_program`) ──▶ fork_server ──▶ processors
        │ life line: the agent's standard input, which ends with the supervisor

Rules:
- The supervisor runs no user code and starts no thread: it waits, and forwards signals. It shares most of its memory
  with the agent, which is a fork of it.
- The agent has a session of its own, so that it gets Ctrl-C only once: from the supervisor. What is forwarded is told
  apart from what it gets itself (`forwarded_signals`).
- A worker that is started with `--exit-when-stdin-closes` has no supervisor: the process that holds the other end
  watches it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import Optional, Sequence

from scaler.restarts import EXIT_ERROR, Restarts
from scaler.worker import worker_program as program
from scaler.worker.early_signals import EARLY, ignore_late_signals, leave_on_signals
from scaler.worker.forwarded_signals import FORWARDED_AS
from scaler.worker.worker_options import drain_signals, read_options
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.programs.startup import EXIT_INTERRUPTED

_FORWARDED = tuple(FORWARDED_AS)
_SENT = {forwarded: number for number, forwarded in FORWARDED_AS.items()}
_MASKED = (*_FORWARDED, *FORWARDED_AS.values())


class Supervisor:
    """Runs one worker until it ends for good.

    Parameters:
        options: of the command line.
        service_manager: notified by the agents that they work, and by this process that the program ends; None: there
            is none.
    """

    def __init__(self, options: argparse.Namespace, service_manager: Optional[ServiceManager] = None) -> None:
        self._options = options
        self._service_manager = service_manager or ServiceManager("Worker", {})
        self._agent = 0  # its process id, while it runs
        self._is_ending = False
        self._note = ""  # for the log of the next agent

    def run(self) -> int:
        """The exit code of the last agent."""
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer)
        for number in _MASKED:  # the program that started this one may forward signals, too
            signal.signal(number, self._on_signal)
        for number in drain_signals(self._options):
            signal.signal(number, self._on_notice)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, agents would leave no exit code
        restarts = Restarts()
        while True:
            began = time.monotonic()
            code = self._run_agent()
            pause_seconds = restarts.pause_seconds(code, time.monotonic() - began)
            if pause_seconds is not None and not self._is_ending:
                select.select([wake_reader], [], [], pause_seconds)
            if pause_seconds is None or self._is_ending:
                self._service_manager.stopping(f"the worker ended with code {code}")
                return code if code >= 0 else 128 - code  # the convention of shells

    def _run_agent(self) -> int:
        """The code with which an agent ended; the negative number of a signal when that killed it.

        If the system has no room for another process, it is as if an agent had been killed: it is tried again.
        """
        masked = {*_MASKED, *drain_signals(self._options)}
        try:
            life_line, held = os.pipe()
        except (OSError, MemoryError) as error:
            return self._cannot_start(error)
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, masked)  # until it is clear which process handles them
            try:
                self._agent = os.fork()
                if not self._agent:
                    os.close(held)
                    self._become_agent(life_line)
            finally:
                os.close(life_line)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, masked)
            status = os.waitpid(self._agent, 0)[1]
        except ChildProcessError:  # another part of this process has waited for it
            status = EXIT_ERROR << 8
        except (OSError, MemoryError) as error:
            return self._cannot_start(error)
        finally:
            os.close(held)
        process_id, self._agent = self._agent, 0
        code = (
            -_SENT.get(os.WTERMSIG(status), os.WTERMSIG(status)) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        )
        ended = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        self._note = f"ClusterProcess: process {process_id} {ended}, this process replaces it"
        return code

    def _cannot_start(self, error: Exception) -> int:
        why = getattr(error, "strerror", None) or "out of memory"
        with contextlib.suppress(OSError, MemoryError):
            print(f"ClusterProcess: no process can be started for the worker: {why}; trying again", file=sys.stderr)
        return -signal.SIGKILL

    def _become_agent(self, life_line: int) -> None:
        """Never returns."""
        code = EXIT_ERROR
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (*EARLY, *drain_signals(self._options)):
                signal.signal(number, signal.SIG_DFL)
            leave_on_signals()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(life_line, 0)
            os.close(life_line)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _MASKED)
            code = program.run(self._options, self._note, self._service_manager)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):
                    stream.flush()
            os._exit(code)

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        self._is_ending = True
        self._service_manager.stopping(_signal_name(number))
        if self._agent:
            with contextlib.suppress(OSError):  # it has just ended, or runs as another user
                os.kill(self._agent, number if number in _SENT else FORWARDED_AS[signal.Signals(number)])

    def _on_notice(self, number: int, frame: Optional[FrameType]) -> None:
        """The agent drains and ends, and none replaces it: the machine will be taken away."""
        self._is_ending = True
        if self._agent:
            with contextlib.suppress(OSError):
                os.kill(self._agent, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one worker, and replace it when it is killed; the exit code of the program."""
    options = read_options(arguments)
    service_manager = ServiceManager.of_this_process("Worker")
    if options.exit_when_stdin_closes:
        return program.run(options, service_manager=service_manager)
    options.exit_when_stdin_closes = True  # for the agents, which watch this process through it
    code = Supervisor(options, service_manager).run()
    ignore_late_signals(drain_signals(options))
    return code
