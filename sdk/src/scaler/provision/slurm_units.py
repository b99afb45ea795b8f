"""Units as jobs of Slurm, by its commands `sbatch`, `squeue` and `scancel`.

    start ──▶ sbatch < script      list ──▶ squeue      stop ──▶ scancel: a pending job ends, a running one drains
    start_together ──▶ sbatch --array=0-N < script

Rules:
- Each command has a time limit: a controller that hangs costs a thread that long, and not the loop.
- A worker that is signalled drains, and a second signal would stop it at once: so each unit is signalled once. If it is
  still there when its time is over, its job is cancelled, and Slurm ends it.
- A job is listed before it is stopped: what waits is cancelled, what runs is signalled. `scancel --signal` waits for a
  pending job to begin, for up to a minute.
- An element of an array that runs is signalled like any other job, but `scancel` must not go on for long: while others
  of the array wait, it sends the signal, is told to try again, and does so after five seconds. So it is ended before
  that, and has sent one signal.
- An element that waits is cancelled by its index alone: `scancel --state=PENDING 12_3` cancels all that wait.
- An array that is beyond a limit of Slurm is submitted in halves: what is within the limits begins, as it would one by
  one. Such a limit is MaxArraySize, or MaxSubmitJobs of an account. All other refusals are for all units of the array.
- What Slurm says is passed on, with what to do about it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import threading
import time
from typing import Callable, Dict, List, Sequence, Type

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.slurm_listing import ListedJob, jobs_of, squeue_command
from scaler.provision.slurm_script import SlurmSettings, consecutive, sbatch_command, worker_script
from scaler.provision.unit_adapters import UnitAdapter, UnitError, last_line
from scaler_protocol import messages as m

STOP_SECONDS = 60.0
"""For a unit to drain after it was signalled; then its job is cancelled."""

SIGNAL_SECONDS = 4.0
"""For `scancel` to signal an element of an array; it would signal again after 5 s. If it was too slow to signal at all,
the job is cancelled after STOP_SECONDS."""

_DRAIN = ("--state=RUNNING", "--batch", "--signal=TERM")
_OF_LISTINGS = ("SQUEUE_", "SCANCEL_")  # variables that would hide jobs, or ask questions
_OF_JOBS = "SLURM_"  # variables of the job that this program runs in, if it does, which are not the new job's
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")

logger = logging.getLogger("scaler")


class SlurmMissingError(UnitError):
    """A command of Slurm is not installed on this host."""


class SlurmUnavailableError(UnitError):
    """Slurm's controller cannot be reached, does not answer in time, or does not know this user."""


class SlurmRefusedError(UnitError):
    """Slurm refuses what it was asked for."""


class SlurmLimitError(SlurmRefusedError):
    """Slurm refuses jobs that are more than it takes, at a time or in one array."""


class SlurmJobGoneError(SlurmRefusedError):
    """A job has ended before it was cancelled or signalled."""


_PREFIXES = ("sbatch: ", "squeue: ", "scancel: ", "error: ", "Batch job submission failed: ")
_ADVICE = {
    "unable to contact slurm controller": (SlurmUnavailableError, "see whether it is up: scontrol ping"),
    "socket timed out": (SlurmUnavailableError, "the controller is busy or hangs: scontrol ping"),
    "authentication error": (SlurmUnavailableError, "munge must run here, with the cluster's key"),
    "munge": (SlurmUnavailableError, "munge must run here, with the cluster's key"),
    "configuration source": (SlurmUnavailableError, "this host has no slurm.conf: set SLURM_CONF, or use a login node"),
    "accounting/qos policy": (SlurmLimitError, "a limit such as MaxSubmitJobs: sacctmgr show associations, show qos"),
    "job array specification": (SlurmLimitError, "scontrol show config has MaxArraySize"),
    "invalid job id": (SlurmJobGoneError, "it has ended"),
    "already completing or completed": (SlurmJobGoneError, "it has ended"),
    "invalid partition": (SlurmRefusedError, "sinfo -s lists the partitions (--partition)"),
    "invalid account": (SlurmRefusedError, "sacctmgr show associations user=$USER lists accounts (--account)"),
    "generic resource": (SlurmRefusedError, 'sinfo -o "%P %G" lists what nodes have (--gres)'),
    "memory specification": (SlurmRefusedError, "no node has so much memory (--sbatch-options)"),
    "node configuration": (SlurmRefusedError, 'no node has so much: sinfo -o "%P %c %m %G" (--slots, --gres)'),
    "time limit": (SlurmRefusedError, "sinfo lists the limits of partitions (--lifetime-seconds)"),
    "time specification": (SlurmRefusedError, "sinfo lists the limits of partitions (--lifetime-seconds)"),
    "qos": (SlurmRefusedError, "a limit of the account or its QOS: sacctmgr show qos"),
    "unrecognized option": (SlurmRefusedError, "man sbatch lists the options of this version (--sbatch-options)"),
    "invalid option": (SlurmRefusedError, "man sbatch lists the options of this version (--sbatch-options)"),
    "permission": (SlurmRefusedError, "the job or partition is not this user's"),
}


class SlurmUnits(UnitAdapter):
    """Units as jobs: one job is one worker on one node. Those that are started together are elements of an array.

    Parameters:
        pool: of which these are the units.
        settings: of the jobs.
        timeout_seconds: for each command.
        clock: monotonic seconds.
    """

    most_together = 1000  # a MaxArraySize that is not set is 1001

    def __init__(
        self,
        pool: PoolSettings,
        settings: SlurmSettings,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._settings, self._timeout_seconds, self._clock = pool, settings, timeout_seconds, clock
        self.place = f"Slurm, user {os.getuid()}"
        self._lock = threading.Lock()
        self._signalled: Dict[str, float] = {}  # when, by unit; until it is not listed any more

    def start(self, unit: str) -> None:
        self.start_together([unit])

    def start_together(self, units: Sequence[str]) -> int:
        count = consecutive(units)
        while True:
            try:
                self._submit(units[:count])
                return count
            except SlurmLimitError as error:
                if count == 1:
                    raise
                logger.info("an array of %d jobs is refused, half of it is tried: %s", count, error)
                count //= 2

    def list(self) -> Dict[str, ListedUnit]:
        jobs = self._jobs()
        found = {unit: job.listed for unit, job in jobs.items()}
        for unit in self._overdue(found):
            self._cancel(jobs[unit])
        return found

    def stop(self, unit: str) -> None:
        job = self._jobs().get(unit)
        if job is None or job.listed.state == m.UnitState.FAILED:
            return
        if job.listed.state == m.UnitState.PENDING:
            self._cancel(job)
            return
        with self._lock:
            is_first = unit not in self._signalled
            self._signalled.setdefault(unit, self._clock())
        if is_first:
            self._signal(job)

    def close(self) -> None:
        """Jobs go on: another run of this program finds them."""

    def hurry(self) -> None:
        """There is nothing to wait for."""

    def described(self) -> str:
        units = [f"{self._pool.name}-0-{number}" for number in (1, 2, 3)]
        job = ListedJob("JOB", ListedUnit(m.UnitState.STARTING))
        commands = {
            "start": shlex.join(sbatch_command(self._settings, self._pool, units[:1])) + " < SCRIPT",
            "start three together": shlex.join(sbatch_command(self._settings, self._pool, units)) + " < SCRIPT",
            "list": shlex.join(squeue_command(os.getuid())),
            "stop, if it waits (JOB is as listed: 12 or 12_3)": shlex.join(_scancel(job)),
            "stop, if it runs": shlex.join(_scancel(job, *_DRAIN)),
            "stop, if it runs and is in an array": f"timeout {SIGNAL_SECONDS:g} {shlex.join(_scancel(job, *_DRAIN))}",
            f"after {STOP_SECONDS:g} s": shlex.join(_scancel(job)),
        }
        lines = [f"# {name}: {command}" for name, command in commands.items()]
        return "\n".join([*lines, "# SCRIPT:", worker_script(self._settings, self._pool, units[0])])

    def _submit(self, units: Sequence[str]) -> None:
        environment = dict(os.environ)
        environment.pop("SBATCH_ARRAY_INX", None)
        if "SLURM_JOB_ID" in environment:
            environment = {name: v for name, v in environment.items() if name in _KEPT or not name.startswith(_OF_JOBS)}
        script = worker_script(self._settings, self._pool, units[0])
        self._run(sbatch_command(self._settings, self._pool, units), environment, script)

    def _jobs(self) -> Dict[str, ListedJob]:
        output = self._run(squeue_command(os.getuid()), _for_listings())
        return jobs_of(output, self._pool.name, self._settings.address)

    def _overdue(self, found: Dict[str, ListedUnit]) -> List[str]:
        """Units that were signalled, and are still there after the time for that."""
        now = self._clock()
        with self._lock:
            present = {unit for unit, listed in found.items() if listed.state != m.UnitState.FAILED}
            overdue = [unit for unit, at in self._signalled.items() if unit in present and now >= at + STOP_SECONDS]
            for unit in [each for each in self._signalled if each not in present]:
                del self._signalled[unit]
            self._signalled.update(dict.fromkeys(overdue, now))
        return overdue

    def _cancel(self, job: ListedJob, *options: str) -> None:
        with contextlib.suppress(SlurmJobGoneError):
            self._run(_scancel(job, *options), _for_listings())

    def _signal(self, job: ListedJob) -> None:
        if not job.is_element:
            self._cancel(job, *_DRAIN)
            return
        with contextlib.suppress(SlurmJobGoneError, subprocess.TimeoutExpired):
            self._run_for(SIGNAL_SECONDS, _scancel(job, *_DRAIN), _for_listings())

    def _run(self, command: Sequence[str], environment: Dict[str, str], text: str = "") -> str:
        try:
            return self._run_for(self._timeout_seconds, command, environment, text)
        except subprocess.TimeoutExpired:
            raise SlurmUnavailableError(
                f"{command[0]} has not ended within {self._timeout_seconds:g} s (command_timeout_seconds):"
                " the controller is busy or hangs: scontrol ping"
            ) from None

    def _run_for(self, seconds: float, command: Sequence[str], environment: Dict[str, str], text: str = "") -> str:
        name = command[0]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=seconds, env=environment)
        except FileNotFoundError:
            raise SlurmMissingError(
                f"{name} is not on the PATH: run scaler_provision where Slurm's commands are, such as a login node"
            ) from None
        except OSError as error:
            raise SlurmMissingError(f"{name} cannot be started: {error}") from error
        if done.returncode:
            raise _error_of(name, done.returncode, done.stderr)
        return done.stdout.decode("utf-8", "replace")


def _scancel(job: ListedJob, *options: str) -> List[str]:
    return ["scancel", *options, job.job]


def _for_listings() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_LISTINGS)}


def _error_of(name: str, code: int, output: bytes) -> UnitError:
    """The error that a command's output stands for."""
    own = [line for line in output.splitlines() if line.startswith(b"%b: " % name.encode())]  # and no "Try --help"
    said = last_line(own[-1] if own else output)
    for prefix in _PREFIXES:  # people see the beginning of a reason: what it says should be in it
        said = said.replace(prefix, "")
    text = output.decode("utf-8", "replace").lower()
    kind: Type[UnitError] = SlurmRefusedError
    advice = ""
    for words, (kind_of_words, advice_of_words) in _ADVICE.items():
        if words in text:
            kind, advice = kind_of_words, f"; {advice_of_words}"
            break
    return kind(f"{name} (exit code {code}): {said}{advice}")
