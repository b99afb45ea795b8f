"""What happens to tasks when links break: `sudo python benchmarks/broken_links.py`. Needs root, and `ip` of iproute2.

    scheduler ── s ─┐
    standby   ── t ─┤
    worker    ── w ─┼─ bridge        each in a network namespace of its own
    client    ── c ─┘

A cut takes a port out of the bridge, so that packets vanish without a word; one way, the worker's packets to the
scheduler go to a wrong hardware address. All cases run at the same time, each with namespaces of its own.

For each case: how many of the results arrived, how many tasks ran more than once, and how long after healing, or after
the loss of a scheduler that has a standby, the next result came. With `--old-kernel`, TCP doubles the pauses between
its attempts up to two minutes, as before Linux 6.15.
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
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

TASKS, TASK_SECONDS, SLOTS = 40, 0.5, 2
CUT_AFTER_SECONDS = 3.0
PORT = 2345
ADDRESS, STANDBY_ADDRESS = f"tcp://10.77.0.1:{PORT}", f"tcp://10.77.0.4:{PORT}"
WITHOUT_RESULT = -1.0

OLD_KERNEL = """
import socket

def setsockopt(self, level, option, *value):
    if (level, option) == (socket.IPPROTO_TCP, 44):  # TCP_RTO_MAX_MS
        raise OSError(92, "Protocol not available")
    return super(socket.socket, self).setsockopt(level, option, *value)

socket.socket.setsockopt = setsockopt
"""

CLIENT = """
import json, os, sys, time
from scaler import Client

def work(number, folder, seconds):
    with open(os.path.join(folder, "runs"), "a") as file:
        file.write("%d\\n" % number)
    time.sleep(seconds)
    return number

address, folder, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with Client(address) as client:
    futures = [client.submit(work, number, folder, seconds) for number in range(count)]
    log = open(os.path.join(folder, "results"), "a", buffering=1)
    for number, future in enumerate(futures):
        try:
            text = "ok" if future.result() == number else "wrong"
        except Exception as error:
            text = "%s: %s" % (type(error).__name__, error)
        log.write(json.dumps([time.monotonic(), number, text]) + "\\n")
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Hosts:
    """Four hosts on a bridge, each a network namespace."""

    def __init__(self, number: int) -> None:
        self._prefix = f"sl{os.getpid() % 10_000}x{number}"
        self._closing = contextlib.ExitStack()
        self.bridge = self._namespace("r")
        ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "br0", "up")
        for position, host in enumerate("swct", start=1):
            name = self._namespace(host)
            ip("-n", self.bridge, "link", "add", f"port-{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", name, "address", "add", f"10.77.0.{position}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            ip("-n", self.bridge, "link", "set", f"port-{host}", "up", "master", "br0")

    def _namespace(self, host: str) -> str:
        name = self._prefix + host
        ip("netns", "add", name)
        self._closing.callback(ip, "netns", "delete", name)
        return name

    def start(self, host: str, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        """Run Python there."""
        python = [sys.executable, *command]
        return subprocess.Popen(["ip", "netns", "exec", self._prefix + host, *python], **options)

    def cut(self, host: str) -> None:
        ip("-n", self.bridge, "link", "set", f"port-{host}", "nomaster")

    def heal(self, host: str) -> None:
        ip("-n", self.bridge, "link", "set", f"port-{host}", "master", "br0")

    def cut_one_way(self, host: str) -> None:
        """What it sends to the scheduler is lost."""
        nowhere = ("10.77.0.1", "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
        ip("-n", self._prefix + host, "neighbour", "replace", *nowhere)

    def heal_one_way(self, host: str) -> None:
        ip("-n", self._prefix + host, "neighbour", "delete", "10.77.0.1", "dev", "eth0")

    def close(self) -> None:
        self._closing.close()


class Case:
    """A cluster to which something happens.

    Parameters:
        happens: called when some tasks have run; returns when all is well again.
        patience_seconds: after which the scheduler ends sessions that are silent; None: as it does by default.
        has_old_kernel: the option of sockets that Linux has since 6.15 is refused.
        has_standby: whether there is another scheduler.
    """

    def __init__(
        self,
        number: int,
        name: str,
        happens: Callable[[Case], None],
        patience_seconds: Optional[float],
        has_old_kernel: bool,
        has_standby: bool,
    ) -> None:
        self.name = name
        self._addresses = ADDRESS
        self._has_standby = has_standby
        self.hosts = Hosts(number)
        self.folder = Path(tempfile.mkdtemp(prefix="broken-links-"))
        self.row: Dict[str, Any] = {"case": name}
        self._environment = {**os.environ, "SCALER_INSECURE": "1"}
        if has_old_kernel:
            (self.folder / "sitecustomize.py").write_text(OLD_KERNEL)
            paths = [str(self.folder), os.environ.get("PYTHONPATH", "")]
            self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._happens = happens
        self._patience_seconds = patience_seconds
        self.processes: List[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        self.scheduler = self._start_scheduler("s", ADDRESS)

    def start_standby(self) -> None:
        """From now on, peers have two addresses."""
        self._start_scheduler("t", STANDBY_ADDRESS, "--standby-of", ADDRESS)
        self._addresses = f"{ADDRESS},{STANDBY_ADDRESS}"

    def _start_scheduler(self, host: str, address: str, *options: str) -> subprocess.Popen[bytes]:
        keys = ["--keys", str(self.folder / "keys"), "--insecure", "--no-announce"]
        monitor = ["--monitor-address", f"ipc://{self.folder}/monitor-{host}"]
        patience = []
        if self._patience_seconds is not None:
            patience = [f"--{role}-timeout-seconds={self._patience_seconds:g}" for role in ("client", "worker")]
        return self._start(host, "-m", "scaler_appliance", address, *keys, *monitor, *patience, *options)

    def _start(self, host: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log-{host}").open("ab")
        process = self.hosts.start(host, *command, env=self._environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def run(self) -> None:
        try:
            self.start_scheduler()
            if self._has_standby:
                self.start_standby()
            self._start("w", "-m", "scaler.worker", self._addresses, "-n", str(SLOTS))
            client = self._start("c", "-c", CLIENT, self._addresses, str(self.folder), str(TASKS), str(TASK_SECONDS))
            while len(self._results()) < 4:
                assert client.poll() is None, f"{self.name}: the client has ended: see {self.folder}"
                time.sleep(0.05)
            time.sleep(CUT_AFTER_SECONDS)
            self._happens(self)
            healed_at = time.monotonic()
            client.wait()
            self._judge(healed_at)
        finally:
            for process in self.processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.hosts.close()
        shutil.rmtree(self.folder)

    def _results(self) -> List[Any]:
        try:
            return [json.loads(line) for line in (self.folder / "results").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def _judge(self, healed_at: float) -> None:
        results = self._results()
        runs = [int(line) for line in (self.folder / "runs").read_text().splitlines()]
        later = [at - healed_at for at, _, _ in results if at > healed_at]
        self.row["arrived"] = sum(text == "ok" for _, _, text in results)
        self.row["of"] = TASKS
        self.row["ran_again"] = len(runs) - len(set(runs))
        self.row["seconds_until_the_next_result"] = round(min(later, default=WITHOUT_RESULT), 1)
        self.row["errors"] = sorted({text for _, _, text in results if text != "ok"})


def cut(host: str, seconds: float, one_way: bool = False) -> Callable[[Case], None]:
    def happens(case: Case) -> None:
        (case.hosts.cut_one_way if one_way else case.hosts.cut)(host)
        time.sleep(seconds)
        (case.hosts.heal_one_way if one_way else case.hosts.heal)(host)

    return happens


def lose_scheduler(vanishes: bool) -> Callable[[Case], None]:
    """It is killed, and started again after ten seconds; if it vanishes, its host sends nothing any more before."""

    def happens(case: Case) -> None:
        if vanishes:
            case.hosts.cut("s")
        case.scheduler.kill()
        case.scheduler.wait()
        time.sleep(10.0)
        if vanishes:
            case.hosts.heal("s")
        case.start_scheduler()

    return happens


def lose_scheduler_for_good(vanishes: bool) -> Callable[[Case], None]:
    """It is killed; if it vanishes, its host sends nothing any more before."""

    def happens(case: Case) -> None:
        if vanishes:
            case.hosts.cut("s")
        case.scheduler.kill()
        case.scheduler.wait()

    return happens


def cases(seconds: List[float]) -> Iterator[Any]:
    for each in seconds:
        yield f"worker cut {each:g} s", cut("w", each)
        yield f"worker cut {each:g} s, one way", cut("w", each, one_way=True)
        yield f"client cut {each:g} s", cut("c", each)
    yield "scheduler killed, back after 10 s", lose_scheduler(vanishes=False)
    yield "scheduler's host gone, back after 10 s", lose_scheduler(vanishes=True)
    yield "scheduler killed, with a standby", lose_scheduler_for_good(vanishes=False)
    yield "scheduler's host gone, with a standby", lose_scheduler_for_good(vanishes=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[5.0, 30.0, 90.0], help="how long links are cut")
    parser.add_argument("--patience", type=float, help="of the scheduler with silence (default: its own)")
    parser.add_argument("--old-kernel", action="store_true", help="as before Linux 6.15")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise SystemExit("broken_links.py: it makes network namespaces: run it as root, where `ip` is installed")
    made = [
        Case(number, name, happens, arguments.patience, arguments.old_kernel, "standby" in name)
        for number, (name, happens) in enumerate(cases(arguments.seconds))
    ]
    threads = [threading.Thread(target=case.run) for case in made]
    for thread in threads:
        thread.start()
    for case, thread in zip(made, threads):
        thread.join()
        print(json.dumps(case.row))


if __name__ == "__main__":
    main()
