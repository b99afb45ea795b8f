"""Metrics for Prometheus, computed on request.

Rules:
- Names and units follow Prometheus' conventions; those listed in METRICS are stable.
- The number of series is bounded, however many functions, hosts and pools there are: the remaining ones are `other`,
  or left out.
- A counter never decreases except for a restart from 0: when a function enters or leaves the list, earlier counts do
  not move from or to `other`.
- While the scheduler is silent, its metrics are omitted rather than stale; only `scaler_up` is 0.
"""

from __future__ import annotations

from itertools import islice
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from scaler_appliance import __version__
from scaler_appliance.feed.cluster_entities import FunctionFigures
from scaler_appliance.feed.durations import BUCKETS_AN_OCTAVE
from scaler_appliance.ui.slot_demand import wanted_by_needs
from scaler_appliance.ui.ui_state import UiState, cpu_permille, hosts, resident_bytes
from scaler_protocol import messages as m
from scaler_protocol.host.interpreter import python_version

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FUNCTIONS_LISTED = 50
HOSTS_LISTED = 100
NEEDS_LISTED = 100
POOLS_LISTED = 100
NAME_LENGTH = 120
OTHER = "other"

FIRST_OCTAVE = 6  # of microseconds: the first bucket is up to 64 µs
LAST_OCTAVE = 32  # more than an hour
EVICTION_RATIO = 2.0  # a function replaces another when it has been busy for this many times as long

_NO_OUTCOMES = ("unassigned", "waiting", "running", "stale")  # published together with totals of outcomes


class _Totals:
    """The totals of one name."""

    __slots__ = ("finished", "failed", "busy_microseconds", "octaves")

    def __init__(self) -> None:
        self.finished = self.failed = self.busy_microseconds = 0
        self.octaves = [0] * (LAST_OCTAVE - FIRST_OCTAVE + 2)  # the last: longer than all

    def add(self, finished: int, failed: int, busy_microseconds: int) -> None:
        self.finished += finished
        self.failed += failed
        self.busy_microseconds += busy_microseconds


class _LastSeen:
    """A function's figures when they were last counted."""

    __slots__ = ("finished", "failed", "busy_microseconds", "durations")

    def __init__(self) -> None:
        self.finished = self.failed = self.busy_microseconds = 0
        self.durations: Dict[int, int] = {}


class FunctionTotals:
    """Totals by function name, for a bounded number of names and `other`.

    Counts stay where they were counted: those of a function while it was not listed stay in `other`.
    """

    def __init__(self, listed: int = FUNCTIONS_LISTED) -> None:
        self._listed = listed
        self._generation = -1
        self.clear()

    def clear(self) -> None:
        self.totals: Dict[str, _Totals] = {}
        self.other = _Totals()
        self._seen: Dict[int, _LastSeen] = {}

    def count(self, generation: int, functions: Dict[int, FunctionFigures]) -> None:
        """Count the changes since the last call."""
        if generation != self._generation:
            self._generation = generation
            self.clear()
        for number in set(self._seen).difference(functions):
            del self._seen[number]
        self._choose(functions.values())
        for number, function in functions.items():
            seen = self._seen.get(number)
            if seen is None:
                seen = self._seen[number] = _LastSeen()
            if function.finished != seen.finished or function.durations is not seen.durations:
                self._add(self.totals.get(_label(function.name), self.other), function, seen)

    def _choose(self, functions: Iterable[FunctionFigures]) -> None:
        """Choose which functions are listed: those that were busy longest."""
        busy: Dict[str, int] = {}
        for function in functions:
            name = _label(function.name)
            busy[name] = busy.get(name, 0) + function.busy_microseconds
        for name in sorted(busy.keys() - self.totals.keys(), key=lambda name: (-busy[name], name)):
            if len(self.totals) >= self._listed:
                least = min(self.totals, key=lambda name: busy.get(name, 0))
                if busy[name] <= EVICTION_RATIO * busy.get(least, 0):
                    break
                del self.totals[least]
            self.totals[name] = _Totals()

    def _add(self, totals: _Totals, function: FunctionFigures, seen: _LastSeen) -> None:
        totals.add(
            max(0, function.finished - seen.finished),
            max(0, function.failed - seen.failed),
            max(0, function.busy_microseconds - seen.busy_microseconds),
        )
        before = seen.durations
        for bucket, tasks in function.durations.items():
            more = tasks - before.get(bucket, 0)
            if more > 0:
                totals.octaves[_octave(bucket)] += more
        seen.finished, seen.failed, seen.busy_microseconds = (
            function.finished,
            function.failed,
            function.busy_microseconds,
        )
        seen.durations = function.durations

    def items(self) -> List[Tuple[str, _Totals]]:
        """The totals by label, with `other` if it is not empty."""
        listed = sorted(self.totals.items())
        return [*listed, (OTHER, self.other)] if self.other.finished else listed


def _octave(bucket: int) -> int:
    """The index of the octave for a bucket of quarter octaves: bucket b ends at 2^((b + 1) / 4) microseconds."""
    end = -(-(bucket + 1) // BUCKETS_AN_OCTAVE)
    return min(max(end, FIRST_OCTAVE), LAST_OCTAVE + 1) - FIRST_OCTAVE


def _label(name: str) -> str:
    name = name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"
    return f"({OTHER})" if name == OTHER else name.encode("utf-8", "replace").decode()


class StateCollector(Collector):
    """All metrics of the cluster."""

    def __init__(self, state: UiState) -> None:
        self._state = state
        self._functions = FunctionTotals()
        self._generation = -1
        self._needs: Dict[str, None] = {}  # of tasks of that generation, as labels

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        state, scheduler = self._state, self._state.cluster.scheduler
        build = InfoMetricFamily("scaler_build", "Versions of the user interface, and of the scheduler if known.")
        labels = {"version": __version__, "python": python_version()}
        is_up = scheduler is not None and state.feed.is_connected()
        if scheduler is not None:
            labels["scheduler_version"] = scheduler.implementation.version
        build.add_metric((), labels)
        yield build
        yield _gauge("scaler_up", "Whether the scheduler publishes its status.", int(is_up))
        yield _gauge(
            "scaler_status_age_seconds", "Time since the last status of the scheduler.", state.feed.age_seconds()
        )
        if is_up:
            yield from self._scheduler()
            yield from self._tasks()
            yield from self._workers()
            yield from self._demand()
            yield from self._pools()
            yield from self._hosts()
            yield from self._of_functions()

    def _scheduler(self) -> Iterator[Metric]:
        scheduler = self._state.cluster.scheduler
        assert scheduler is not None
        yield _gauge(
            "scaler_scheduler_start_time_seconds",
            "When the scheduler started, in seconds since 1970.",
            scheduler.started_unix_microseconds / 1e6,
        )
        yield _gauge(
            "scaler_scheduler_insecure",
            "Whether the scheduler serves all who can connect, without keys.",
            int(scheduler.is_insecure),
        )
        yield _gauge(
            "scaler_scheduler_cpu_ratio",
            "Processor time of the scheduler, as a share of one core.",
            scheduler.cpu_permille / 1000,
        )
        yield _gauge(
            "scaler_scheduler_resident_memory_bytes", "Resident memory of the scheduler.", scheduler.resident_bytes
        )
        yield CounterMetricFamily(
            "scaler_scheduler_status_cpu_seconds",
            "Processor time that the scheduler spent on publishing its status.",
            value=scheduler.status_microseconds / 1e6,
        )
        yield _gauge("scaler_objects", "Objects that the scheduler keeps.", scheduler.objects)
        places = GaugeMetricFamily("scaler_object_bytes", "Bytes of these objects.", labels=["place"])
        on_disk = scheduler.object_bytes_on_disk
        places.add_metric(["memory"], max(0, scheduler.object_bytes - on_disk))
        places.add_metric(["disk"], on_disk)
        yield places
        messages = CounterMetricFamily("scaler_messages", "Messages of the scheduler.", labels=["direction", "name"])
        for direction, counts in (("sent", self._state.cluster.sent), ("received", self._state.cluster.received)):
            for name, count in counts.items():
                messages.add_metric([direction, _label(name)], count)
        yield messages

    def _tasks(self) -> Iterator[Metric]:
        cluster = self._state.cluster
        tasks = CounterMetricFamily("scaler_tasks", "Tasks with an outcome.", labels=["outcome"])
        for name, count in cluster.tasks.items():
            if name not in _NO_OUTCOMES:
                tasks.add_metric([_label(name)], count)
        yield tasks
        yield _gauge("scaler_tasks_waiting", "Tasks that wait for a worker.", cluster.tasks.get("unassigned", 0))
        yield _gauge(
            "scaler_tasks_blocked", "Tasks of graphs that wait for other tasks.", cluster.tasks.get("waiting", 0)
        )
        yield _gauge("scaler_tasks_running", "Tasks that are at workers.", cluster.tasks.get("running", 0))
        yield CounterMetricFamily(
            "scaler_stale_results",
            "Results of tasks that already had an outcome.",
            value=cluster.tasks.get("stale", 0),
        )
        yield _gauge(
            "scaler_waiting_reasons",
            "Reasons why tasks cannot run; the user interface shows their texts.",
            len(cluster.waiting_reasons),
        )
        yield _gauge("scaler_clients", "Clients that are connected.", len(cluster.clients))

    def _workers(self) -> Iterator[Metric]:
        workers = list(self._state.cluster.workers.values())
        scheduler = self._state.cluster.scheduler
        assert scheduler is not None
        yield _gauge("scaler_workers", "Workers that are connected.", len(workers))
        yield _gauge("scaler_slots", "Tasks that all workers can run at once.", scheduler.slots)
        yield _gauge("scaler_slots_busy", "Slots with a task.", sum(worker.busy for worker in workers))
        yield _gauge(
            "scaler_worker_cpu_ratio",
            "Processor time of all workers, as a share of one core.",
            sum(map(cpu_permille, workers)) / 1000,
        )
        yield _gauge(
            "scaler_worker_resident_memory_bytes", "Resident memory of all workers.", sum(map(resident_bytes, workers))
        )
        yield _gauge(
            "scaler_worker_tasks_queued",
            "Tasks at workers without a slot yet.",
            sum(worker.waiting for worker in workers),
        )
        yield _gauge(
            "scaler_worker_latency_seconds",
            "The highest current latency of messages from the scheduler to a worker.",
            max((worker.latency_microseconds for worker in workers), default=0) / 1e6,
        )
        yield _gauge(
            "scaler_workers_congested",
            "Workers that read more slowly than messages are sent to them.",
            sum(worker.is_congested for worker in workers),
        )
        yield _gauge("scaler_workers_leaving", "Workers that drain.", sum(worker.is_leaving for worker in workers))
        causes = GaugeMetricFamily("scaler_workers_draining", "Workers that drain, by the cause.", labels=["cause"])
        for cause in m.DrainCause:
            if cause:
                name = cause.name.lower()
                causes.add_metric([name], sum(worker.drain_cause == name for worker in workers))
        yield causes

    def _demand(self) -> Iterator[Metric]:
        """For autoscalers; what tasks needed once stays listed, with 0: a series that ends is an error to some."""
        cluster = self._state.cluster
        if cluster.generation != self._generation:
            self._generation, self._needs = cluster.generation, {}
        families = [
            GaugeMetricFamily(
                "scaler_slots_wanted", "Slots that tasks could use, by what they need.", labels=["capabilities"]
            ),
            GaugeMetricFamily("scaler_slots_missing", "Of these, slots that there are not.", labels=["capabilities"]),
        ]
        values = dict.fromkeys(self._needs, (0, 0))
        for needs, (wanted, missing) in wanted_by_needs(cluster.demands).items():
            label = _label(needs)
            if label not in values and len(values) >= NEEDS_LISTED:
                label = OTHER
            before = values.get(label, (0, 0))
            values[label] = before[0] + wanted, before[1] + missing
        self._needs = dict.fromkeys(values)
        for label, figures in values.items():
            for family, figure in zip(families, figures):
                family.add_metric([label], figure)
        yield from families

    def _pools(self) -> Iterator[Metric]:
        """Apart from what tasks need: sums of the one metric would count tasks twice if they were in it, too."""
        slots = GaugeMetricFamily(
            "scaler_pool_slots_wanted", "Slots of a provisioner's pool that tasks could use.", labels=["pool"]
        )
        wanted = GaugeMetricFamily("scaler_pool_units_wanted", "Units of the pool that have these.", labels=["pool"])
        units = GaugeMetricFamily("scaler_pool_units", "Units that there are, or are to come.", labels=["pool"])
        for name, figures in islice(self._state.cluster.pools.items(), POOLS_LISTED):
            label = [_label(name)]
            slots.add_metric(label, figures.slots_wanted)
            wanted.add_metric(label, figures.units_wanted)
            units.add_metric(label, figures.units)
        yield from (slots, wanted, units)

    def _hosts(self) -> Iterator[Metric]:
        """Metrics of the hosts with the most slots."""
        families = [
            (key, factor, GaugeMetricFamily(f"scaler_host_{name}", text, labels=["host"]))
            for key, factor, name, text in (
                ("workers", 1.0, "workers", "Workers of a host."),
                ("slots", 1.0, "slots", "Tasks that its workers can run at once."),
                ("busy", 1.0, "slots_busy", "Slots of its workers with a task."),
                ("cpu", 0.01, "cpu_ratio", "Processor time of its workers, as a share of one core."),
                ("rss", 1.0, "resident_memory_bytes", "Resident memory of its workers."),
                ("free", 1.0, "free_memory_bytes", "Memory that the workers of a host could still use."),
            )
        ]
        for host in hosts(self._state, HOSTS_LISTED):
            for key, factor, family in families:
                family.add_metric([_label(host["host"])], host[key] * factor)
        for _, _, family in families:
            yield family

    def _of_functions(self) -> Iterator[Metric]:
        cluster = self._state.cluster
        self._functions.count(cluster.generation, cluster.functions)
        tasks = CounterMetricFamily(
            "scaler_function_tasks", "Tasks of a function with an outcome.", labels=["function", "outcome"]
        )
        durations = HistogramMetricFamily(
            "scaler_function_duration_seconds", "How long tasks of a function took.", labels=["function"]
        )
        for name, totals in self._functions.items():
            tasks.add_metric([name, "success"], totals.finished - totals.failed)
            tasks.add_metric([name, "failed"], totals.failed)
            durations.add_metric([name], _buckets(totals), totals.busy_microseconds / 1e6)
        yield tasks
        yield durations


def _buckets(totals: _Totals) -> List[Tuple[str, float]]:
    buckets: List[Tuple[str, float]] = []
    below = 0
    for place, count in enumerate(totals.octaves):
        below += count
        is_last = place == len(totals.octaves) - 1
        buckets.append(("+Inf" if is_last else f"{2.0 ** (place + FIRST_OCTAVE) / 1e6!r}", below))
    return buckets


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


class Metrics:
    """The response of `/metrics`."""

    def __init__(self, state: UiState) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StateCollector(state))
        ProcessCollector(namespace="scaler_ui", registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def value(self, name: str, labels: Optional[Dict[str, str]] = None) -> Optional[float]:
        """The value of one series; None if it does not exist."""
        return self._registry.get_sample_value(name, labels or {})
