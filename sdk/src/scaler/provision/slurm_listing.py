"""What `squeue` prints about a pool's jobs, and what its states mean for a unit.

Rules:
- One listing has all jobs of this user, those that ended a while ago too (MinJobAge): then the reason is known.
- Elements of arrays have lines of their own, also those that wait, which `squeue` shows as one without `--array`. One
  that waited and was cancelled has none. If all that wait are cancelled at once, they have one line, without an index:
  where the first element has a line, that one counts.
- Jobs of other pools, of other schedulers and of anything else are passed over, whatever their names and reasons are.
- A job in a state that is not known here counts as one that runs: else there might be more than the maximum.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.slurm_script import unit_of
from scaler_protocol import messages as m

SEPARATOR = "|"
FORMAT = SEPARATOR.join(("%i", "%T", "%j", "%r"))
"""Job id, with the index in an array if it is in one, state, name and reason. The last one may have anything in it."""

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "CONFIGURING")
_WORDS = {
    "BOOT_FAIL": "its node could not be booted",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "its deadline is over",
    "FAILED": "it has failed",
    "NODE_FAIL": "its node has failed",
    "OUT_OF_MEMORY": "it needed more memory than it had asked for",
    "PREEMPTED": "it was preempted",
    "REVOKED": "another cluster runs it",
    "TIMEOUT": "its time limit is over",
}
_NO_REASON = ("", "None", "(null)")
_JOB = re.compile(r"[0-9]+(?:_([0-9]+))?", re.ASCII)


class ListedJob(NamedTuple):
    """A job that is a unit.

    Attributes:
        job: its id, as Slurm's commands take it: `12`, or `12_3` for an element of an array.
        listed: the unit.
    """

    job: str
    listed: ListedUnit

    @property
    def is_element(self) -> bool:
        """It is in an array."""
        return "_" in self.job


def squeue_command(user_id: int) -> List[str]:
    """The command that lists jobs."""
    return ["squeue", "--noheader", f"--user={user_id}", "--states=all", "--array", f"--format={FORMAT}"]


def jobs_of(output: str, pool: str, address: str) -> Dict[str, ListedJob]:
    """The jobs of a pool by unit, from what `squeue` has printed.

    Parameters:
        address: of the scheduler.
    """
    found: Dict[str, ListedJob] = {}
    for line in output.splitlines():
        fields = line.split(SEPARATOR, 3)
        match = _JOB.fullmatch(fields[0]) if len(fields) == 4 else None
        if match is None:
            continue
        job, state, name, reason = fields
        unit = unit_of(name, int(match[1] or 0), pool, address)
        listed = _listed(job, state, reason.strip())
        is_new = unit not in found or match[1] is not None
        if unit is not None and listed is not None and is_new:
            found[unit] = ListedJob(job, listed)
    return found


def _listed(job: str, state: str, reason: str) -> Optional[ListedUnit]:
    """What a job is as a unit; None: it has ended as it should."""
    reason = "" if reason in _NO_REASON else reason
    if state in _WAITING:
        return ListedUnit(m.UnitState.PENDING, reason or state)
    if state in _WORDS:
        why = f" ({state}{f', {reason}' if reason else ''})"
        return ListedUnit(m.UnitState.FAILED, f"Slurm job {job}: {_WORDS[state]}{why}")
    if state == "COMPLETED":
        return None
    return ListedUnit(m.UnitState.STARTING, "" if state in _RUNNING else state)
