"""What an idle local cluster costs, and how long the first result takes from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from engines import Engine, engine_class
from processes import cpu_between, engine_processes, read_cpu, read_memory
from workloads import Figures, warm_up

_SETTLE_SECONDS = 3.0
_PROBE_TIMEOUT_SECONDS = 120.0
_FIRST_RESULT_LINE = b"benchmark: first result\n"


def measure_footprint(engine: Engine, workers: int, idle_seconds: float) -> Figures:
    """Memory and CPU of everything the engine started, after a little work, with nothing to do.

    The client's process is excluded from the memory and reported by itself for CPU: a client that polls
    shows.
    """
    warm_up(engine, workers)
    time.sleep(_SETTLE_SECONDS)
    memory = read_memory(engine_processes())
    before = read_cpu()
    time.sleep(idle_seconds)
    idle = cpu_between(before, read_cpu())
    return {
        "proportional_mib": memory.proportional_mib,
        "resident_mib": memory.resident_mib,
        "processes": memory.processes,
        "idle_cpu_cores": idle.engine_seconds / idle.wall_seconds,
        "client_idle_cpu_cores": idle.own_seconds / idle.wall_seconds,
        "other_jobs_cores": idle.other_jobs_cores,
    }


def measure_startup(engine_name: str, workers: int) -> Figures:
    """A fresh interpreter starts the engine and runs one task; the clock starts before it does."""
    command = [sys.executable, str(Path(__file__).resolve()), engine_name, str(workers)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as probe:
        assert probe.stdout is not None
        first_result_seconds = None
        for line in probe.stdout:  # engines may log to the standard output: look for our line
            if line.endswith(_FIRST_RESULT_LINE):
                first_result_seconds = time.perf_counter() - started
        code = probe.wait(_PROBE_TIMEOUT_SECONDS)
    if first_result_seconds is None or code != 0:
        raise RuntimeError(f"the start-up probe of {engine_name} ended with code {code} and without its result")
    return {"first_result_seconds": first_result_seconds, "until_exit_seconds": time.perf_counter() - started}


def _probe(engine_name: str, workers: int) -> None:
    from tasks import no_op

    engine = engine_class(engine_name)()
    engine.start(workers)
    if engine.result(engine.submit(no_op, 7)) != 7:
        raise SystemExit("wrong result")
    os.write(1, _FIRST_RESULT_LINE)
    engine.stop()


if __name__ == "__main__":
    _probe(sys.argv[1], int(sys.argv[2]))
