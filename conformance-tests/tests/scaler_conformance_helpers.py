"""Helpers of the suite's own tests: made-up cases, and runs against the reference worker."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence

from mutants.launchers import ThreadLauncher
from mutants.worker.reference_worker import ReferenceWorker

from scaler_conformance.cases import Case
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.known_failing import KnownFailing
from scaler_conformance.judging.register import Register, Requirement
from scaler_conformance.judging.results import CaseResult
from scaler_conformance.running.runner import Runner

MUST, SHOULD = "SCL-TST-001", "SCL-TST-002"
USUAL = Settings()
QUICK = Settings(time_scale=0.02)
"""For waits that are to time out, and for no others: what happens at once may be late on a busy machine."""


def made_up_register() -> Register:
    texts = {MUST: "MUST", SHOULD: "SHOULD"}
    return Register(
        {
            id_: Requirement(id_, level, ("worker",), "stable", "1.0", "test.md#it", f"It {level} <be> so.", "")
            for id_, level in texts.items()
        }
    )


def made_up_case(
    function: Callable[[Any], None], covers: Sequence[str] = (MUST, SHOULD), features: Sequence[str] = ()
) -> Case:
    function.__doc__ = function.__doc__ or "It is so."
    return Case(f"worker/test/{function.__name__}", "worker", function, tuple(covers), tuple(features), "", False)


def runner(
    settings: Settings = USUAL, peer: Any = ReferenceWorker, known_failing: Optional[Dict[str, str]] = None
) -> Runner:
    return Runner(ThreadLauncher(peer, "reference"), settings, made_up_register(), KnownFailing(known_failing))


def result_of(function: Callable[[Any], None], **options: Any) -> CaseResult:
    return runner(**options).run_case(made_up_case(function))
