"""What `squeue` prints about a pool's jobs, and what its states mean for a unit.

Rules:
- One listing has all jobs of this user, those that ended a while ago too (MinJobAge): then the reason is known.
- Jobs of other pools, of other schedulers and of anything else are passed over, whatever their names and reasons are.
- A job in a state that is not known here counts as one that runs: else there might be more than the maximum.
"""

from __future__ import annotations

from typing import Dict, List, Optional

from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.slurm_script import unit_of
from scaler_protocol import messages as m

SEPARATOR = "|"
FORMAT = SEPARATOR.join(("%A", "%T", "%j", "%r"))
"""Job id, state, name and reason. The last one may have anything in it."""

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


def squeue_command(user_id: int) -> List[str]:
    """The command that lists jobs."""
    return ["squeue", "--noheader", f"--user={user_id}", "--states=all", f"--format={FORMAT}"]


def units_of(output: str, pool: str, address: str) -> Dict[str, ListedUnit]:
    """The units of a pool, from what `squeue` has printed.

    Parameters:
        address: of the scheduler.
    """
    found: Dict[str, ListedUnit] = {}
    for line in output.splitlines():
        fields = line.split(SEPARATOR, 3)
        unit = unit_of(fields[2], pool, address) if len(fields) == 4 else None
        listed = None if unit is None else _listed(fields[0], fields[1], fields[3].strip())
        if unit is not None and listed is not None:
            found[unit] = listed
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
