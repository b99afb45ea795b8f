"""The suite's own bookkeeping: what is planned, how figures become tables. Nothing is measured here."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import report
import summary
from plan import BENCHMARKS, FULL, QUICK, Measurement, plan
from runner import Interpreters, Series, run_groups


def series_of(engine: str, *microseconds: float, benchmark: str = "submit", workers: int = 10) -> Series:
    runs = [{"microseconds_per_task": value, "other_jobs_cores": 0.0} for value in microseconds]
    return Series(Measurement(benchmark, engine, workers, 1000), "1.0", list(runs))


def test_full_plan_compares_every_engine_in_each_group() -> None:
    groups = plan(BENCHMARKS, FULL, ("scaler", "ppe", "pool"), ("cpython", "pypy"))
    submit_groups = [group for group in groups if group[0].benchmark == "submit"]
    assert [[one.engine for one in group] for group in submit_groups] == [["scaler", "ppe", "pool"]] * 2
    assert [group[0].workers for group in submit_groups] == [10, 2]


def test_each_planned_benchmark_has_a_table() -> None:
    groups = plan(BENCHMARKS, QUICK, ("scaler",), ("cpython",))
    assert {one.benchmark for group in groups for one in group} == set(report.TABLES)


def test_quick_sizes_are_never_larger_than_full_ones() -> None:
    for field in dataclasses.fields(FULL):
        full, quick = getattr(FULL, field.name), getattr(QUICK, field.name)
        largest = max if isinstance(full, tuple) else lambda value: value
        assert largest(quick) <= largest(full)


def test_table_shows_the_median_and_the_ratio_to_scaler() -> None:
    text = report.terminal_text([series_of("scaler", 5.0, 9.0, 4.0), series_of("ppe", 100.0)])
    scaler_row = next(line for line in text.splitlines() if line.strip().startswith("Scaler"))
    other_row = next(line for line in text.splitlines() if line.strip().startswith("ProcessPoolExecutor"))
    assert scaler_row.split()[3] == "5.0"
    assert other_row.split()[-1] == "20.00"


def test_ratio_is_taken_of_the_same_number_of_workers() -> None:
    two_workers = series_of("ppe", 100.0, workers=2)
    text = report.terminal_text([series_of("scaler", 5.0), series_of("scaler", 50.0, workers=2), two_workers])
    assert text.splitlines()[-1].split()[-1] == "2.00"


def test_ratio_is_taken_of_a_figure_that_does_not_depend_on_the_amount() -> None:
    growing_with_the_amount = {"seconds", "total_seconds"}
    assert not growing_with_the_amount & {table.columns[0].figure for table in report.TABLES.values()}


def test_failed_measurement_is_a_row_and_a_reason() -> None:
    failed = series_of("pool")
    failed.errors.append("Traceback\nOSError: no more processes")
    text = report.terminal_text([series_of("scaler", 5.0), failed])
    assert "failed" in text
    assert "OSError: no more processes" in text


def test_left_out_peer_is_mentioned() -> None:
    text = report.terminal_text([series_of("scaler", 5.0)], ["ray was left out"])
    assert "- ray was left out" in text


def test_markdown_names_machine_command_and_versions() -> None:
    facts = report.machine()
    text = report.markdown_text(facts, [series_of("scaler", 5.0)], "benchmarks/run.py --quick")
    assert "`benchmarks/run.py --quick`" in text
    assert f"{facts['cores']} cores" in text
    assert "Scaler (1.0)" in text
    assert "| Scaler | 10 | 1,000 | 5.0 |" in text


def test_the_tables_of_the_results_are_those_of_their_data(tmp_path: Path) -> None:
    folder = Path(report.__file__).parent
    kept = summary.read(folder / "RESULTS.json")
    assert summary.markdown(kept) == (folder / "RESULTS.md").read_text(encoding="utf-8")

    summary.write(tmp_path / "again.json", kept)
    assert (tmp_path / "again.json").read_bytes() == (folder / "RESULTS.json").read_bytes()


def test_a_summary_that_is_read_again_gives_the_same_text(tmp_path: Path) -> None:
    failed = series_of("pool")
    failed.errors.append("OSError")
    series = [series_of("scaler", 5.0, 1234.5), series_of("ppe", 100.0, workers=1000), failed]
    found = report.summary_of(report.machine(), series, "benchmarks/run.py", ["ray was left out"])
    summary.write(tmp_path / "results.json", found)
    again = summary.markdown(summary.read(tmp_path / "results.json"))

    assert again == summary.markdown(found)
    assert "| ProcessPoolExecutor | 1000 | 1,000 | 100.0 |" in again and "- ray was left out" in again


def test_json_keeps_every_run(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    report.write_json(path, {"cores": 2}, [series_of("scaler", 5.0, 6.0)])
    assert path.read_text().count("microseconds_per_task") == 2


def test_earlier_run_fills_in_what_this_one_did_not_measure(tmp_path: Path) -> None:
    path = tmp_path / "earlier.json"
    report.write_json(path, {}, [series_of("scaler", 7.0), series_of("ray", 500.0)])
    together = report.merged([series_of("scaler", 5.0)], report.read_json(path))
    assert [(one.measurement.engine, one.runs[0]["microseconds_per_task"]) for one in together] == [
        ("scaler", 5.0),
        ("ray", 500.0),
    ]


def test_measurement_runs_in_a_process_of_its_own_and_checks_results() -> None:
    lines: list[str] = []
    measurement = Measurement("submit", "pool", 2, 200, timeout_seconds=60.0)
    (series,) = run_groups([[measurement]], 1, Interpreters(default=sys.executable), lines.append)
    assert series.errors == []
    assert len(series.runs) == 1
    assert len(lines) == 1


def test_measurement_that_fails_reports_the_last_words_of_its_process() -> None:
    measurement = Measurement("round-trip", "ppe", 2, -1, timeout_seconds=60.0)
    (series,) = run_groups([[measurement]], 2, Interpreters(default=sys.executable), lambda line: None)
    assert series.runs == []
    assert len(series.errors) == 1
    assert "Error" in series.errors[0]
