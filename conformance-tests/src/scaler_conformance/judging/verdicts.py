"""What can become of a case, and the exceptions by which a case says so.

Rules:
- A case that returns has passed. One that finds the implementation at fault raises Violation, one that asks for what
  the implementation does not offer raises NotApplicable. Any other exception is the suite's own fault.
- How the implementation ended afterwards is judged apart from what it did (`Teardown`).
"""

from __future__ import annotations

from enum import Enum
from typing import Optional


class Verdict(str, Enum):
    """Of one case; the worst comes last."""

    NOT_APPLICABLE = "N/A"
    PASS = "PASS"
    XFAIL = "XFAIL"  # fails as the list of known failures says
    NON_STRICT = "NON-STRICT"  # a SHOULD is violated
    XPASS = "XPASS"  # passes although the list says that it fails
    FAIL = "FAIL"
    ERROR = "ERROR"  # the suite's fault

    @property
    def severity(self) -> int:
        return list(Verdict).index(self)


class Teardown(str, Enum):
    """How the implementation ended when the case was over."""

    NOT_STARTED = "not started"
    CLEAN = "clean"
    UNCLEAN = "unclean"  # it had to be killed
    LEAK = "leak"  # it ended, and left processes behind


class Violation(Exception):
    """The implementation does not do what a requirement says.

    Parameters:
        expected: what should have happened.
        came: what happened instead, decoded.
        requirement: its id, when it is another than the first that the case covers.
    """

    def __init__(self, expected: str, came: str, requirement: Optional[str] = None) -> None:
        super().__init__(f"expected {expected}; {came}")
        self.expected = expected
        self.came = came
        self.requirement = requirement


class NotApplicable(Exception):
    """The case needs what the implementation does not have; the text says what."""
