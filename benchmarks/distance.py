"""The utilisation of a worker behind a network that delays: `python benchmarks/distance.py`.

    client ──▶ scheduler ◀── relay: each byte waits for DELAY, both ways ◀── worker with two slots

A task sleeps. Utilisation is the time that all tasks sleep, divided by the slots and by the time from the first
submission to the last result, which includes two delays at the beginning and one at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, Dict, List

from scaler import Client, Cluster, Scheduler
from scaler_protocol.host.addresses import parse_address

SLOTS = 2
DELAYS_MILLISECONDS = (0, 50, 100, 200)
TASK_MILLISECONDS = (5, 50)
TIMEOUT_SECONDS = 600.0


def sleep_milliseconds(milliseconds: float) -> float:
    time.sleep(milliseconds / 1000)
    return milliseconds


def relay(target: str, delay_seconds: float, ready: Connection) -> None:
    """Pass on what comes to a port of its own, each byte after a delay; runs in a process of its own until killed."""
    address = parse_address(target)

    def write(sink: asyncio.StreamWriter, data: bytes) -> None:
        if data:
            sink.write(data)
        else:
            sink.close()

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop, data = asyncio.get_running_loop(), b"begin"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            loop.call_later(delay_seconds, write, sink, data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(address.host, address.port)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def utilisation(client: Client, by_map: bool, task_milliseconds: float, seconds: float) -> float:
    count = int(SLOTS * seconds * 1000 / task_milliseconds)
    begin = time.monotonic()
    if by_map:
        client.map(sleep_milliseconds, [task_milliseconds] * count)
    else:
        futures = [client.submit(sleep_milliseconds, task_milliseconds) for _ in range(count)]
        for future in futures:
            future.result(TIMEOUT_SECONDS)
    return count * task_milliseconds / 1000 / SLOTS / (time.monotonic() - begin)


def measure(delay_milliseconds: int, seconds: float) -> List[Dict[str, Any]]:
    """All kinds of work, with a worker so far away."""
    rows: List[Dict[str, Any]] = []
    scheduler = Scheduler(logging_level="ERROR")
    scheduler.start()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=relay, args=(scheduler.get_address(), delay_milliseconds / 1000, there), daemon=True
    )
    process.start()
    cluster = Cluster(f"tcp://127.0.0.1:{here.recv()}", SLOTS, logging_level="ERROR")
    cluster.start()
    try:
        with Client(scheduler.get_address()) as client:
            client.submit(sleep_milliseconds, 0).result(TIMEOUT_SECONDS)
            for task_milliseconds in TASK_MILLISECONDS:
                for by_map in (False, True):
                    share = utilisation(client, by_map, task_milliseconds, seconds)
                    row = {
                        "delay_milliseconds": delay_milliseconds,
                        "task_milliseconds": task_milliseconds,
                        "by": "map" if by_map else "submit",
                        "utilisation": round(share, 3),
                    }
                    print(row, file=sys.stderr)
                    rows.append(row)
    finally:
        cluster.shutdown()
        scheduler.shutdown()
        process.kill()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of work for each slot (default: 20)")
    parser.add_argument("--delays", type=int, nargs="+", default=DELAYS_MILLISECONDS, help="one way, in milliseconds")
    arguments = parser.parse_args()
    rows = [row for delay in arguments.delays for row in measure(delay, arguments.seconds)]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
