"""Bugs after which whole systems still end as they may: see `test_quiet_bugs`."""

from __future__ import annotations

from whole_system.bugs.client_holder_bugs import QUIET_CLIENT_HOLDER_BUGS
from whole_system.bugs.kept_result_bugs import QUIET_KEPT_RESULT_BUGS
from whole_system.bugs.memory_bugs import QUIET_MEMORY_BUGS
from whole_system.bugs.speed_bugs import QUIET_SPEED_BUGS
from whole_system.bugs.spread_bugs import QUIET_SPREAD_BUGS
from whole_system.bugs.tenant_bugs import QUIET_TENANT_BUGS
from whole_system.bugs.transfer_bugs import QUIET_TRANSFER_BUGS
from whole_system.bugs.unit_bugs import QUIET_UNIT_BUGS

QUIET_BUGS = {
    **QUIET_TRANSFER_BUGS,
    **QUIET_TENANT_BUGS,
    **QUIET_UNIT_BUGS,
    **QUIET_CLIENT_HOLDER_BUGS,
    **QUIET_KEPT_RESULT_BUGS,
    **QUIET_SPEED_BUGS,
    **QUIET_MEMORY_BUGS,
    **QUIET_SPREAD_BUGS,
}
