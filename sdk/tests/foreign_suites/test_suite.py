"""Running the tests of another project leaves nothing out unseen."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

import pytest
import run_suites
from run_suites import BEGIN, END, record_of, rewritten, save, saved, table
from suite import Outcome, Suite, run

TESTS = """
import pytest

class TestSums:
    def test_small(self): assert 1 + 1 == 2
    def test_large(self): assert 1 + 1 == 3

@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_engine(engine): assert engine == "processes"

def test_absent(): pytest.importorskip("a_package_that_does_not_exist")

@pytest.mark.xfail
def test_known(): assert False
"""


def outcome_of(folder: Path, excluded: Mapping[str, str], skipping: Mapping[str, str], fewest: int = 3) -> Outcome:
    tests = folder / "test_arithmetic.py"
    tests.write_text(TESTS)
    return run(Suite("executor", "pytest", [str(tests)], fewest, excluded, skipping), timeout_seconds=100)


def test_what_fails_or_skips_itself_is_wrong_until_it_is_named_with_a_reason(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, {}, {})
    assert sorted(each.split(":")[0] + each.split("::")[1].split(" ")[0] for each in outcome.wrong) == [
        "TestSumstest_large",
        "test_arithmetictest_absent",
        "test_arithmetictest_engine[threads]",
    ]

    excluded = {"TestSums::test_large": "wrong sums", "*::test_engine[[]threads]": "no threads"}
    outcome = outcome_of(tmp_path, excluded, {"*::test_absent": "no package"})
    assert outcome.wrong == []
    assert len(outcome.passed) == 3
    assert list(outcome.excluded.values()) == ["wrong sums", "no threads"]
    assert outcome.skipped == {"test_arithmetic::test_absent": "no package"}


def test_exclusions_of_tests_that_do_not_exist_and_tests_that_are_missing_are_wrong(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, {"*": "all", "*::test_gone": "old"}, {}, fewest=1)
    assert outcome.wrong == [
        "there is no test to exclude like *::test_gone",
        "0 tests have passed, and 1 are expected",
    ]


def test_a_suite_that_cannot_run_is_wrong(tmp_path: Path) -> None:
    outcome = run(Suite("executor", "pytest", ["nowhere.py"], 0), timeout_seconds=100)
    assert outcome.wrong


def test_the_table_names_the_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_suites, "RECORDS", tmp_path / "records")
    suite = Suite("executor", "pytest", [], 1)
    record = record_of(suite, Outcome(["a::b"], {"a::c": "no threads", "a::d": "no threads"}, {}, []))
    assert saved(record.adapter, record.title) is None
    save(record)
    assert saved(record.adapter, record.title) == record
    text = table([record])
    assert f"| executor | pytest {pytest.__version__} | 1 | 1 | 2 |" in text
    assert "- 2: no threads" in text
    assert rewritten(f"before {BEGIN} old {END} after", text) == f"before {BEGIN}\n{text}\n{END} after"
    with pytest.raises(ValueError):
        rewritten("no place", text)
