"""What the scheduler tells monitors: one SchedulerStatus a second on the PUB socket.

Rules: figures about this process come from the operating system's own files; nothing here changes the core.
"""

from __future__ import annotations

import os
import resource
import time
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
        self._sequence = 0
        self._started = int(time.time() * 1e6)

    def report(self, now: float) -> None:
        """Publish the status of this moment; `now` is in seconds."""
        self._monitor.publish(b"status", encode(self._status(now)))

    def _status(self, now: float) -> m.SchedulerStatus:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        elapsed_seconds = max(1e-6, now - self._last_report)
        cpu_permille = int(1000 * (cpu_seconds - self._last_cpu_seconds) / elapsed_seconds)
        self._last_report, self._last_cpu_seconds = now, cpu_seconds
        state = self._core.state
        counts = {"unassigned": len(state.ready), "running": state.running()}
        counts.update({outcome.name.lower(): state.finished[outcome] for outcome in FINAL_STATES})
        self._sequence += 1
        workers = list(state.workers.values())
        beats = [worker.heartbeat or m.Heartbeat() for worker in workers]
        processors = [(worker.number, each) for worker, beat in zip(workers, beats) for each in beat.processors]
        return m.SchedulerStatus(
            scheduler_id=state.settings.scheduler_id,
            sequence=self._sequence,
            is_snapshot=True,
            unix_microseconds=int(time.time() * 1e6),
            started_unix_microseconds=self._started,
            implementation=state.settings.implementation,
            process_id=os.getpid(),
            is_protected=state.settings.protected,
            cpu_permille=min(cpu_permille, 0xFFFFFFFF),
            resident_bytes=resident_bytes(),
            objects=len(state.objects),
            object_bytes=state.objects.total_bytes,
            slots=state.total_slots,
            tasks=_counts(counts),
            sent=_counts(self._sent),
            received=_counts(self._received),
            workers=m.WorkerColumns(
                sessions=[worker.number for worker in workers],
                tasks=[worker.assigned for worker in workers],
                queued=[beat.queued for beat in beats],
                sent=[0 for _ in workers],
                finished=[0 for _ in workers],
                failed=[0 for _ in workers],
                cpu_permille=[beat.cpu_permille for beat in beats],
                resident_bytes=[beat.resident_bytes for beat in beats],
                free_bytes=[beat.free_bytes for beat in beats],
                latency_microseconds=[beat.latency_microseconds for beat in beats],
                states=bytes(len(workers)),
            ),
            processors=m.ProcessorColumns(
                workers=[number for number, _ in processors],
                process_ids=[each.process_id for _, each in processors],
                states=bytes(each.initialized | each.has_task << 1 | each.suspended << 2 for _, each in processors),
                cpu_permille=[each.cpu_permille for _, each in processors],
                resident_bytes=[each.resident_bytes for _, each in processors],
                queued=[each.queued for _, each in processors],
                task_clients=[0 for _ in processors],
                task_ids=[0 for _ in processors],
                task_functions=[0 for _ in processors],
                task_microseconds=[0 for _ in processors],
            ),
            new_workers=[
                m.WorkerIdentity(
                    session=worker.number,
                    name=worker.hello.name,
                    host=worker.hello.host,
                    process_id=worker.hello.process_id,
                    slots=worker.slots,
                    implementation=worker.hello.implementation,
                    capabilities=worker.hello.capabilities,
                )
                for worker in workers
            ],
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
