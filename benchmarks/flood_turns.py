"""What a scheduler's turns leave to an honest client beside flooding peers, by its own processor time. JSON out.

    python benchmarks/flood_turns.py downloads tasks

    8 flooders ──┐ sockets
    client ──────┼──▶ Server, Connections, SchedulerCore: the only ones whose time counts
    worker ──────┘

In `flood.py` all programs share a processor, which the operating system divides among them; here it is as if all peers
had processors of their own. Peers run in this thread whenever the scheduler looks at its sockets, and the clock, which
is also the scheduler's, stops meanwhile. So what else the machine does hardly matters.

- Latency is that of one task at a time: two passages through the scheduler.
- For throughput, the client submits as fast as a real one can (CLIENT_SECONDS a task), 2000 tasks at a time.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import sys
import time
from array import array
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

from floods import FLOODS, Flood, encoded, hello

from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell import connections, server
from scaler_appliance.shell.object_files import ObjectFiles
from scaler_appliance.shell.publishing.status_publisher import StatusPublisher
from scaler_appliance.shell.scheduler_program import tune_garbage_collection
from scaler_protocol import decode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address, resolve
from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.programs.event_loop import BuiltinLoop
from scaler_protocol.wire.zmtp import Zmtp

TASKS, TASKS_IN_MESSAGE = 2000, 500
CLIENT_SECONDS = 3.2e-6  # a task, of a real client
SENDS_AT_ONCE = 4


class Clock:
    """The processor's time of this thread, but for that of the peers."""

    def __init__(self) -> None:
        self._left_out = 0.0
        self._begin = 0.0

    def now(self) -> float:
        return time.thread_time() - self._left_out

    def __enter__(self) -> None:
        self._begin = time.thread_time()

    def __exit__(self, *error: object) -> None:
        self._left_out += time.thread_time() - self._begin


class Peer:
    """A peer that has said Hello."""

    def __init__(self, address: str, role: m.Role) -> None:
        family, target = resolve(parse_address(address))
        self.stream = socket.socket(family, socket.SOCK_STREAM)
        self.stream.connect(target)
        self.stream.setblocking(False)
        self.session = 0
        self._zmtp = Zmtp("DEALER", 1 << 30)
        self._unsent = bytearray(self._zmtp.take_output())
        greeting = hello(role)
        greeting.queue_size = 1000
        self._hello = encoded(greeting)

    def send(self, data: bytes) -> None:
        self._unsent += data

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def step(self, now: float) -> None:
        """Read, react, write."""
        with suppress(BlockingIOError):
            while True:
                self.on_bytes(now, self.stream.recv(1 << 20))
        if self._zmtp.is_ready and self._hello:
            self._unsent += self._hello
            self._hello = b""
        self.act(now)
        with suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self.stream.send(self._unsent)]

    def on_bytes(self, now: float, data: bytes) -> None:
        assert data, "the scheduler has closed the connection"
        for frames in self._zmtp.feed(data):
            message = decode(frames[0])
            if isinstance(message, m.Welcome):
                self.session = message.session
            self.on_message(now, message)
        self._unsent += self._zmtp.take_output()

    def on_message(self, now: float, message: Any) -> None: ...

    def act(self, now: float) -> None: ...


class Worker(Peer):
    """It has done at once whatever it is sent."""

    def on_message(self, now: float, message: Any) -> None:
        if isinstance(message, m.Task):
            sizes = array("I", bytes(4 * len(message.ids)))
            self.send(encoded(m.TaskResult(ids=message.ids, payload_sizes=sizes, busy_microseconds=len(message.ids))))


class HonestClient(Peer):
    """It measures latencies, or throughput."""

    def __init__(self, address: str) -> None:
        super().__init__(address, m.Role.CLIENT)
        self.is_lone = True
        self.is_on = False
        self.latencies: List[float] = []
        self.finished = self._unfinished = self._next_id = 0
        self._began = self._next_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether tasks have no outcome yet."""
        return self._unfinished > 0

    def on_message(self, now: float, message: Any) -> None:
        if isinstance(message, m.TaskResult):
            assert not any(message.statuses)
            self._unfinished -= len(message.ids)
            self.finished += len(message.ids)
            if self.is_lone and not self._unfinished:
                self.latencies.append(now - self._began)

    def act(self, now: float) -> None:
        if not self.is_on or self._unfinished or now < self._next_at or not self.session:
            return
        self._began = now
        total, most = (1, 1) if self.is_lone else (TASKS, TASKS_IN_MESSAGE)
        self._next_at = now + CLIENT_SECONDS * total
        for _ in range(total // most):
            ids = array("Q", range(self._next_id, self._next_id + most))
            self.send(encoded(m.Task(ids=ids, payload_sizes=array("I", bytes(4 * most)), function_name="f")))
            self._next_id += most
        self._unfinished = total


class Flooder(Peer):
    """It sends without a pause, and reads what comes without looking at it."""

    def __init__(self, address: str, flood: Flood, seed: int) -> None:
        super().__init__(address, m.Role.CLIENT)
        self._flood = flood
        self._batches: Iterator[Tuple[int, bytes]] = flood.batches(random.Random(seed))
        self._again: Optional[bytes] = None
        self.is_on = True

    def on_bytes(self, now: float, data: bytes) -> None:
        if not self.session:
            super().on_bytes(now, data)

    def act(self, now: float) -> None:
        if not (self.is_on and self.session) or self.has_unsent:
            return
        if self._flood.opening is None:
            self.send(next(self._batches)[1])
            return
        if self._again is None:
            opening, self._again = self._flood.opening(self.session)
            self.send(opening)
        self.send(self._again * SENDS_AT_ONCE)


def run(kind: str, flooders: int, seconds: float) -> Dict[str, Any]:
    """The honest client beside a flood, and without one, for so much time of the scheduler each."""
    clock = Clock()
    loop = BuiltinLoop(clock.now)
    for module in (connections, server):
        setattr(module, "time", SimpleNamespace(perf_counter=clock.now, monotonic=time.monotonic))  # noqa: B010
    with ExitStack() as stack:
        stack.callback(loop.close)
        directory = ObjectDirectory()
        stack.callback(directory.remove)
        servers: List[server.Server] = []
        own = connections.Connections("tcp://127.0.0.1:0", 1 << 29, lambda peer: servers[0].peer_gone(peer))
        monitor = StatusPublisher("tcp://127.0.0.1:0", 1 << 20)
        core = SchedulerCore(Settings())
        servers.append(server.Server(loop, core, own, monitor, ObjectFiles(directory, lambda copied: None)))
        worker, client = Worker(own.address, m.Role.WORKER), HonestClient(own.address)
        peers: List[Peer] = [worker, client]
        receive = own.receive

        def receive_after_peers(now: float, timeout_seconds: float) -> bool:
            with clock:
                for peer in peers:
                    peer.step(clock.now())
            return receive(now, 0.0)

        own.receive = receive_after_peers  # type: ignore[method-assign]  # peers have no thread
        servers[0]._on_timer()

        def serve(seconds: float) -> float:
            begin = clock.now()
            while clock.now() < begin + seconds:
                servers[0]._drain()
                loop.call_soon(loop.stop)
                loop.run_forever()
            return clock.now() - begin

        def let_client_run(is_lone: bool) -> float:
            client.is_lone, client.is_on = is_lone, True
            spent = serve(seconds / 2)
            client.is_on = False
            while client.is_waiting:
                serve(0.001)
            return spent

        def measure() -> Dict[str, Any]:
            client.latencies = []
            let_client_run(is_lone=True)
            client.finished = 0
            spent = let_client_run(is_lone=False)
            ordered = sorted(client.latencies)
            return {
                "tasks": len(ordered),
                "median_milliseconds": round(statistics.median(ordered) * 1e3, 3),
                "p99_milliseconds": round(ordered[int(0.99 * len(ordered))] * 1e3, 2),
                "worst_milliseconds": round(ordered[-1] * 1e3, 2),
                "tasks_per_second": round(client.finished / spent),
            }

        serve(0.1)
        without = measure()
        peers += [Flooder(own.address, FLOODS[kind], seed) for seed in range(flooders)]
        serve(0.5)
        sent_before = servers[0].sent["ObjectResponse"]
        beside = measure()
        return {
            "kind": kind,
            "flooders": flooders,
            "interpreter": sys.implementation.name,
            "without": without,
            "beside": beside,
            "throughput_ratio": round(beside["tasks_per_second"] / without["tasks_per_second"], 2),
            "parts_sent_per_second": round((servers[0].sent["ObjectResponse"] - sent_before) / seconds),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = [
        name for name, each in FLOODS.items() if each.stays and each.greets and not (each.monitors or each.awaits_end)
    ]
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(kinds)} (default: downloads)")
    parser.add_argument("--flooders", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default: %(default)s)")
    options = parser.parse_args()
    tune_garbage_collection()
    for kind in options.kinds or ["downloads"]:
        print(json.dumps(run(kind, options.flooders, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
