"""What each link carries when large data moves between hosts, which are network namespaces on one machine.

    make bench-hosts                       a table, and with ARGS=--json the figures

                 ┌── scheduler        each with a network namespace, a mount namespace and a /dev/shm of its own,
    bridge ──────┼── client           so that no two of them share an object directory
                 ├── worker-1
                 └── worker-2 …

Rules:
- Bytes are those that the kernel counts at the bridge's end of each link, headers included.
- A scene fails if a result is wrong. Times depend on the machine's load; bytes do not.
- Without the right to make namespaces, nothing is measured, and one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from host_scenes import SCENES

PREFIX = "scaler-"
NETWORK, PORT = "10.213.77", 2345
WORKERS = tuple(f"worker-{number}" for number in range(1, 9))
HOSTS = ("scheduler", "client", *WORKERS)
STREAM_BYTES = 500_000_000
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
        return SCENES[options.inside].run(ADDRESS, options.megabytes * MEGABYTE)
    why_not = reason_not_to_run()
    if why_not:
        print(f"skipped: {why_not}")
        return 0
    figures = {name: measure(name, options.megabytes) for name in options.scene or SCENES}
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
        stack.enter_context(program("scheduler", start))
        for name in SCENES[scene].workers:
            worker = [sys.executable, "-m", "scaler.worker", ADDRESS, "--insecure", "-n", "1", "-wn", name]
            stack.enter_context(program(name, [*worker, "-lp", "/dev/null"]))
        before = {host: counters(host) for host in HOSTS}
        began = time.monotonic()
        this = [sys.executable, __file__, "--inside", scene, "--megabytes", str(megabytes)]
        subprocess.run(inside("client", this), check=True, timeout=600, env=ENVIRONMENT)
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
    return figures


def table(figures: dict[str, dict[str, Any]], megabytes: int) -> str:
    """The figures as a table in Markdown."""
    lines = [
        f"Megabytes out of / into each host; results and arguments have {megabytes} MB.",
        "",
        f"| scene | {' | '.join(HOSTS)} | seconds |",
        f"| --- |{' --: |' * (len(HOSTS) + 1)}",
    ]
    for name, found in figures.items():
        cells = [f"{found[host]['out']:g} / {found[host]['in']:g}" for host in HOSTS]
        lines.append(f"| {SCENES[name].title} | {' | '.join(cells)} | {found['seconds']:g} |")
    return "\n".join(lines)


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


def counters(host: str) -> dict[str, int]:
    """Bytes that the bridge has got from a host, and sent to it."""
    folder = Path(f"/sys/class/net/sc-{HOSTS.index(host) + 1}/statistics")
    return {"out": int((folder / "rx_bytes").read_text()), "in": int((folder / "tx_bytes").read_text())}


@contextlib.contextmanager
def program(host: str, command: list[str]) -> Iterator[None]:
    """A program on a host, while the block runs."""
    process = subprocess.Popen(inside(host, command), start_new_session=True, env=ENVIRONMENT)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
