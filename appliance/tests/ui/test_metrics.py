"""What Prometheus gets."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from feed.played_status import PlayedScheduler
from prometheus_client.parser import text_string_to_metric_families
from ui.browsing import START, Site, told_state

from scaler_appliance.feed.cluster_entities import FunctionFigures
from scaler_appliance.ui.metrics import FUNCTIONS_LISTED, LAST_OCTAVE, OTHER, FunctionTotals, Metrics
from scaler_protocol import messages as m

Series = Dict[Tuple[str, Tuple[Tuple[str, str], ...]], float]


def series(text: bytes) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def values(found: Series, name: str) -> List[float]:
    return [value for (each, _), value in found.items() if each == name]


def function(
    number: int, name: str, finished: int, busy: int, durations: Dict[int, int] | None = None
) -> FunctionFigures:
    made = FunctionFigures(m.FunctionIdentity(number=number, name=name, client=1))
    made.finished, made.busy_microseconds, made.durations = finished, busy, durations or {4: finished}
    return made


def test_an_insecure_scheduler_is_shown() -> None:
    state, feed = told_state(steps=1)
    feed.scheduler.is_insecure = True
    feed.step()
    assert Metrics(state).value("scaler_scheduler_insecure") == 1
    assert state.head()["is_insecure"]


def test_the_figures_of_the_cluster_are_there() -> None:
    state, _ = told_state(steps=5, workers=4, slots=2)

    metrics = Metrics(state)

    assert metrics.value("scaler_up") == 1
    assert metrics.value("scaler_scheduler_insecure") == 0
    assert metrics.value("scaler_workers") == 4
    assert metrics.value("scaler_slots") == 8
    assert metrics.value("scaler_slots_busy") == 8
    assert metrics.value("scaler_tasks_total", {"outcome": "success"}) == state.cluster.tasks["success"]
    assert metrics.value("scaler_tasks_waiting") == state.cluster.tasks["unassigned"]
    assert metrics.value("scaler_messages_total", {"direction": "sent", "name": "Task"}) == state.cluster.sent["Task"]
    assert metrics.value("scaler_object_bytes", {"place": "memory"}) == 300_000_000
    assert metrics.value("scaler_host_workers", {"host": "host-00"}) == 1
    done = metrics.value("scaler_function_tasks_total", {"function": "prepare", "outcome": "success"})
    failed = metrics.value("scaler_function_tasks_total", {"function": "prepare", "outcome": "failed"})
    assert done is not None and failed is not None
    assert done + failed == state.cluster.functions[2].finished


def test_what_is_no_outcome_is_not_counted_as_one() -> None:
    state, _ = told_state()
    state.cluster.tasks.update(waiting=7, stale=3, lost=2)

    found = series(Metrics(state).text())

    outcomes = {dict(labels)["outcome"] for name, labels in found if name == "scaler_tasks_total"}
    assert outcomes == {"success", "failed", "canceled", "lost"}
    assert found[("scaler_tasks_blocked", ())] == 7
    assert found[("scaler_stale_results_total", ())] == 3


def test_prometheus_own_parser_reads_it_and_names_are_as_it_wants_them() -> None:
    answer = Site(steps=5).browser.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert len(families) > 30
    for family in families:
        assert re.fullmatch(r"scaler_[a-z_]+", family.name)
        assert family.documentation
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")


def test_a_silent_scheduler_has_no_old_figures() -> None:
    state, feed = told_state()
    feed.age = 30.0

    metrics = Metrics(state)

    assert metrics.value("scaler_up") == 0
    assert metrics.value("scaler_status_age_seconds") == 30.0
    assert metrics.value("scaler_workers") is None


def test_before_anything_is_heard_it_is_a_valid_answer() -> None:
    state, _ = told_state(steps=0)

    assert series(Metrics(state).text())[("scaler_up", ())] == 0


def test_counters_begin_at_zero_with_another_scheduler() -> None:
    state, feed = told_state(steps=10)
    metrics = Metrics(state)
    before = metrics.value("scaler_function_tasks_total", {"function": "prepare", "outcome": "success"})
    feed.restart(PlayedScheduler(seed=5, started=START + 100))

    after = metrics.value("scaler_function_tasks_total", {"function": "prepare", "outcome": "success"})

    assert before is not None and after is not None
    assert after < before
    assert sum(values(series(metrics.text()), "scaler_function_tasks_total")) == sum(
        each.finished for each in state.cluster.functions.values()
    )


def test_a_histogram_ends_in_all_tasks_and_never_goes_down() -> None:
    state, _ = told_state(steps=10)

    found = series(Metrics(state).text())

    for number, each in state.cluster.functions.items():
        labels = ("function", each.name)
        buckets = [
            (float(dict(label)["le"]), value)
            for (name, label), value in found.items()
            if name == "scaler_function_duration_seconds_bucket" and labels in label
        ]
        if not buckets:
            continue
        counts = [value for _, value in sorted(buckets)]
        assert counts == sorted(counts)
        total = found[("scaler_function_duration_seconds_count", (labels,))]
        assert counts[-1] == total == sum(each.durations.values()), number
        for bound, count in buckets:
            inside = sum(tasks for bucket, tasks in each.durations.items() if 2 ** ((bucket + 1) / 4) / 1e6 <= bound)
            assert count == inside or bound < 64e-6


def test_the_number_of_functions_is_bounded_and_nothing_is_lost() -> None:
    totals = FunctionTotals()
    functions = {number: function(number, f"f{number}", 10, number) for number in range(1, 1001)}
    totals.count(1, functions)

    found = dict(totals.items())

    assert len(found) == FUNCTIONS_LISTED + 1
    assert "f1000" in found and "f1" not in found
    assert sum(each.finished for each in found.values()) == 10_000


def test_other_never_goes_down_when_a_function_is_listed_or_is_not_any_more() -> None:
    totals = FunctionTotals(listed=2)
    functions = {1: function(1, "a", 10, 1000), 2: function(2, "b", 10, 900), 3: function(3, "c", 10, 10)}
    totals.count(1, functions)
    assert {name: each.finished for name, each in totals.items()} == {"a": 10, "b": 10, OTHER: 10}

    functions[3].finished, functions[3].busy_microseconds = 50, 5000
    totals.count(1, functions)
    assert {name: each.finished for name, each in totals.items()} == {"a": 10, "c": 40, OTHER: 10}

    functions[2].finished = 25
    totals.count(1, functions)
    assert {name: each.finished for name, each in totals.items()} == {"a": 10, "c": 40, OTHER: 25}


def test_functions_of_one_name_are_one_and_a_function_called_other_is_not_other() -> None:
    totals = FunctionTotals(listed=2)
    totals.count(1, {1: function(1, "f", 10, 100), 2: function(2, "f", 5, 100), 3: function(3, OTHER, 2, 90)})

    assert {name: each.finished for name, each in totals.items()} == {"f": 15, f"({OTHER})": 2}


def test_any_name_and_any_duration_make_a_valid_answer() -> None:
    state, _ = told_state()
    strange = '"}\n\\ \u2028 é' + "x" * 10_000
    state.cluster.functions[99] = function(99, strange, 3, 1, {0: 1, 4 * LAST_OCTAVE + 40: 1, 255: 1})

    found = series(Metrics(state).text())

    labels = [dict(label)["function"] for name, label in found if name == "scaler_function_tasks_total"]
    assert any(label.startswith('"}\n\\') and len(label) <= 120 for label in labels)


def test_a_big_cluster_has_a_bounded_number_of_series() -> None:
    state, _ = told_state(workers=2000)
    small, _ = told_state(workers=60)

    assert len(series(Metrics(state).text())) <= len(series(Metrics(small).text())) + 10


def test_this_program_has_metrics_of_its_own() -> None:
    state, _ = told_state()

    found = series(Metrics(state).text())

    assert found[("scaler_ui_process_resident_memory_bytes", ())] > 1_000_000
