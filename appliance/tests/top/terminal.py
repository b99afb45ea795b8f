"""A real terminal, which tmux plays, and a shell in it.

Rule: every wait is for what is to be seen, with a deadline that fails the test and shows the screen.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.05
PROMPT = "prompt>"


class Terminal:
    """A terminal with a shell, for a `with` block."""

    def __init__(self, folder: Path, columns: int = 120, lines: int = 30) -> None:
        self._socket = folder / "tmux"
        self._settings = folder / "settings"
        self._size = (str(columns), str(lines))
        self._lines_run = 0

    def __enter__(self) -> Terminal:
        columns, lines = self._size
        self._settings.write_text(f"PS1='{PROMPT}'\n")
        environment = {**os.environ, "ENV": str(self._settings)}
        for name in ("NO_COLOR", "TMUX"):
            environment.pop(name, None)
        command = ["new-session", "-d", "-x", columns, "-y", lines, "exec sh"]
        subprocess.run(
            [*self._tmux(), "-f", os.devnull, *command], env=environment, check=True, timeout=DEADLINE_SECONDS
        )
        self.wait_for(lambda screen: screen[0].startswith(PROMPT), "the shell's prompt")
        return self

    def __exit__(self, *_: object) -> None:
        self._ask("kill-server")

    def _tmux(self) -> List[str]:
        return ["tmux", "-S", str(self._socket)]

    def _ask(self, *command: str) -> str:
        answer = subprocess.run(
            [*self._tmux(), *command], check=True, stdout=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE_SECONDS
        )
        return answer.stdout

    def run(self, *command: str) -> None:
        """Have the shell run a command, without waiting for its end."""
        self._ask("send-keys", "-l", shlex.join(command))
        self._ask("send-keys", "Enter")

    def run_to_its_end(self, line: str) -> None:
        self._lines_run += 1
        self._ask("send-keys", "-l", f"{line}; echo line $((0 + {self._lines_run})) is done")
        self._ask("send-keys", "Enter")
        done = f"line {self._lines_run} is done"

        def is_at_the_prompt(screen: List[str]) -> bool:
            return done in screen and [line for line in screen if line][-1] == PROMPT

        self.wait_for(is_at_the_prompt, f"{done!r} and the prompt")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        for key in keys:
            self._ask("send-keys", key)

    def type(self, text: str) -> None:
        self._ask("send-keys", "-l", text)

    def resize(self, columns: int, lines: int) -> None:
        self._ask("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self, with_colors: bool = False) -> List[str]:
        return self._ask("capture-pane", "-p", *(["-e"] if with_colors else [])).splitlines()

    def modes(self) -> str:
        """Whether the alternate screen is on, the cursor is visible, and lines are wrapped."""
        return self._ask("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").strip()

    def wait_for(self, is_there: Callable[[List[str]], object], what: str) -> List[str]:
        """Wait until the screen is as wanted; returns it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            screen = self.screen()
            if screen and is_there(screen):
                return screen
            assert time.monotonic() < deadline, f"timed out waiting for {what}; the screen is:\n" + "\n".join(screen)
            time.sleep(POLL_SECONDS)

    def wait_for_text(self, text: str) -> List[str]:
        return self.wait_for(lambda screen: any(text in line for line in screen), repr(text))


# A client that has work for a cluster at an address, until it is killed.
LOAD = """
import sys, time
from scaler import Client

def prepare(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

def fail(value):
    raise ValueError(value)

with Client(address=sys.argv[1]) as client:
    while True:
        futures = [client.submit(prepare, 0.01) for _ in range(int(sys.argv[2]))] + [client.submit(fail, 1)]
        client.map(abs, range(1000))
        for future in futures:
            future.exception()
        time.sleep(float(sys.argv[3]))
"""


class Load:
    """Workers and a client at an address, as programs of their own, for a `with` block.

    The client has so many tasks at a time, and pauses when it has all results.
    """

    def __init__(self, address: str, workers: int, tasks: int = 20, pause_seconds: float = 0.2) -> None:
        self._commands = [
            [sys.executable, "-m", "scaler.worker", address, "-n", str(workers), "-ll", "WARNING"],
            [sys.executable, "-c", LOAD, address, str(tasks), str(pause_seconds)],
        ]

    def __enter__(self) -> Load:
        self._programs = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for command in self._commands
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.terminate()
        for program in self._programs:
            program.wait(DEADLINE_SECONDS)
