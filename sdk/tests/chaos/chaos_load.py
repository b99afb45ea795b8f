"""A client program that submits tasks to a cluster until its standard input closes, and counts their outcomes.

`python chaos_load.py ADDRESS SEED` prints one line of JSON at its end: how many futures there were, and what was wrong.
Each future must be done exactly once: with the one right result, or cancelled if it was told to.
"""

from __future__ import annotations

import collections
import json
import random
import select
import sys
import threading
import time
from concurrent.futures import CancelledError, wait
from typing import Counter, Dict, List, Tuple

from scaler import Client, ScalerFuture

MOST_IN_FLIGHT = 400
END_SECONDS = 90.0
LARGE_BYTES = 200_000
RETRIES = 1000  # of tasks whose processor was killed


def double(number: int, nap_seconds: float) -> int:
    time.sleep(nap_seconds)
    return 2 * number


def grow(number: int) -> bytes:
    return b"%d." % number * (LARGE_BYTES // 8)


def measure(data: bytes, number: int) -> int:
    return len(data) + number


class Load:
    def __init__(self, address: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.client = Client(address=address, timeout_seconds=END_SECONDS)
        self.careful = self.client.options(retries=RETRIES)
        self.expected: Dict[ScalerFuture, object] = {}  # of futures that are not judged yet
        self.is_cancelled: Dict[ScalerFuture, bool] = {}
        self.counts: Counter[str] = collections.Counter()
        self.wrong: List[str] = []
        self.done_counts: Counter[int] = collections.Counter()  # calls of a future's callback, by its number
        self.lock = threading.Lock()
        self.submitted = 0

    def submit(self) -> None:
        """Some tasks, as users mix them."""
        number = self.random.randrange(10**6)
        choice = self.random.random()
        if choice < 0.80:
            nap_seconds = self.random.choice((0.0, 0.0, 0.001, 0.02))
            self.watch(self.careful.submit(double, number, nap_seconds), 2 * number)
        elif choice < 0.85:
            self.watch(self.careful.submit(grow, number), grow(number))
        elif choice < 0.90:
            self.watch(self.careful.submit(measure, bytes(LARGE_BYTES), number), LARGE_BYTES + number)
        elif choice < 0.92:
            self.watch(self.careful.submit(double, number, self.random.uniform(0.1, 1.0)), 2 * number)
        else:
            future = self.watch(self.careful.submit(double, number, 0.05), 2 * number)
            self.is_cancelled[future] = True
            future.cancel()

    def watch(self, future: ScalerFuture, expected: object) -> ScalerFuture:
        number = self.submitted
        self.submitted += 1
        self.expected[future] = expected
        future.add_done_callback(lambda _: self.note_done(number))
        return future

    def note_done(self, number: int) -> None:
        with self.lock:
            self.done_counts[number] += 1

    def judge(self, futures: List[ScalerFuture]) -> None:
        """Futures that are done: compare each with what it must be."""
        for future in futures:
            expected = self.expected.pop(future)
            was_cancelled = self.is_cancelled.pop(future, False)
            try:
                result = future.result()
            except CancelledError:
                self.note("cancelled" if was_cancelled else "cancelled without a request", was_cancelled)
            except Exception as error:
                self.note(f"{type(error).__name__}: {error}", False)
            else:
                self.note("right" if result == expected else f"{result!r:.40} instead of {expected!r:.40}", True)
                if result != expected:
                    self.wrong.append("a wrong result")

    def note(self, what: str, is_right: bool) -> None:
        self.counts[what if is_right else "wrong"] += 1
        if not is_right:
            self.wrong.append(what)

    def run(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            while len(self.expected) < MOST_IN_FLIGHT:
                self.submit()
            wait(list(self.expected)[:10], timeout=0.05)
            self.judge([future for future in self.expected if future.done()])
        _, lost = wait(self.expected, timeout=END_SECONDS)
        self.judge([future for future in self.expected if future not in lost])
        self.counts["lost"] = len(lost)

    def summary(self) -> Dict[str, object]:
        with self.lock:
            twice = [number for number, count in self.done_counts.items() if count != 1]
        return {
            "submitted": self.submitted,
            "counts": self.counts,
            "done more than once": len(twice),
            "never done": self.submitted - len(self.done_counts),
            "wrong": self.wrong[:20],
        }


def main(arguments: Tuple[str, str]) -> None:
    load = Load(arguments[0], int(arguments[1]))
    load.run()
    load.client.disconnect()
    print(json.dumps(load.summary()), flush=True)


if __name__ == "__main__":
    main((sys.argv[1], sys.argv[2]))
