"""Pools that grow and shrink with a staged load, Scaler's and Dask's, in turns: JSON.

    .venv/bin/python benchmarks/elastic/growing_pools.py --rounds 3 --engines scaler,dask

Four minutes for each engine in each round. Dask has an environment of its own (see benchmarks/peers). HyperQueue's
package on PyPI has a server, but neither its program nor a function that adds an allocation queue: it is not measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from elastic.staged_load import END_SECONDS, STAGES, figures, ideal_seconds
from elastic.unit_machine import NOTES
from peers.environments import PEERS, python_of

ENGINES = {"scaler": "elastic.scaler_pool", "dask": "elastic.dask_pool"}
TARGETS = {"scaler": 10.0, "dask": 5.0}  # seconds; the defaults
WAIT_SECONDS = 120.0  # beyond the load


def measure(
    engine: str, units: int, boot_seconds: float, idle_seconds: float, target_seconds: float, kept: str = ""
) -> dict[str, Any]:
    """One run, in this process.

    Parameters:
        target_seconds: in which waiting work should be done; 0: the default of the engine.
        kept: a folder for the notes and logs; empty: they are not kept.
    """
    with tempfile.TemporaryDirectory(prefix="scaler-pools-") as temporary:
        folder = kept or temporary
        module = importlib.import_module(ENGINES[engine])
        began, ended = module.run(folder, units, boot_seconds, idle_seconds, target_seconds or TARGETS[engine])
        return figures(Path(folder, NOTES), began, ended, units, boot_seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", type=int, default=8, help="at most; each has one slot")
    parser.add_argument("--boot-seconds", type=float, default=5.0)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--target-seconds", type=float, default=0.0, help="0: the default of each engine")
    parser.add_argument("--here", action="store_true", help="one run of one engine, in this process")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="with --here: for notes and logs")
    options = parser.parse_args()
    engines = options.engines.split(",")
    if options.here:
        times = options.boot_seconds, options.idle_seconds, options.target_seconds
        found = measure(engines[0], options.units, *times, options.keep)
        print(json.dumps(found))
        return 0
    runs: dict[str, list[Any]] = {engine: [] for engine in engines}
    settings = [
        f"--{name}={getattr(options, name.replace('-', '_'))}"
        for name in ("units", "boot-seconds", "idle-seconds", "target-seconds")
    ]
    for number in range(options.rounds):
        for engine in engines:
            python = next((python_of(each) for each in PEERS if each.engine == engine), sys.executable)
            command = [python, __file__, "--here", f"--engines={engine}", *settings]
            done = subprocess.run(command, stdout=subprocess.PIPE, timeout=END_SECONDS + WAIT_SECONDS, check=True)
            runs[engine].append({**json.loads(done.stdout.splitlines()[-1]), "load": round(os.getloadavg()[1], 1)})
            print(f"round {number + 1}, {engine}: {json.dumps(runs[engine][-1])}", file=sys.stderr, flush=True)
    ideals = [round(ideal_seconds(each, options.units, options.boot_seconds), 2) for each in STAGES]
    print(json.dumps({**vars(options), "ideal seconds of the stages": ideals, "runs": runs}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
