"""Measure what encoding and decoding the hot messages costs on this interpreter: the figures of ADR 0002.

    python tools/measure.py

Rules of this program: the best of several rounds, in CPU time of this process, since other work on the machine must not
count. A compiler that sees one frame only may hoist work out of the loop, so each round goes through several frames.
"""

from __future__ import annotations

import platform
import sys
import time
from array import array
from typing import Any, Callable, Dict, List

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

ROUNDS = 7
CALLS = 10_000
VARIANTS = 8


def hot_messages(seed: int) -> Dict[str, m.Message]:
    """Name -> message; another seed, other content of the same size."""
    result: Dict[str, m.Message] = {}
    for count in (1, 100, 1000):
        ids, sizes = array("Q", range(seed, seed + count)), array("I", range(count))
        options = m.TaskOptions(priority=seed, retries=3)
        task = m.Task(ids=ids, payload_sizes=sizes, function=7 << 40 | seed, codec="cloudpickle", options=options)
        result[f"Task, {count} tasks"] = task
        outcome = m.TaskResult(ids=ids, statuses=bytes(count), payload_sizes=sizes, codec="cloudpickle")
        result[f"TaskResult, {count} tasks"] = outcome
    for count in (0, 8):
        processors = [m.ProcessorStatus(process_id=i, initialized=True, resident_bytes=1 << 27) for i in range(count)]
        result[f"Heartbeat, {count} processors"] = m.Heartbeat(sequence=seed, cpu_permille=5, processors=processors)
    return result


def microseconds(action: Callable[[Any], Any], subjects: List[Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS // VARIANTS):
            for subject in subjects:
                action(subject)
        best = min(best, time.process_time() - began)
    return best / CALLS * 1e6


def main() -> None:
    print(
        f"{platform.python_implementation()} {sys.version.split()[0]}: microseconds of encode, decode; bytes of a frame"
    )
    variants = [hot_messages(seed) for seed in range(VARIANTS)]
    for name in variants[0]:
        messages = [variant[name] for variant in variants]
        frames = [encode(message) for message in messages]
        print(f"{name:24} {microseconds(encode, messages):6.2f} {microseconds(decode, frames):6.2f} {len(frames[0]):6}")


if __name__ == "__main__":
    main()
