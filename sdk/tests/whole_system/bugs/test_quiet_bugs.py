"""Planted bugs after which whole systems still end as they may: the unit tests of their part find each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from whole_system.bugs.planting import planted
from whole_system.bugs.quiet_bugs import QUIET_BUGS

TREE = Path(__file__).parents[4]
UNIT_TESTS = {
    "scheduler": [
        "appliance/tests/core/tenants/test_fair_share.py",
        "appliance/tests/core/graphs/test_node_reruns.py",
        "appliance/tests/core/objects",
        "appliance/tests/core/placement/test_awaited_bytes.py",
        "appliance/tests/core/placement/test_kept_bytes.py",
        "appliance/tests/core/placement/test_spare_capabilities.py",
        "appliance/tests/core/placement/test_speeds.py",
        "appliance/tests/core/placement/test_quick_functions.py",
        "appliance/tests/core/placement/test_ready_class.py",
        "appliance/tests/core/placement/test_rebalance.py",
        "appliance/tests/core/placement/test_memory_room.py",
        "appliance/tests/core/placement/test_waiting_for_memory.py",
        "appliance/tests/core/placement/test_large_among_others.py",
    ],
    "agent": [
        "sdk/tests/worker/agent/core/test_transfers.py",
        "sdk/tests/worker/agent/core/test_copies_nearby.py",
    ],
    "provisioner": ["sdk/tests/provision/test_provision_core.py"],
    "client": ["sdk/tests/client/core/test_argument_service.py"],
}
PROGRAM = """
import sys
sys.path[:0] = ["sdk/tests", "appliance/tests"]
import pytest
from whole_system.bugs.planting import planted
from whole_system.bugs.quiet_bugs import QUIET_BUGS
with planted(QUIET_BUGS[sys.argv[1]]):
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("name", QUIET_BUGS)
def test_a_quiet_bug_can_still_be_planted(name: str) -> None:
    with planted(QUIET_BUGS[name]):
        pass


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", QUIET_BUGS)
def test_unit_tests_find_a_quiet_bug(name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, name, *UNIT_TESTS[QUIET_BUGS[name].core]]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2000:]
