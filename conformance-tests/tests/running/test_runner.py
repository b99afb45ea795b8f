"""Judging a case: each verdict, and how the implementation ended."""

from __future__ import annotations

from typing import Any

from mutants.worker.reference_worker import ReferenceWorker
from scaler_conformance_helpers import MUST, QUICK, SHOULD, made_up_case, result_of, runner

from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.verdicts import NotApplicable, Teardown, Verdict
from scaler_conformance.playing.conversation import check


def passes(bench: Any) -> None:
    bench.welcomed().fence()


def violates_must(bench: Any) -> None:
    session = bench.welcomed()
    session._settings = QUICK
    session.expect("BalanceResponse")


def violates_should(bench: Any) -> None:
    bench.welcomed()
    check(False, "this", "that", SHOULD)


def test_a_case_that_returns_passes_and_ends_clean() -> None:
    result = result_of(passes)

    assert (result.verdict, result.teardown, result.message) == (Verdict.PASS, Teardown.CLEAN, "")
    assert result.trace == []


def test_a_violated_must_fails_with_what_was_expected_and_what_came() -> None:
    result = result_of(violates_must)

    assert (result.verdict, result.requirement) == (Verdict.FAIL, MUST)
    assert result.expected == "BalanceResponse"
    assert "timed out after 0.2 s" in result.came
    assert any("Welcome" in line for line in result.trace)


def test_a_violated_should_is_not_strict() -> None:
    result = result_of(violates_should)

    assert (result.verdict, result.requirement) == (Verdict.NON_STRICT, SHOULD)


def test_what_the_implementation_does_not_have_does_not_apply() -> None:
    def lacks(bench: Any) -> None:
        raise NotApplicable("it has none")

    assert result_of(lacks).verdict == Verdict.NOT_APPLICABLE

    missing = Settings(missing=frozenset({"nested"}))
    result = runner(missing).run_case(made_up_case(passes, features=["nested"]))
    assert (result.verdict, result.teardown) == (Verdict.NOT_APPLICABLE, Teardown.NOT_STARTED)


def test_a_fault_of_the_suite_is_an_error_with_its_place() -> None:
    def stumbles(bench: Any) -> None:
        bench.welcomed().no_such_method()

    result = result_of(stumbles)

    assert result.verdict == Verdict.ERROR
    assert "no_such_method" in result.message
    assert "test_runner.py" in result.came
    assert result.teardown == Teardown.CLEAN


def test_a_known_failure_must_fail_with_its_message() -> None:
    def known(text: str) -> Any:
        return {"worker/test/violates_must": text, "worker/test/passes": text}

    assert result_of(violates_must, known_failing=known("BalanceResponse")).verdict == Verdict.XFAIL
    assert result_of(violates_must, known_failing=known("something else")).verdict == Verdict.FAIL
    assert result_of(passes, known_failing=known("anything")).verdict == Verdict.XPASS


class NeverEnds(ReferenceWorker):
    def on_disconnect_request(self, message: Any) -> None:
        pass

    def terminate(self) -> None:
        pass


class Crashes(ReferenceWorker):
    def on_heartbeat(self, message: Any) -> None:
        raise ZeroDivisionError("on purpose")


def test_an_implementation_that_does_not_end_is_unclean() -> None:
    def passes_and_waits_briefly(bench: Any) -> None:
        passes(bench)
        bench.settings = QUICK

    result = result_of(passes_and_waits_briefly, peer=NeverEnds)

    assert (result.verdict, result.teardown) == (Verdict.PASS, Teardown.UNCLEAN)


def test_an_implementation_that_ends_too_early_fails_at_once_and_its_words_are_kept() -> None:
    result = result_of(passes, peer=Crashes, settings=Settings(time_scale=100))

    assert (result.verdict, result.teardown) == (Verdict.FAIL, Teardown.UNCLEAN)
    assert "ended with exit code 70" in result.came
    assert "on purpose" in result.output


def test_the_exit_code_follows_from_the_worst() -> None:
    def code(*functions: Any, strict: bool = False) -> int:
        return runner().run([made_up_case(each) for each in functions], jobs=2, strict=strict).exit_code

    assert code(passes, passes) == 0
    assert code(passes, violates_should) == 0
    assert code(passes, violates_should, strict=True) == 1
    assert code(passes, violates_must) == 1
    assert code() == 2
