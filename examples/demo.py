"""Start a scheduler and a worker on this machine, run tasks, and report the results.

    python examples/demo.py [--workers N]

First some hundred tasks of real work through `submit`, collected as they complete; then 100 000 small ones
through `map`. The demo checks both results. Ctrl-C ends everything.
"""

import argparse
import os
import sys
import time
from concurrent.futures import as_completed
from typing import List, Optional, Tuple

from scaler import Client, SchedulerClusterCombo

PRIMES_BELOW = 2_000_000
HOW_MANY_PRIMES = 148_933
PRIME_TASKS = 400

SMALL_TASKS = 100_000

BAR_WIDTH = 40
INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


def count_primes(start: int, stop: int) -> Tuple[int, int]:
    """Count the primes from `start` up to `stop`; also return the id of this process."""
    divisors = [n for n in range(2, int(stop**0.5) + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]
    count = 0
    for number in range(max(start, 2), stop):
        for divisor in divisors:
            if divisor * divisor > number:
                count += 1
                break
            if number % divisor == 0:
                break
        else:
            count += 1
    return count, os.getpid()


def square(value: int) -> int:
    return value * value


def show_progress(done: int, total: int) -> None:
    """Draw a progress bar over the last one, on a terminal."""
    if sys.stdout.isatty():
        bar = "#" * (BAR_WIDTH * done // total)
        print(f"\r  [{bar:<{BAR_WIDTH}}] {done}/{total}", end="\n" if done == total else "", flush=True)


def run_prime_tasks(client: Client) -> None:
    print(f"Counting the primes below {PRIMES_BELOW:,}: {PRIME_TASKS} tasks through submit()", flush=True)
    step = PRIMES_BELOW // PRIME_TASKS
    started = time.monotonic()
    futures = [client.submit(count_primes, start, start + step) for start in range(0, PRIMES_BELOW, step)]

    primes = 0
    processes = set()
    for done, future in enumerate(as_completed(futures), start=1):
        count, process_id = future.result()
        primes += count
        processes.add(process_id)
        show_progress(done, PRIME_TASKS)

    assert primes == HOW_MANY_PRIMES, f"counted {primes} primes instead of {HOW_MANY_PRIMES}"
    print(f"  {primes:,} primes; {rate(PRIME_TASKS, started)}; processors used: {len(processes)}\n")


def run_small_tasks(client: Client) -> None:
    print(f"Squaring {SMALL_TASKS:,} numbers: small tasks through map(), which sends them in chunks", flush=True)
    started = time.monotonic()
    squares = client.map(square, range(SMALL_TASKS))

    assert squares == [value * value for value in range(SMALL_TASKS)], "a square is wrong"
    print(f"  all correct; {rate(SMALL_TASKS, started)}\n")


def rate(tasks: int, started: float) -> str:
    seconds = time.monotonic() - started
    return f"{tasks:,} tasks in {seconds:.2f} s = {tasks / seconds:,.0f} tasks/s"


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Start a local cluster, run tasks on it, and report the results.")
    parser.add_argument("--workers", type=int, help="slots of the worker; by default usable CPUs minus one")
    workers = parser.parse_args(arguments).workers

    cluster = None
    try:
        started = time.monotonic()
        cluster = SchedulerClusterCombo(n_workers=workers, logging_level="WARNING")
        with Client(address=cluster.get_address()) as client:
            client.submit(square, 1).result()
            print(f"Scheduler at {cluster.get_address()}, slots: {cluster.cluster.slots}, ", end="")
            print(f"first answer after {time.monotonic() - started:.2f} s\n")
            run_prime_tasks(client)
            run_small_tasks(client)
    except KeyboardInterrupt:
        print("\ninterrupted, stopping the cluster", file=sys.stderr)
        return INTERRUPTED
    finally:
        if cluster is not None:
            cluster.shutdown()
    print("The cluster has stopped. Next: docs/tutorial/first-tasks.md, and examples/ for shorter programs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
