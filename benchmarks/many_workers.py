"""How long it takes until many workers are connected, and what a scheduler costs to which they are: JSON out.

    python benchmarks/many_workers.py --workers 10000
    ulimit -n 25000; python benchmarks/many_workers.py --workers 10000 --python .venv-pypy/bin/python --keys

    scheduler ◀── a TCP connection each ── workers without work, as few processes as asked for

Rules:
- The workers are real peers: the handshake of ZMTP, or with --keys of CURVE, a Hello, and a heartbeat whenever it is
  due. What they get is not decoded, but for the Welcome.
- All begin to connect at once. "connected" is the time until the last one has its Welcome.
- Then nothing is done but heartbeats. The share of a core is the processor time of the scheduler in that time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import psutil
from zero_worker_peers import hello

from scaler_protocol import decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import Zmtp

DEADLINE_SECONDS = 300.0
MAXIMUM_MESSAGE_BYTES = 1 << 20
UNDER_WAY = 500  # attempts of a process at a time: a listening socket's queue has room for some thousand
DESCRIPTORS_FOR_OTHERS = 500


class Worker:
    """One connection."""

    def __init__(self, number: int, address: Tuple[str, int], security: Optional[ClientSecurity]) -> None:
        kinds = ("DEALER", MAXIMUM_MESSAGE_BYTES)
        self.protocol = Zmtp(*kinds) if security is None else SecureZmtp(security, *kinds)
        self.number = number
        self.stream = socket.socket()
        self.stream.setblocking(False)
        self.stream.connect_ex(address)
        self.interval_seconds = 0.0  # of heartbeats; 0: not greeted yet
        self.sequence = 0
        self._has_said_hello = False

    def advance(self) -> bool:
        """Handle what has happened at the stream; returns whether this worker has just been greeted."""
        try:
            data = self.stream.recv(1 << 16)
        except BlockingIOError:
            data = None
        if data == b"":
            raise ConnectionError(f"worker {self.number}: the scheduler closed the connection")
        if self.interval_seconds:
            return False
        messages = self.protocol.feed(data) if data else []
        self._flush()
        if self.protocol.is_ready and not self._has_said_hello:
            self._has_said_hello = True
            self.send(hello(m.Role.WORKER, f"worker {self.number}"))
        for frames in messages:
            message = decode(bytes(frames[0]))
            if isinstance(message, m.Welcome):
                self.interval_seconds = message.heartbeat_interval_milliseconds / 1000
                return True
            if isinstance(message, m.Refusal):
                raise ConnectionError(f"worker {self.number}: {message.message}")
        return False

    def beat(self) -> None:
        self.sequence += 1
        self.send(m.Heartbeat(sequence=self.sequence))

    def send(self, message: m.Member) -> None:
        self.stream.sendall(b"".join(self.protocol.encode([encode(message)])))

    def _flush(self) -> None:
        output = self.protocol.take_output()
        if output:
            self.stream.sendall(output)


def serve_workers(
    numbers: range, address: Tuple[str, int], security: Optional[ClientSecurity], orders: Pipe[Any, Any]
) -> None:
    """The process of some workers: connect all, say so, and go on until it is told to end."""
    poll = select.epoll()
    workers: Dict[int, Worker] = {}
    due: List[Tuple[float, int]] = []
    waiting = list(reversed(numbers))
    greeted = 0
    orders.recv()
    poll.register(orders.fileno(), select.EPOLLIN)
    while True:
        while waiting and len(workers) - greeted < UNDER_WAY:
            worker = Worker(waiting.pop(), address, security)
            workers[worker.stream.fileno()] = worker
            poll.register(worker.stream.fileno(), select.EPOLLIN | select.EPOLLOUT)
        now = time.monotonic()
        for descriptor, events in poll.poll(max(0.0, due[0][0] - now) if due else 1.0):
            if descriptor == orders.fileno():
                return
            worker = workers[descriptor]
            if events & select.EPOLLOUT:
                poll.modify(descriptor, select.EPOLLIN)
            if worker.advance():
                greeted += 1
                heapq.heappush(due, (time.monotonic() + worker.interval_seconds, descriptor))
                if greeted == len(numbers):
                    orders.send(greeted)
        now = time.monotonic()
        while due and due[0][0] <= now:
            at, descriptor = due[0]
            workers[descriptor].beat()
            heapq.heapreplace(due, (at + workers[descriptor].interval_seconds, descriptor))


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(arguments: argparse.Namespace) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path, keys = Path(folder, "address"), Path(folder, "keys")
        options = ["--address-file", str(path), "--no-announce", "--keys", str(keys), "-ll", "ERROR"]
        options += [] if arguments.keys else ["--insecure"]
        # 127.0.0.2: where there is no local socket beside the port.
        command = [arguments.python, "-m", "scaler_appliance", "tcp://127.0.0.2:0", *options]
        scheduler = subprocess.Popen(command)
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            parsed = parse_address(path.read_text().split()[0])
            security = None
            if arguments.keys:
                owner = KeyDirectory(str(keys)).owner()
                security = ClientSecurity(load_sodium(), owner.keys, owner.server_keys[0])
            return measure_workers(arguments, psutil.Process(scheduler.pid), (parsed.host, parsed.port), security)
        finally:
            scheduler.kill()
            scheduler.wait()


def measure_workers(
    arguments: argparse.Namespace,
    scheduler: psutil.Process,
    address: Tuple[str, int],
    security: Optional[ClientSecurity],
) -> Dict[str, Any]:
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for part in range(arguments.processes):
        ours, theirs = context.Pipe()
        numbers = range(part, arguments.workers, arguments.processes)
        processes.append(context.Process(target=serve_workers, args=(numbers, address, security, theirs), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    before, begin = processor_seconds(scheduler), time.monotonic()
    for pipe in pipes:
        pipe.send("connect")
    for pipe in pipes:
        if not pipe.poll(begin + DEADLINE_SECONDS - time.monotonic()):
            raise SystemExit(f"not all workers were greeted within {DEADLINE_SECONDS:.0f} s")
        pipe.recv()
    connected_seconds, connecting_seconds = time.monotonic() - begin, processor_seconds(scheduler) - before
    time.sleep(arguments.settle_seconds)
    before, begin = processor_seconds(scheduler), time.monotonic()
    time.sleep(arguments.idle_seconds)
    share = (processor_seconds(scheduler) - before) / (time.monotonic() - begin)
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()
    return {
        "workers": arguments.workers,
        "keys": arguments.keys,
        "python": arguments.python,
        "connected_seconds": round(connected_seconds, 2),
        "connecting_processor_seconds": round(connecting_seconds, 2),
        "idle_share_of_a_core": round(share, 4),
        "resident_mebibytes": round(scheduler.memory_info().rss / (1 << 20)),
        "load": [round(each, 1) for each in os.getloadavg()[:2]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--processes", type=int, default=1, help="that they are in (default: 1)")
    parser.add_argument("--python", default=sys.executable, help="that runs the scheduler")
    parser.add_argument("--keys", action="store_true", help="authenticate and encrypt each connection")
    parser.add_argument("--settle-seconds", type=float, default=3.0, help="between connecting and idling")
    parser.add_argument("--idle-seconds", type=float, default=20.0, help="how long to measure (default: 20)")
    arguments = parser.parse_args()
    wanted = arguments.workers + DESCRIPTORS_FOR_OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
        except (OSError, ValueError):
            raise SystemExit(
                f"the limit of open files is {hard}: raise it (ulimit -n {wanted}), or ask for less"
            ) from None
    print(json.dumps(measure(arguments)))


if __name__ == "__main__":
    main()
