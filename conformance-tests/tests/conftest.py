"""Results that tests report at the end of a run: lines of the property `told` appear in the terminal's summary."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import pytest

_TOLD = "told"


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[Sequence[str]], None]:
    """Have lines shown at the end of the run."""
    return lambda lines: record_property(_TOLD, "\n".join(lines))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    texts: List[str] = [
        str(text)
        for reports in (terminalreporter.stats.get("passed", ()), terminalreporter.stats.get("failed", ()))
        for report in reports
        for name, text in report.user_properties
        if name == _TOLD
    ]
    if texts:
        terminalreporter.section("mutants of the conformance suite")
        for text in texts:
            terminalreporter.write_line(text)
