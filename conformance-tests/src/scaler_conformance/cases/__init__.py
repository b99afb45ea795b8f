"""Cases: functions of `cases/<role>/<area>.py`, found by importing them all.

Rules:
- A case takes the bench of its role and returns nothing. What is expected stands in its docstring, in prose.
- Its id is made of where it stands: `cancelled_before_start` in `cases/worker/cancel.py` is
  `worker/cancel/cancelled-before-start`. Renaming it breaks people's lists of known failures.
- `covers` are ids of the register. What a case finds at fault is a violation of the first, unless it says otherwise.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, TypeVar

from scaler_conformance.configuration.features import FEATURES

CaseFunction = TypeVar("CaseFunction", bound=Callable[..., None])


class Case(NamedTuple):
    """One case and its front matter."""

    id: str
    role: str
    function: Callable[[Any], None]
    covers: Tuple[str, ...]
    features: Tuple[str, ...]  # it does not apply without them
    latitude: str  # what else is allowed, in prose
    smoke: bool  # one of the few that tell whether the implementation is wired up at all

    @property
    def expectation(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def title(self) -> str:
        """The first sentence of the expectation."""
        return self.expectation.split("\n\n")[0].replace("\n", " ")


_CASES: Dict[str, Case] = {}


def case(
    covers: Sequence[str], features: Sequence[str] = (), latitude: str = "", smoke: bool = False
) -> Callable[[CaseFunction], CaseFunction]:
    """Make a function a case; see Case.

    Raises ValueError when the front matter makes no sense.
    """

    def register(function: CaseFunction) -> CaseFunction:
        role, area = function.__module__.split(".")[-2:]
        id_ = f"{role}/{area}/{function.__name__}".replace("_", "-")
        unknown = [each for each in features if each not in FEATURES]
        if unknown:
            raise ValueError(f"{id_} needs a feature {unknown[0]} that features.py does not have")
        if not function.__doc__ or not covers:
            raise ValueError(f"{id_} lacks a docstring, or covers nothing")
        if id_ in _CASES:
            raise ValueError(f"there are two cases {id_}")
        _CASES[id_] = Case(id_, role, function, tuple(covers), tuple(features), latitude, smoke)
        return function

    return register


def cases_of(role: str) -> List[Case]:
    """All cases of a role, in the order of their areas and lines."""
    package = importlib.import_module(f"scaler_conformance.cases.{role}")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [each for each in _CASES.values() if each.role == role]


def matches(case_: Case, patterns: Sequence[str]) -> bool:
    """Whether the case's id fits one of the patterns: `worker/cancel/*`, `*crosses*`, or an id."""
    return any(fnmatchcase(case_.id, pattern) or case_.id.startswith(f"{pattern.rstrip('/')}/") for pattern in patterns)
