"""What encrypts is imported by programs that encrypt, and by no others: it takes time when they start."""

from __future__ import annotations

import subprocess
import sys
from typing import Dict, List

from security.keyed_scheduler import KeyedScheduler

PROGRAM = """
import sys
from scaler import Client

with Client(address=sys.argv[1]) as client:
    assert client.info() is not None
print(*sorted({"nacl", "_cffi_backend", "cffi", "ctypes"} & set(sys.modules)))
"""


def imported(address: str, environment: Dict[str, str]) -> List[str]:
    """Which modules a client imports."""
    program = [sys.executable, "-c", PROGRAM, address]
    return subprocess.run(program, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout.split()


def test_a_client_on_the_schedulers_host_does_without_libsodium(any_address: str) -> None:
    assert imported(any_address, {}) == []


def test_a_client_with_a_key_imports_only_what_calls_libsodium(scheduler: KeyedScheduler) -> None:
    key_file = str(scheduler.admitted_key("client", "importer"))
    assert imported(scheduler.address, {"SCALER_KEY_FILE": key_file}) == ["_cffi_backend", "nacl"]
