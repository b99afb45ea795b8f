"""The possible results of a case, and the exceptions with which a case reports them.

Rules:
- A case that returns has passed. It raises Violation if the implementation violates a requirement, and NotApplicable if
  it lacks what the case needs. Any other exception is an error of the suite.
- How the implementation ended afterwards is judged separately (`Teardown`).
"""

from __future__ import annotations

from enum import Enum
from typing import Optional


class Verdict(str, Enum):
    """The verdict on one case, from harmless to worst."""

    NOT_APPLICABLE = "N/A"
    PASS = "PASS"
    XFAIL = "XFAIL"  # it fails as the list of known failures says
    NON_STRICT = "NON-STRICT"  # a SHOULD is violated
    XPASS = "XPASS"  # it passes but is on the list of known failures
    FAIL = "FAIL"
    ERROR = "ERROR"  # the suite itself has an error

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
    """The implementation violates a requirement.

    Parameters:
        expected: what should have happened, as a noun phrase.
        came: what happened instead.
        requirement: the id of the violated one, if it is not the first that the case covers.
    """

    def __init__(self, expected: str, came: str, requirement: Optional[str] = None) -> None:
        super().__init__(f"expected {expected}; {came}")
        self.expected = expected
        self.came = came
        self.requirement = requirement


class NotApplicable(Exception):
    """The implementation lacks what the case needs; the text says what."""
