"""One stream between two workers that are far apart, beside a plain Python socket over the same link.

    python benchmarks/distant_streams.py --delay 10 50 100 --buffers 64

    scheduler ── bridge ── maker ══ delayed link ══ fetcher          hosts are network namespaces
                             └── bridge to the scheduler ──┘

    round: a graph whose result one worker makes and the other one needs
           then a plain socket between the same hosts, over the same link, which drops what it receives

Rules:
- The link is a pair of TUN devices. This program takes each packet from one, and puts it into the other one when its
  time has come. Packets are large, so that it can follow.
- Rates are those of what comes out of the link, for both; a ratio is of one round, and a figure a median.
- A connection has no more on its way than the kernel's buffers hold, of which a sender has 4 MB at most by default
  (`net.ipv4.tcp_wmem`); `--buffers` gives both ends more.
- Without the right to make namespaces and TUN devices, nothing is measured, and one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import selectors
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from host_scenes import SCENES
from hosts_bench import (
    ADDRESS,
    ENVIRONMENT,
    HOSTS,
    MEGABYTE,
    PORT,
    PREFIX,
    READY_SECONDS,
    RECEIVER,
    SENDER,
    WORKERS,
    inside,
    ip,
    network,
    program,
    reason_not_to_run,
)

ENDS = WORKERS[:2]
DEVICE = "far"
PLACES = ("10.213.78.1", "10.213.78.2")
PACKET_BYTES = 65_000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h


def main() -> int:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure one stream between two workers that are far apart (network namespaces, TUN devices).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--megabytes", type=int, default=500, help="size of the object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=int, nargs="+", default=[0, 10, 50, 100], help="there and back, milliseconds")
    parser.add_argument("--buffers", type=int, default=0, help="most of the kernel's per connection, MB; 0: as it is")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # as the client's program
    options = parser.parse_args()
    if options.inside:
        return SCENES["stream"].run(ADDRESS, options.megabytes * MEGABYTE)
    why_not = reason_not_to_run()
    if not why_not and not os.access("/dev/net/tun", os.W_OK):
        why_not = "TUN devices cannot be made here"
    if why_not:
        print(f"skipped: {why_not}")
        return 0
    figures = {}
    for delay in options.delay:
        found = figures[delay] = measure(options.megabytes, options.rounds, delay / 1000, options.buffers)
        if not options.json:
            rates = f"direct {found['direct']:.0f} MB/s, a plain socket {found['plain socket']:.0f} MB/s"
            print(f"{delay:4} ms: {rates}, ratio {found['ratio']:.2f}", flush=True)
    if options.json:
        print(json.dumps(figures, indent=2))
    return 0


def measure(megabytes: int, rounds: int, delay_seconds: float, buffers_megabytes: int) -> dict[str, Any]:
    """Medians, and all rounds, of one delay."""
    found: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(network(HOSTS))
        link = stack.enter_context(DelayedLink(delay_seconds))
        for host in ENDS if buffers_megabytes else ():
            for name in ("tcp_wmem", "tcp_rmem"):
                value = f"net.ipv4.{name}=4096 131072 {buffers_megabytes * MEGABYTE}"
                subprocess.run(["ip", "netns", "exec", PREFIX + host, "sysctl", "-qw", value], check=True)
        start = [sys.executable, "-m", "scaler_appliance", ADDRESS, "--insecure", "--no-announce", "-lp", "/dev/null"]
        stack.enter_context(program("scheduler", start))
        for host, place in zip(ENDS, PLACES):
            worker = [sys.executable, "-m", "scaler.worker", ADDRESS, "--insecure", "-n", "1", "-wn", host]
            worker += ["--data-address", f"tcp://{place}:0", "-lp", f"{folder}/log"]
            stack.enter_context(program(host, worker))
        this = [sys.executable, __file__, "--megabytes", str(megabytes), "--inside"]
        for _ in range(rounds):
            with link.counting() as direct:
                subprocess.run(inside("client", this), check=True, timeout=READY_SECONDS * 5, env=ENVIRONMENT)
            with link.counting() as plain:
                plain_stream(megabytes)
            found.append({"direct": direct.rate(), "plain socket": plain.rate()})
    return {
        "direct": statistics.median(each["direct"] for each in found),
        "plain socket": statistics.median(each["plain socket"] for each in found),
        "ratio": statistics.median(each["direct"] / each["plain socket"] for each in found),
        "rounds": found,
    }


def plain_stream(megabytes: int) -> None:
    """One stream over the link, from a Python program to another one."""
    receiving = inside(ENDS[1], [sys.executable, "-c", RECEIVER, str(PORT)])
    with subprocess.Popen(receiving, stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        sending = [sys.executable, "-c", SENDER, PLACES[1], str(PORT), str(megabytes * MEGABYTE >> 20)]
        subprocess.run(inside(ENDS[0], sending), check=True, timeout=READY_SECONDS * 5)
        receiver.wait(READY_SECONDS)


class Counting:
    """How many bytes have passed by when."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []

    def rate(self) -> float:
        """Megabytes per second, without the first and the last bytes."""
        total = self.samples[-1][1]
        within = [sample for sample in self.samples if 0.05 * total <= sample[1] <= 0.95 * total]
        return (within[-1][1] - within[0][1]) / MEGABYTE / (within[-1][0] - within[0][0])


class DelayedLink:
    """A link between two hosts, over which each packet takes half of the delay."""

    def __init__(self, delay_seconds: float) -> None:
        self._seconds = delay_seconds / 2
        self._devices = [
            _tun(host, place, PLACES[1 - number]) for number, (host, place) in enumerate(zip(ENDS, PLACES))
        ]
        self._is_over = False
        self._counting = Counting()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> DelayedLink:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._thread.join()
        for device in self._devices:
            os.close(device)

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counting]:
        """Count what comes out of the link while the block runs."""
        self._counting = Counting()
        yield self._counting

    def _run(self) -> None:
        waiting: deque[tuple[float, int, bytes]] = deque()
        counted, total = self._counting, 0
        with selectors.DefaultSelector() as selector:
            for device, other in zip(self._devices, reversed(self._devices)):
                selector.register(device, selectors.EVENT_READ, other)
            while not self._is_over:
                timeout = min(max(waiting[0][0] - time.monotonic(), 0), 0.1) if waiting else 0.1
                for key, _ in selector.select(timeout):
                    packet = os.read(key.fd, PACKET_BYTES + 100)
                    waiting.append((time.monotonic() + self._seconds, key.data, packet))
                now = time.monotonic()
                if counted is not self._counting:
                    counted, total = self._counting, 0
                while waiting and waiting[0][0] <= now:
                    _, device, packet = waiting.popleft()
                    with contextlib.suppress(OSError):
                        os.write(device, packet)
                    total += len(packet)
                    counted.samples.append((now, total))


def _tun(host: str, place: str, other: str) -> int:
    """A TUN device on a host, with an address; gives the end at which this program reads and writes packets."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"{DEVICE}-{host}"[:15]
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    ip("link", "set", name, "netns", PREFIX + host)
    ip("-n", PREFIX + host, "addr", "add", place, "peer", other, "dev", name)
    ip("-n", PREFIX + host, "link", "set", name, "mtu", str(PACKET_BYTES), "txqueuelen", "10000", "up")
    return device


if __name__ == "__main__":
    sys.exit(main())
