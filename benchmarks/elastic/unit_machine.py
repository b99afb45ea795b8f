"""A machine that boots, runs a worker, and is given back: `unit_machine.py run UNIT FOLDER BOOT_SECONDS COMMAND...`.

    start ──▶ run: boot, then the worker, until it ends or SIGTERM comes        list, stop: of all in FOLDER

Rules:
- All engines have the same machines: what differs is which of them they ask for, and when.
- SIGTERM ends a machine that boots, and goes on to a worker that runs, which is killed after KILL_SECONDS: as by Slurm.
- FOLDER has a file for each machine that there is, with its process id, and the notes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Optional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from elastic.staged_load import UNIT_VARIABLE, note

NOTES = "notes"
SUFFIX = ".machine"
KILL_SECONDS = 30.0
LOOK_SECONDS = 0.2


def start(unit: str, folder: str, boot_seconds: str, command: list[str]) -> None:
    """Ask for a machine; it is listed from now on."""
    note(os.path.join(folder, NOTES), "asked", unit)
    words = [sys.executable, os.path.abspath(__file__), "run", unit, folder, boot_seconds, *command]
    with open(os.path.join(folder, f"{unit}.log"), "ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    Path(folder, f"{unit}{SUFFIX}").write_text(str(process.pid))


def run(unit: str, folder: str, boot_seconds: str, command: list[str]) -> int:
    """Be a machine; the exit code is that of the worker."""
    is_over = threading.Event()
    worker: Optional[subprocess.Popen[bytes]] = None

    def on_signal(number: int, _frame: Optional[FrameType]) -> None:
        is_over.set()
        if worker is not None:
            worker.send_signal(number)

    signal.signal(signal.SIGTERM, on_signal)
    code = 0
    if not is_over.wait(float(boot_seconds)):
        note(os.path.join(folder, NOTES), "up", unit)
        environment = {**os.environ, UNIT_VARIABLE: unit, "PYTHONPATH": os.pathsep.join(sys.path)}
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        if is_over.is_set():
            worker.terminate()
        code = _code_of(worker, is_over)
    note(os.path.join(folder, NOTES), "down", unit)
    Path(folder, f"{unit}{SUFFIX}").unlink(missing_ok=True)
    return code


def _code_of(worker: subprocess.Popen[bytes], is_asked: threading.Event) -> int:
    """The exit code of a worker; it is killed if it does not end in time after it was asked to."""
    while not is_asked.is_set():
        try:
            return worker.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    try:
        return worker.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()


def list_all(folder: str) -> None:
    """Print the machines as `scaler_provision` wants them."""
    for path in Path(folder).glob(f"*{SUFFIX}"):
        print(path.stem, "running")


def stop(unit: str, folder: str) -> None:
    """Give a machine back; it may be gone."""
    try:
        os.kill(int(Path(folder, f"{unit}{SUFFIX}").read_text()), signal.SIGTERM)
    except (OSError, ValueError):
        pass


def main(words: list[str]) -> int:
    if words[0] == "start":
        start(words[1], words[2], words[3], words[4:])
    elif words[0] == "run":
        return run(words[1], words[2], words[3], words[4:])
    elif words[0] == "list":
        list_all(words[1])
    else:
        stop(words[1], words[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
