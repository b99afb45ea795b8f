"""What the scheduler tells monitors: one SchedulerStatus a second on the PUB socket.

Rules: figures about this process come from the operating system's own files; nothing here changes the core.
"""

from __future__ import annotations

import os
import resource
from typing import Counter, List

from scaler_appliance.core.scheduler import Scheduler
from scaler_appliance.core.task_states import FINAL_STATES
from scaler_appliance.shell.monitor import Monitor
from scaler_protocol import encode
from scaler_protocol import messages as m


class StatusReporter:
    def __init__(self, core: Scheduler, monitor: Monitor, sent: Counter[str], received: Counter[str]) -> None:
        self._core = core
        self._monitor = monitor
        self._sent = sent
        self._received = received
        self._last_report = 0.0
        self._last_cpu_seconds = 0.0

    def report(self, now: float) -> None:
        """Publish the status of this moment; `now` is in seconds."""
        self._monitor.publish(encode(self._status(now)))

    def _status(self, now: float) -> m.SchedulerStatus:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        elapsed_seconds = max(1e-6, now - self._last_report)
        cpu_permille = int(1000 * (cpu_seconds - self._last_cpu_seconds) / elapsed_seconds)
        self._last_report, self._last_cpu_seconds = now, cpu_seconds
        state = self._core.state
        counts = {"unassigned": len(state.ready), "running": state.running()}
        counts.update({outcome.name.lower(): state.finished[outcome] for outcome in FINAL_STATES})
        return m.SchedulerStatus(
            scheduler_id=state.settings.scheduler_id,
            cpu_permille=min(cpu_permille, 0xFFFFFFFF),
            resident_bytes=resident_bytes(),
            objects=len(state.objects),
            object_bytes=state.objects.total_bytes,
            tasks=_counts(counts),
            sent=_counts(self._sent),
            received=_counts(self._received),
            workers=[self._worker_status(number) for number in state.workers],
            clients=len(state.clients),
        )

    def _worker_status(self, number: int) -> m.WorkerStatus:
        worker = self._core.state.workers[number]
        return m.WorkerStatus(
            session=number,
            name=worker.hello.name,
            host=worker.hello.host,
            process_id=worker.hello.process_id,
            slots=worker.slots,
            tasks=worker.assigned,
            heartbeat=worker.heartbeat or m.Heartbeat(),
        )


def _counts(counter: dict[str, int]) -> List[m.Count]:
    return [m.Count(name=name, value=value) for name, value in sorted(counter.items())]


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
