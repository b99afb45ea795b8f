"""The output of tasks on its way to the scheduler.

Rules:
- Consecutive output of one task to one stream is sent together: a task that prints line by line costs one message per
  round, not per line.
- The order of one processor's output is preserved.
"""

from __future__ import annotations

from typing import List, Tuple

from scaler_protocol import messages as m

MAXIMUM_CHARACTERS = 256 * 1024
"""The limit of one message, unless a single piece is larger; the amount per round is bounded by what the agent
reads."""


class PrintedOutput:
    """Gathers output until `drain`."""

    def __init__(self) -> None:
        self._pieces: List[Tuple[int, int, List[str]]] = []  # instance, stream, texts
        self._characters = 0  # of the last piece

    def add(self, instance: int, stream: int, text: str) -> None:
        """A task printed something."""
        last = self._pieces[-1] if self._pieces else None
        is_alike = last is not None and last[:2] == (instance, stream)
        if last is not None and is_alike and self._characters + len(text) <= MAXIMUM_CHARACTERS:
            last[2].append(text)
            self._characters += len(text)
        else:
            self._pieces.append((instance, stream, [text]))
            self._characters = len(text)

    def drain(self) -> List[m.TaskLog]:
        """The messages."""
        if not self._pieces:
            return []
        pieces, self._pieces = self._pieces, []
        return [m.TaskLog(id=instance, stream=stream, text="".join(texts)) for instance, stream, texts in pieces]
