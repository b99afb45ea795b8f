"""A client's program that keeps a cluster busy, and checks each value: python upgrade_load.py ADDRESS FOLDER NUMBER

Rules:
- It runs until its standard input ends. A line on standard output follows each round of which all futures are done; at
  the end, one line of JSON says what came of the futures.
- A round is submitted before the results of the one before are awaited: whenever the scheduler goes, much is under way.
- A task that may run at most once writes its number to a file of FOLDER when it begins; its future may fail.
- Its functions are those of the main program, so they travel by value, to workers of any version.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from typing import Any, Dict, List, Tuple

from scaler import Client
from scaler.exceptions import ScalerError

TIMEOUT_SECONDS = 120.0
LARGE_BYTES = 300_000
SHORT_TASKS, ITEMS, ONCE_TASKS = 60, 200, 5

Expected = List[Tuple[Any, Any]]


def nap(number: int) -> int:
    time.sleep(0.002)
    return number


def doubled(number: int) -> int:
    return 2 * number


def checksum(data: bytes) -> int:
    return zlib.crc32(data)


def large(number: int) -> bytes:
    return number.to_bytes(4, "little") * (LARGE_BYTES // 4)


def total(*numbers: int) -> int:
    return sum(numbers)


def once(path: str, number: int) -> int:
    """Note that it runs; a line is written whole, or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{number}\n".encode())
    finally:
        os.close(descriptor)
    time.sleep(0.01)
    return number


class Load:
    """One client's rounds.

    Parameters:
        path: of the file of tasks that may run at most once.
    """

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self._fragile = client.options(at_most_once=True)
        self.summary: Dict[str, Any] = {"right": 0, "wrong": [], "failed": [], "once": [], "once_failed": 0}

    def submit(self, first: int) -> Tuple[Expected, Expected]:
        """A round of work: its futures, and those that may run at most once, each with its value."""
        client, content = self._client, large(first)
        some: Expected = [(client.submit(nap, first + number), first + number) for number in range(SHORT_TASKS)]
        some += [(client.submit(checksum, content), zlib.crc32(content)), (client.submit(large, first), content)]
        shared = client.send_object(content)
        some += [(client.submit(checksum, shared), zlib.crc32(content)) for _ in range(3)]
        parts = [client.submit(nap, number) for number in range(10)]
        some.append((client.submit(total, *parts), 45))
        fragile = [
            (self._fragile.submit(once, self._path, first + number), first + number) for number in range(ONCE_TASKS)
        ]
        return some, fragile

    def run_at_once(self, first: int) -> None:
        """A map and a graph, which are waited for."""
        numbers = range(first, first + ITEMS)
        self._check(self._client.map(doubled, numbers), [2 * number for number in numbers])
        graph: Dict[str, Any] = {f"{number}": (nap, number) for number in range(10)}
        graph.update(sum=(total, *graph), twice=(doubled, "sum"))
        self._check(self._client.get(graph, ["twice", "3"]), {"twice": 90, "3": 3})

    def finish(self, done: Tuple[Expected, Expected]) -> None:
        """Wait for a round."""
        for future, expected in done[0]:
            try:
                self._check(future.result(TIMEOUT_SECONDS), expected)
            except ScalerError as error:
                self.summary["failed"].append(f"{type(error).__name__}: {error}")
        for future, expected in done[1]:
            try:
                self._check(future.result(TIMEOUT_SECONDS), expected)
                self.summary["once"].append(expected)
            except ScalerError:
                self.summary["once_failed"] += 1

    def _check(self, value: Any, expected: Any) -> None:
        if value == expected:
            self.summary["right"] += 1
        else:
            self.summary["wrong"].append(f"{str(value)[:100]} instead of {str(expected)[:100]}")


def main(address: str, folder: str, number: str) -> None:
    has_ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        has_ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with Client(address, timeout_seconds=TIMEOUT_SECONDS) as client:
        load = Load(client, os.path.join(folder, f"once-{number}"))
        first = 0
        before = load.submit(first)
        while not has_ended.is_set():
            first += 1000
            after = load.submit(first)
            load.run_at_once(first)
            load.finish(before)
            before = after
            print("a round is done", flush=True)
        load.finish(before)
    print(json.dumps(load.summary), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
