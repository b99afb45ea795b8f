"""A small life of a fork server over a simulated system: processors that end in all ways, and what they leave."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from fault_injection.simulated_processes import Child, SimulatedProcesses, no_signals
from fault_injection.simulated_sockets import FakeSocket, join
from fault_injection.simulated_system import Fault, SimulatedSystem, StuckError, installed

from scaler.worker.fork_server import agent_connection, fork_server, processor_process, stacks
from scaler.worker.fork_server.fork_server_client import ORDER, REPORT, OrderKind, ReportKind

MODULES = (fork_server, agent_connection, stacks)
REST_SECONDS = 0.05  # between two steps of the agent
EXIT_CODE = 3


class PlayedAgent:
    """Orders processors and waits for each to end as it should; an attempt that failed is made again."""

    def __init__(self, system: SimulatedSystem, folder: Path) -> None:
        self.system = system
        self.control = FakeSocket(system)  # the fork server's end
        self._own = FakeSocket(system, counted=False)
        join(self._own, self.control)
        self.control.on_bytes = self._on_bytes
        self.control.on_end = self._on_end
        self.processes = SimulatedProcesses(system, self._on_fork, self._on_child_end)
        self.file = folder / "left-behind"
        self.file.touch()
        self.statuses: Dict[int, int] = {}
        """With which each processor ended."""
        self.failures = 0
        self.problems: List[str] = []
        self.wake: Callable[[], None] = lambda: None
        self._received = bytearray()
        self._processors: Dict[int, Child] = {}
        self._forked: Optional[Child] = None
        self._running: Dict[int, int] = {}  # process ids of processors that were reported
        self._steps = self._live()
        self._waits_for: Callable[[], bool] = lambda: True
        self.has_left = False
        system.actors.append(self._act)

    def _live(self) -> Iterator[Callable[[], bool]]:
        self._order(OrderKind.REMOVE, 0, os.fsencode(str(self.file)))
        self._order(OrderKind.IMPORT, 0, b"json")
        for number in (1, 2):
            yield from self._spawn(number)
        self.processes.end(self._processors[1], EXIT_CODE << 8)
        yield lambda: 1 in self.statuses
        self._order(OrderKind.KILL, 2)
        yield lambda: 2 in self.statuses
        yield from self._spawn(3)
        self._order(OrderKind.STOP, 3)
        yield lambda: 3 in self.statuses
        yield from self._spawn(4)
        self._processors[4].ignored.add(stacks.STACK_SIGNAL)
        self._order(OrderKind.STOP, 4)
        yield lambda: 4 in self.statuses
        yield from self._spawn(5)
        self.processes.start().group = self._processors[5].process_id  # a subprocess of the task
        self.processes.start()  # another one, with a group of its own
        self._order(OrderKind.KILL, 5)
        yield lambda: 5 in self.statuses
        for number in (6, 7):
            yield from self._spawn(number)
        self.has_left = True
        self._own.close()
        self.control.end()

    def _spawn(self, number: int) -> Iterator[Callable[[], bool]]:
        while number not in self._running:
            yield lambda: not self.control.inbox  # the descriptor belongs to the next order that is read
            failures = self.failures + 1
            self.control.passed.append(FakeSocket(self.system, counted=False))
            self._order(OrderKind.SPAWN, number, b"processor")
            yield partial(self._is_answered, number, failures)

    def _is_answered(self, number: int, failures: int) -> bool:
        return number in self._running or self.failures == failures

    def _order(self, kind: OrderKind, number: int, text: bytes = b"") -> None:
        self.control.deliver(ORDER.pack(kind, len(text), number) + text)

    def _act(self) -> bool:
        """Take the next step when what the last one waits for is so; returns whether there was one to take."""
        if self.has_left or not self._waits_for():
            return False
        self._waits_for = next(self._steps, self._waits_for)
        return True

    def _on_end(self) -> None:
        self._own.end()
        if not self.has_left:
            self.problems.append("the fork server has closed its socket")

    def _on_fork(self, child: Child) -> None:
        self._forked = child

    def _on_child_end(self, child: Child) -> None:
        self.wake()

    def _on_bytes(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= REPORT.size:
            kind, length, number, process_id, status = REPORT.unpack_from(self._received)
            if len(self._received) < REPORT.size + length:
                return
            del self._received[: REPORT.size + length]
            self._on_report(kind, number, process_id, status)

    def _on_report(self, kind: int, number: int, process_id: int, status: int) -> None:
        if kind == ReportKind.FAILED:
            self.failures += 1
        elif kind == ReportKind.SPAWNED:
            if number in self._running:
                self.problems.append(f"processor {number} was forked twice")
            assert self._forked is not None and self._forked.process_id == process_id
            self._running[number] = process_id
            self._processors[number] = self._forked
        elif self._running.get(number) != process_id or number in self.statuses:
            self.problems.append(f"an end of processor {number}, process {process_id}")
        else:
            self.statuses[number] = status


class ForkServerRun(NamedTuple):
    """The outcome of one run.

    Parameters:
        statuses: with which processors ended before the agent left.
        exit_code: None if the fork server did not start.
        problems: what is wrong whatever the fault was.
    """

    system: SimulatedSystem
    statuses: Dict[int, int]
    exit_code: Optional[int]
    problems: List[str]


def run_fork_server(folder: Path, fault: Optional[Fault] = None) -> ForkServerRun:
    """Run the scenario once."""
    system = SimulatedSystem(fault)
    agent = PlayedAgent(system, Path(tempfile.mkdtemp(dir=folder)))
    problems: List[str] = []
    exit_code: Optional[int] = None
    logger = logging.getLogger("scaler")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with installed(system, MODULES) as patch:
            simulated: Any = vars(fork_server)["os"]
            for name, call in agent.processes.calls().items():
                setattr(simulated, name, call)
            patch.setattr(fork_server, "signal", no_signals())
            for name in ("_close_standard_input", "_freeze"):
                patch.setattr(fork_server, name, lambda *_: None)
            for name in ("prctl", "buffer_lines"):
                patch.setattr(processor_process, name, lambda *_: None)
            patch.setattr(fork_server, "versions", SimpleNamespace(start=lambda: None))
            patch.setattr(fork_server, "_children_of", lambda parent: list(agent.processes.children))
            patch.setattr(stacks, "ask_for_stack", lambda process: agent.processes.kill(process, stacks.STACK_SIGNAL))
            patch.setattr(stacks, "make_stack_file", lambda: _make_stack_file(system, folder))
            control: Any = agent.control
            page: Any = None
            server = fork_server._ForkServer(control, page, fork_server.ForkServerSettings("tcp://a:1"))
            agent.wake = lambda: system.open[server._wakeup_write].inbox.extend(b"\x11")
            exit_code = server.run()
            for descriptor in (server._wakeup_read, server._wakeup_write):
                del system.open[descriptor]
            for stack_file in server._stack_files.values():  # of processors that ended with this process
                os.close(stack_file)
                system.open_files.remove(stack_file)
            server._agent.close()
    except StuckError as error:
        problems.append(f"stuck: {error}")
    except (OSError, MemoryError) as error:
        if agent.processes.children or agent.statuses:
            problems.append(f"it ended: {error!r}")
        return ForkServerRun(system, agent.statuses, None, problems)
    finally:
        logger.setLevel(level)
    problems += agent.problems + agent.processes.problems
    problems += [f"process {each} is left" for each in agent.processes.running()]
    problems += [f"left open: {each!r}" for each in system.left_open()]
    if agent.file.exists():
        problems.append("a file is left")
    if not agent.has_left:
        problems.append("it ended before the agent")
    return ForkServerRun(system, agent.statuses, exit_code, problems)


def _make_stack_file(system: SimulatedSystem, folder: Path) -> int:
    system.enter("memfd_create")
    descriptor, path = tempfile.mkstemp(dir=folder)
    os.unlink(path)
    system.open_files.add(descriptor)
    return descriptor


EXPECTED = {
    1: EXIT_CODE << 8,
    2: int(signal.SIGKILL),
    3: stacks.STACK_SIGNAL,
    4: int(signal.SIGKILL),
    5: int(signal.SIGKILL),
}
"""How processors end that the agent does not leave behind; one whose signal fails is killed later."""
