"""Cases: functions of `cases/<role>/<area>.py`, which are found by importing all of these modules.

Rules:
- A case takes the bench of its role and returns nothing. Its docstring states what it expects.
- Its id follows from its place: `held_task_is_cancelled` in `cases/worker/cancel.py` is
  `worker/cancel/held-task-is-cancelled`. Renaming it invalidates users' lists of known failures.
- `covers` are ids of the register. A failed check violates the first id, unless the check names another.
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
    """A case and its metadata."""

    id: str
    role: str
    function: Callable[[Any], None]
    covers: Tuple[str, ...]
    features: Tuple[str, ...]  # without which it does not apply
    latitude: str  # what else is allowed, in prose
    smoke: bool  # one of the few that show whether the set-up works

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

    Raises ValueError if the metadata is invalid.
    """

    def register(function: CaseFunction) -> CaseFunction:
        role, area = function.__module__.split(".")[-2:]
        id_ = f"{role}/{area}/{function.__name__}".replace("_", "-")
        unknown = [each for each in features if each not in FEATURES]
        if unknown:
            raise ValueError(
                f"{id_} needs the unknown feature {unknown[0]}; add it to features.py, or correct its name"
            )
        if not function.__doc__ or not covers:
            raise ValueError(f"{id_} needs a docstring and at least one requirement in `covers`")
        if id_ in _CASES:
            raise ValueError(f"two cases have the id {id_}; rename one of the functions")
        _CASES[id_] = Case(id_, role, function, tuple(covers), tuple(features), latitude, smoke)
        return function

    return register


def cases_of(role: str) -> List[Case]:
    """All cases of a role, ordered by area and line."""
    package = importlib.import_module(f"scaler_conformance.cases.{role}")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [each for each in _CASES.values() if each.role == role]


def matches(case_: Case, patterns: Sequence[str]) -> bool:
    """Whether the case's id matches one of the patterns: `worker/cancel/*`, `*crosses*`, or an id."""
    return any(fnmatchcase(case_.id, pattern) or case_.id.startswith(f"{pattern.rstrip('/')}/") for pattern in patterns)
