"""A self-contained page: for each role, a matrix of requirements by implementations, whose cells open to their cases.

Rules:
- The page uses no external resource, font or script: it can be mailed and archived.
- Text from an implementation is data: it is always escaped.
- A requirement's verdict is the worst of the cases that cover it; a case that fails for one requirement says nothing
  about the others that it covers.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from scaler_conformance.benches.bench import ROLES
from scaler_conformance.judging.results import CaseResult, Report
from scaler_conformance.judging.verdicts import Teardown, Verdict

_TEMPLATE = Path(__file__).with_name("matrix.html")
_CLASSES = {
    Verdict.PASS: "pass",
    Verdict.NON_STRICT: "lax",
    Verdict.FAIL: "fail",
    Verdict.XFAIL: "known",
    Verdict.XPASS: "fail",
    Verdict.ERROR: "error",
    Verdict.NOT_APPLICABLE: "na",
}
_SYMBOLS = {
    Verdict.PASS: "✓",
    Verdict.NON_STRICT: "~",
    Verdict.FAIL: "✗",
    Verdict.XFAIL: "✗",
    Verdict.XPASS: "!",
    Verdict.ERROR: "!",
    Verdict.NOT_APPLICABLE: "–",
}


def html_report(reports: Sequence[Report]) -> str:
    """The page for these reports, of any roles."""
    roles = [role for role in ROLES if any(each.role == role for each in reports)]
    details: List[Dict[str, Any]] = []
    sections = "".join(_section(role, [each for each in reports if each.role == role], details) for role in roles)
    summary = "".join(_card(each) for each in reports)
    # A "</script>" within the data would end the script element.
    data = json.dumps(details, ensure_ascii=False).replace("<", "\\u003c")
    page = _TEMPLATE.read_text(encoding="utf-8")
    for mark, content in (("@SUMMARY@", summary), ("@SECTIONS@", sections), ("@DATA@", data)):
        page = page.replace(mark, content)
    return page


def _card(report: Report) -> str:
    total = len(report.cases)
    parts = "".join(
        f'<i class="{_CLASSES[Verdict(verdict)]}" style="flex:{count}" title="{count} {verdict}"></i>'
        for verdict, count in report.counts.items()
    )
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items())
    state = {0: "conforms", 1: "does not conform", 2: "was not judged"}[report.exit_code]
    kind = {0: "pass", 1: "fail", 2: "error"}[report.exit_code]
    ends = [each.teardown for each in report.cases]
    untidy = sum(each in (Teardown.UNCLEAN, Teardown.LEAK) for each in ends)
    facts = [
        f"{total} cases in {report.seconds:.0f} s",
        counts,
        f"seed {report.seed}",
        report.started[:16].replace("T", " "),
    ]
    if untidy:
        facts.insert(2, f"{untidy} unclean ends or leaks")
    return (
        f'<article class="card"><h3>{escape(report.title)} <small>{escape(report.role)}</small></h3>'
        f'<p class="verdict {kind}">{state}</p><div class="bar">{parts}</div>'
        f"<p>{escape(' · '.join(facts))}</p>"
        f"<p><code>{escape(report.implementation.get('command', ''))}</code></p></article>"
    )


def _section(role: str, reports: Sequence[Report], details: List[Dict[str, Any]]) -> str:
    requirements: Dict[str, Dict[str, Any]] = {}
    for report in reports:
        requirements.update(report.requirements)
    heads = "".join(f'<th class="implementation">{escape(each.title)}</th>' for each in reports)
    by_chapter: Dict[str, List[str]] = {}
    for id_, each in requirements.items():
        by_chapter.setdefault(_chapter(each), []).append(_row(id_, each, reports, details))
    bodies = "".join(
        f'<tbody><tr class="chapter"><th colspan="{3 + len(reports)}">{escape(name)}</th></tr>{"".join(rows)}</tbody>'
        for name, rows in by_chapter.items()
    )
    return (
        f"<section><h2>{escape(role.capitalize())} <small>{escape(_counts(requirements))}</small></h2>"
        f"<table><thead><tr><th>Requirement</th><th>Level</th>"
        f"<th>Text</th>{heads}</tr></thead>{bodies}</table></section>"
    )


def _chapter(requirement: Dict[str, Any]) -> str:
    """The title of the specification's page."""
    page = str(requirement["section"]).partition("#")[0]
    return page.replace(".md", "").replace("-", " ").capitalize()


def _counts(requirements: Dict[str, Dict[str, Any]]) -> str:
    levels = [str(each["level"]).partition(" ")[0] for each in requirements.values()]
    return ", ".join(f"{levels.count(level)} {level}" for level in ("MUST", "SHOULD", "MAY", "INFO") if level in levels)


def _row(id_: str, requirement: Dict[str, Any], reports: Sequence[Report], details: List[Dict[str, Any]]) -> str:
    cells = "".join(_cell(id_, requirement, report, details) for report in reports)
    level = requirement["level"]
    draft = "" if requirement["status"] == "stable" else f" <small>{escape(requirement['status'])}</small>"
    return (
        f'<tr id="{escape(id_)}" data-level="{escape(level)}"><th scope="row">{escape(id_)}{draft}</th>'
        f'<td class="level {"must" if level.startswith("MUST") else ""}">{escape(level)}</td>'
        f'<td class="text">{escape(requirement["text"])}</td>{cells}</tr>'
    )


def _cell(id_: str, requirement: Dict[str, Any], report: Report, details: List[Dict[str, Any]]) -> str:
    cases = [(each, _verdict_for(id_, each)) for each in report.cases if id_ in each.covers]
    if not cases:
        reason = requirement.get("untestable") or "no case covers it"
        return f'<td class="cell none" title="{escape(reason)}">{_who(report)}·</td>'
    worst = max((verdict for _, verdict in cases), key=lambda verdict: verdict.severity)
    details.append(_detail(id_, requirement, report, cases))
    label = f"{worst.value}, {len(cases)} case{'s' if len(cases) > 1 else ''}"
    return (
        f'<td class="cell {_CLASSES[worst]}">{_who(report)}'
        f'<button data-detail="{len(details) - 1}" title="{escape(label)}">'
        f'{_SYMBOLS[worst]}<span class="said">{escape(label)}</span></button></td>'
    )


def _who(report: Report) -> str:
    """The implementation's name within the cell, for narrow screens."""
    return f'<span class="who">{escape(report.title)}</span>'


def _verdict_for(id_: str, result: CaseResult) -> Verdict:
    """The verdict of a case on one of the requirements that it covers."""
    if result.verdict in (Verdict.FAIL, Verdict.NON_STRICT) and result.requirement != id_:
        return Verdict.NOT_APPLICABLE
    return result.verdict


def _detail(
    id_: str, requirement: Dict[str, Any], report: Report, cases: Iterable[Tuple[CaseResult, Verdict]]
) -> Dict[str, Any]:
    return {
        "title": f"{id_} · {report.title}",
        "text": f"{requirement['level']} — {requirement['text']}",
        "section": requirement["section"],
        "cases": [
            {
                "id": each.id,
                "verdict": verdict.value,
                "class": _CLASSES[verdict],
                "expectation": each.expectation,
                "message": _message(id_, each),
                "trace": "\n".join(each.trace),
                "output": each.output,
                "seconds": each.seconds,
                "teardown": each.teardown.value,
            }
            for each, verdict in cases
        ],
    }


def _message(id_: str, result: CaseResult) -> str:
    if result.requirement and result.requirement != id_:
        return f"the case ended early because {result.requirement} is violated: {result.message}"
    return result.message
