"""An honest client beside flooding peers: its latency and its throughput, with and without them. JSON out.

    python benchmarks/flood.py                   each kind of flood, 8 flooders, all programs on one processor
    python benchmarks/flood.py mutated --frames 1000000 --flooders 8 --seconds 20

Everything runs on one processor, so that flooders take time from the scheduler in every way that they can. The
scheduler must log no error of its own, and all results must be right.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from scaler import Client
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN, encode
from scaler_protocol import messages as m
from scaler_protocol.wire.zmtp import Zmtp, ZmtpError
from scaler_protocol.wire.zmtp import encode as encode_frames

BATCH = 2000
SAMPLES_AT_ONCE = 200
DEADLINE_SECONDS = 60.0


def _hello(functions: Sequence[str] = ()) -> bytes:
    return encode(
        m.Hello(
            major=PROTOCOL_MAJOR,
            minor_min=PROTOCOL_MINOR_MIN,
            minor_max=PROTOCOL_MINOR_MAX,
            role=m.Role.CLIENT,
            host="flooder",
            functions=list(functions),
        )
    )


def _heartbeats(generator: random.Random) -> Iterator[bytes]:
    while True:
        yield encode(m.Heartbeat(sequence=generator.getrandbits(64)))


def _questions(generator: random.Random) -> Iterator[bytes]:
    while True:
        yield encode(m.InfoRequest(request_id=generator.getrandbits(32)))


def _hellos(generator: random.Random) -> Iterator[bytes]:
    """As dear as a Hello may be."""
    dear = _hello(functions=["x"] * 3000)
    while True:
        yield dear


def _texts(generator: random.Random) -> Iterator[bytes]:
    """A large message with many texts."""
    dear = encode(m.Heartbeat(processors=[m.ProcessorStatus()] * 20_000))
    while True:
        yield dear


def _tasks(generator: random.Random) -> Iterator[bytes]:
    """Tasks that no worker can run."""
    first = 0
    while True:
        ids = array("Q", range(first, first + 100))
        yield encode(m.Task(ids=ids, payload_sizes=array("I", bytes(400)), function_name=f"nobody.has/{first}"))
        first += 100


def _mutated(generator: random.Random) -> Iterator[bytes]:
    good = [next(make(generator)) for make in (_heartbeats, _questions, _hellos, _tasks)]
    while True:
        frame = bytearray(generator.choice(good))
        for _ in range(generator.choice((1, 2, 4))):
            frame[generator.randrange(len(frame))] = generator.getrandbits(8)
        if generator.random() < 0.2:
            del frame[generator.randrange(len(frame)) :]
        yield bytes(frame)


FLOODS: Dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "heartbeats": _heartbeats,
    "questions": _questions,
    "hellos": _hellos,
    "texts": _texts,
    "tasks": _tasks,
    "mutated": _mutated,
}


def flood(address: str, kind: str, seed: int, most_frames: int, sent: Any, ready: Any) -> None:
    """Send frames as fast as the scheduler reads them, and connect again when it has closed the connection."""
    ready.release()
    generator = random.Random(seed)
    frames = FLOODS[kind](generator)
    host, port = address[len("tcp://") :].rsplit(":", 1)
    while sent.value < most_frames:
        try:
            with socket.create_connection((host, int(port))) as stream:
                _flood_connection(stream, frames, most_frames, sent)
        except (OSError, ZmtpError):
            continue


def _flood_connection(stream: socket.socket, frames: Iterator[bytes], most_frames: int, sent: Any) -> None:
    protocol = Zmtp("DEALER", 1 << 30)
    stream.sendall(protocol.take_output())
    while not protocol.is_ready:
        protocol.feed(stream.recv(4096))
        stream.sendall(protocol.take_output())
    stream.setblocking(False)
    data = b"".join(map(bytes, encode_frames([_hello()])))
    while sent.value < most_frames:
        batch = [next(frames) for _ in range(20)]
        data += b"".join(bytes(each) for frame in batch for each in encode_frames([frame]))
        with sent.get_lock():
            sent.value += len(batch)
        while data:
            try:
                data = data[stream.send(data) :]
            except BlockingIOError:
                stream.setblocking(True)
                stream.settimeout(0.05)
                try:
                    data = data[stream.send(data) :]
                except socket.timeout:
                    pass
                stream.setblocking(False)
            try:
                if not stream.recv(1 << 20):  # what the scheduler says is not looked at
                    return
            except BlockingIOError:
                pass


def _measure(client: Client, seconds: float) -> Dict[str, float]:
    """Latency of one task at a time, then throughput of many."""
    latencies: List[float] = []
    ends = time.perf_counter() + seconds / 2
    while time.perf_counter() < ends or len(latencies) < SAMPLES_AT_ONCE:
        began = time.perf_counter()
        if client.submit(abs, -len(latencies)).result(DEADLINE_SECONDS) != len(latencies):
            raise AssertionError("a wrong result")
        latencies.append(time.perf_counter() - began)
    tasks = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds / 2:
        futures = [client.submit(abs, -number) for number in range(BATCH)]
        if [future.result(DEADLINE_SECONDS) for future in futures] != list(range(BATCH)):
            raise AssertionError("wrong results")
        tasks += BATCH
    rate = tasks / (time.perf_counter() - began)
    latencies.sort()
    return {
        "median_milliseconds": statistics.median(latencies) * 1e3,
        "p99_milliseconds": latencies[int(0.99 * len(latencies))] * 1e3,
        "worst_milliseconds": latencies[-1] * 1e3,
        "tasks_per_second": rate,
    }


def run(kind: str, flooders: int, seconds: float, frames: Optional[int]) -> Dict[str, Any]:
    """One kind of flood, and the same client without it."""
    with tempfile.TemporaryDirectory() as folder:
        log, addresses = Path(folder, "log"), Path(folder, "address")
        program = [sys.executable, "-m", "scaler_appliance", "tcp://127.0.0.1:0"]
        scheduler = subprocess.Popen([*program, "--address-file", str(addresses), "--no-announce", "-lp", str(log)])
        worker = None
        processes: List[SpawnProcess] = []
        try:
            while not (addresses.exists() and addresses.read_text().count("\n") == 2):
                time.sleep(0.05)
            address = addresses.read_text().splitlines()[0]
            worker = subprocess.Popen([sys.executable, "-m", "scaler.worker", address, "-n", "1"])
            context = multiprocessing.get_context("spawn")
            with Client(address=address) as client:
                client.submit(abs, -1).result(DEADLINE_SECONDS)
                without = _measure(client, seconds)
                sent = context.Value("q", 0)
                ready = context.Semaphore(0)
                arguments = [(address, kind, seed, frames or 1 << 62, sent, ready) for seed in range(flooders)]
                processes = [context.Process(target=flood, args=each, daemon=True) for each in arguments]
                for flooder in processes:
                    flooder.start()
                for _ in processes:
                    ready.acquire()
                beside = _measure(client, seconds)
                while frames and sent.value < frames:
                    again = _measure(client, seconds)
                    slower = {name: value for name, value in again.items() if name != "tasks_per_second"}
                    beside = {**beside, **{name: max(beside[name], value) for name, value in slower.items()}}
                    beside["tasks_per_second"] = min(beside["tasks_per_second"], again["tasks_per_second"])
            errors = [line for line in log.read_text().splitlines() if "Traceback" in line or "internal error" in line]
            return {
                "kind": kind,
                "flooders": flooders,
                "frames": sent.value,
                "without": without,
                "beside": beside,
                "throughput_ratio": beside["tasks_per_second"] / without["tasks_per_second"],
                "errors": errors,
                "is_alive": scheduler.poll() is None,
            }
        finally:
            for flooder in processes:
                flooder.terminate()
            for program_process in [*([worker] if worker else []), scheduler]:
                program_process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(FLOODS)} (default: all)")
    parser.add_argument("--flooders", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--frames", type=int, help="go on until so many were sent")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for kind in options.kinds or FLOODS:
        print(json.dumps(run(kind, options.flooders, options.seconds, options.frames)), flush=True)


if __name__ == "__main__":
    main()
