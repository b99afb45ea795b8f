"""The programs of a soak: a scheduler, workers, clients, a monitor and forwarders; each is replaced when it ends.

    steady client, mixed client that comes and goes, hoarding client, monitor ──────┐
    far client ──▶ forwarder ─────────────────────────────────────────────────────┐ │
    [other host: remote client] ──▶ forwarder ──────────────────────────────────┐ │ │
                                                                                ▼ ▼ ▼
    [other host: remote worker] ──▶ the same ──▶ scheduler ◀── steady, plain, tight worker, far worker (by a forwarder)

Rules:
- All end when this process ends, however it ends: each watches its standard input.
- A program's log is one file, whichever process of it writes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from quiet_addresses import quiet_address
from soak.fault_plan import WORKER_TIMEOUT_SECONDS
from soak.live_processes import LiveProcess, children_by_parent
from soak.machine_means import Machine

from scaler.cluster.appliance import scheduler_command
from scaler_protocol.host.addresses import parse_address

TESTS = Path(__file__).resolve().parents[1]
TREE = TESTS.parents[1]
END_SECONDS = 30.0
SLOTS = {"steady": 2, "plain": 2, "far": 1, "remote": 1, "tight": 1}
CLIENTS = {"steady": "mixed", "far": "mixed", "remote": "mixed", "hoarding": "hoarding"}
COMER = "comer"  # the client that comes and goes
OBJECT_MEMORY_BYTES = 32 << 20


class End(NamedTuple):
    """A program ended, at a time of the monotonic clock."""

    program: str
    code: int
    at: float


class Program:
    """A program that is replaced when it ends.

    Attributes:
        name: for reports, such as `worker far`.
        process: the one that runs, or ran last.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Dict[str, str], cwd: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._environment = environment
        self._cwd = cwd
        self.start_count = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.start_count += 1
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self.name.startswith(("client", "monitor", "forwarder")) else log,
                stderr=log,
                env=self._environment,
                cwd=self._cwd,
                start_new_session=True,  # Ctrl-C is for the process that reports
            )

    def restart(self) -> None:
        self.close_pipes()
        self.process = self._start()

    def send(self, word: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            if self.process.stdin.closed:
                return  # it was asked to end
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()

    def close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def ask_to_end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()


class SoakedCluster:
    def __init__(self, machine: Machine, seed: int, most_a_second: float) -> None:
        self.machine = machine
        self.folder = machine.folder
        for name in ("logs", "run", "temporary", "work", "ledgers"):
            (self.folder / name).mkdir()
        self.seen: Set[LiveProcess] = set()
        self.ends: List[End] = []
        self._seed = seed
        self._most_a_second = most_a_second
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "SCALER_RUN_DIRECTORY": str(self.folder / "run"),
            "TMPDIR": str(self.folder / "temporary"),
        }
        self._environment.pop("SCALER_ADDRESS", None)
        (self.folder / "run").chmod(0o700)
        self.address = quiet_address()
        self.scheduler = self._start_scheduler()
        self.forwarders = {
            name: self._start_forwarder(name, host)
            for name, host in (("far", "127.0.0.1"), ("remote", machine.address_from_other_host))
        }
        self._addresses = {name: self._address_behind(name) for name in self.forwarders}
        self.workers = {name: self._start_worker(name, slots) for name, slots in SLOTS.items()}
        self.clients = {name: self._start_client(name, kind) for name, kind in CLIENTS.items()}
        self.comer: Optional[Program] = None
        self._comer_count = 0
        self.monitor = self._start("monitor", sys.executable, "-m", "soak.watching_monitor", self.address)

    def _start(self, name: str, *command: str) -> Program:
        log = self.folder / "logs" / (name.replace(" ", "-") + ".log")
        program = Program(name, command, log, self._environment, self.folder / "work")
        self._see(program)
        return program

    def _see(self, program: Program) -> None:
        started = LiveProcess.find(program.process.pid)
        if started is not None:
            self.seen.add(started)

    def _start_scheduler(self) -> Program:
        options: Dict[str, object] = {
            "worker-timeout-seconds": WORKER_TIMEOUT_SECONDS,
            "client-timeout-seconds": 10,
            "maximum-attempts": 200,
            "heartbeat-interval-seconds": 0.5,
            "object-directory": self.machine.memory,
            "object-spill-directory": self.machine.disk,
            "object-memory-limit": OBJECT_MEMORY_BYTES,
        }
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        command = [*scheduler_command(), self.address, *arguments, "--exit-when-stdin-closes", "-ll", "INFO"]
        return self._start("scheduler", *command)

    def _start_forwarder(self, name: str, host: str) -> Program:
        target = parse_address(self.address)
        script = str(Path(__file__).with_name("stalling_forwarder.py"))
        return self._start(f"forwarder {name}", sys.executable, script, host, target.host, str(target.port))

    def _address_behind(self, name: str) -> str:
        forwarder = self.forwarders[name]
        assert forwarder.process.stdout is not None
        host = self.machine.address_from_other_host if name == "remote" else "127.0.0.1"
        return f"tcp://{host}:{int(forwarder.process.stdout.readline())}"

    def _start_worker(self, name: str, slots: int) -> Program:
        address = self._addresses.get(name, self.address)
        command = [sys.executable, "-m", "scaler.worker", address, "-n", str(slots), "-wn", name]
        command += ["--exit-when-stdin-closes", "-ll", "INFO"]
        if name == "tight":
            command = self.machine.with_little_memory(*command, "--capabilities", "tight")
        return self._start(f"worker {name}", *self._on_its_host(name, command))

    def _start_client(self, name: str, kind: str) -> Program:
        address = self._addresses.get(name, self.address)
        self._seed += 1
        ledger = str(self.folder / "ledgers" / f"{name}-{self._seed}")
        names = [address, str(self._seed), str(self._most_a_second), ledger, kind]
        command = [sys.executable, "-m", "soak.load_client", *names]
        return self._start(f"client {name}", *self._on_its_host(name, command))

    def _on_its_host(self, name: str, command: List[str]) -> List[str]:
        return self.machine.on_other_host(*command) if name == "remote" else command

    # Replacement ------------------------------------------------------------------------------------------------------

    def replace_dead(self, now: float) -> None:
        for program in [self.scheduler, self.monitor]:
            if self._has_ended(program, now):
                program.restart()
                self._see(program)
        for worker in self.workers.values():
            if self._has_ended(worker, now):
                worker.restart()
                self._see(worker)
        for name, client in self.clients.items():
            if self._has_ended(client, now):
                client.close_pipes()
                count = client.start_count
                self.clients[name] = self._start_client(name, CLIENTS[name])  # with another ledger
                self.clients[name].start_count = count + 1

    def _has_ended(self, program: Program, now: float) -> bool:
        code = program.process.poll()
        if code is not None:
            self.ends.append(End(program.name, code, now))
        return code is not None

    def start_comer(self) -> None:
        self._comer_count += 1
        self.comer = self._start_client(COMER, "mixed")

    def take_ended_comer(self, now: float) -> bool:
        """Whether the client that comes and goes has gone, or there is none."""
        if self.comer is not None and self._has_ended(self.comer, now):
            self.comer.close_pipes()
            self.comer = None
        return self.comer is None

    # What there is ----------------------------------------------------------------------------------------------------

    def reporting(self) -> Iterator[Program]:
        """The programs whose standard output is to be read."""
        yield from self.clients.values()
        yield self.monitor
        if self.comer is not None:
            yield self.comer

    def processes(self) -> Dict[str, List[LiveProcess]]:
        """All that faults may hit, by kind.

        A worker's program is its agent; its child is the fork server, the parent of the processors.
        """
        children = children_by_parent()
        fork_servers = {name: children.get(each.process.pid, []) for name, each in self.workers.items()}
        processors = [
            pid for pids in fork_servers.values() for fork_server in pids for pid in children.get(fork_server, [])
        ]
        clients = [*self.clients.values(), *filter(None, [self.comer])]
        found = {
            "scheduler": _existing([self.scheduler.process.pid]),
            "monitor": _existing([self.monitor.process.pid]),
            "agent": _existing([each.process.pid for each in self.workers.values()]),
            "fork server": _existing([pid for pids in fork_servers.values() for pid in pids]),
            "processor": _existing(processors),
            "client": _existing([each.process.pid for each in clients]),
        }
        self.seen.update(process for processes in found.values() for process in processes)
        return found

    def descendants(self, program: Program) -> List[int]:
        """The processes that a program has started, and that those have started."""
        children = children_by_parent()
        found = list(children.get(program.process.pid, []))
        for pid in found:
            found += children.get(pid, [])
        return found

    def long_lived(self) -> Dict[str, int]:
        """The processes whose use of memory and descriptors is watched."""
        programs = [self.scheduler, self.monitor, *self.workers.values(), *self.clients.values()]
        return {program.name: program.process.pid for program in programs}

    def steady_pids(self) -> Set[int]:
        """Processes that are paused but not killed: an agent and its fork server, and two clients."""
        steady = self.workers["steady"].process.pid
        return {
            steady,
            *children_by_parent().get(steady, []),
            *(self.clients[n].process.pid for n in ("steady", "far")),
        }

    # The end ----------------------------------------------------------------------------------------------------------

    def stop(self) -> List[LiveProcess]:
        """End all programs as users do; returns the processes that are still there after a while."""
        self.processes()
        clients = [*self.clients.values(), self.monitor, *filter(None, [self.comer])]
        for programs in (clients, [*self.workers.values()], [self.scheduler], [*self.forwarders.values()]):
            for program in programs:
                program.ask_to_end()
            for program in programs:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = program.process.wait(END_SECONDS)
                    self.ends.append(End(program.name, code, time.monotonic()))
        deadline = time.monotonic() + END_SECONDS
        left = [process for process in self.seen if process.is_alive()]
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = [process for process in left if process.is_alive()]
        return left

    def kill(self) -> None:
        """Whatever is left of it."""
        for process in self.seen:
            process.signal(signal.SIGKILL)
        for program in [*self.reporting(), self.scheduler, *self.workers.values(), *self.forwarders.values()]:
            program.process.kill()
            program.process.wait()
            program.close_pipes()


def _existing(pids: Sequence[int]) -> List[LiveProcess]:
    return [process for process in map(LiveProcess.find, pids) if process is not None]
