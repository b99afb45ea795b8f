"""Tests of the study: the model by itself, and the program without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from vaccination.__main__ import SHARES, main, study
from vaccination.model import infected
from vaccination.results import ResultFile, Run

from scaler import Client


def test_a_town_of_vaccinated_people_stays_healthy() -> None:
    assert infected(1.0, seed=1) == 0


def test_the_same_seed_is_the_same_outbreak() -> None:
    assert [infected(0.2, seed) for seed in range(5)] == [infected(0.2, seed) for seed in range(5)]


def test_a_share_beyond_one_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not 1\.5"):
        infected(1.5, seed=1)


def test_a_study_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    before = ResultFile(path)
    before.add(Run(0.5, 0), 12)
    before.close()
    path.write_text(path.read_text() + "[0.5, 1,")  # the power failed

    results = ResultFile(path)
    assert results.left([0.5], 3) == [Run(0.5, 1), Run(0.5, 2)]
    results.add(Run(0.5, 1), 34)
    results.close()

    assert ResultFile(path).infected == {Run(0.5, 0): 12, Run(0.5, 1): 34}


def test_an_interrupted_study_has_kept_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    monkeypatch.setenv("SCALER_ADDRESS", "synchronous")
    add = ResultFile.add

    def add_three(self: ResultFile, run: Run, infected: int) -> None:
        add(self, run, infected)
        if len(self.infected) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ResultFile, "add", add_three)
    assert main(["--results", str(path), "--runs", "1"]) == 130
    assert len(ResultFile(path).infected) == 3

    monkeypatch.undo()
    monkeypatch.setenv("SCALER_ADDRESS", "synchronous")
    assert main(["--results", str(path), "--runs", "1"]) == 0
    assert len(ResultFile(path).infected) == len(SHARES)


def test_a_run_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "results.jsonl")
    with Client.synchronous() as client:
        failures = study(client, results, [Run(0.5, 1), Run(1.5, 1), Run(0.9, 1)])

    assert list(results.infected) == [Run(0.5, 1), Run(0.9, 1)]
    assert failures == ["Run(vaccinated=1.5, seed=1): ValueError: a share is between 0 and 1, not 1.5"]
