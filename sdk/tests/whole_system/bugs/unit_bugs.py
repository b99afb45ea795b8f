"""Bugs of provisioners, and of what the scheduler does for them."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import PROVISION, SCHEDULER, PlantedBug

UNIT_BUGS: Dict[str, PlantedBug] = {
    # The provisioner --------------------------------------------------------------------------------------------------
    "a unit is started by a demand that does not count the last ones": PlantedBug(
        "provisioner",
        f"{PROVISION}.provision_core:ProvisionCore.on_time",
        "demand is not None and demand.units_sequence >= self._last_start",
        "demand is not None",
    ),
    "units are started before those that there are were listed": PlantedBug(
        "provisioner", f"{PROVISION}.pool:Pool.may_start", " or not self.is_listed", ""
    ),
    "a start that failed counts as none before the next list": PlantedBug(
        "provisioner",
        f"{PROVISION}.pool:Pool.on_start_failed",
        "self.is_listed, self._failed_at = False, now",
        "self._failed_at = now",
    ),
    "a unit that was started during a list has ended if it is not in it": PlantedBug(
        "provisioner",
        f"{PROVISION}.provision_core:ProvisionCore.on_listing",
        "unit.started < asked and unit.state",
        "unit.state",
    ),
    "units that stop do not count": PlantedBug(
        "provisioner",
        f"{PROVISION}.provision_core:ProvisionCore._start_of",
        "counts.there + counts.held, counts.to_come",
        "counts.there - counts.leaving + counts.held, counts.to_come",
    ),
    "idle units are not let go after another session": PlantedBug(
        "provisioner", f"{PROVISION}.provision_core:ProvisionCore.on_opened", "pool.is_asking = False", "pass"
    ),
    # The scheduler ----------------------------------------------------------------------------------------------------
    "units on their way are missing": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.demand.task_demand:TaskDemand._look",
        "[*offers.values(), *to_come]",
        "[*offers.values()]",
    ),
    "a unit with tasks goes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.demand.provisioning:Provisioning.on_release_request",
        "if is_idle or message.may_be_busy:",
        "if True:",
    ),
    "a worker that was seen with tasks once is never idle": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.demand.task_demand:_idle_since",
        "was_busy or before.was_busy or",
        "was_busy or",
    ),
    "more units go than were asked for": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.demand.provisioning:Provisioning.on_release_request",
        "[: message.count]",
        "",
    ),
}

QUIET_UNIT_BUGS: Dict[str, PlantedBug] = {
    "a unit that has failed and is listed is not counted": PlantedBug(
        "provisioner",
        f"{PROVISION}.provision_core:ProvisionCore._counts",
        "of.held += unit.is_listed and has_failed",
        "pass",
    ),
}
"""What whole systems do not show: such a unit connects or is gone before its pool may start the next one, in nearly all
histories."""
