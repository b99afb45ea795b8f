"""A process with a client that keeps a cluster busy and checks each value, as `upgrade_load` does."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Dict, List, Mapping, Optional

LOAD = Path(__file__).with_name("upgrade_load.py")
DEADLINE_SECONDS = 60.0


class LoadingClient:
    """
    Parameters:
        command: what runs `upgrade_load`, with its arguments.
        once: where tasks that may run at most once write their numbers.
        environment: of the process; None: that of this one.
    """

    def __init__(self, command: List[str], once: Path, environment: Optional[Mapping[str, str]] = None) -> None:
        self._once = once
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def wait_for_rounds(self, count: int) -> None:
        """Wait until so many more rounds are done, of which the last one began after this call."""
        self._skip_lines()
        for _ in range(count):
            assert self._lines.get(timeout=DEADLINE_SECONDS) == "a round is done\n"

    def _skip_lines(self) -> None:
        try:
            while True:
                self._lines.get_nowait()
        except Empty:
            pass

    def finish(self) -> Dict[str, Any]:
        """What came of all its futures."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_SECONDS) == 0
        self._reader.join(DEADLINE_SECONDS)
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        found: Dict[str, Any] = json.loads(lines[-1])
        return found

    def check(self) -> Dict[str, Any]:
        """Each future has the right value; those that may fail have not run twice."""
        found = self.finish()
        assert not found["wrong"] and not found["failed"], found
        begun = Counter(map(int, self._once.read_text().split()))
        assert set(begun.values()) == {1}, "a task that may run at most once ran again"
        assert begun.keys() >= set(found["once"])
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
