"""Tests of the study: the model by itself, and the program without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from vaccination.__main__ import SHARES, main, study
from vaccination.model import infected
from vaccination.results import ResultFile, Run

from scaler import Client
from scaler.exceptions import DisconnectedError


def test_a_town_of_vaccinated_people_stays_healthy() -> None:
    assert infected(1.0, 2.5, seed=1) == 0


def test_the_same_seed_is_the_same_outbreak() -> None:
    assert [infected(0.2, 2.5, seed) for seed in range(5)] == [infected(0.2, 2.5, seed) for seed in range(5)]


def test_a_share_beyond_one_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not 1\.5"):
        infected(1.5, 2.5, seed=1)


def test_a_study_continues_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    before = ResultFile(path)
    before.add(Run(0.5, 2.5, 0), 12)
    before.close()
    path.write_text(path.read_text() + "[0.5, 2.5, 1,")  # the power failed

    results = ResultFile(path)
    assert results.left([0.5], 2.5, 3) == [Run(0.5, 2.5, 1), Run(0.5, 2.5, 2)]
    results.add(Run(0.5, 2.5, 1), 34)
    results.close()

    assert ResultFile(path).infected == {Run(0.5, 2.5, 0): 12, Run(0.5, 2.5, 1): 34}


def test_results_for_another_illness_are_not_mixed_in(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "results.jsonl")
    results.add(Run(0.5, 2.5, 0), 120)

    assert results.left([0.5], 9.0, 1) == [Run(0.5, 9.0, 0)]
    assert results.table(9.0).count("\n") == 0
    assert "100%" in results.table(2.5)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), DisconnectedError("the scheduler is gone")], ids=str)
def test_a_stopped_study_has_kept_what_was_done(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    monkeypatch.setenv("SCALER_ADDRESS", "synchronous")
    add = ResultFile.add

    def add_three(self: ResultFile, run: Run, infected: int) -> None:
        add(self, run, infected)
        if len(self.infected) == 3:
            raise stop

    monkeypatch.setattr(ResultFile, "add", add_three)
    assert main(["--results", str(path), "--runs", "1"]) == 1
    assert len(ResultFile(path).infected) == 3
    assert "3 runs are in the file: the same command continues" in capsys.readouterr().err

    monkeypatch.setattr(ResultFile, "add", add)
    assert main(["--results", str(path), "--runs", "1"]) == 0
    assert len(ResultFile(path).infected) == len(SHARES)


def test_a_finished_study_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    results = ResultFile(path)
    for run in results.left(SHARES, 2.5, 1):
        results.add(run, 0)
    results.close()
    monkeypatch.setenv("SCALER_ADDRESS", "tcp://127.0.0.1:1")

    assert main(["--results", str(path), "--runs", "1"]) == 0


def test_a_run_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "results.jsonl")
    runs = [Run(0.5, 2.5, 1), Run(1.5, 2.5, 1), Run(0.9, 2.5, 1)]
    with Client.synchronous() as client:
        failures = study(client, results, runs)

    assert list(results.infected) == [runs[0], runs[2]]
    assert len(failures) == 1
    assert failures[0].endswith("ValueError: a share is between 0 and 1, not 1.5")
