"""A shuffle between four hosts, beside other engines: each of 16 sums needs a block from each of 16 parts.

    sudo .venv/bin/python benchmarks/shuffle.py --dask .venv-situations/bin/python --ray .venv-situations/bin/python

    part i, of 16 blocks ──▶ block i, j: an item of it, 256 nodes ──▶ sum j: needs the blocks (0, j) to (15, j)

Rules:
- Hosts are network namespaces, as in `hosts_bench`, with a worker of one slot on each of four. Every engine gets the
  same graph, of arrays of bytes, and the engines take turns.
- Ray gets a task for each node of the graph; and as its users would write it, tasks for parts that return a value for
  each block. Its client is a host of its cluster, without slots, as Ray wants it.
- Seconds are from `get` to the result, in the client, after a small shuffle has warmed everything up. Bytes are those
  that the kernel counts at the workers' links, headers included. Three quarters of all blocks have to move, if each
  worker makes as many parts and sums as the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List

from hosts_bench import (
    ENVIRONMENT,
    MEGABYTE,
    NETWORK,
    READY_SECONDS,
    beside,
    counters,
    inside,
    network,
    program,
    reason_not_to_run,
)
from shuffle_tasks import PARTS, expected, graph_of

HOSTS = ("scheduler", "client", "worker-1", "worker-2", "worker-3", "worker-4")
WORKERS = HOSTS[2:]
PORT = 2345
SCHEDULER = f"tcp://{NETWORK}.1:{PORT}"
SMALL_BYTES = 1000
MANY_RETURNS = "ray, many returns"
RAY = ("ray", MANY_RETURNS)
RAY_HEAD = f"{NETWORK}.1:{PORT}"
RAY_FOLDER = "/run/ray"  # where each host has a file system of its own
RAY_STORE_BYTES = 3_000_000_000


def run_client(engine: str, size: int) -> None:
    """The client's program: prints the seconds that the shuffle took."""
    keys = [f"sum {column}" for column in range(PARTS)]
    with _client(engine) as get:
        for each in (SMALL_BYTES, size):
            begin = time.monotonic()
            found = get(graph_of(each), keys)
            seconds = time.monotonic() - begin
            assert found == expected(each), f"{found} instead of {expected(each)}"
    print(seconds)


@contextlib.contextmanager
def _client(engine: str) -> Iterator[Any]:
    if engine == "scaler":
        from scaler import Client

        with Client(SCHEDULER, modules=["shuffle_tasks"]) as client:
            while client.info().slots < len(WORKERS):
                client.submit(abs, 1).result()
            yield lambda graph, keys: list(client.get(graph, keys).values())
    elif engine in RAY:
        import ray

        with ray.init(RAY_HEAD, _node_ip_address=host_address("client"), _temp_dir=RAY_FOLDER, log_to_driver=False):
            while ray.cluster_resources().get("CPU", 0) < len(WORKERS):
                time.sleep(0.1)
            yield partial(_get_by_ray, has_many_returns=engine == MANY_RETURNS)
    else:
        import distributed

        with distributed.Client(SCHEDULER) as client:
            client.upload_file(str(Path(__file__).with_name("shuffle_tasks.py")))
            client.wait_for_workers(len(WORKERS))
            yield lambda graph, keys: list(client.get(graph, keys))


def _get_by_ray(graph: Dict[str, Any], keys: List[str], has_many_returns: bool = False) -> List[Any]:
    """Parameters:
    has_many_returns: a part is a task with a return value for each of its blocks, so blocks need no tasks.
    """
    import ray

    call = ray.remote(lambda function, *arguments: function(*arguments))
    made: Dict[str, Any] = {}
    for key, (function, *arguments) in graph.items():  # each after those that it needs
        needed = [made.get(each, each) for each in arguments]
        if has_many_returns and function is operator.getitem:
            made[key] = needed[0][needed[1]]
        else:
            returns = PARTS if has_many_returns and key not in keys else 1
            made[key] = call.options(num_returns=returns).remote(function, *needed)
    return list(ray.get([made[key] for key in keys]))


def host_address(name: str) -> str:
    return f"{NETWORK}.{HOSTS.index(name) + 1}"


def commands(engine: str, python: str) -> Dict[str, List[str]]:
    """What runs on each host."""
    if engine in RAY:
        found = {}
        for name in HOSTS:
            role = ["--head", "--port", str(PORT), "--include-dashboard=false"] if name == "scheduler" else []
            role += ["--temp-dir", RAY_FOLDER] if role else ["--address", RAY_HEAD]
            slots = ["--num-cpus", str(int(name in WORKERS)), "--object-store-memory", str(RAY_STORE_BYTES)]
            start = [str(Path(python).with_name("ray")), "start", "--block", "--disable-usage-stats"]
            found[name] = [*start, *role, *slots, "--node-ip-address", host_address(name)]
        return found
    if engine == "scaler":
        found = {
            "scheduler": [python, "-m", "scaler_appliance", SCHEDULER, "--insecure", "--no-announce", "-ll", "ERROR"]
        }
        for name in WORKERS:
            found[name] = [python, "-m", "scaler.worker", SCHEDULER, "--insecure", "-n", "1", "-ll", "ERROR"]
        return found
    found = {"scheduler": [python, "-m", "distributed.cli.dask_scheduler", "--port", str(PORT), "--no-dashboard"]}
    for name in WORKERS:
        one_slot = ["--no-nanny", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
        found[name] = [python, "-m", "distributed.cli.dask_worker", SCHEDULER, *one_slot]
    return found


def _wait_for_port(process: int) -> None:
    """Ray's other hosts do not wait for its head."""
    connect = f"import socket; socket.create_connection(({host_address('scheduler')!r}, {PORT}), 1).close()"
    deadline = time.monotonic() + READY_SECONDS
    while subprocess.run(beside(process, [sys.executable, "-c", connect]), stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline:
            raise SystemExit("Ray's head does not listen")
        time.sleep(0.2)


def measure(engine: str, python: str, size: int, link: str) -> Dict[str, Any]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(network(HOSTS))
        for name in WORKERS if link else ():
            add = ["tc", "qdisc", "add", "dev", f"sc-{HOSTS.index(name) + 1}", "root", *link.split()]
            subprocess.run(add, check=True)
        environment = {**ENVIRONMENT, "DASK_LOGGING__DISTRIBUTED": "error", "PYTHONWARNINGS": "ignore"}
        quiet = subprocess.DEVNULL if engine in RAY else None
        programs: Dict[str, int] = {}
        for host, command in commands(engine, python).items():
            programs[host] = stack.enter_context(program(host, command, environment, quiet))
            if engine in RAY and host == "scheduler":
                _wait_for_port(programs[host])
        before = {host: counters(host)["in"] for host in HOSTS}
        this = [python, __file__, "--inside", engine, "--megabytes", str(size // MEGABYTE)]
        run = beside(programs["client"], this) if "client" in programs else inside("client", this)
        told = subprocess.run(run, check=True, timeout=10 * READY_SECONDS, env=environment, stdout=subprocess.PIPE)
        carried = {host: (counters(host)["in"] - before[host]) / MEGABYTE for host in HOSTS}
    return {
        "engine": engine,
        "seconds": round(float(told.stdout.split()[-1]), 2),
        "megabytes_into_workers": round(sum(carried[name] for name in WORKERS)),
        "megabytes_into_scheduler": round(carried["scheduler"], 1),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=10, help="size of a block (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="of each engine (default: 3)")
    parser.add_argument("--link", default="", help="arguments of tc for the links to workers, as for stream_bench.py")
    parser.add_argument("--dask", metavar="PYTHON", help="that has dask and distributed; default: without Dask")
    parser.add_argument("--ray", metavar="PYTHON", help="that has ray; default: without Ray")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # this program runs as the client's
    options = parser.parse_args()
    if options.inside:
        run_client(options.inside, options.megabytes * MEGABYTE)
        return 0
    why_not = reason_not_to_run()
    if why_not:
        print(f"skipped: {why_not}")
        return 0
    engines = {"scaler": sys.executable}
    engines.update({"dask": str(Path(options.dask).absolute())} if options.dask else {})
    engines.update(dict.fromkeys(RAY, str(Path(options.ray).absolute())) if options.ray else {})
    for _ in range(options.rounds):
        for engine, python in engines.items():
            print(json.dumps(measure(engine, python, options.megabytes * MEGABYTE, options.link)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
