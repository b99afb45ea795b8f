"""How a process becomes a processor: as a fork of the fork server, or as a program of its own.

    Linux   fork server ──fork──▶ run
    macOS   fork server ──posix_spawn──▶ main ──▶ preload ──▶ run

Rules:
- A fork has everything that was preloaded, and shares the memory. A program loads it by itself, which takes it some
  tenths of a second; but macOS's own libraries may not be used in a fork of a process that has used them.
- A processor ends with the fork server: on Linux the system sees to that, elsewhere a thread of it.
- What a processor needs of the fork server are three descriptors: its socket, the file for its stack, and the page of
  positions. All others are closed in a program.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import NamedTuple, Optional, Sequence

from scaler.values.source_versions import versions
from scaler.worker.fork_server import stacks
from scaler.worker.fork_server.preload import preload
from scaler.worker.processor.processor import Processor, ProcessorSettings
from scaler.worker.progress_page import ProgressPage

SPAWNS = sys.platform == "darwin"
"""Whether processors are programs rather than forks."""

PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY_SCORE = 300  # of 1000: like 30 % more of the memory there is
_LOOK_INTERVAL_SECONDS = 1.0
_MODULE = "scaler.worker.fork_server.processor_process"

logger = logging.getLogger("scaler")


class ProcessorProcess(NamedTuple):
    """What a process needs to know to become a processor.

    Parameters:
        parent: the process id of the fork server.
        number: of the processor, and of its entry in the page of positions.
        descriptor: of its end of the socket pair.
        stack_file: the descriptor of the file to which its stack is written when it is stopped.
        settings: of the processor.
    """

    parent: int
    number: int
    descriptor: int
    stack_file: int
    settings: ProcessorSettings


def run(process: ProcessorProcess, page: ProgressPage) -> None:
    """Be a processor until the agent or the fork server is gone."""
    is_watched = prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != process.parent:
        return  # the fork server ended before the line above
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    _outlive_termination()
    _be_killed_before_the_agent()
    with contextlib.suppress(Exception):  # standard error may be closed, or not a file
        faulthandler.enable()
    stacks.write_stack_on_signal(process.stack_file)
    _reseed_random_generators()
    os.set_inheritable(process.descriptor, False)
    stream = socket.socket(fileno=process.descriptor)
    if not is_watched:
        threading.Thread(target=_end_with, args=(process.parent,), name="scaler-end", daemon=True).start()
    Processor(stream, page.entry(process.number), process.settings).run()


def spawn(process: ProcessorProcess, page: ProgressPage, preloads: Sequence[str]) -> int:
    """Start a program that is the processor; returns its process id.

    Raises OSError.
    """
    settings = {"process": [*process], "page": page.descriptor, "preloads": [*preloads], "path": sys.path}
    needed = (process.descriptor, process.stack_file, page.descriptor)
    try:
        for descriptor in needed:
            os.set_inheritable(descriptor, True)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE, json.dumps(settings)],
            os.environ,
            setpgroup=0,
            setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
        )
    finally:
        for descriptor in needed:
            os.set_inheritable(descriptor, False)


def main(arguments: Sequence[str]) -> None:
    """The program that `spawn` starts; never returns."""
    settings = json.loads(arguments[0])
    sys.path[:] = settings["path"]
    parent, number, descriptor, stack_file, of_processor = settings["process"]
    for inherited in (descriptor, stack_file, settings["page"]):
        os.set_inheritable(inherited, False)
    process = ProcessorProcess(parent, number, descriptor, stack_file, ProcessorSettings(*of_processor))
    code = 1
    try:
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the agent's; programs of tasks do not inherit this
        buffer_lines()
        preload(settings["preloads"])
        versions.start()
        run(process, ProgressPage(settings["page"]))
        code = 0
    except BaseException:
        logger.exception("processor %s: internal error", process.settings.name)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def buffer_lines() -> None:
    """Show output as soon as it is printed, even if the processor is killed later."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def prctl(option: int, argument: int) -> bool:
    """Ask Linux for a service to this process; whether it is given."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(option, argument, 0, 0, 0) == 0)
    return False


def _outlive_termination() -> None:
    """Go on when SIGTERM goes to all processes of a program, as from Slurm: the agent decides how long its tasks have.

    Programs that tasks start do not inherit this, and processes that tasks fork begin without it.
    """
    signal.signal(signal.SIGTERM, _go_on)
    os.register_at_fork(after_in_child=_stop_going_on)


def _go_on(number: int, frame: Optional[FrameType]) -> None:
    """A handler, not SIG_IGN: programs that user code starts would inherit the latter."""


def _stop_going_on() -> None:
    if signal.getsignal(signal.SIGTERM) is _go_on:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with(parent: int) -> None:
    """Kill this processor, and what its tasks have started, when the fork server has ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_INTERVAL_SECONDS)
    with contextlib.suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _reseed_random_generators() -> None:
    """Make forked processors draw different random numbers. `random` does that by itself, numpy does not."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _be_killed_before_the_agent() -> None:
    """If memory runs out, let the system kill a processor, which costs one task, rather than its agent.

    It does not always choose the largest process: one that it has killed may not have ended when memory runs out again.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        if int(file.read()) < _OUT_OF_MEMORY_SCORE:
            file.seek(0)
            file.write(str(_OUT_OF_MEMORY_SCORE))


if __name__ == "__main__":
    main(sys.argv[1:])
