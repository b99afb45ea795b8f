"""Prove that a scheduler serves: `serve.py SCHEDULER CLUSTER`, two commands.

Rules: the scheduler is the program that is named, and nothing else; so are the workers. Everything is waited for, with
a deadline; what was started is ended, and the scheduler's exit code is part of the proof.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scaler import Client

ADDRESS = "tcp://127.0.0.2:0"  # beside which there is no local socket: all connections have keys
DEADLINE_SECONDS = 60.0


def main(scheduler_command: str, cluster_command: str) -> None:
    """Start both, run tasks, end both; raises when anything is not as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SCALER_KEY_DIRECTORY"] = str(Path(folder, "keys"))  # for the programs, too
        address_file = Path(folder, "address")
        monitor = f"ipc://{folder}/monitor"
        scheduler = subprocess.Popen(
            [*shlex.split(scheduler_command), ADDRESS, "--address-file", str(address_file), "-ma", monitor]
        )
        workers = None
        try:
            address = _address(address_file, scheduler)
            workers = subprocess.Popen([*shlex.split(cluster_command), "-n", "2", address])
            with Client(address=address) as client:
                assert client.submit(pow, 2, 10).result(DEADLINE_SECONDS) == 1024
                assert client.map(abs, range(-1000, 0)) == list(range(1000, 0, -1))
            scheduler.send_signal(signal.SIGTERM)
            assert scheduler.wait(DEADLINE_SECONDS) == 0, f"the scheduler ended with {scheduler.returncode}"
            workers.wait(DEADLINE_SECONDS)
        finally:
            for process in filter(None, (scheduler, workers)):
                if process.poll() is None:
                    process.kill()
                    process.wait()
    print("served 1001 tasks, and stopped when asked to")


def _address(address_file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (address_file.exists() and address_file.read_text().count("\n") == 2):
        assert scheduler.poll() is None, f"the scheduler ended with {scheduler.returncode} instead of listening"
        assert time.monotonic() < deadline, "the scheduler does not listen"
        time.sleep(0.02)
    return address_file.read_text().splitlines()[0]


if __name__ == "__main__":
    main(*sys.argv[1:3])
