"""Publishes the scheduler's status for monitors, once a second, and measures the cost.

    StatusPublisher.interest() ──▶ subscribers? ──no──▶ nothing is built, recorded or sent
                                         └──yes─▶ core.take_status(…), core.take_runs(…) ──▶ StatusPublisher.publish(…)
                                                    └─ in parts: the first in `report`, the others in `go_on`

Rules:
- A monitor whose key is of one tenant gets that tenant's view of each publication. Views are made after it, those that
  monitors have.
- A new subscriber to `status` makes the next publication a snapshot, for all. Snapshots take at most SNAPSHOT_SHARE of
  the time, however often subscribers come.
- Between two parts of a publication, peers are served.
- Figures about this process come from the operating system's files.
- The wall clock may be set while the scheduler runs: when that started is then given by the clock of now.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from typing import Counter, Iterator, List, Optional

from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.shell.core_inputs import CoreInputs, InputKind
from scaler_appliance.shell.publishing.status_publisher import StatusPublisher
from scaler_appliance.shell.publishing.subscriptions import RUNS, STATUS
from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT
from scaler_protocol.wire.codec import encode_in_parts

SNAPSHOT_SHARE = 0.02
CLOCK_STEP_MICROSECONDS = 1_000_000
"""By how much the wall clock differs at least once it was set; less may be the time between two readings."""

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first one goes on while the host sleeps


class StatusReporter:
    """Publishes for one scheduler.

    Parameters:
        inputs: of the core, to take its changes.
        address: where clients and workers connect.
        sent, received: how many messages of each name were, kept by the sender and the receiver.
        now: the core's clock.
        is_insecure: the scheduler serves peers over the network without a key.
    """

    def __init__(
        self,
        core: SchedulerCore,
        inputs: CoreInputs,
        monitor: StatusPublisher,
        address: str,
        sent: Counter[str],
        received: Counter[str],
        now: float,
        is_insecure: bool,
    ) -> None:
        self._core = core
        self._inputs = inputs
        self._monitor = monitor
        self._address = address
        self._is_insecure = is_insecure
        self._host = socket.gethostname()
        self._sent = sent
        self._received = received
        self._started_since_boot = time.clock_gettime(_SINCE_BOOT)
        self._started = int(time.time() * 1e6)
        self._unix_offset_microseconds = self._started - int(now * 1e6)
        self._last_sample = now
        self._last_cpu_seconds = 0.0
        self._cpu_permille = 0
        self._status_seconds = 0.0
        self._has_status = self._has_runs = False
        self._snapshot_is_due = False
        self._next_snapshot = now
        self._publication: Optional[Iterator[None]] = None  # of the status: the one that is being made
        self._is_snapshot = False  # or was the last one
        self._seconds_of_publication = 0.0  # that it has taken
        self._now = now

    @property
    def is_unfinished(self) -> bool:
        """Whether a publication has further parts: `go_on` is to be called soon."""
        return self._publication is not None

    def report(self, now: float) -> None:
        """Publish changes, if there are subscribers; to be called once a second."""
        begin = time.thread_time()
        interest = self._monitor.interest()
        self._snapshot_is_due = interest.has_status and (self._snapshot_is_due or interest.is_new)
        self._sample(now)
        self._follow_wall_clock(now)
        has_status = interest.has_status and (self._has_status or now >= self._next_snapshot)
        if (has_status, interest.has_runs) != (self._has_status, self._has_runs):
            self._has_status, self._has_runs = has_status, interest.has_runs
            self._core.status.unix_offset_microseconds = self._unix_offset_microseconds
            self._inputs.call(InputKind.SUBSCRIPTIONS, now, has_status, interest.has_runs)
        # SCL-MON-001
        if not has_status:
            self._publication = None
        elif self._publication is None:
            # SCL-MON-003
            self._is_snapshot = self._snapshot_is_due and now >= self._next_snapshot
            self._publication = self._parts(self._is_snapshot)
            self._seconds_of_publication = 0.0
        # SCL-MON-007
        if interest.has_runs and len(self._core.state.runs):
            self._publish_runs(now)
        self._status_seconds += time.thread_time() - begin
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Make a part of a publication, if there is one to be made."""
        if self._publication is None:
            return
        begin = time.thread_time()
        self._now = now
        publication, self._publication = self._publication, None  # it is given up if an exception ends it
        for _ in publication:
            self._publication = publication
            break
        seconds = time.thread_time() - begin
        self._status_seconds += seconds
        self._seconds_of_publication += seconds
        if self._is_snapshot and self._publication is None:
            self._snapshot_is_due = False
            self._next_snapshot = now + self._seconds_of_publication / SNAPSHOT_SHARE

    def _parts(self, is_snapshot: bool) -> Iterator[None]:
        """Publish the status, in parts."""
        status: Optional[m.SchedulerStatus] = None
        while True:
            status = self._inputs.call(InputKind.TAKE_STATUS, self._now, is_snapshot)
            if status is not None:
                break
            yield
        views = self._monitor.views(STATUS)
        if ANY_TENANT in views:
            yield from self._publish(status, ANY_TENANT)
        for tenant in views:
            if tenant == ANY_TENANT:
                continue
            view: Optional[m.SchedulerStatus] = self._inputs.call(InputKind.TAKE_VIEW, self._now, tenant)
            while view is None:
                yield
                view = self._inputs.call(InputKind.TAKE_VIEW, self._now, tenant)
            yield from self._publish(view, tenant)

    def _publish(self, status: m.SchedulerStatus, view: str) -> Iterator[None]:
        self._add_figures(status)
        if view == ANY_TENANT:
            status.sent, status.received = _counts(self._sent), _counts(self._received)
        for frame in encode_in_parts(status):
            if frame is None:
                yield
            else:
                self._monitor.publish(STATUS, frame, view)

    def _publish_runs(self, now: float) -> None:
        runs: m.TaskRuns = self._inputs.call(InputKind.TAKE_RUNS, now, int(time.time() * 1e6))
        for view in self._monitor.views(RUNS):
            if view != ANY_TENANT:
                self._monitor.publish(RUNS, encode(self._inputs.call(InputKind.TAKE_RUNS_VIEW, now, view)), view)
            else:
                self._monitor.publish(RUNS, encode(runs))

    def _sample(self, now: float) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        elapsed_seconds = max(1e-3, now - self._last_sample)
        self._cpu_permille = int(1000 * (cpu_seconds - self._last_cpu_seconds) / elapsed_seconds)
        self._last_sample, self._last_cpu_seconds = now, cpu_seconds

    def _follow_wall_clock(self, now: float) -> None:
        unix_microseconds = int(time.time() * 1e6)
        offset = unix_microseconds - int(now * 1e6)
        if abs(offset - self._unix_offset_microseconds) > CLOCK_STEP_MICROSECONDS:
            self._unix_offset_microseconds = self._core.status.unix_offset_microseconds = offset
        started = unix_microseconds - int((time.clock_gettime(_SINCE_BOOT) - self._started_since_boot) * 1e6)
        if abs(started - self._started) > CLOCK_STEP_MICROSECONDS:
            self._started = started

    def _add_figures(self, status: m.SchedulerStatus) -> None:
        """The figures of the process, which the core does not have."""
        status.unix_microseconds = int(time.time() * 1e6)
        status.started_unix_microseconds = self._started
        status.address = self._address
        status.host = self._host
        status.is_insecure = self._is_insecure  # SCL-MON-009
        status.process_id = os.getpid()
        status.cpu_permille = min(self._cpu_permille, 0xFFFFFFFF)
        status.resident_bytes = resident_bytes()
        status.status_microseconds = int(self._status_seconds * 1e6)


def _counts(counter: Counter[str]) -> List[m.Count]:
    return [m.Count(name=name, value=value) for name, value in sorted(counter.items())]


def resident_bytes() -> int:
    """Resident memory of this process; 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
