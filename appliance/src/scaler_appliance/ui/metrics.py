"""Figures for Prometheus, read when they are asked for.

Rules:
- Names and units as Prometheus' practices want them; what is listed in METRICS stays as it is.
- The number of series is bounded, whatever users call their functions and hosts: what is beyond is `other`.
- A counter never goes down but where it starts from 0: a function that comes into the list, or leaves it, takes nothing
  from `other` and adds nothing to it that was counted before.
- While the scheduler is silent there are no figures of it, rather than old ones: only `scaler_up` says 0.
"""

from __future__ import annotations

import platform
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
from scaler_appliance.ui.ui_state import UiState, cpu_permille, hosts, resident_bytes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FUNCTIONS_LISTED = 50
HOSTS_LISTED = 100
NAME_LENGTH = 120
OTHER = "other"

FIRST_OCTAVE = 6  # of microseconds: the first bucket is up to 64 µs
LAST_OCTAVE = 32  # more than an hour
EVICTION_RATIO = 2.0  # a function takes the place of another when it has been busy for so many times as long

_NO_OUTCOMES = ("unassigned", "waiting", "running", "stale")  # which the scheduler tells beside totals of outcomes


class _Tally:
    """What has been counted for one name."""

    __slots__ = ("finished", "failed", "busy_microseconds", "octaves")

    def __init__(self) -> None:
        self.finished = self.failed = self.busy_microseconds = 0
        self.octaves = [0] * (LAST_OCTAVE - FIRST_OCTAVE + 2)  # the last: longer than all

    def add(self, finished: int, failed: int, busy_microseconds: int) -> None:
        self.finished += finished
        self.failed += failed
        self.busy_microseconds += busy_microseconds


class _Seen:
    """What a function's figures were when they were last counted."""

    __slots__ = ("finished", "failed", "busy_microseconds", "durations")

    def __init__(self) -> None:
        self.finished = self.failed = self.busy_microseconds = 0
        self.durations: Dict[int, int] = {}


class FunctionTallies:
    """Counts by function name, for a bounded number of names and `other`.

    Whatever was counted stays where it was counted: what a function did while it was not listed stays in `other`.
    """

    def __init__(self, listed: int = FUNCTIONS_LISTED) -> None:
        self._listed = listed
        self._generation = -1
        self.clear()

    def clear(self) -> None:
        self.tallies: Dict[str, _Tally] = {}
        self.other = _Tally()
        self._seen: Dict[int, _Seen] = {}

    def count(self, generation: int, functions: Dict[int, FunctionFigures]) -> None:
        """Take in what has been done since the last time."""
        if generation != self._generation:
            self._generation = generation
            self.clear()
        for number in set(self._seen).difference(functions):
            del self._seen[number]
        self._choose(functions.values())
        for number, function in functions.items():
            seen = self._seen.get(number)
            if seen is None:
                seen = self._seen[number] = _Seen()
            if function.finished != seen.finished or function.durations is not seen.durations:
                self._add(self.tallies.get(_label(function.name), self.other), function, seen)

    def _choose(self, functions: Iterable[FunctionFigures]) -> None:
        """Whose counts are listed: those that were busy for longest."""
        busy: Dict[str, int] = {}
        for function in functions:
            name = _label(function.name)
            busy[name] = busy.get(name, 0) + function.busy_microseconds
        for name in sorted(busy.keys() - self.tallies.keys(), key=lambda name: (-busy[name], name)):
            if len(self.tallies) >= self._listed:
                least = min(self.tallies, key=lambda name: busy.get(name, 0))
                if busy[name] <= EVICTION_RATIO * busy.get(least, 0):
                    break
                del self.tallies[least]
            self.tallies[name] = _Tally()

    def _add(self, tally: _Tally, function: FunctionFigures, seen: _Seen) -> None:
        tally.add(
            max(0, function.finished - seen.finished),
            max(0, function.failed - seen.failed),
            max(0, function.busy_microseconds - seen.busy_microseconds),
        )
        before = seen.durations
        for bucket, tasks in function.durations.items():
            more = tasks - before.get(bucket, 0)
            if more > 0:
                tally.octaves[_octave(bucket)] += more
        seen.finished, seen.failed, seen.busy_microseconds = (
            function.finished,
            function.failed,
            function.busy_microseconds,
        )
        seen.durations = function.durations

    def items(self) -> List[Tuple[str, _Tally]]:
        """By label; `other` comes when it has something."""
        listed = sorted(self.tallies.items())
        return [*listed, (OTHER, self.other)] if self.other.finished else listed


def _octave(bucket: int) -> int:
    """The place of a bucket of quarter octaves: bucket b ends at 2^((b + 1) / 4) microseconds."""
    end = -(-(bucket + 1) // BUCKETS_AN_OCTAVE)
    return min(max(end, FIRST_OCTAVE), LAST_OCTAVE + 1) - FIRST_OCTAVE


def _label(name: str) -> str:
    name = name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"
    return f"({OTHER})" if name == OTHER else name.encode("utf-8", "replace").decode()


class StateCollector(Collector):
    """All metrics of the cluster."""

    def __init__(self, state: UiState) -> None:
        self._state = state
        self._functions = FunctionTallies()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        state, scheduler = self._state, self._state.cluster.scheduler
        build = InfoMetricFamily("scaler_build", "Versions: of the user interface, and of the scheduler where known.")
        labels = {"version": __version__, "python": platform.python_version()}
        is_up = scheduler is not None and state.feed.is_connected()
        if scheduler is not None:
            labels["scheduler_version"] = scheduler.implementation.version
        build.add_metric((), labels)
        yield build
        yield _gauge("scaler_up", "Whether the scheduler is heard.", int(is_up))
        yield _gauge(
            "scaler_status_age_seconds", "Since when nothing was heard of the scheduler.", state.feed.age_seconds()
        )
        if is_up:
            yield from self._scheduler()
            yield from self._tasks()
            yield from self._workers()
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
            "Results of tasks that had run again elsewhere, or were cancelled, by then.",
            value=cluster.tasks.get("stale", 0),
        )
        yield _gauge(
            "scaler_waiting_reasons",
            "Reasons why tasks wait that cannot run; the text is in the user interface.",
            len(cluster.waiting_reasons),
        )
        yield _gauge("scaler_clients", "Clients that are connected.", len(cluster.clients))

    def _workers(self) -> Iterator[Metric]:
        workers = list(self._state.cluster.workers.values())
        scheduler = self._state.cluster.scheduler
        assert scheduler is not None
        yield _gauge("scaler_workers", "Workers that are connected.", len(workers))
        yield _gauge("scaler_slots", "Tasks that all workers can run at once.", scheduler.slots)
        yield _gauge("scaler_slots_busy", "Of these, those that have a task.", sum(worker.busy for worker in workers))
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
            "Of the tasks at workers, those that have no slot yet.",
            sum(worker.waiting for worker in workers),
        )
        yield _gauge(
            "scaler_worker_latency_seconds",
            "The longest that messages of the scheduler take to a worker now.",
            max((worker.latency_microseconds for worker in workers), default=0) / 1e6,
        )
        yield _gauge(
            "scaler_workers_congested",
            "Workers that do not read as fast as they are sent.",
            sum(worker.is_congested for worker in workers),
        )
        yield _gauge("scaler_workers_leaving", "Workers that drain.", sum(worker.is_leaving for worker in workers))

    def _hosts(self) -> Iterator[Metric]:
        """Those with the most slots."""
        families = [
            (key, factor, GaugeMetricFamily(f"scaler_host_{name}", text, labels=["host"]))
            for key, factor, name, text in (
                ("workers", 1.0, "workers", "Workers of a host."),
                ("slots", 1.0, "slots", "Tasks that these can run at once."),
                ("busy", 1.0, "slots_busy", "Of these, those that have a task."),
                ("cpu", 0.01, "cpu_ratio", "Processor time of its workers, as a share of one core."),
                ("rss", 1.0, "resident_memory_bytes", "Resident memory of its workers."),
                ("free", 1.0, "free_memory_bytes", "Memory that it has left."),
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
        for name, tally in self._functions.items():
            tasks.add_metric([name, "success"], tally.finished - tally.failed)
            tasks.add_metric([name, "failed"], tally.failed)
            durations.add_metric([name], _buckets(tally), tally.busy_microseconds / 1e6)
        yield tasks
        yield durations


def _buckets(tally: _Tally) -> List[Tuple[str, float]]:
    buckets: List[Tuple[str, float]] = []
    below = 0
    for place, count in enumerate(tally.octaves):
        below += count
        is_last = place == len(tally.octaves) - 1
        buckets.append(("+Inf" if is_last else f"{2.0 ** (place + FIRST_OCTAVE) / 1e6!r}", below))
    return buckets


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


class Metrics:
    """What `/metrics` answers."""

    def __init__(self, state: UiState) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StateCollector(state))
        ProcessCollector(namespace="scaler_ui", registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def value(self, name: str, labels: Optional[Dict[str, str]] = None) -> Optional[float]:
        """Of one series; None when there is none."""
        return self._registry.get_sample_value(name, labels or {})
