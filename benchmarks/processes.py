"""What the processes of one engine use: CPU time, memory, and which processes they are.

Everything is read from /proc (through psutil where it does the same), and only from outside: nothing is
injected into a measured process. A measuring process finds "its" processes as its descendants plus all
processes started with the marker that its parent put into the environment, so that daemons which detached
themselves count as well.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

MARKER_VARIABLE = "SCALER_BENCHMARK_MARKER"
_MIB = 1024 * 1024


def marked_processes(marker: str) -> list[psutil.Process]:
    """All processes that were started with this marker in their environment."""
    wanted = f"{MARKER_VARIABLE}={marker}".encode()
    found = []
    for process_id in psutil.pids():
        try:
            environment = Path(f"/proc/{process_id}/environ").read_bytes()
            if wanted in environment.split(b"\0"):
                found.append(psutil.Process(process_id))
        except (OSError, psutil.Error):
            continue  # ended meanwhile, or belongs to someone else
    return found


def engine_processes() -> list[psutil.Process]:
    """The processes that the engine started by this process consists of; this process itself excluded."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    marker = os.environ.get(MARKER_VARIABLE)
    if marker:
        found.update((process.pid, process) for process in marked_processes(marker))
    found.pop(os.getpid(), None)
    return list(found.values())


def end_marked_processes(marker: str) -> int:
    """Kill whatever a measurement left behind; returns how many processes that were."""
    left = [process for process in marked_processes(marker) if process.pid != os.getpid()]
    for process in left:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue
    psutil.wait_procs(left, timeout=5)
    return len(left)


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds used so far, and the clock at that moment."""

    at_seconds: float
    own_seconds: float
    engine_seconds: float
    machine_busy_seconds: float


def read_cpu() -> CpuReading:
    """Read the CPU time of this process, of its engine's processes, and of the whole machine.

    By thread and in nanoseconds: in the ticks of 10 ms that /proc/PID/stat gives, a dozen processes that work
    for a tenth of a second vanish. The price: a thread that ends between two readings takes its time with it.
    """
    engine_seconds = 0.0
    for process in engine_processes():
        try:
            engine_seconds += read_thread_cpu(process.pid).total_seconds
        except OSError:
            continue  # ended meanwhile
    own = time.process_time()
    machine = psutil.cpu_times()
    idle = machine.idle + getattr(machine, "iowait", 0.0)
    # guest time is contained in user time already
    counted = sum(machine) - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
    return CpuReading(time.monotonic(), own, engine_seconds, counted - idle)


@dataclass(frozen=True)
class CpuUse:
    """What was used between two readings."""

    wall_seconds: float
    own_seconds: float
    engine_seconds: float
    other_jobs_cores: float

    @property
    def total_seconds(self) -> float:
        """CPU seconds of the client and of all processes of the engine together."""
        return self.own_seconds + self.engine_seconds


def cpu_between(before: CpuReading, after: CpuReading) -> CpuUse:
    """The difference of two readings; what neither client nor engine used is other jobs' load."""
    wall = after.at_seconds - before.at_seconds
    own = after.own_seconds - before.own_seconds
    engine = max(0.0, after.engine_seconds - before.engine_seconds)
    machine = after.machine_busy_seconds - before.machine_busy_seconds
    other = max(0.0, machine - own - engine) / wall if wall > 0 else 0.0
    return CpuUse(wall, own, engine, other)


@dataclass(frozen=True)
class ThreadCpu:
    """CPU seconds of one process, its main thread apart from its others (those of libzmq, mostly)."""

    main_seconds: float
    other_seconds: float

    @property
    def total_seconds(self) -> float:
        """CPU seconds of all threads."""
        return self.main_seconds + self.other_seconds


def read_thread_cpu(process_id: int) -> ThreadCpu:
    """CPU time of a process by thread, in nanosecond resolution where the kernel gives it, else in ticks."""
    main, others = 0.0, 0.0
    for entry in os.listdir(f"/proc/{process_id}/task"):
        seconds = _thread_seconds(Path(f"/proc/{process_id}/task/{entry}"))
        if int(entry) == process_id:
            main += seconds
        else:
            others += seconds
    return ThreadCpu(main, others)


def _thread_seconds(folder: Path) -> float:
    try:
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Memory of several processes. PSS counts a page shared by n processes as 1/n in each."""

    proportional_mib: float
    resident_mib: float
    processes: int


def read_memory(processes: list[psutil.Process]) -> Memory:
    """Sum the memory of processes; one that ended meanwhile counts nothing."""
    proportional, resident, counted = 0, 0, 0
    for process in processes:
        try:
            sizes = _rollup_kilobytes(process.pid)
        except OSError:
            continue
        if not sizes:
            continue  # a zombie has no memory
        proportional += sizes.get("Pss", 0)
        resident += sizes.get("Rss", 0)
        counted += 1
    return Memory(proportional * 1024 / _MIB, resident * 1024 / _MIB, counted)


def resident_bytes(process_id: int) -> int:
    """Resident set size of one process."""
    return int(psutil.Process(process_id).memory_info().rss)


def _rollup_kilobytes(process_id: int) -> dict[str, int]:
    sizes = {}
    for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        sizes[name] = int(value.split()[0])
    return sizes
