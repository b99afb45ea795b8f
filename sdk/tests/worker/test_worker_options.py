"""Options of workers whose values come from the system that runs them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import List, Optional

import pytest

from scaler.worker.worker_options import SLURM_END_VARIABLE, drain_signals, read_options

ADDRESS = "tcp://127.0.0.1:1"
URL = "http://169.254.169.254/latest/meta-data/spot/instance-action"


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


def test_notice_is_given_by_an_address_or_a_signal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = ["--drain-url", URL, "--drain-url-header", "Metadata-Flavor: Google", "--drain-url-header", "A:b:c"]
    options = read_options([ADDRESS, *given, "--drain-url-text", "TRUE", "--drain-signal", "sigusr2"])
    headers = [("Metadata-Flavor", "Google"), ("A", "b:c")]
    assert (options.drain_url, options.drain_url_header, options.drain_url_text) == (URL, headers, "TRUE")
    assert drain_signals(options) == (signal.SIGUSR2,)
    assert drain_signals(read_options([ADDRESS])) == ()
    monkeypatch.setenv("SCALER_CLUSTER_DRAIN_URL_HEADER", "'Metadata-Flavor: Google' A:b:c")
    file = tmp_path / "scaler.toml"
    file.write_text(f'[cluster]\naddress = "{ADDRESS}"\ndrain_url = "{URL}"\n')
    assert read_options(["--config", str(file)]).drain_url_header == headers


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--drain-url", "file:///etc/notice"], "must begin with http:// or https://: 'file:///etc/notice'; expected"),
        (["--drain-url", "http:///path"], "the address names no host"),
        (["--drain-url", "http://user:word@host/"], "no name and password: give --drain-url-header"),
        (["--drain-url", "http://host:port/"], "Port could not be cast to integer value as 'port'"),
        (["--drain-url", "http://host/a b"], "characters that must be escaped"),
        (["--drain-url", URL, "--drain-url-header", "Metadata-Flavor"], "write NAME: VALUE"),
        (["--drain-url", URL, "--drain-url-header", "A B: c"], "write NAME: VALUE"),
        (["--drain-url", URL, "--drain-url-header", "A: b\r\nC: d"], "write NAME: VALUE"),
        (["--drain-url-text", "TRUE"], "are for --drain-url, which is missing"),
        (["--drain-signal", "SIGKILL"], "invalid choice: 'SIGKILL'"),
    ],
)
def test_what_cannot_give_notice_is_an_error(
    arguments: List[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        read_options([ADDRESS, *arguments])
    assert error.value.code == 2
    assert text in capsys.readouterr().err
