"""Adapters of clients with an older or an unknown version of the adapter protocol."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from mutants.client.reference_client import ReferenceClient
from mutants.matrix import runner_for

from scaler_conformance.cases import cases_of
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.results import CaseResult
from scaler_conformance.judging.verdicts import Verdict


class AdapterOfVersion1(ReferenceClient):
    def do_hello(self, command: Dict[str, Any]) -> None:
        self.say("hello", version=1, can=["cancel", "graph", "shutdown", "priority"])


class AdapterOfTomorrow(ReferenceClient):
    def do_hello(self, command: Dict[str, Any]) -> None:
        self.say("hello", version=3, can=["priority"])


def result_of(peer: Any, case_id: str) -> CaseResult:
    case = next(each for each in cases_of("client") if each.id == case_id)
    return runner_for(peer, Settings(time_scale=1.0)).run_case(case)


def test_an_adapter_of_version_1_is_served() -> None:
    assert result_of(AdapterOfVersion1, "client/tasks/one-task-is-sent-and-its-result-reported").verdict == Verdict.PASS


@pytest.mark.parametrize("name", ["objects-serve-many-tasks", "map-is-batched", "wait-ends-with-the-last-outcome"])
def test_cases_that_need_a_missing_command_do_not_apply(name: str) -> None:
    assert result_of(AdapterOfVersion1, f"client/user-objects/{name}").verdict == Verdict.NOT_APPLICABLE


def test_an_unknown_version_is_reported() -> None:
    result = result_of(AdapterOfTomorrow, "client/tasks/one-task-is-sent-and-its-result-reported")

    assert result.verdict == Verdict.FAIL
    assert "version 2 or older" in result.message
