"""Processes of the simulated operating system: fork, waitpid, kill and process groups, for the process that is tested.

Rules:
- Only the parent goes on after `fork`: a child does what the test lets it do.
- A process that has ended is there until it is waited for; after that its id may be that of another process, and a
  signal to it is a mistake of the product.
- An orphan belongs to the tested process, which is a subreaper.
"""

from __future__ import annotations

import errno
import os
import signal
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Set, Tuple

from fault_injection.simulated_system import Fault, SimulatedSystem, faults_at

PROCESS_CALLS: Dict[str, Tuple[str, ...]] = {
    "fork": (),
    "waitpid": ("ECHILD",),
    "kill": ("ESRCH", "EPERM"),
    "killpg": ("ESRCH", "EPERM"),
    "setpgid": ("ESRCH", "EPERM", "EACCES"),
}
"""Calls that are about processes, with the errors that only they have."""

FIRST_PROCESS = 1 << 29  # no process of this host has it


def faults_of(system: SimulatedSystem, indexes: List[int]) -> List[Fault]:
    """Each fault at each of these calls of a run without one, also those that only calls about processes have."""
    return [
        fault
        for index in indexes
        for fault in (
            *faults_at(system, [index]),
            *(Fault(index, kind) for kind in PROCESS_CALLS.get(system.calls[index], ())),
        )
    ]


class Child:
    def __init__(self, process_id: int) -> None:
        self.process_id = process_id
        self.group = process_id
        self.status = -1  # while it runs
        self.ignored: Set[int] = set()  # signals

    @property
    def is_running(self) -> bool:
        return self.status < 0


class SimulatedProcesses:
    """
    Parameters:
        on_fork: a child has begun.
        on_end: a child has ended, which its parent learns by a signal.
    """

    def __init__(
        self, system: SimulatedSystem, on_fork: Callable[[Child], None], on_end: Callable[[Child], None]
    ) -> None:
        self.children: Dict[int, Child] = {}
        self.problems: List[str] = []
        self._system = system
        self._on_fork = on_fork
        self._on_end = on_end
        self._next = FIRST_PROCESS

    def calls(self) -> Dict[str, Any]:
        """In place of those of the module `os`."""
        return {
            "fork": self.fork,
            "waitpid": self.waitpid,
            "kill": self.kill,
            "killpg": self.killpg,
            "setpgid": self.setpgid,
        }

    def running(self) -> List[int]:
        return [each.process_id for each in self.children.values() if each.is_running]

    def fork(self) -> int:
        self._system.enter("fork")
        child = self.start()
        self._on_fork(child)
        return child.process_id

    def start(self) -> Child:
        """A process that another one has started."""
        self._next += 1
        child = self.children[self._next] = Child(self._next)
        return child

    def end(self, child: Child, status: int) -> None:
        if child.is_running:
            child.status = status
            self._on_end(child)

    def waitpid(self, process_id: int, options: int) -> Tuple[int, int]:
        try:
            self._system.enter("waitpid")
        except ChildProcessError:
            for each in list(self.children.values()):
                if not each.is_running:
                    del self.children[each.process_id]  # another part of the process has waited for it
        awaited = [each for each in self.children.values() if process_id in (-1, each.process_id)]
        if not awaited:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        if not options & os.WNOHANG:
            self._system.wait(lambda: any(not each.is_running for each in awaited), None)
        for each in awaited:
            if not each.is_running:
                del self.children[each.process_id]
                return each.process_id, each.status
        return 0, 0

    def kill(self, process_id: int, number: int) -> None:
        self._system.enter("kill" if number else "probe")
        child = self.children.get(process_id)
        if child is None and number:
            self.problems.append(f"signal {number} to process {process_id}, which may be another one's by now")
        if child is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if number:
            self._signal(child, number)

    def killpg(self, group: int, number: int) -> None:
        self._system.enter("killpg")
        members = [each for each in self.children.values() if each.group == group]
        if not members:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        for each in members:
            self._signal(each, number)

    def setpgid(self, process_id: int, group: int) -> None:
        self._system.enter("setpgid")

    def _signal(self, child: Child, number: int) -> None:
        if number == signal.SIGKILL or number not in child.ignored:
            self.end(child, number)


def no_signals() -> Any:
    """In place of the module `signal`: none is handled, and no process of this host gets one."""
    names = {name: getattr(signal, name) for name in dir(signal) if name.startswith("SIG")}
    return SimpleNamespace(
        **names,
        Signals=signal.Signals,
        set_wakeup_fd=lambda descriptor: -1,
        signal=lambda number, handler: None,
        pthread_sigmask=lambda how, numbers: set(),
        default_int_handler=signal.default_int_handler,
    )
