"""What keys cost: the same work over TCP with CURVE and without, by turns.

    python benchmarks/keys.py --rounds 9

    three clusters at 127.0.0.2, beside which there is no local socket: one with keys, two with --insecure
    round: map, submit, round trip, a large object to a worker and back, at one cluster after the other

Rules:
- The clusters differ in their keys only. All run all the time, in an order that changes with each round, so that what
  else the machine does meets all.
- A figure is the median of the rounds' ratios: how fast it is with keys, of how fast it is without, at both others.
- The control is the same of one of the two clusters without keys: as far as it is from 1, the figures say nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List

from scaler import Client

TASKS, CALLS = 20_000, 300
LARGE_BYTES = 64 << 20
LARGE_CALLS = 2
KINDS = ("with keys", "insecure", "control")


@contextlib.contextmanager
def cluster(python: str, folder: Path, options: List[str], environment: Dict[str, str]) -> Iterator[Client]:
    """A client of a cluster with two slots, whose worker shares no memory with the scheduler."""
    address_file = folder / "address"
    environment = {**os.environ, **environment}
    command = [python, "-m", "scaler_appliance", "tcp://127.0.0.2:0", "--address-file", str(address_file)]
    quiet = ["-lp", os.devnull, "--no-announce", "--keys", str(folder / "keys")]
    shared = folder / "objects"
    shared.mkdir()
    scheduler = subprocess.Popen([*command, *quiet, *options, "--object-directory", str(shared)], env=environment)
    try:
        while not (address_file.exists() and address_file.read_text().count("\n") == 2):
            time.sleep(0.05)
        address = address_file.read_text().splitlines()[0]
        worker = subprocess.Popen(
            [sys.executable, "-m", "scaler.worker", address, "-n", "2", "-lp", os.devnull], env=environment
        )
        try:
            key_file = folder / "keys" / "owner.key"
            keys = {"key_file": str(key_file)} if "--insecure" not in options else {"insecure": True}
            with Client(address=address, **keys) as client:
                client.submit(abs, -1).result()
                yield client
        finally:
            worker.terminate()
            worker.wait()
    finally:
        scheduler.terminate()
        scheduler.wait()


def run_map(client: Client) -> None:
    client.map(abs, range(TASKS))


def run_submit(client: Client) -> None:
    for future in [client.submit(abs, number) for number in range(TASKS // 4)]:
        future.result()


def run_round_trips(client: Client) -> None:
    for number in range(CALLS):
        client.submit(abs, number).result()


def send_large(client: Client) -> None:
    for number in range(LARGE_CALLS):
        content = client.send_object(bytes([number]) * LARGE_BYTES)
        assert client.submit(len, content).result() == LARGE_BYTES
        client.clear()


WORK: Dict[str, Callable[[Client], None]] = {
    "map": run_map,
    "submit": run_submit,
    "round trip": run_round_trips,
    "large object": send_large,
}


def main() -> None:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure what keys cost.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the schedulers")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    seconds: Dict[str, Dict[str, List[float]]] = {name: {kind: [] for kind in KINDS} for name in WORK}
    load = os.getloadavg()[0]
    order = random.Random(1)
    with contextlib.ExitStack() as closing:
        clients: Dict[str, Client] = {}
        for kind in KINDS:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
            is_insecure = kind != "with keys"
            environment = {"SCALER_KEY_DIRECTORY": str(folder / "keys"), "SCALER_INSECURE": "1" if is_insecure else ""}
            environment["SCALER_RUN_DIRECTORY"] = str(folder)
            flags = ["--insecure"] if is_insecure else []
            clients[kind] = closing.enter_context(cluster(options.python, folder, flags, environment))
        for number in range(options.rounds + 1):
            for name, work in WORK.items():
                for kind in order.sample(KINDS, len(KINDS)):
                    begin = time.perf_counter()
                    work(clients[kind])
                    if number:  # the first round warms up
                        seconds[name][kind].append(time.perf_counter() - begin)
    figures = {}
    for name, measured in seconds.items():
        plain = [(one + other) / 2 for one, other in zip(measured["insecure"], measured["control"])]
        ratios = [each / keyed for keyed, each in zip(measured["with keys"], plain)]
        figures[name] = {
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "greatest": max(ratios),
            "control": statistics.median(each / one for one, each in zip(measured["insecure"], plain)),
            "seconds_with_keys": statistics.median(measured["with keys"]),
            "seconds_insecure": statistics.median(plain),
        }
    if options.json:
        print(json.dumps({"load": load, "rounds": options.rounds, "figures": figures}, indent=1))
        return
    for name, figure in figures.items():
        print(
            f"{name:14} {figure['ratio']:5.2f} of the speed without keys ({figure['least']:.2f} to"
            f" {figure['greatest']:.2f}; control {figure['control']:.2f});"
            f" {figure['seconds_insecure']:.3f} -> {figure['seconds_with_keys']:.3f} s"
        )


if __name__ == "__main__":
    main()
