"""How units are started, listed and stopped: by processes of this host, or by commands of the user (see also
`slurm_units` and `kubernetes`).

Rules:
- Each call may take a while, and is made in a thread of its own. It returns, or raises UnitError with the reason.
- A listing has all units of this pool that there are, those of an earlier run too, and those that have ended unasked,
  with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from typing import Dict, List, Mapping, Sequence, Set

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.shell_command import CommandError, run_command, shown
from scaler.provision.unit_commands import amounts_text, is_unit_of, number_text
from scaler.worker.early_signals import held_signals
from scaler.worker.forwarded_signals import FORWARDED_AS
from scaler_protocol import messages as m

STATES = {"pending": m.UnitState.PENDING, "running": m.UnitState.STARTING, "failed": m.UnitState.FAILED}
"""The words of a listing."""

STOP_SECONDS = 60.0  # at least, for processes of this host to drain, when this program ends
STOP_MARGIN_SECONDS = 10.0  # beyond the time that workers may take for running tasks
DRAIN_SIGNAL = FORWARDED_AS[signal.SIGTERM]
_LONGEST_REASON = 300  # characters
_DIGITS = 8  # of a command's digest

logger = logging.getLogger("scaler")


class UnitError(Exception):
    """A unit could not be started or stopped, or units could not be listed."""


class UnitAdapter(ABC):
    """What a pool's units are.

    Attributes:
        place: where units are, for people: two programs with one place list each other's units, if their pools have one
            name. Empty: no other program can list them.
        most_together: units that `start_together` is given at most; others of the same start are for calls of their
            own, of which several are made at a time.
    """

    place = ""
    most_together = 1

    @abstractmethod
    def start(self, unit: str) -> None:
        """Start a unit. Raises UnitError."""

    def start_together(self, units: Sequence[str]) -> int:
        """Start the first of these units, and as many of those after it as the machines take with it.

        Returns how many were started, at least one. Raises UnitError if none was: the others would fail as well.
        """
        self.start(units[0])
        return 1

    @abstractmethod
    def list(self) -> Dict[str, ListedUnit]:
        """All units that there are. Raises UnitError."""

    @abstractmethod
    def stop(self, unit: str) -> None:
        """Stop a unit; it may be gone. Raises UnitError."""

    @abstractmethod
    def close(self) -> None:
        """This program ends."""

    @abstractmethod
    def hurry(self) -> None:
        """`close` is to take no time; for a signal handler during it."""

    @abstractmethod
    def described(self) -> str:
        """What it runs, for people who want to see it before: lines of a shell, or comments."""


class LocalUnits(UnitAdapter):
    """Workers of this host, which drain when this program is asked to end, and stop when it is killed.

    Each is asked once to drain, and by a signal that it can tell from those that others send to all processes: service
    managers and terminals do. Only `hurry` asks again.

    Parameters:
        command: that runs a worker; `--unit ID` is added.
        drain_timeout_seconds: for which its running tasks may go on.
    """

    def __init__(self, command: Sequence[str], drain_timeout_seconds: float = 0.0) -> None:
        self._command = list(command)
        self._stop_seconds = max(STOP_SECONDS, drain_timeout_seconds + STOP_MARGIN_SECONDS)
        self._lock = threading.Lock()
        self._processes: Dict[str, subprocess.Popen[bytes]] = {}
        self._draining: Set[int] = set()  # process ids of those that were asked to drain

    def start(self, unit: str) -> None:
        try:
            command = [*self._command, "--unit", unit, "--exit-when-stdin-closes"]
            with held_signals():
                process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise UnitError(f"{self._command[0]} cannot be started: {error}") from error
        with self._lock:
            self._processes[unit] = process

    def list(self) -> Dict[str, ListedUnit]:
        found: Dict[str, ListedUnit] = {}
        with self._lock:
            for unit, process in list(self._processes.items()):
                code = process.poll()
                if code is None:
                    found[unit] = ListedUnit(m.UnitState.STARTING)
                    continue
                del self._processes[unit]
                self._draining.discard(process.pid)
                if code:
                    found[unit] = ListedUnit(m.UnitState.FAILED, _reason_of(code))
        return found

    def stop(self, unit: str) -> None:
        with self._lock:
            process = self._processes.get(unit)
            if process is not None:
                self._drain(process)

    def close(self) -> None:
        with self._lock:
            processes = list(self._processes.values())
            for process in processes:
                self._drain(process)
        deadline = time.monotonic() + self._stop_seconds
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()

    def hurry(self) -> None:
        for process in list(self._processes.values()):
            process.send_signal(DRAIN_SIGNAL)  # first: a program that ends already would be ended by it
            if process.stdin is not None:
                process.stdin.close()  # which lets a worker stop without finishing its tasks

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        if process.pid not in self._draining and process.poll() is None:
            self._draining.add(process.pid)
            process.send_signal(DRAIN_SIGNAL)

    def described(self) -> str:
        return f"# start: {shlex.join([*self._command, '--unit', 'ID'])}"


def _reason_of(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            name = "SIGTERM" if -code == DRAIN_SIGNAL else signal.Signals(-code).name
            return f"its worker was ended by {name}"
    return f"its worker has ended with exit code {code}: see its log"


class CommandUnits(UnitAdapter):
    """Units that three commands of the user start, list and stop.

    What the list command prints besides this pool's units of this scheduler is passed over: what is a unit is stopped
    when it has no worker, and a command that lists all machines of an account must not cost these.

    Parameters:
        pool: told to the commands in variables of their environment.
        address: of the scheduler, likewise.
    """

    def __init__(
        self, pool: PoolSettings, address: str, start: str, listing: str, stop: str, timeout_seconds: float
    ) -> None:
        self._pool, self._address = pool.name, address
        self._others = ""  # the first id that was passed over, once that was said
        self._start, self._listing, self._stop = start, listing, stop
        self._timeout_seconds = timeout_seconds
        self.place = f"the list command {hashlib.sha256(listing.encode()).hexdigest()[:_DIGITS]}"
        self._variables = {
            "UNIT_POOL": pool.name,
            "UNIT_SLOTS": str(pool.slots),
            "UNIT_CAPABILITIES": amounts_text(pool.capabilities, " "),
            "UNIT_LIFETIME_SECONDS": number_text(pool.lifetime_seconds),
            "UNIT_ADDRESS": address,
        }

    def start(self, unit: str) -> None:
        self._run(self._start, {"UNIT_ID": unit})

    def list(self) -> Dict[str, ListedUnit]:
        found: Dict[str, ListedUnit] = {}
        for line in self._run(self._listing, {}).splitlines():
            words = line.split(None, 2)
            if not words:
                continue
            if not is_unit_of(words[0], self._pool, self._address):
                self._pass_over(words[0])
                continue
            word = words[1].lower() if len(words) > 1 else "running"
            if word not in STATES:
                raise UnitError(f"the list command printed the state {word!r} in {line!r}: use {', '.join(STATES)}")
            found[words[0]] = ListedUnit(STATES[word], words[2].strip() if len(words) > 2 else "")
        return found

    def _pass_over(self, unit: str) -> None:
        if not self._others:
            self._others = unit
            logger.warning(
                "the list command of the pool %s printed %r, no unit of it at this scheduler, which is left alone",
                *(self._pool, unit),
            )

    def stop(self, unit: str) -> None:
        self._run(self._stop, {"UNIT_ID": unit})

    def close(self) -> None:
        """Units go on: another run of this program finds them."""

    def hurry(self) -> None:
        """There is nothing to wait for."""

    def described(self) -> str:
        variables = [f"# {name}={shlex.quote(value)}" for name, value in self._variables.items()]
        commands = {"start": self._start, "list": self._listing, "stop": self._stop}
        texts = [f"{name}: {command.strip()}" for name, command in commands.items()]
        return "\n".join([*variables, *(f"# {line}" for text in texts for line in text.splitlines())])

    def _run(self, command: str, variables: Mapping[str, str]) -> str:
        try:
            ended = run_command(command, {**os.environ, **self._variables, **variables}, self._timeout_seconds)
        except CommandError as error:
            raise UnitError(str(error)) from error
        if ended.code:
            hint = "; if it found no units, let it exit with 0" if command == self._listing and not ended.errors else ""
            raise UnitError(f"{shown(command)} has ended with exit code {ended.code}: {last_line(ended.errors)}{hint}")
        return ended.output.decode("utf-8", "replace")


def last_line(output: bytes) -> str:
    """What a command has said last."""
    lines: List[str] = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:_LONGEST_REASON] if lines else "it printed no error"
