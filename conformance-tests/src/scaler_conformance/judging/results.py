"""The results of a run: one model, from which every report is made.

Rule: other programs read and keep the JSON form, so its `schema` changes with any change that an older reader could
misinterpret.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List

from scaler_conformance.judging.verdicts import Teardown, Verdict

REPORT_SCHEMA = "scaler-conformance-report/1"


@dataclass
class CaseResult:
    """The result of one case; texts that do not apply are empty."""

    id: str
    covers: List[str]
    title: str
    expectation: str
    verdict: Verdict
    teardown: Teardown = Teardown.NOT_STARTED
    seconds: float = 0.0
    requirement: str = ""  # the violated one
    expected: str = ""
    came: str = ""
    message: str = ""  # in one line
    trace: List[str] = field(default_factory=list)  # like `output`, only of cases that do not pass
    output: str = ""


@dataclass
class Report:
    """The report on one run against one implementation."""

    role: str
    suite_version: str
    implementation: Dict[str, str]  # name, version, language, command
    seed: int
    started: str  # ISO 8601, UTC
    seconds: float
    strict: bool
    requirements: Dict[str, Dict[str, Any]]  # those of the role, by id: level, text, section, status, untestable
    cases: List[CaseResult]
    schema: str = REPORT_SCHEMA

    @property
    def counts(self) -> Dict[str, int]:
        """The number of cases for each verdict that occurs."""
        counted: Dict[str, int] = {}
        for each in sorted(self.cases, key=lambda result: result.verdict.severity):
            counted[each.verdict.value] = counted.get(each.verdict.value, 0) + 1
        return counted

    @property
    def title(self) -> str:
        name, version = self.implementation.get("name", ""), self.implementation.get("version", "")
        return f"{name} {version}".strip() or "unknown"

    @property
    def exit_code(self) -> int:
        """0: it conforms; 1: it does not; 2: no case was judged, or the suite has an error."""
        verdicts = {each.verdict for each in self.cases}
        if Verdict.ERROR in verdicts or not verdicts - {Verdict.NOT_APPLICABLE}:
            return 2
        failing = {Verdict.FAIL, Verdict.XPASS}
        if self.strict:
            failing.add(Verdict.NON_STRICT)
            if any(each.teardown in (Teardown.UNCLEAN, Teardown.LEAK) for each in self.cases):
                return 1
        return 1 if verdicts & failing else 0

    def to_json(self) -> Dict[str, Any]:
        return {
            "schema": self.schema,
            "counts": self.counts,
            **{k: v for k, v in asdict(self).items() if k != "schema"},
        }

    @classmethod
    def from_json(cls, content: Dict[str, Any]) -> Report:
        """Raises ValueError if it is not a report that this version can read."""
        if content.get("schema") != REPORT_SCHEMA:
            raise ValueError(
                f"this is not a report with the schema {REPORT_SCHEMA}; write it with --json of this version"
            )
        try:
            fields = {key: value for key, value in content.items() if key != "counts"}
            cases = [
                CaseResult(**{**each, "verdict": Verdict(each["verdict"]), "teardown": Teardown(each["teardown"])})
                for each in fields.pop("cases")
            ]
            return cls(cases=cases, **fields)
        except (TypeError, KeyError) as error:
            raise ValueError(f"this report has missing or unknown members: {error}") from None
