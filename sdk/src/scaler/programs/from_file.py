"""`scaler CONFIG.toml`: the programs that a file has sections for, as one.

Rules:
- Each program reads its own section, as it does when it is started by itself. Workers, provisioners and monitors
  without an address get that of the scheduler in the same file.
- They start in the order scheduler, workers, provisioner, user interface, and stop in reverse order. Workers drain:
  they have the time to finish their running tasks that the file gives them; a second signal stops them at once. When a
  program ends for good, all stop, the exit code is that of this program, and the log says which one it was.
- What they write passes through.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from types import FrameType
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from scaler.cluster.appliance import interface_command, scheduler_command
from scaler.cluster.child_program import STOP_TIMEOUT_SECONDS, ChildProgram
from scaler.cluster.scheduler import SchedulerProcess
from scaler.exceptions import ScalerError, with_page
from scaler.programs.scaler_options import SCALER
from scaler.provision.provision_options import PROVISION
from scaler.worker.worker_options import CLUSTER
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.options import ConfigurationError, Reading, read_sections
from scaler_protocol.programs.options.program import EXIT_FAULTS
from scaler_protocol.programs.options.sources import closest
from scaler_protocol.programs.options.table import EXIT_USAGE, Sections
from scaler_protocol.programs.service_manager import ServiceManager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIFE_LINE = "--exit-when-stdin-closes"
_ADDRESS_VARIABLES = {
    "cluster": CLUSTER.variables(CLUSTER.options[0])[0],
    "provision": PROVISION.variables(PROVISION.options[0])[0],
    "ui": "SCALER_UI_MONITOR_ADDRESS",
}
"""Where a program may have an address of its own from."""

_WILDCARDS = ("//0.0.0.0:", "//[::]:", "//*:")
_SOME_ADDRESS = "ipc:///tmp/scaler"  # for --check, when the scheduler's address is not known yet

logger = logging.getLogger("scaler")


class Part(NamedTuple):
    """A program that the file has a section for.

    Parameters:
        label: its name in the log.
        program: the command that starts it.
        arguments: its command line.
    """

    section: str
    label: str
    program: Tuple[str, ...]
    arguments: Tuple[str, ...]

    @property
    def command(self) -> Tuple[str, ...]:
        """The whole command line."""
        return (*self.program, *self.arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the program; its exit code."""
    parser = SCALER.parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    _refuse_unknown_command(arguments[0])
    reading = Reading(SCALER, vars(parser.parse_args(list(arguments))))
    SCALER.warn_of_unknown_variables(parser.prog)
    options = reading.values
    if options.config is None:
        parser.error(f"the following arguments are required: {', '.join(reading.missing())}")
    exit_code = EXIT_FAULTS if options.check else EXIT_USAGE
    if reading.faults:
        lines = [f"scaler: error: {fault}\n" for fault in reading.faults]
        parser.exit(exit_code, "".join([*lines, SCALER.page_line]))
    try:
        sections = read_sections(options.config)
        parts = parts_of(options.config, sections, {})
    except ConfigurationError as error:
        parser.exit(exit_code, f"scaler: error: {error}\n{SCALER.page_line}")
    except ScalerError as error:
        parser.exit(exit_code, f"scaler: error: {with_page(error)}\n")
    if options.check:
        return check(options.config, sections, parts)
    if options.print_config:
        return print_config(reading, parts)
    try:
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"logging cannot be set up: {error}")
    return RunningPrograms(options.config, sections, parts).run()


def _refuse_unknown_command(word: str) -> None:
    """A mistyped command would be taken for the name of a file, and what follows it for a second one."""
    if word.startswith("-") or os.sep in word or "." in word or os.path.exists(word):
        return
    commands = [command.name.split()[-1] for command in SCALER.commands]
    meant = closest(word, commands, 0.5)
    hint = f"did you mean `scaler {meant}`?" if meant else f"commands are {', '.join(sorted(commands))}"
    sys.stderr.write(f"scaler: error: there is no command {word}, and no file of this name; {hint}\n{SCALER.page_line}")
    sys.exit(EXIT_USAGE)


def parts_of(path: Optional[str], sections: Sections, wanted: Mapping[str, Sequence[str]]) -> List[Part]:
    """The programs to start, in this order.

    Parameters:
        path: of the file that has the sections; None: there is no file.
        wanted: the sections whose programs start in any case, with arguments that they have beside those of the file.

    Raises ConfigurationError when there is nothing to start, and ScalerError when a program is not installed.
    """
    configured = () if path is None else ("--config", path)
    parts: List[Part] = []
    for section, (label, command) in PROGRAMS.items():
        count = len(sections.get(section, ()))
        programs = count if section == "cluster" else min(count, 1)  # of which one reads all sections
        for number in range(1, max(programs, int(section in wanted)) + 1):
            which = ("--config-entry", str(number)) if programs > 1 else ()
            which_label = f"{label} of [[{section}]] number {number}" if programs > 1 else label
            arguments = (*wanted.get(section, ()), *configured, *which)
            parts.append(Part(section, which_label, tuple(command()), arguments))
    if not parts:
        raise ConfigurationError(
            f"{path}: there is nothing to start: it has no section [scheduler], [cluster], [provision] or [ui]"
        )
    return parts


def workers_command() -> List[str]:
    """The command that runs workers; this program restarts them when they are killed."""
    return [sys.executable, "-m", "scaler.worker"]


def provisioner_command() -> List[str]:
    """The command that starts and ends workers, as tasks need them."""
    return [sys.executable, "-m", "scaler.provision"]


PROGRAMS: Dict[str, Tuple[str, Callable[[], List[str]]]] = {
    "scheduler": ("the scheduler", scheduler_command),
    "cluster": ("the workers", workers_command),
    "provision": ("the provisioner", provisioner_command),
    "ui": ("the user interface", interface_command),
}
"""What the programs are called, and the commands that start them, by their sections, in the order in which they
start."""


WARNING = ": warning: "
"""In the lines by which a program says what has no effect."""


def check(path: str, sections: Sections, parts: Sequence[Part]) -> int:
    """Let each program check its section and print what it finds."""
    code = 0
    for part in parts:
        takes_address = "scheduler" in sections and needs_address(path, sections, part)
        command = [*part.command, *([_SOME_ADDRESS] if takes_address else []), "--check"]
        checked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        lines = f"{checked.stdout}{checked.stderr}".splitlines()
        if checked.returncode:
            code = EXIT_FAULTS
        else:
            lines = [line for line in lines if WARNING in line]
        if lines:
            print("\n".join(lines))
    if not code:
        print(f"scaler: {path} is valid")
    return code


def print_config(own: Reading, parts: Sequence[Part]) -> int:
    """Let each program print its section: together they are a file."""
    print(own.toml(), flush=True)
    code = 0
    for number, part in enumerate(parts, start=1):
        code = code or subprocess.run([*part.command, "--print-config"], stdin=subprocess.DEVNULL).returncode
        if number < len(parts):
            print(flush=True)
    return code


def needs_address(path: Optional[str], sections: Sections, part: Part) -> bool:
    """Whether a program without an address of its own gets that of the file's scheduler, or of its monitor."""
    if part.section not in _ADDRESS_VARIABLES:
        return False
    variable = _ADDRESS_VARIABLES[part.section]
    if part.section == "ui":
        keys = {each.replace("-", "_") for section in sections.get("ui", ()) for each in section}
        return "monitor_address" not in keys and variable not in os.environ
    readings = [reading_of_workers(path, part)] if part.section == "cluster" else readings_of_pools(path, sections)
    return all(each.origins["address"] not in (path, f"environment {variable}") for each in readings)


def reading_of_workers(path: Optional[str], part: Part) -> Reading:
    """The options of the workers of one section, or of those that a provisioner starts on this host."""
    if part.section != "cluster":
        return Reading(CLUSTER, {})
    entry = int(part.arguments[-1]) if "--config-entry" in part.arguments else None
    return Reading(CLUSTER, {"config": path, "config_entry": entry})


def readings_of_pools(path: Optional[str], sections: Sections) -> List[Reading]:
    """The options of each pool."""
    count = len(sections.get("provision", ()))
    entries = range(1, count + 1) if count > 1 else (None,)
    return [Reading(PROVISION, {"config": path, "config_entry": entry}) for entry in entries]


def has_only_local_units(path: Optional[str], sections: Sections) -> bool:
    """Whether all workers that provisioners start are on this host."""
    return all(each.values.adapter == "local" for each in readings_of_pools(path, sections))


def from_elsewhere(address: str) -> str:
    """The same address as other hosts write it: a wildcard becomes the name of this host."""
    for wildcard in _WILDCARDS:
        address = address.replace(wildcard, f"//{socket.gethostname()}:")
    return address


class RunningPrograms:
    """The programs of a file while they run.

    Parameters:
        path, sections: of the file.
        parts: the programs, in the order in which they start.
    """

    def __init__(self, path: Optional[str], sections: Sections, parts: Sequence[Part]) -> None:
        self._path = path
        self._sections = sections
        self._parts = parts
        self._scheduler: Optional[SchedulerProcess] = None
        self._started: List[Tuple[Part, ChildProgram]] = []
        # Signals, and programs that have ended: a label, and the exit code. A queue that signal handlers may use.
        self._events: queue.SimpleQueue[Tuple[str, int]] = queue.SimpleQueue()
        self._is_ending = False
        self._service_manager = ServiceManager.of_this_process("Scaler")  # the programs do not notify it

    def run(self) -> int:
        """Start all programs, wait, and stop all; returns the exit code."""
        for number in _ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # which nohup has set
                signal.signal(number, self._on_signal)
        try:
            for part in self._parts:
                self._start(part)
            self._service_manager.ready(f"running {', '.join(part.label for part in self._parts)}")
            label, code = self._events.get()
            if label:
                logger.error("Scaler: %s ended with exit code %d, stopping everything", label, code)
            return code
        except (ScalerError, OSError) as error:
            logger.error("Scaler: %s", error)
            failed = self._scheduler.join(0) if self._scheduler is not None and not self._started else None
            return _shell_exit_code(failed) if failed else EXIT_FAULTS
        finally:
            self._end()

    def _start(self, part: Part) -> None:
        program: ChildProgram
        if part.section == "scheduler":
            program = self._scheduler = SchedulerProcess([*part.arguments, _LIFE_LINE])
        else:
            command = [*part.command, *self._address_for(part), _LIFE_LINE]
            has_workers = part.section in ("cluster", "provision")
            stop_timeout_seconds = STOP_TIMEOUT_SECONDS + (self._drain_timeout_seconds(part) if has_workers else 0.0)
            program = ChildProgram(command, is_replaced=has_workers, stop_timeout_seconds=stop_timeout_seconds)
        program.start()
        self._started.append((part, program))
        if self._scheduler is program:
            logger.info("Scaler: the scheduler listens at %s", self._scheduler.get_address())
        threading.Thread(target=self._watch, args=(part, program), name="scaler-watch", daemon=True).start()

    def _address_for(self, part: Part) -> List[str]:
        """The scheduler's address, or its monitor's, for a program that has none of its own."""
        if self._scheduler is None or not needs_address(self._path, self._sections, part):
            return []
        if part.section == "ui":
            return [self._scheduler.get_monitor_address()]
        address = self._scheduler.get_address()
        is_near = part.section == "cluster" or has_only_local_units(self._path, self._sections)
        return [address if is_near else from_elsewhere(address)]

    def _drain_timeout_seconds(self, part: Part) -> float:
        return float(reading_of_workers(self._path, part).values.drain_timeout_seconds)

    def _watch(self, part: Part, program: ChildProgram) -> None:
        code = program.join()
        self._events.put((part.label, _shell_exit_code(code or 0)))

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        if self._is_ending:  # a second signal; handled in a thread, because this one may hold a lock
            threading.Thread(target=self._terminate, daemon=True).start()
        else:
            self._events.put(("", 0))

    def _terminate(self) -> None:
        for _, program in self._started:
            program.terminate()

    def _end(self) -> None:
        """Stop all programs, dependent ones first, and those of one kind at the same time."""
        self._is_ending = True
        self._service_manager.stopping(f"all programs of {self._path}" if self._path else "all programs")
        for section in reversed(PROGRAMS):
            stopping = [
                threading.Thread(target=program.shutdown) for part, program in self._started if part.section == section
            ]
            for thread in stopping:
                thread.start()
            for thread in stopping:
                thread.join()


def _shell_exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code
