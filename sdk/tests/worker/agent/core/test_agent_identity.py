"""How a worker introduces itself."""

from __future__ import annotations

import pytest

from scaler.worker.agent.core.agent_identity import AgentIdentity, hello_of
from scaler.worker.worker_options import read_options
from scaler.worker.worker_program import settings_of
from scaler.worker.worker_settings import WorkerSettings

WHO = AgentIdentity("a", "here", 1, "Python")


def test_a_worker_says_which_unit_it_is() -> None:
    settings = WorkerSettings("tcp://here:1", slots=1)
    assert hello_of(settings, WHO, []).unit == ""
    assert hello_of(WorkerSettings("tcp://here:1", slots=1, unit="job 7"), WHO, []).unit == "job 7"


def test_the_unit_comes_from_an_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(read_options(["tcp://127.0.0.1:1", "--unit", "job 7"])).unit == "job 7"
    monkeypatch.setenv("SCALER_CLUSTER_UNIT", "job 8")
    assert settings_of(read_options(["tcp://127.0.0.1:1"])).unit == "job 8"
