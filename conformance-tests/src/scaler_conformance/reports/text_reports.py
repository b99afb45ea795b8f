"""Reports for programs: JSON, JUnit XML and TAP."""

from __future__ import annotations

import json
from typing import List
from xml.sax.saxutils import escape, quoteattr

from scaler_conformance.judging.results import CaseResult, Report
from scaler_conformance.judging.verdicts import Verdict

_EXPECTED_TO_FAIL = "TO" + "DO"  # TAP's word for expected failures
_NOT_OK = (Verdict.FAIL, Verdict.XPASS, Verdict.ERROR)


def json_report(report: Report) -> str:
    """The whole model."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"


def _details(result: CaseResult) -> List[str]:
    lines = [result.message]
    if result.requirement:
        lines.append(f"requirement: {result.requirement}")
    lines += result.came.splitlines()
    return lines + result.trace


def junit_report(report: Report) -> str:
    """One test suite; N/A and XFAIL are skipped tests, and NON-STRICT is a passed test with output."""
    cases = "".join(_junit_case(report, each) for each in report.cases)
    failures = sum(each.verdict in (Verdict.FAIL, Verdict.XPASS) or _is_strict(report, each) for each in report.cases)
    errors = sum(each.verdict == Verdict.ERROR for each in report.cases)
    skipped = sum(each.verdict in (Verdict.NOT_APPLICABLE, Verdict.XFAIL) for each in report.cases)
    name = quoteattr(f"scaler-conformance {report.role} {report.title}")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name={name} tests="{len(report.cases)}" failures="{failures}" errors="{errors}" '
        f'skipped="{skipped}" time="{report.seconds}" timestamp={quoteattr(report.started)}>\n{cases}</testsuite>\n'
    )


def _is_strict(report: Report, result: CaseResult) -> bool:
    return report.strict and result.verdict == Verdict.NON_STRICT


def _junit_case(report: Report, result: CaseResult) -> str:
    area, _, name = result.id.rpartition("/")
    names = f"classname={quoteattr(area.replace('/', '.'))} name={quoteattr(name)}"
    head = f'<testcase {names} time="{result.seconds}"'
    message = quoteattr(_xml_text(result.message))
    details = escape(_xml_text("\n".join(_details(result))))
    if result.verdict == Verdict.ERROR:
        inner = f"<error message={message}>{details}</error>"
    elif result.verdict in (Verdict.FAIL, Verdict.XPASS) or _is_strict(report, result):
        inner = f"<failure message={message} type={quoteattr(result.verdict.value)}>{details}</failure>"
    elif result.verdict in (Verdict.NOT_APPLICABLE, Verdict.XFAIL):
        inner = f"<skipped message={message}/>"
    elif result.verdict == Verdict.NON_STRICT:
        inner = f"<system-out>NON-STRICT: {details}</system-out>"
    else:
        return f"{head}/>\n"
    return f"{head}>{inner}</testcase>\n"


def _xml_text(text: str) -> str:
    """The text without characters that XML does not allow."""
    return "".join(each if each >= " " or each in "\n\t" else "?" for each in text)


def tap_report(report: Report) -> str:
    """TAP version 14, with a YAML block for each case that is not PASS or N/A."""
    lines = ["TAP version 14", f"1..{len(report.cases)}"]
    for number, result in enumerate(report.cases, start=1):
        failed = result.verdict in _NOT_OK or result.verdict == Verdict.XFAIL or _is_strict(report, result)
        lines.append(f"{'not ok' if failed else 'ok'} {number} - {result.id}{_directive(result)}")
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE):
            fields = {"verdict": result.verdict.value, "requirement": result.requirement, "message": result.message}
            lines += ["  ---", *(f"  {key}: {json.dumps(value)}" for key, value in fields.items() if value), "  ..."]
    return "\n".join(lines) + "\n"


def _directive(result: CaseResult) -> str:
    reason = result.message.replace("\n", " ").replace("#", "\\#")
    if result.verdict == Verdict.NOT_APPLICABLE:
        return f" # SKIP {reason}"
    return f" # {_EXPECTED_TO_FAIL} {reason}" if result.verdict == Verdict.XFAIL else ""
