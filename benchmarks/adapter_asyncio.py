"""`scaler.aio.Client` beside what asyncio programs used before it, in turns. A command line of its own.

    .venv-adapters/bin/python benchmarks/adapter_asyncio.py [--rounds 5] [--workers 2]   ──▶  JSON

Rules:
- Three engines: scaler.aio; futures of `scaler.Client`, awaited in a loop; `distributed.Client(asynchronous=True)`.
  Each has the same number of worker processes of one thread, and is warm.
- A round is every case on every engine, so that what else the machine does meets all. A figure is the least of the
  rounds; `ratios` divides it by that of scaler.aio: above 1, scaler.aio is faster.
- Figures are microseconds for each call, and for connecting, microseconds and threads for each client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import statistics
import threading
import time
from typing import Any, Awaitable, Callable, Dict, List

import distributed

import scaler
from scaler import aio

Submit = Callable[..., Awaitable[Any]]

ROUND_TRIPS = 200
CALLS = 2_000
CLIENTS = 10


async def one_by_one(submit: Submit) -> float:
    """Each call is awaited before the next; the median."""
    durations: List[float] = []
    for number in range(ROUND_TRIPS):
        begin = time.perf_counter()
        assert await submit(operator.neg, number) == -number
        durations.append(time.perf_counter() - begin)
    return statistics.median(durations)


async def all_at_once(submit: Submit) -> float:
    """Many calls are gathered."""
    begin = time.perf_counter()
    results = await asyncio.gather(*[submit(operator.neg, number) for number in range(CALLS)])
    assert results == [-number for number in range(CALLS)]
    return (time.perf_counter() - begin) / CALLS


async def with_timeouts(submit: Submit) -> float:
    """A hundred coroutines, each with a time limit on each of its calls, as in a service."""

    async def serve() -> None:
        for number in range(CALLS // 100):
            assert await asyncio.wait_for(submit(operator.neg, number), 60) == -number

    begin = time.perf_counter()
    await asyncio.gather(*[serve() for _ in range(100)])
    return (time.perf_counter() - begin) / CALLS


CASES: Dict[str, Callable[[Submit], Awaitable[float]]] = {
    "one by one": one_by_one,
    "gathered": all_at_once,
    "100 coroutines with time limits": with_timeouts,
}


async def connecting(connect: Callable[[], Awaitable[Callable[[], Awaitable[Any]]]]) -> Dict[str, float]:
    """What one more client costs.

    Parameters:
        connect: makes a client; returns what disconnects it.
    """
    threads = threading.active_count()
    begin = time.perf_counter()
    ends = [await connect() for _ in range(CLIENTS)]
    seconds = (time.perf_counter() - begin) / CLIENTS
    made = (threading.active_count() - threads) / CLIENTS
    for end in ends:
        await end()
    return {"connecting": seconds, "threads": made}


async def measure(rounds: int, address: str, dask_address: str) -> Dict[str, Dict[str, float]]:
    """The figures of each engine, in seconds."""

    async def connect_aio() -> Callable[[], Awaitable[Any]]:
        return (await aio.Client(address).connect()).disconnect

    async def connect_threads() -> Callable[[], Awaitable[Any]]:
        client = scaler.Client(address)
        return lambda: asyncio.get_running_loop().run_in_executor(None, client.disconnect)

    async def connect_dask() -> Callable[[], Awaitable[Any]]:
        client = await distributed.Client(dask_address, asynchronous=True, set_as_default=False)
        close: Callable[[], Awaitable[Any]] = client.close
        return close

    figures: Dict[str, Dict[str, List[float]]] = {}
    dask_client = await distributed.Client(dask_address, asynchronous=True, set_as_default=False)

    def submit_dask(function: Any, *arguments: Any) -> Any:
        return dask_client.submit(function, *arguments, pure=False).result()

    with scaler.Client(address) as thread_client:
        async with aio.Client(address) as aio_client:
            engines: Dict[str, Any] = {
                "scaler.aio": (aio_client.submit, connect_aio),
                "scaler.Client, awaited": (thread_client.submit, connect_threads),
                "distributed": (submit_dask, connect_dask),
            }
            for number in range(rounds + 1):  # the first one warms up
                for name, (submit, connect) in engines.items():
                    measured = {case: await run(submit) for case, run in CASES.items()}
                    measured.update(await connecting(connect))
                    for case, figure in measured.items() if number else ():
                        figures.setdefault(name, {}).setdefault(case, []).append(figure)
    await dask_client.close()
    return {name: {case: min(runs) for case, runs in cases.items()} for name, cases in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with scaler.SchedulerClusterCombo(n_workers=arguments.workers, logging_level="WARNING") as combo:
        with distributed.LocalCluster(
            n_workers=arguments.workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            figures = asyncio.run(measure(arguments.rounds, combo.get_address(), cluster.scheduler_address))
    own = figures["scaler.aio"]
    ratios = {
        name: {case: round(figure / own[case], 2) for case, figure in cases.items() if case != "threads"}
        for name, cases in figures.items()
    }
    scaled = {
        name: {
            case: round(figure, 2) if case == "threads" else round(figure * 1e6, 1) for case, figure in cases.items()
        }
        for name, cases in figures.items()
    }
    print(json.dumps({"microseconds": scaled, "ratios": ratios, "distributed": distributed.__version__}, indent=2))


if __name__ == "__main__":
    main()
