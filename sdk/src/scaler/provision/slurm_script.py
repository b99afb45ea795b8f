"""Units as jobs of Slurm: their name, the arguments of `sbatch`, and the script that becomes a worker.

    unit cpu-ab12cd-7                    job cpu-ab12cd-7@d1d062
    units cpu-ab12cd-8 to cpu-ab12cd-10  array cpu-ab12cd-8@d1d062 with the elements 0 to 2

Rules:
- Nothing is run here, and nothing is read but the arguments: `--dry-run` prints what these functions return.
- A job is one worker on one node. Its name is what it is found by again, so no two schedulers share names.
- Units that are submitted together are the elements of an array, and differ by its index alone: all have the name of
  the first one, and its number plus the index. So a unit alone is a job without an array, with the same script.
- All options are arguments of `sbatch` and none are lines of the script: variables such as SBATCH_PARTITION go before
  those lines, and after arguments.
- The shell becomes the worker (`exec`), because a signal for the batch step reaches only the step's own process.
"""

from __future__ import annotations

import re
import shlex
from math import ceil
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler.provision.core.pool import PoolSettings
from scaler.provision.unit_commands import UNIT, digest_of, worker_arguments

END_MARGIN_SECONDS = 60.0
"""Of a job's time limit: for its worker to start, and to drain before the end."""

_FIND_END = """\
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
if [ -z "${SLURM_JOB_END_TIME:-}" ]; then  # Slurm says it since 23.02
    SLURM_JOB_END_TIME=$(SLURM_TIME_FORMAT=%s timeout 30 squeue --noheader --jobs="$job" --format=%e)
    case $SLURM_JOB_END_TIME in
        '' | *[!0-9]*) {otherwise} ;;
        *) export SLURM_JOB_END_TIME ;;
    esac
fi
"""
_UNIT_IN_SCRIPT = '"$unit"'
# Options that would make more or fewer jobs or workers than one, or that another option of the pool says.
_RESERVED = {
    **dict.fromkeys(("--job-name", "-J"), "scaler_provision finds its jobs by their names"),
    **dict.fromkeys(("--array", "-a"), "units that start together are an array already; raise --maximum"),
    **dict.fromkeys(("--nodes", "-N", "--ntasks", "-n"), "each unit is one worker on one node; raise --maximum"),
    **dict.fromkeys(("--time", "-t"), "use --lifetime-seconds, from which tasks with a time_request are placed"),
    **dict.fromkeys(("--clusters", "-M"), "set SLURM_CLUSTERS, which squeue and scancel read as well"),
    **dict.fromkeys(("--wait", "-W", "--wrap", "--test-only", "--requeue"), "it changes what sbatch does"),
}


class SlurmSettings(NamedTuple):
    """What a user says of a pool's jobs.

    Attributes:
        address: of the scheduler, as workers reach it.
        partition: empty: Slurm's default; likewise `account` and `gres`.
        time_limit_seconds: of each job; 0: the partition's.
        options: further arguments of `sbatch`, which override those that are made from the other attributes.
        setup: shell commands that the script runs before the worker.
        worker: words of the command of a worker, without options.
        worker_key_file: the key of workers; None: they look for it themselves.
        insecure: workers connect without keys.
    """

    address: str
    worker: Sequence[str]
    partition: str = ""
    account: str = ""
    gres: str = ""
    time_limit_seconds: float = 0.0
    options: Sequence[str] = ()
    setup: str = ""
    worker_key_file: Optional[str] = None
    insecure: bool = False


def job_name_of(unit: str, address: str) -> str:
    """The name of a unit's job: the id, and a few characters that differ between schedulers."""
    return f"{unit}@{digest_of(address)}"


def unit_of(job_name: str, index: int, pool: str, address: str) -> Optional[str]:
    """The unit of a pool that a job is, by its name; None for jobs of others, and of other pools.

    Parameters:
        index: of the job in its array; 0 if it is in none.
    """
    found = re.fullmatch(f"({re.escape(pool)}{UNIT})@{digest_of(address)}", job_name, re.ASCII)
    if found is None:
        return None
    stem, number = _parts_of(found[1])
    return f"{stem}-{number + index}"


def consecutive(units: Sequence[str]) -> int:
    """How many of these units, from the first one on, can be elements of one array."""
    stem, number = _parts_of(units[0])
    return next((place for place, unit in enumerate(units) if unit != f"{stem}-{number + place}"), len(units))


def _parts_of(unit: str) -> Tuple[str, int]:
    stem, _, number = unit.rpartition("-")
    return stem, int(number)


def fault_of_options(options: str) -> str:
    """Why further options of `sbatch` cannot be used; empty if they can."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        return f"it cannot be read as words of a shell: {error}"
    for word in words:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name in _RESERVED:
            return f"{name} cannot be used: {_RESERVED[name]}"
    return ""


def capabilities_of_gres(gres: str) -> Dict[str, float]:
    """What a job with such generic resources offers: `gpu:a100:2` is gpu=2."""
    amounts: Dict[str, float] = {}
    for each in filter(None, (part.strip() for part in gres.split(","))):
        name, *rest = each.split(":")
        number = rest[-1] if rest and rest[-1].isdigit() else "1"
        amounts[name] = amounts.get(name, 0.0) + float(number)
    return amounts


def lifetime_of(time_limit_seconds: float) -> float:
    """How long a task may run in a job with such a limit; 0: no end is known."""
    return max(time_limit_seconds - END_MARGIN_SECONDS, time_limit_seconds / 2)


def sbatch_command(settings: SlurmSettings, pool: PoolSettings, units: Sequence[str]) -> List[str]:
    """The command that submits consecutive units, whose script is its standard input."""
    given = {
        "--job-name": job_name_of(units[0], settings.address),
        "--array": f"0-{len(units) - 1}" if len(units) > 1 else "",
        "--comment": f"scaler_provision pool={pool.name} scheduler={settings.address}",
        "--partition": settings.partition,
        "--account": settings.account,
        "--gres": settings.gres,
        "--time": str(ceil(settings.time_limit_seconds / 60)) if settings.time_limit_seconds else "",
        "--nodes": "1",
        "--ntasks": "1",
        "--cpus-per-task": str(pool.slots),
    }
    # A job that Slurm queues again would be a unit that comes back when nothing needs it any more.
    words = [f"{name}={value}" for name, value in given.items() if value]
    return ["sbatch", "--parsable", *words, "--no-requeue", *settings.options]


def worker_script(settings: SlurmSettings, pool: PoolSettings, first: str) -> str:
    """The script of a unit, and of those that are in one array with it and after it."""
    stem, number = _parts_of(first)
    limit = settings.time_limit_seconds
    otherwise = f"export SLURM_JOB_END_TIME=$(($(date +%s) + {limit:.0f}))" if limit else "unset SLURM_JOB_END_TIME"
    arguments = worker_arguments(pool, first, settings.address, settings.worker_key_file, settings.insecure)
    words = [_UNIT_IN_SCRIPT if word == first else shlex.quote(word) for word in (*settings.worker, *arguments)]
    setup = f"{settings.setup}\n" if settings.setup else ""
    end = _FIND_END.replace("{otherwise}", otherwise)
    begin = f"#!/bin/bash\n# A unit of the pool {pool.name} of scaler_provision.\n"
    unit = f"unit={shlex.quote(stem)}-$(({number} + ${{SLURM_ARRAY_TASK_ID:-0}}))\n"
    return f"{begin}{end}{setup}{unit}exec {' '.join(words)}\n"
