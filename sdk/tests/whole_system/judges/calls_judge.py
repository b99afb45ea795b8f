"""Calls of actors, as they really run: each actor in one processor, each call once, in order."""

from __future__ import annotations

from typing import Any, Dict

from whole_system.user_tasks import Task


class Calls:
    def __init__(self) -> None:
        self._numbers = 0
        self._homes: Dict[bytes, Any] = {}  # processors
        self._last: Dict[bytes, int] = {}  # number of the call that started last

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def on_started(self, task: Task, processor: Any) -> None:
        """A processor runs a call."""
        assert task.actor is not None
        home = self._homes.setdefault(task.actor, processor)
        assert home is processor, f"call {task.key} runs in another processor than those before"
        assert task.start_count == 1, f"call {task.key} runs twice"
        last = self._last.get(task.actor, 0)
        assert last < task.call_number, f"call {task.key} was overtaken"
        self._last[task.actor] = task.call_number
