"""`scaler_worker_manager KIND …` of the second generation: `scaler_cluster …`, for the only supported kind.

scaler_worker_manager baremetal_native tcp://127.0.0.1:8516 -wmi any -mtc 4   ─▶   scaler_cluster tcp://… -n 4
"""

from __future__ import annotations

import sys
from typing import List, Optional, Sequence

from scaler.worker.worker_options import INSTEAD_OF_KINDS, OTHER_KINDS

NATIVE = "baremetal_native"
_EXIT_USAGE = 2


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program, and return its exit code."""
    given: List[str] = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-"):
        kind = given.pop(0)
        if kind != NATIVE:
            advice = next((text for word, text in INSTEAD_OF_KINDS.items() if word in kind), OTHER_KINDS)
            fault = f"workers of kind {kind!r} are not supported, only {NATIVE}: {advice}"
            print(f"scaler_worker_manager: error: {fault}", file=sys.stderr)
            return _EXIT_USAGE
    sys.argv[1:] = given
    from scaler.programs.worker_host import main as run

    return run()
