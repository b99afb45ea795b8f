"""One stream between two workers, beside a plain Python socket: rate, processor time, and what waits meanwhile.

    python benchmarks/stream_bench.py --rounds 5 --keys --json

    round: a graph whose result one worker makes and the other one needs, in a network namespace each
           (--source client: an argument of the client instead)
           then two plain sockets between the same hosts: one drops what it receives, one writes it to a file in memory
    probe: another client, which runs lone tasks all the time, on the worker that fetches, as the other one is busy
    relay: between the fetcher and the scheduler, to see when the worker's heartbeats leave

Rules:
- Rates are read off the kernel's counters, in the same way for all; a ratio is of one round, and a figure a median.
- The second plain socket does with the bytes what a worker has to do with them: its rate is what can be reached.
- iperf3 is beside them if it is installed. It drops what it receives.
- What a lone task waits for on these hosts beside a plain socket is what it waits for beside any transfer.
- Processor time is that of the agents, from before the graph to after it.
- Without the right to make namespaces, nothing is measured, and one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from host_scenes import SCENES
from hosts_bench import (
    ADDRESS,
    ENVIRONMENT,
    HOSTS,
    MEGABYTE,
    NETWORK,
    PORT,
    READY_SECONDS,
    WORKERS,
    Sampling,
    inside,
    iperf_rate,
    limit_link,
    network,
    plain_socket_stream,
    program,
    reason_not_to_run,
)

from scaler import Client

MAKER_AND_FETCHER = WORKERS[:2]
HEARTBEAT_SECONDS = 0.05
RELAY_PORT = PORT + 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROBE_BEFORE_SECONDS = 1.5
START_SECONDS = 1.5

_SCENES = {"worker": "stream", "client": "argument-stream"}
_RELAY = """
import select, socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
pairs, workers = {}, set()
with open(sys.argv[4], "w") as times:
    while True:
        for stream in select.select([listener, *pairs], [], [])[0]:
            if stream is listener:
                worker, scheduler = listener.accept()[0], socket.create_connection((sys.argv[2], int(sys.argv[3])))
                pairs[worker], pairs[scheduler] = scheduler, worker
                workers.add(worker)
                for each in (worker, scheduler):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                continue
            data = stream.recv(65536)
            if not data:
                sys.exit()
            if stream in workers:
                print(time.monotonic(), file=times, flush=True)
            pairs[stream].sendall(data)
"""


def main() -> int:
    """Program entry."""
    parser = argparse.ArgumentParser(
        description="Measure one stream of an object between two workers on two hosts (network namespaces).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--megabytes", type=int, default=500, help="size of the object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--source", choices=("worker", "client"), default="worker", help="what the stream comes from")
    parser.add_argument("--keys", action="store_true", help="measure with keys (CURVE) as well")
    limit = "tbf rate 400mbit burst 256kb latency 50ms"
    parser.add_argument("--link", default="", help=f"arguments of tc for both links, such as '{limit}'")
    parser.add_argument("--probe", action="store_true", help="run lone tasks on the fetching worker meanwhile")
    parser.add_argument("--heartbeats", action="store_true", help="note when the workers' heartbeats leave")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument(
        "--inside", choices=(*_SCENES.values(), "probe"), help=argparse.SUPPRESS
    )  # as a client's program
    options = parser.parse_args()
    if options.inside == "probe":
        return probe()
    if options.inside:
        return SCENES[options.inside].run(ADDRESS, options.megabytes * MEGABYTE)
    why_not = reason_not_to_run()
    if why_not:
        print(f"skipped: {why_not}")
        return 0
    figures = {"without keys": measure(options, with_keys=False)}
    if options.keys:
        figures["with keys"] = measure(options, with_keys=True)
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0


def probe() -> int:
    """Run lone tasks until standard input ends; prints when each began, and its seconds."""
    os.set_blocking(0, False)
    found: list[tuple[float, float]] = []
    with Client(ADDRESS) as client:
        while True:
            with contextlib.suppress(BlockingIOError):
                if not os.read(0, 1):
                    break
            began = time.monotonic()
            client.submit(abs, -1).result()
            found.append((began, time.monotonic() - began))
    print(json.dumps(found))
    return 0


def measure(options: argparse.Namespace, with_keys: bool) -> dict[str, Any]:
    """The rounds of one cluster; medians, and all rounds."""
    rounds: list[dict[str, Any]] = []
    before: list[float] = []
    during: list[float] = []
    beside_plain: list[float] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(network(HOSTS))
        for host in MAKER_AND_FETCHER if options.link else ():
            limit_link(host, options.link)
        environment = {**ENVIRONMENT, "SCALER_KEY_DIRECTORY": str(folder / "keys"), "SCALER_INSECURE": ""}
        flags = [] if with_keys else ["--insecure"]
        beats = {}
        start = [sys.executable, "-m", "scaler_appliance", ADDRESS, *flags, "--no-announce", "-lp", "/dev/null"]
        if options.heartbeats:
            start += ["--heartbeat-interval-seconds", str(HEARTBEAT_SECONDS)]
        if with_keys:
            start += ["--keys", str(folder / "keys")]
        stack.enter_context(program("scheduler", start, environment))
        time.sleep(START_SECONDS)  # the scheduler makes its keys
        agents = {}
        for number, name in enumerate(MAKER_AND_FETCHER):
            address = ADDRESS
            if options.heartbeats:
                beats[name] = folder / f"beats of {name}"
                port = RELAY_PORT + number
                relay = [sys.executable, "-c", _RELAY, str(port), f"{NETWORK}.1", str(PORT), str(beats[name])]
                stack.enter_context(program("client", relay))
                time.sleep(START_SECONDS)
                address = f"tcp://{NETWORK}.{HOSTS.index('client') + 1}:{port}"
            worker = [sys.executable, "-m", "scaler.worker", address, *flags, "-n", "1", "-wn", name]
            worker += ["-lp", "/dev/null"]
            if with_keys:
                worker += ["--key-file", str(folder / "keys" / "owner.key")]
            agents[name] = stack.enter_context(program(name, worker, environment))
        if with_keys:
            environment["SCALER_KEY_FILE"] = str(folder / "keys" / "owner.key")
        this = [sys.executable, __file__, "--megabytes", str(options.megabytes), "--inside"]
        client = {**environment, "SCALER_INSECURE": "" if with_keys else "1"}
        run_scene = inside("client", [*this, _SCENES[options.source]])
        subprocess.run(run_scene, check=True, timeout=READY_SECONDS, env=client)  # warm
        for _ in range(options.rounds):
            began = time.monotonic()
            with contextlib.ExitStack() as meanwhile:
                if options.probe:
                    lone = meanwhile.enter_context(probing([*this, "probe"], client))
                ticks = {name: processor_ticks(agent) for name, agent in agents.items()}
                with Sampling(MAKER_AND_FETCHER if options.source == "worker" else ("client",)) as sampling:
                    subprocess.run(run_scene, check=True, timeout=READY_SECONDS, env=client)
                used = {name: processor_ticks(agent) - ticks[name] for name, agent in agents.items()}
                plain = plain_socket_stream(options.megabytes)
                plain_to_a_file = plain_socket_stream(options.megabytes, "/dev/shm/plain")
            maker = sampling.busiest()
            fetcher = max((name for name in agents if name != maker), key=used.__getitem__)
            first, last = sampling.within()[0][0], sampling.within()[-1][0]
            rates = {
                "direct": sampling.megabytes_per_second(),
                "plain socket": plain.megabytes_per_second(),
                "plain socket to a file": plain_to_a_file.megabytes_per_second(),
                "iperf3": iperf_rate(options.megabytes),
            }
            per_gigabyte = TICKS_PER_SECOND * options.megabytes / 1000
            each: dict[str, Any] = {"megabytes per second": rates}
            each["processor seconds per GB"] = {"fetcher's agent": used[fetcher] / per_gigabyte}
            if maker in used:
                each["processor seconds per GB"]["maker's agent"] = used[maker] / per_gigabyte
            if options.heartbeats:
                times = [float(line) for line in beats[fetcher].read_text().split()]
                each["longest pause between heartbeats of the fetcher, seconds"] = {
                    "before": longest_pause([at for at in times if began - 3 <= at <= began]),
                    "during": longest_pause([at for at in times if first - 0.1 <= at <= last + 0.1]),
                }
            if options.probe:
                before += [seconds for at, seconds in lone if at < began + PROBE_BEFORE_SECONDS]
                during += [seconds for at, seconds in lone if first <= at <= last]
                first, last = plain_to_a_file.within()[0][0], plain_to_a_file.within()[-1][0]
                beside_plain += [seconds for at, seconds in lone if first <= at <= last]
            rounds.append(each)
    figures: dict[str, Any] = {
        "megabytes per second": middle(rounds, "megabytes per second"),
        "processor seconds per GB": middle(rounds, "processor seconds per GB"),
        "ratios": {
            kind: statistics.median(
                each["megabytes per second"]["direct"] / each["megabytes per second"][kind] for each in rounds
            )
            for kind, rate in rounds[0]["megabytes per second"].items()
            if rate and kind != "direct"
        },
    }
    if options.probe:
        figures["lone tasks, milliseconds"] = {
            "before": percentiles(before),
            "during": percentiles(during),
            "beside a plain socket to a file": percentiles(beside_plain),
        }
    return {**figures, "rounds": rounds}


@contextlib.contextmanager
def probing(command: Sequence[str], environment: dict[str, str]) -> Iterator[list[tuple[float, float]]]:
    """Lone tasks while the block runs, and some time before; the list is filled at its end."""
    found: list[tuple[float, float]] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(inside("client", list(command)), stdin=pipe, stdout=pipe, env=environment) as process:
        time.sleep(PROBE_BEFORE_SECONDS + 1.0)
        yield found
        output, _ = process.communicate()
        found += [(at, seconds) for at, seconds in json.loads(output)]


def processor_ticks(process: int) -> int:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def longest_pause(times: Sequence[float]) -> float:
    """Between two of them that follow each other."""
    return max((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)


def middle(rounds: Sequence[dict[str, Any]], name: str) -> dict[str, float]:
    """The medians of a figure's parts."""
    return {key: statistics.median(each[name][key] for each in rounds) for key in rounds[0][name]}


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Of latencies, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    places = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "longest": 1.0}
    found = {name: 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))] for name, part in places.items()}
    return {**found, "tasks": len(seconds)}


def table(figures: dict[str, dict[str, Any]]) -> str:
    """The figures as text."""
    lines = []
    for kind, found in figures.items():
        rates, used = found["megabytes per second"], found["processor seconds per GB"]
        lines.append(f"{kind}: " + ", ".join(f"{name} {rate:.0f} MB/s" for name, rate in rates.items() if rate))
        lines.append("  ratio to " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in found["ratios"].items()))
        lines.append("  processor seconds per GB: " + ", ".join(f"{name} {each:.2f}" for name, each in used.items()))
        for when, each in found.get("lone tasks, milliseconds", {}).items():
            lines.append(f"  lone tasks {when}: " + ", ".join(f"{name} {value:.1f}" for name, value in each.items()))
        for each in found["rounds"]:
            pauses = each.get("longest pause between heartbeats of the fetcher, seconds", {})
            if pauses:
                text = ", ".join(f"{when} {1000 * seconds:.0f} ms" for when, seconds in pauses.items())
                lines.append(f"  longest pause between heartbeats: {text}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
