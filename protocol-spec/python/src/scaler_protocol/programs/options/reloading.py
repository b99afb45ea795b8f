"""Options that have changed since a program was started: which it can use now, and which at its next start.

SIGHUP ──▶ Program.read_again ──▶ ChangedOptions ──▶ reloadable: the program uses them; others: a warning
"""

from __future__ import annotations

import argparse
from typing import Any, List, NamedTuple

from scaler_protocol.programs.options.table import Option, Table


class ChangedOption(NamedTuple):
    """An option with another value than before."""

    option: Option
    before: Any
    after: Any

    @property
    def text(self) -> str:
        """Its name, what it was, and what it is, as in a file."""
        return f"{self.option.key}: {self._shown(self.before)} → {self._shown(self.after)}"

    def _shown(self, value: Any) -> str:
        return "not set" if value is None else self.option.kind.to_toml(value)


class ChangedOptions(NamedTuple):
    """All options with other values than before.

    Parameters:
        reloadable: those that the program can use now.
        others: those that take effect when it is started again.
    """

    reloadable: List[ChangedOption]
    others: List[ChangedOption]


def changed_options(program: Table, before: argparse.Namespace, after: argparse.Namespace) -> ChangedOptions:
    """What differs between two readings of a program's options."""
    changed = [
        ChangedOption(option, getattr(before, option.key), getattr(after, option.key))
        for option in program.options
        if getattr(before, option.key) != getattr(after, option.key)
    ]
    return ChangedOptions(
        [each for each in changed if each.option.is_reloadable],
        [each for each in changed if not each.option.is_reloadable],
    )
