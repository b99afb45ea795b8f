"""The list of cases that are known to fail. They still run, and the list must stay correct.

    ["worker/cancel/force-stops-a-running-task"]
    message = "to be stopped"
    link = "https://example.org/issues/12"

Rules:
- A listed case that fails with this text in its message is XFAIL. With any other message, it is FAIL.
- A listed case that passes is XPASS, which fails the run: the entry is stale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, List, Optional

from scaler_conformance.configuration.toml_files import load_toml
from scaler_conformance.judging.results import CaseResult
from scaler_conformance.judging.verdicts import Verdict


class KnownFailing:
    """Expected messages by case id."""

    def __init__(self, messages: Optional[Dict[str, str]] = None) -> None:
        self._messages = messages or {}

    @classmethod
    def load(cls, path: Path) -> KnownFailing:
        """Raises OSError, or ValueError if the file is not such a list."""
        tables = load_toml(path)
        for id_, table in tables.items():
            if not isinstance(table, dict) or not isinstance(table.get("message"), str) or not table["message"]:
                raise ValueError(
                    f'{path}: the entry "{id_}" has no message; add message = "a part of the expected message"'
                )
        return cls({id_: table["message"] for id_, table in tables.items()})

    def unknown(self, ids: Iterable[str]) -> List[str]:
        """Entries that are not the id of a case."""
        return sorted(set(self._messages).difference(ids))

    def apply(self, result: CaseResult) -> None:
        """Change the verdict of a listed case."""
        message = self._messages.get(result.id)
        if message is None:
            return
        if result.verdict == Verdict.PASS:
            result.verdict = Verdict.XPASS
            result.message = "the case passes but is on the list of known failures; remove it from the list"
        elif result.verdict in (Verdict.FAIL, Verdict.NON_STRICT):
            if message in result.message:
                result.verdict = Verdict.XFAIL
            else:
                result.message += f" (the list of known failures expects another message: {message})"
