"""Options of workers whose values come from the system that runs them."""

from __future__ import annotations

import time
from typing import Optional

import pytest

from scaler.worker.worker_options import SLURM_END_VARIABLE, read_options

ADDRESS = "tcp://127.0.0.1:1"


def end_of_life(*arguments: str) -> Optional[float]:
    """How many seconds from now a worker with these arguments has to have ended."""
    end: Optional[float] = read_options([ADDRESS, *arguments]).end_of_life
    return None if end is None else end - time.monotonic()


def test_a_worker_ends_with_its_slurm_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLURM_END_VARIABLE, str(int(time.time()) + 3600))
    assert end_of_life() == pytest.approx(3600, abs=60)
    assert end_of_life("--lifetime-seconds", "600") == pytest.approx(600, abs=60)
    assert end_of_life("--lifetime-seconds", "0") is None


@pytest.mark.parametrize("text", ["", "0", "1700000000"])
def test_a_job_without_an_end_and_one_that_may_go_on_end_no_worker(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLURM_END_VARIABLE, text)
    assert end_of_life() is None


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "1.5", pytest.param("9" * 400, id="too large")])
def test_what_is_no_time_is_an_error(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SLURM_END_VARIABLE, text)
    with pytest.raises(SystemExit) as error:
        read_options([ADDRESS])
    assert error.value.code == 2
    assert "SLURM_JOB_END_TIME: expected whole seconds since 1970, got" in capsys.readouterr().err
    assert end_of_life("--lifetime-seconds", "600") == pytest.approx(600, abs=60), "what is given is not looked for"
