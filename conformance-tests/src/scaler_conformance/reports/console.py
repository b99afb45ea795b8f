"""The output for people, while the suite runs and at its end.

Rule: a failure shows the requirement with its text and section, what was expected, and what happened instead.
"""

from __future__ import annotations

import sys
import textwrap
import threading
from typing import List, Optional, TextIO

from scaler_conformance.judging.register import Register, UnknownRequirementError
from scaler_conformance.judging.results import CaseResult, Report
from scaler_conformance.judging.verdicts import Teardown, Verdict

_COLOURS = {
    Verdict.PASS: "32",
    Verdict.NON_STRICT: "33",
    Verdict.FAIL: "31;1",
    Verdict.XPASS: "31;1",
    Verdict.ERROR: "35;1",
    Verdict.XFAIL: "33",
    Verdict.NOT_APPLICABLE: "90",
}
_WIDTH = 100
_OUTPUT_LINES = 30


class Console:
    """Writes to a stream, in colours if that is a terminal.

    Parameters:
        shows_trace: whether to show the wire trace of cases that do not pass.
        quiet: show only cases that do not pass, and the summary.
    """

    def __init__(self, register: Register, shows_trace: bool, quiet: bool, stream: Optional[TextIO] = None) -> None:
        self._register = register
        self._shows_trace = shows_trace
        self._quiet = quiet
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()

    def on_result(self, result: CaseResult) -> None:
        """Called after each case."""
        is_quiet = result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.XFAIL)
        if self._quiet and is_quiet:
            return
        teardown = f"  [{result.teardown.value}]" if result.teardown in (Teardown.UNCLEAN, Teardown.LEAK) else ""
        lines = [f"{self._painted(result.verdict):<10} {result.id}  {result.seconds * 1000:.0f} ms{teardown}"]
        if result.verdict == Verdict.NOT_APPLICABLE:
            lines[0] += f"  {result.message}"
        if not is_quiet:
            lines += self._explained(result)
        with self._lock:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()

    def _painted(self, verdict: Verdict) -> str:
        text = f"{verdict.value:<10}"
        return f"\033[{_COLOURS[verdict]}m{text}\033[0m" if self._stream.isatty() else text

    def _explained(self, result: CaseResult) -> List[str]:
        lines = _paragraph("case", result.expectation)
        try:
            requirement = self._register[result.requirement]
            lines += _paragraph(f"{requirement.id} {requirement.level}", requirement.text)
            lines += _paragraph("see", f"protocol-spec/{requirement.section}")
        except UnknownRequirementError:
            pass
        if result.expected:
            lines += _paragraph("expected", result.expected) + _paragraph("actual", result.came)
        else:
            lines += _paragraph("message", result.message)
            lines += textwrap.indent(result.came, "      ").splitlines()
        if self._shows_trace:
            lines += ["    trace", *(f"      {line}" for line in result.trace)]
        output = result.output.strip().splitlines()[-_OUTPUT_LINES:]
        if output:
            lines += ["    standard error of the implementation", *(f"      {line}" for line in output)]
        return lines

    def on_end(self, report: Report) -> None:
        """Called after all cases."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items())
        teardowns = [each.teardown for each in report.cases]
        ends = [
            f"{teardowns.count(each)} {each.value}" for each in (Teardown.UNCLEAN, Teardown.LEAK) if each in teardowns
        ]
        ended = f"; teardown: {', '.join(ends)}" if ends else ""
        self._stream.write(
            f"{report.role} {report.title}: {counts}{ended}; {report.seconds:.1f} s, seed {report.seed}\n"
        )


def _paragraph(label: str, text: str) -> List[str]:
    wrapped = textwrap.wrap(" ".join(text.split()), _WIDTH - 8, break_long_words=False) or [""]
    return [f"    {label}", *(f"      {line}" for line in wrapped)]
