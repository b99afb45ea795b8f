"""What the cluster in the pictures of docs/monitoring.md has to do: see take_screenshots.py.

Rules: three kinds of programs, with functions and actors of their own; times are made up, so that a small machine looks
like a busy cluster; a few tasks fail.
"""

from __future__ import annotations

import math
import random
import threading
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

from scaler import Client

MOST_IN_FLIGHT = 70


def spend(seconds: float) -> None:
    end = time.process_time() + seconds / 100
    time.sleep(random.lognormvariate(0, 0.6) * seconds)
    while time.process_time() < end:
        pass


def fetch_prices(day: int) -> int:
    spend(0.15)
    if random.random() < 0.05:
        raise ConnectionError(f"no prices for day {day}: the exchange was closed")
    return day


def prepare_batch(day: int) -> int:
    spend(0.08)
    return day


def simulate_paths(day: int) -> int:
    spend(0.9)
    return day


def score_model(day: Any) -> int:
    spend(0.35)
    return int(day)


def aggregate_risk(*days: int) -> int:
    spend(1.8)
    return sum(days)


def price_option(number: int) -> float:
    return math.sqrt(number)


class Forecaster:
    """A model that is loaded once."""

    def __init__(self, region: str) -> None:
        self.region = region

    def forecast(self, day: int) -> int:
        spend(0.12)
        if random.random() < 0.02:
            raise LookupError(f"no weather of day {day} in {self.region}")
        return day


class Ledger:
    def __init__(self) -> None:
        self.total = 0

    def book(self, amount: int) -> int:
        spend(0.02)
        self.total += amount
        return self.total


Weighed = Sequence[Tuple[Callable[..., Any], int]]
SIMULATION: Weighed = ((fetch_prices, 4), (prepare_batch, 5), (simulate_paths, 4))
SCORING: Weighed = ((score_model, 6), (aggregate_risk, 1))


def simulate(address: str, ends: threading.Event) -> None:
    """A program that simulates, with bursts of small tasks in between."""
    with Client(address=address) as client:
        kept = [client.send_object(bytes(size), name=name) for size, name in ((48 << 20, "market data"), (3 << 20, ""))]
        for number, _ in enumerate(_submitting(client, SIMULATION, ends)):
            if number % 6 == 5:
                client.map(price_option, range(random.randrange(200, 2000)))
        del kept


def score(address: str, ends: threading.Event) -> None:
    """A program that scores, with graphs."""
    with Client(address=address) as client:
        model = client.send_object(bytes(9 << 20), name="model")
        for number, futures in enumerate(_submitting(client, SCORING, ends)):
            if number % 4 == 3:
                futures += client.submit_graph(_graph(), ["risk"])
        del model


def serve(address: str, ends: threading.Event) -> None:
    """A program with actors: two models, a ledger, and one that no worker has what it needs for."""
    with Client(address=address) as client:
        forecasters = [client.actor(Forecaster, region) for region in ("north", "south")]
        ledger = client.actor(Ledger)
        on_gpu = client.options(capabilities={"gpu": 1}).actor(Forecaster, "everywhere")
        calls: List[Any] = [on_gpu.forecast(day) for day in range(3)]
        day = 0
        while not ends.wait(0.5):
            day += 1
            calls = [call for call in calls if not call.done()]
            if len(calls) < MOST_IN_FLIGHT // 2:
                calls += [forecaster.forecast(day) for forecaster in forecasters for _ in range(random.randrange(3))]
                calls += [ledger.book(day)]
        for actor in (*forecasters, ledger, on_gpu):
            actor.close()


def _submitting(client: Client, weighed: Weighed, ends: threading.Event) -> Any:
    functions, weights = zip(*weighed)
    futures: List[Any] = []
    day = 0
    while not ends.wait(0.2):
        futures[:] = [future for future in futures if not future.done()]
        if len(futures) > MOST_IN_FLIGHT:
            continue
        function = random.choices(functions, weights)[0]
        for _ in range(random.randrange(5, 20)):
            day += 1
            futures.append(client.submit(function, day))
        yield futures


def _graph() -> Dict[str, Any]:
    graph: Dict[str, Any] = {}
    for each in range(20):
        graph[f"batch-{each}"] = (prepare_batch, each)
        graph[f"score-{each}"] = (score_model, f"batch-{each}")
    graph["risk"] = (aggregate_risk, *(f"score-{each}" for each in range(20)))
    return graph
