"""The reports: each format shows the model correctly, and escapes text of implementations."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any, Dict

import pytest

from scaler_conformance.judging.register import Register
from scaler_conformance.judging.results import CaseResult, Report
from scaler_conformance.judging.verdicts import Teardown, Verdict
from scaler_conformance.reports.console import Console
from scaler_conformance.reports.html_report import html_report
from scaler_conformance.reports.text_reports import json_report, junit_report, tap_report

HELLO_FIRST, BEATS = "SCL-SES-001", "SCL-SES-013"
EVIL = "</script><script>alert(1)</script> & \x01"


def case_result(verdict: Verdict, id_: str = "", **fields: Any) -> CaseResult:
    covers = fields.pop("covers", [HELLO_FIRST])
    name = id_ or f"worker/test/{verdict.value.lower().replace('/', '')}"
    return CaseResult(name, covers, "It is so.", "It is so.\n\nIndeed.", verdict, Teardown.CLEAN, 0.5, **fields)


def failed(**fields: Any) -> CaseResult:
    texts = {"requirement": HELLO_FIRST, "expected": "Hello", "came": EVIL, "message": f"expected Hello; {EVIL}"}
    return case_result(Verdict.FAIL, **{**texts, "trace": ["1.0 ms <- peer 1 Heartbeat"], "output": EVIL, **fields})


@pytest.fixture
def report() -> Report:
    cases = [
        case_result(Verdict.PASS),
        failed(),
        case_result(Verdict.NON_STRICT, covers=[BEATS], requirement=BEATS, message="no beats"),
        case_result(Verdict.NOT_APPLICABLE, message="it has none"),
        case_result(Verdict.XFAIL, message="known"),
        case_result(Verdict.XPASS, message="stale"),
        case_result(Verdict.ERROR, message="ours"),
    ]
    requirements: Dict[str, Dict[str, Any]] = {
        id_: each._asdict() for id_, each in Register.load().of_role("worker").items()
    }
    implementation = {"name": "a <worker>", "version": "1", "language": "Go", "command": "./it {address}"}
    return Report("worker", "0.1", implementation, 5, "2026-01-02T03:04:05+00:00", 1.5, False, requirements, cases)


def test_json_can_be_read_back(report: Report) -> None:
    content = json.loads(json_report(report))

    assert content["schema"] == "scaler-conformance-report/1"
    assert content["counts"]["FAIL"] == 1
    assert json_report(Report.from_json(content)) == json_report(report)


@pytest.mark.parametrize("change", [{"schema": "another/1"}, {"surprise": 1}])
def test_another_json_is_refused(report: Report, change: Dict[str, Any]) -> None:
    content = {**json.loads(json_report(report)), **change}

    with pytest.raises(ValueError, match="this"):
        Report.from_json(content)


def test_junit_counts_and_escapes(report: Report) -> None:
    suite = ElementTree.fromstring(junit_report(report))

    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7",
        "failures": "2",
        "errors": "1",
        "skipped": "2",
    }
    (failure,) = (each for each in suite.iter("failure") if each.get("type") == "FAIL")
    assert "alert(1)" in (failure.get("message") or "")
    report.strict = True
    assert ElementTree.fromstring(junit_report(report)).get("failures") == "3"


def test_tap_has_a_line_for_each_case(report: Report) -> None:
    lines = tap_report(report).splitlines()

    assert lines[:2] == ["TAP version 14", "1..7"]
    assert [line.split()[0] for line in lines if re.match(r"(not )?ok \d", line)].count("not") == 4
    assert any("# SKIP it has none" in line for line in lines)


def test_page_needs_nothing_from_elsewhere_and_escapes(report: Report) -> None:
    page = html_report([report, report])

    assert not re.search(r"""(src|href)\s*=|https?://|@import|url\(""", page)
    assert "<script>alert" not in page and "a &lt;worker&gt;" in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data
    details = json.loads(data[1])
    assert details[0]["cases"][1]["message"] == f"expected Hello; {EVIL}"
    assert page.count('<td class="cell error">') == 2  # one requirement, two implementations: the worst of its cases
    assert page.count('<td class="cell lax">') == 2


def test_a_case_that_fails_for_another_requirement_says_nothing_of_this_one(report: Report) -> None:
    report.cases = [failed(covers=[HELLO_FIRST, BEATS])]

    page = html_report([report])

    assert page.count('<td class="cell fail">') == 1
    assert page.count('<td class="cell na">') == 1


def test_console_tells_what_one_needs_to_know(report: Report) -> None:
    stream = io.StringIO()
    console = Console(Register.load(), shows_trace=True, quiet=False, stream=stream)
    for each in report.cases:
        console.on_result(each)
    console.on_end(report)

    said = stream.getvalue()
    for words in ("SCL-SES-001 MUST", "MUST begin a session with Hello", "protocol-spec/session.md#hello", "1.0 ms"):
        assert words in said
    assert "1 PASS" in said and "1 ERROR" in said and "seed 5" in said
