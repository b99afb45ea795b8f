"""`scaler dev`: a scheduler, a worker and the user interface on this machine, for a first try and for everyday use.

Rules:
- What it prints when all is ready can be pasted as it stands.
- When this program ends for any reason, everything that it started ends: each part watches a pipe from this program.
- Without a user interface everything else works, and one line says why there is none.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import select
import signal
import socket
import sys
import time
from contextlib import ExitStack
from types import FrameType
from typing import List, Optional, Sequence, Tuple

from scaler.client import Client
from scaler.cluster.appliance import interface_command
from scaler.cluster.child_program import ChildProgram
from scaler.cluster.cluster import Cluster
from scaler.cluster.scheduler import Scheduler
from scaler.exceptions import ProgramStartError, ScalerError, with_page
from scaler.programs.scaler_options import DEFAULT_PORT, DEFAULT_UI_PORT, DEV
from scaler.values.texts import counted
from scaler_protocol.host.discovery import ADDRESS_VARIABLE, SCHEDULER, DiscoveryError, entries

HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 60.0
LOOK_INTERVAL_SECONDS = 0.05
EXIT_FAILED = 1

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Ended(BaseException):
    """Raised by a signal that asks this program to end; a BaseException, so that no handler of errors catches it."""


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns its exit code: 0 if stopped by a signal, 1 if a part did not start or ended by
    itself."""
    options = DEV.read(arguments)
    with ExitStack() as running:
        try:
            for number in _ENDING:
                signal.signal(number, _on_signal)
            return _run(options, running)
        except _Ended:
            print("scaler dev: stopping", flush=True)
            return 0
        except (ScalerError, OSError) as error:
            print(f"scaler dev: {with_page(error)}", file=sys.stderr)
            return EXIT_FAILED
        finally:
            _let_signals_kill()


def _on_signal(number: int, frame: Optional[FrameType]) -> None:
    _let_signals_kill()
    raise _Ended


def _let_signals_kill() -> None:
    """Restore default handlers: the next signal kills this program at once. Its parts then end by themselves, and it
    has no files to remove."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


def _run(options: argparse.Namespace, running: ExitStack) -> int:
    """Start everything, and wait; `running` ends the parts in reverse order."""
    others = _other_schedulers()
    port = free_port(DEV.name, options.port, DEFAULT_PORT, "the scheduler")
    if options.record is not None:
        _record(options.record)
    sys.path.append(os.getcwd())  # tasks can import modules from here, like the program that submits them
    scheduler = Scheduler(address=f"tcp://{HOST}:{port}", logging_level=options.logging_level, announce=True)
    running.enter_context(scheduler)
    workers = Cluster(scheduler.get_address(), n_workers=options.num_of_workers, logging_level=options.logging_level)
    running.enter_context(workers)
    link, why_not = "", "not wanted"
    if options.ui:
        interface = running.enter_context(UserInterface(scheduler.get_monitor_address(), options.ui_port))
        _wait_for_slots(scheduler, workers, options.num_of_workers)
        link, why_not = interface.wait_for_link()
    else:
        _wait_for_slots(scheduler, workers, options.num_of_workers)
    print(greeting(scheduler, options.num_of_workers, link, why_not, others), flush=True)
    code = scheduler.join()
    print(f"scaler dev: the scheduler has ended with exit code {code}, stopping everything", file=sys.stderr)
    return EXIT_FAILED


def _record(folder: str) -> None:
    """Let the programs that are started write recordings to a folder."""
    for variable, name in (("SCALER_SCHEDULER_RECORD", "scheduler-%p"), ("SCALER_CLUSTER_RECORD", "worker-%p")):
        os.environ[variable] = os.path.join(os.path.abspath(folder), name)


def _other_schedulers() -> int:
    try:
        return len(entries(SCHEDULER))
    except (DiscoveryError, OSError):
        return 1  # discovery does not work: addresses have to be given


def free_port(program: str, wanted: Optional[int], default: int, what: str) -> int:
    """The port to listen at; 0 for any free one, if none was requested and the default is in use."""
    if wanted is not None:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, default))
        except OSError:
            print(f"{program}: port {default} is in use: {what} listens at another one", flush=True)
            return 0
    return default


def _wait_for_slots(scheduler: Scheduler, workers: Cluster, count: int) -> None:
    """Wait until the worker has joined with all its slots.

    Raises ProgramStartError if it does not.
    """
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    with Client(scheduler.get_address()) as client:
        while client.info(maximum_workers=0).slots < count:
            if not workers.is_alive():
                raise ProgramStartError(f"the worker did not start: it ended with exit code {workers.join(0)}")
            if time.monotonic() > deadline:
                raise ProgramStartError(f"the worker did not join within {START_TIMEOUT_SECONDS:g} s")
            time.sleep(LOOK_INTERVAL_SECONDS)


def usable_interface() -> Tuple[List[str], str]:
    """The command that starts the user interface; or none, and why it cannot be started."""
    try:
        command = interface_command()
    except ScalerError as error:
        return [], str(error)
    is_module = command[1:] == ["-m", "scaler_appliance.ui"]
    if is_module and importlib.util.find_spec("scaler_appliance.ui") is None:
        return [], "the appliance that is installed has none"
    if is_module and importlib.util.find_spec("starlette") is None:
        return [], "its packages are not installed: pip install 'scaler-appliance[ui]'"
    return command, ""


class UserInterface:
    """The user interface's process, if there is one; a context manager that stops it.

    Parameters:
        monitor_address: of the scheduler that it watches.
        port: where it listens; None chooses.
    """

    def __init__(self, monitor_address: str, port: Optional[int]) -> None:
        self._monitor_address = monitor_address
        self._port = port
        self._why_not = ""
        self._program: Optional[_InterfaceProcess] = None

    def __enter__(self) -> UserInterface:
        command, self._why_not = usable_interface()
        if command:
            port = free_port(DEV.name, self._port, DEFAULT_UI_PORT, "the user interface")
            options = ["--port", str(port), "--exit-when-stdin-closes"]
            self._program = _InterfaceProcess([*command, self._monitor_address, *options])
            self._program.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            self._program.shutdown()

    def wait_for_link(self) -> Tuple[str, str]:
        """The link to its first page once it listens, and the reason if it does not."""
        if self._program is None:
            return "", self._why_not
        link = self._program.read_link(START_TIMEOUT_SECONDS)
        if link:
            return link, ""
        code = self._program.join(1.0)
        if code is None:
            return "", f"it did not start within {START_TIMEOUT_SECONDS:g} s"
        return "", f"it did not start: it ended with exit code {code}"


class _InterfaceProcess(ChildProgram):
    """The process reports its link through a pipe: the link may contain the token, and a file could be left behind."""

    def start(self) -> None:
        """Start the process. Raises ProgramStartError if the program cannot be run."""
        reader, writer = os.pipe()
        self._link_file = os.fdopen(reader, encoding="utf-8")
        try:
            self._command += ["--link-file", f"/dev/fd/{writer}"]
            self._launch((writer,))
        finally:
            os.close(writer)

    def read_link(self, timeout_seconds: float) -> str:
        """Wait for the link; empty if the process ends or takes too long."""
        with self._link_file:
            ready, _, _ = select.select([self._link_file], [], [], timeout_seconds)
            # Read one line, not until the end: the process inherited the writing end and keeps it open.
            return self._link_file.readline().strip() if ready else ""


def greeting(scheduler: Scheduler, count: int, link: str, why_not: str, others: int) -> str:
    """The instructions that are printed when everything is ready."""
    is_found = not others and not os.environ.get(ADDRESS_VARIABLE)
    address = "" if is_found else repr(scheduler.get_address()).replace("'", '"')
    return "\n".join(
        [
            "",
            f"Ready: {counted(count, 'slot')} on 1 worker, on this machine.",
            "",
            f"    scheduler       {scheduler.get_address()}",
            f"    user interface  {link or f'none: {why_not}'}",
            f"    in a terminal   scaler_top {scheduler.get_monitor_address()}",
            "",
            "Start Python and paste:",
            "",
            "from scaler import Client",
            f"client = Client({address})",
            "print(client.map(pow, range(10), [2] * 10))",
            "",
            "Ctrl-C stops everything.",
            "",
        ]
    )
