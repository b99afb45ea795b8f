"""The program: what is left to run goes to the cluster, and each result to the file."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Dict, Iterator, List, Optional

from scaler import Client
from scaler.exceptions import ClientShutdownException, DisconnectedError, SchedulerUnreachableError
from vaccination.model import infected
from vaccination.results import ResultFile, Run

SHARES = [percent / 100 for percent in range(0, 100, 10)]
RUNS_IN_FLIGHT = 1000
NO_CLUSTER = (ClientShutdownException, DisconnectedError, SchedulerUnreachableError)


def study(client: Client, results: ResultFile, runs: List[Run]) -> List[str]:
    """Compute these runs, and keep each result as it arrives; returns what has failed."""
    careful = client.options(retries=2, timeout=60)
    submitted: Dict[Future[int], Run] = {}
    failures: List[str] = []

    def submissions() -> Iterator[Future[int]]:
        for run in runs:
            future = careful.submit(infected, run.vaccinated, run.contacts, run.seed)
            submitted[future] = run
            yield future

    for future in client.as_completed(submissions(), buffersize=RUNS_IN_FLIGHT):
        run = submitted.pop(future)
        error = future.exception()
        if isinstance(error, NO_CLUSTER):
            raise error
        if error:
            failures.append(f"{run}: {type(error).__name__}: {error}")
        else:
            results.add(run, future.result())
    return failures


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vaccination", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results.jsonl"), help="default: results.jsonl")
    parser.add_argument("--runs", type=int, default=1000, help="for each share of vaccinated people (default: 1000)")
    parser.add_argument("--contacts", type=float, default=2.5, help="how many one ill person infects (default: 2.5)")
    parser.add_argument("--address", help="of the scheduler (default: the one that you run on this machine)")
    options = parser.parse_args(arguments)

    results = ResultFile(options.results)
    runs = results.left(SHARES, options.contacts, options.runs)
    print(f"{len(results.infected)} runs are in {options.results}, {len(runs)} are left")
    failures: List[str] = []
    stopped_by = ""
    try:
        if runs:
            with Client(address=options.address, modules=["vaccination"]) as client:
                failures = study(client, results, runs)
    except KeyboardInterrupt:
        stopped_by = "Ctrl-C"
    except NO_CLUSTER as error:
        stopped_by = str(error)
    finally:
        results.close()
    print(results.table(options.contacts))
    for failure in failures:
        print(failure, file=sys.stderr)
    if stopped_by:
        print(f"stopped by {stopped_by}", file=sys.stderr)
        print(f"{len(results.infected)} runs are in the file: the same command continues", file=sys.stderr)
    return 1 if failures or stopped_by else 0


if __name__ == "__main__":
    sys.exit(main())
