"""What each link carries when large data moves between hosts, which are network namespaces on one machine.

    make bench-hosts                       a table, and with ARGS=--json the figures

                 ┌── scheduler        each with a network namespace, a mount namespace and a /dev/shm of its own,
    bridge ──────┼── client           so that no two of them share an object directory
                 ├── worker-1
                 └── worker-2 … to 16

Rules:
- Bytes are those that the kernel counts at the bridge's end of each link, headers included.
- A scene fails if a result is wrong. Times depend on the machine's load; bytes do not.
- The rate of all workers' links together is that between the first twentieth of their bytes and the last one.
- What one stream reaches beside plain sockets and iperf3, what processor time it costs, and what lone tasks wait for
  meanwhile, `stream_bench` measures, which is run as well.
- Without the right to make namespaces, nothing is measured, and one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import sub
from pathlib import Path
from typing import Any

from host_scenes import SCENES

PREFIX = "scaler-"
NETWORK, PORT = "10.213.77", 2345
WORKERS = tuple(f"worker-{number}" for number in range(1, 17))
HOSTS = ("scheduler", "client", *WORKERS)
SAMPLE_SECONDS = 0.002
STREAM_PARTS = (0.05, 0.95)  # of its bytes: begin and end are left out
ADDRESS = f"tcp://{NETWORK}.1:{PORT}"
READY_SECONDS = 60.0
MEGABYTE = 1_000_000
ENVIRONMENT = {**os.environ, "SCALER_INSECURE": "1"}


def main() -> int:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure the bytes over each link between hosts in network namespaces.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--megabytes", type=int, default=50, help="size of each result and argument")
    parser.add_argument("--scene", choices=sorted(SCENES), action="append", help="only these scenes")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # this program runs as the client's
    options = parser.parse_args()
    if options.inside:
        scene = SCENES[options.inside]
        return scene.run(ADDRESS, (scene.megabytes or options.megabytes) * MEGABYTE)
    why_not = reason_not_to_run()
    if why_not:
        print(f"skipped: {why_not}")
        return 0
    figures = {}
    for name in options.scene or SCENES:
        print(f"{SCENES[name].title} …", file=sys.stderr, flush=True)
        figures[name] = measure(name, options.megabytes)
    print(json.dumps(figures, indent=2) if options.json else table(figures, options.megabytes))
    return 0


def reason_not_to_run() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are of Linux"
    try:
        with network(HOSTS[:1]):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"namespaces cannot be made here, which takes root and the program ip: {error}"


def measure(scene: str, megabytes: int) -> dict[str, Any]:
    """Run one scene on new hosts; megabytes out of and into each host, and seconds."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(network(HOSTS))
        start = [sys.executable, "-m", "scaler_appliance", ADDRESS, "--insecure", "--no-announce", "-lp", "/dev/null"]
        scheduler = stack.enter_context(program("scheduler", start))
        first: dict[str, int] = {}  # process of each host
        for number, host in enumerate(SCENES[scene].workers, 1):
            name = ["-wn", f"{host} as {number}"]
            worker = [sys.executable, "-m", "scaler.worker", ADDRESS, "--insecure", "-n", "1", *name]
            process = stack.enter_context(program(host, [*worker, "-lp", "/dev/null"], process=first.get(host, 0)))
            if host not in first:
                wait_for_memory(process)
                first[host] = process
        for host in set(SCENES[scene].workers) if SCENES[scene].link else ():
            limit_link(host, SCENES[scene].link)
        before = {host: counters(host) for host in HOSTS}
        began = time.monotonic()
        this = [sys.executable, __file__, "--inside", scene, "--megabytes", str(megabytes)]
        with Sampling(WORKERS, 5 * SAMPLE_SECONDS, tuple(first.values())) as sampling:
            is_beside = SCENES[scene].client == "scheduler"
            command = beside(scheduler, this) if is_beside else inside(SCENES[scene].client, this)
            subprocess.run(command, check=True, timeout=600, env=ENVIRONMENT)
        seconds = time.monotonic() - began
        after = {host: counters(host) for host in HOSTS}
    figures: dict[str, Any] = {
        host: {
            direction: round((after[host][direction] - before[host][direction]) / MEGABYTE, 1)
            for direction in ("out", "in")
        }
        for host in HOSTS
    }
    figures["seconds"] = round(seconds, 2)
    figures["megabytes per second"] = round(sampling.megabytes_per_second(of_all=True))
    figures["most in memory"] = round(sampling.most_bytes_in_memory / MEGABYTE)
    return figures


def table(figures: dict[str, dict[str, Any]], megabytes: int) -> str:
    """The figures as a table in Markdown."""
    lines = [
        f"Megabytes out of / into hosts; results and arguments have {megabytes} MB. In memory: of files, the most that",
        "one worker's host had at a time.",
        "",
        "| scene | scheduler | client | the host with most out | the others | all, MB/s | in memory | seconds |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for name, found in figures.items():
        source = max(WORKERS, key=lambda host: float(found[host]["out"]))
        others = {way: sum(found[host][way] for host in WORKERS if host != source) for way in ("out", "in")}
        cells = [found["scheduler"], found["client"], found[source], others]
        texts = [f"{cell['out']:.1f} / {cell['in']:.1f}" for cell in cells]
        rate, seconds, memory = found["megabytes per second"], found["seconds"], found["most in memory"]
        lines.append(f"| {SCENES[name].title} | {' | '.join(texts)} | {rate} | {memory} | {seconds:g} |")
    return "\n".join(lines)


# Rates --------------------------------------------------------------------------------------------------------------


class Sampling:
    """Reads how many bytes hosts have sent, again and again, while the block runs.

    Parameters:
        processes: one of each host of which the files in memory are read, too.
    """

    def __init__(
        self, hosts: Sequence[str], interval_seconds: float = SAMPLE_SECONDS, processes: Sequence[int] = ()
    ) -> None:
        self._processes = tuple(processes)
        self.most_bytes_in_memory = 0
        self._hosts = tuple(hosts)
        self._interval_seconds = interval_seconds
        self._samples: list[tuple[float, list[int]]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_seconds):
            self._samples.append((time.monotonic(), [counters(host)["out"] for host in self._hosts]))
            in_memory = [bytes_in_memory(process) for process in self._processes]
            self.most_bytes_in_memory = max([self.most_bytes_in_memory, *in_memory])

    def busiest(self) -> str:
        """The host that has sent most."""
        first, last = self._samples[0][1], self._samples[-1][1]
        return max(zip(map(sub, last, first), self._hosts))[1]

    def megabytes_per_second(self, of_all: bool = False) -> float:
        """Of the host that has sent most, or of all, from the first to the last of its bytes; 0: there were few."""
        within = self.within(of_all)
        seconds = within[-1][0] - within[0][0] if within else 0.0
        return (within[-1][1] - within[0][1]) / MEGABYTE / seconds if seconds else 0.0

    def within(self, of_all: bool = False) -> list[tuple[float, int]]:
        """When the host that has sent most, or all, had sent how many bytes, without the first and last ones."""
        place = self._hosts.index(self.busiest())
        samples = [(at, sum(counts) if of_all else counts[place]) for at, counts in self._samples]
        first, last = samples[0][1], samples[-1][1]
        low, high = (first + part * (last - first) for part in STREAM_PARTS)
        return [sample for sample in samples if low <= sample[1] <= high]


SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stream:
    part = bytes(1 << 20)
    for _ in range(int(sys.argv[3])):
        stream.sendall(part)
"""
RECEIVER = """
import os, socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listener:
    print(flush=True)
    stream, _ = listener.accept()
    part = memoryview(bytearray(1 << 20))
    if len(sys.argv) == 2:
        while stream.recv_into(part):
            pass
    else:
        with open(sys.argv[2], "wb", buffering=0) as file:
            while count := stream.recv_into(part, 0, socket.MSG_WAITALL):
                file.write(part[:count])
"""


def plain_socket_stream(megabytes: int, path: str = "") -> Sampling:
    """One stream between two hosts, from a Python program to another one.

    Parameters:
        path: of a file that the receiver writes; empty: it drops what it receives.
    """
    receiving = inside(WORKERS[1], [sys.executable, "-c", RECEIVER, str(PORT), *([path] if path else [])])
    with subprocess.Popen(receiving, stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        place = [f"{NETWORK}.{HOSTS.index(WORKERS[1]) + 1}", str(PORT)]
        with Sampling(WORKERS[:1]) as sampling:
            sending = [sys.executable, "-c", SENDER, *place, str(megabytes * MEGABYTE >> 20)]
            subprocess.run(inside(WORKERS[0], sending), check=True, timeout=600)
            receiver.wait(READY_SECONDS)
    return sampling


def iperf_rate(megabytes: int) -> float:
    """Megabytes per second of one stream of iperf3 between the same two hosts; 0: it is not installed."""
    if shutil.which("iperf3") is None:
        return 0.0
    with subprocess.Popen(
        inside(WORKERS[1], ["iperf3", "-s", "-1", "--forceflush", "-p", str(PORT)]), stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        while b"listening" not in server.stdout.readline():
            pass
        place = f"{NETWORK}.{HOSTS.index(WORKERS[1]) + 1}"
        command = ["iperf3", "-c", place, "-p", str(PORT), "-n", f"{megabytes}M", "-l", "1M", "-J"]
        done = subprocess.run(inside(WORKERS[0], command), check=True, timeout=600, capture_output=True)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8 / MEGABYTE


# Hosts --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def network(hosts: tuple[str, ...]) -> Iterator[None]:
    """Namespaces with links to a bridge; they are removed at the end."""
    made: list[Callable[[], object]] = []
    bridge = f"{PREFIX}br"
    try:
        ip("link", "add", bridge, "type", "bridge")
        made.append(lambda: ip("link", "del", bridge))
        ip("link", "set", bridge, "up")
        for number, host in enumerate(hosts, 1):
            ip("netns", "add", PREFIX + host)
            made.append(partial(ip, "netns", "del", PREFIX + host))
            here, there = f"sc-{number}", f"sc-{number}-in"
            ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", PREFIX + host)
            made.append(partial(ip, "link", "del", here))  # at once: with its namespace it goes a little later
            ip("link", "set", here, "master", bridge, "up")
            for command in (("addr", "add", f"{NETWORK}.{number}/24", "dev", there), ("link", "set", there, "up")):
                ip("-n", PREFIX + host, *command)
            ip("-n", PREFIX + host, "link", "set", "lo", "up")
        yield
    finally:
        for undo in reversed(made):
            with contextlib.suppress(subprocess.CalledProcessError):
                undo()


def ip(*arguments: str) -> None:
    """Run the program ip."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def inside(host: str, command: list[str]) -> list[str]:
    """The command that runs another one on a host, with a /dev/shm and a run folder of its own."""
    private = 'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && exec "$0" "$@"'
    return ["ip", "netns", "exec", PREFIX + host, "unshare", "-m", "sh", "-c", private, *command]


def beside(process: int, command: list[str]) -> list[str]:
    """A command on the host of a process, whose files in memory it sees."""
    return ["nsenter", "-t", str(process), "-n", "-m", *command]


def limit_link(host: str, limit: str) -> None:
    """Limit what a host gets: `limit` are arguments of tc."""
    link = f"sc-{HOSTS.index(host) + 1}"
    subprocess.run(["tc", "qdisc", "add", "dev", link, "root", *limit.split()], check=True)


def wait_for_memory(process: int) -> None:
    """Wait until a process that was just started on a host has its own /dev/shm. Raises TimeoutError."""
    deadline = time.monotonic() + READY_SECONDS
    while os.stat(f"/proc/{process}/root/dev/shm").st_dev == os.stat("/dev/shm").st_dev:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {process} has no /dev/shm of its own")
        time.sleep(0.01)


def bytes_in_memory(process: int) -> int:
    """Of the files in memory that a process sees."""
    found = os.statvfs(f"/proc/{process}/root/dev/shm")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def counters(host: str) -> dict[str, int]:
    """Bytes that the bridge has got from a host, and sent to it."""
    folder = Path(f"/sys/class/net/sc-{HOSTS.index(host) + 1}/statistics")
    return {"out": int((folder / "rx_bytes").read_text()), "in": int((folder / "tx_bytes").read_text())}


@contextlib.contextmanager
def program(
    host: str,
    command: list[str],
    environment: dict[str, str] | None = None,
    output: int | None = None,
    process: int = 0,
) -> Iterator[int]:
    """A program on a host, while the block runs; gives the number of its process.

    Parameters:
        output: where its output goes, as for `subprocess`.
        process: on that host, whose files in memory the program sees; 0: it has its own.
    """
    line = beside(process, command) if process else inside(host, command)
    started = subprocess.Popen(
        line, start_new_session=True, env=environment or ENVIRONMENT, stdout=output, stderr=output
    )
    try:
        yield started.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


if __name__ == "__main__":
    sys.exit(main())
