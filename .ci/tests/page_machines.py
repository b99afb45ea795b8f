"""Machines on which the commands of a page are run as its reader types them: namespaces of this one.

    unshare ── this program ── reads a Plan as JSON ──▶ machines a, b ...: a network, a host name, files of their own
                   └── its commands, one after the other, in bash ──▶ {"failures": [...], "outputs": {place: text}}

Rules:
- A machine has its own addresses, host name, /etc, /tmp, /run, /opt and shared memory, and a home in /mnt. The tree and
  the programs of its environment are those of this machine; what cannot be here has a stand-in (page_stand_ins.py).
- A program that serves is left running when it says that it is ready. When another scheduler is started on a machine,
  what runs there is ended before, as a reader does it; at the end, all of it, the last one first, by Ctrl-C.
- What is started ends with this process, because it is the first one of a namespace of processes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Dict, List, NamedTuple, Optional, Sequence

TREE = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).with_name("page_stand_ins.py")
PLACE = Path("/mnt")
READY_SECONDS = 30
HIDDEN = ("/tmp", "/opt", "/etc", "/run", "/usr/local/bin", "/usr/local/sbin", "/var/lib", "/var/cache")
OWN_FOLDERS = ("/etc/systemd/system", "/etc/scaler")
ADDRESSES = {"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3", "node7": "192.0.2.7"}
OTHER_NAMES = {"a": ("scheduler", "login1", "scheduler.example.org"), "b": ("node1",)}
MORE_ADDRESSES = {"a": ("10.0.0.1/24", "169.254.169.254/32")}
"""Of a node of Slurm, and of the service that a cloud has for its machines."""

SERVING = {
    r"scaler_scheduler(\.pex)? (?!ping|.*--(self-test|print-completion|check|version))": r"listening at|stands by for",
    r"scaler_cluster ": r"connected as session",
    r"scaler_ui\b": r"listening at http",
    r"scaler_top\b(?!.*--once)": r"\S",
    r"scaler_provision (?!.*--dry-run)": r"connected to the scheduler",
    r"scaler dev\b": r"Ready: ",
    r"scaler up\b": r"connected to the scheduler",
    r"scaler [\w.]+\.toml": r"connected as session|listening at http",
    r"ssh .*-N ": r"forwards",
}
"""Programs that end when their reader ends them, and what they write when they are ready."""

SCHEDULERS = re.compile(r"scaler_scheduler(\.pex)? |scaler (dev|up|[\w.]+\.toml)\b")
ASSIGNMENTS = re.compile(r"(?:\w+=\S* )*")
SIGNALLED = (-signal.SIGINT, -signal.SIGHUP)


class Step(NamedTuple):
    """Commands of one fence, or the contents of a file."""

    place: str  # of the fence
    machines: Sequence[str]
    scripts: Sequence[str]
    file: str = ""
    logged: Sequence[str] = ()
    """Lines that programs of the page have logged, but for times and numbers."""


class Machine:
    """One of the machines: a process that keeps its namespaces, and what its reader has started in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.home = PLACE / name
        self.home.mkdir()
        (self.home / "packaging").symlink_to(TREE / "packaging")
        (self.home / ".venv").symlink_to(Path(sys.executable).parents[1])
        self.servers: List[Running] = []
        keep = [
            "set -eu",
            f"hostname {name}",
            "ip link set lo up",
            *(_hide(folder, name) for folder in HIDDEN),
            "mount -t tmpfs tmpfs /dev/shm",
            "rm -rf /etc/hosts /etc/systemd /etc/scaler",
            "mkdir -p " + " ".join(OWN_FOLDERS),
            f"cp {PLACE}/hosts /etc/hosts",
            "echo kept",
            "exec sleep infinity",
        ]
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", "\n".join(keep)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.keeper.stdout is not None
        said = self.keeper.stdout.readline().strip()
        if said != "kept":
            raise RuntimeError(f"there is no machine {name}: {said}")
        (PLACE / ".machines" / name).write_text(str(self.keeper.pid))
        for other in OTHER_NAMES.get(name, ()):
            (PLACE / ".machines" / other).write_text(str(self.keeper.pid))
            (PLACE / other).symlink_to(self.home)
        _ip(f"link add name to-{name} type veth peer name eth0 netns {self.keeper.pid}")
        _ip(f"link set to-{name} up master pages")
        inside = ["nsenter", f"--target={self.keeper.pid}", "--net", "sh", "-c"]
        addresses = [f"{ADDRESSES[name]}/24", *MORE_ADDRESSES.get(name, ())]
        commands = [f"ip addr add {each} dev eth0" for each in addresses] + ["ip link set eth0 up"]
        subprocess.run([*inside, " && ".join(commands)], check=True)

    def start(self, script: str) -> Running:
        environment = {
            "HOME": str(self.home),
            "PATH": f"{PLACE}/.stand-ins:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "PYTHONUNBUFFERED": "1",
            "PAGE_MACHINE": self.name,
            "PAGE_PYTHON": sys.executable,
        }
        if re.match(r"scaler_top\b(?!.*--once)", script):  # wants a terminal
            script = shlex.join(["script", "-qefc", script, "/dev/null"])
        namespaces = ["nsenter", f"--target={self.keeper.pid}", "--net", "--uts", "--mount"]
        process = subprocess.Popen(
            [*namespaces, "bash", "-euc", f"cd {self.home}\n{script}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        return Running(script, process)


WRITTEN = threading.Condition()
"""Some program has written, or has ended."""


class Running:
    """A command that has been started, and what it has written so far."""

    def __init__(self, script: str, process: subprocess.Popen[str]) -> None:
        self.script = script
        self.process = process
        self.lines: List[str] = []
        self.output_lines: List[str] = []
        self._begun = ""
        assert process.stdout is not None and process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(process.stdout, [self.lines, self.output_lines]), daemon=True),
            threading.Thread(target=self._read, args=(process.stderr, [self.lines]), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], into: Sequence[List[str]]) -> None:
        begun = ""  # a line that has no end yet: programs with a screen write none
        while chunk := os.read(stream.fileno(), 1 << 16).decode(errors="replace"):
            *lines, begun = (begun + chunk).splitlines(keepends=True) if chunk[-1] != "\n" else [begun + chunk, ""]
            with WRITTEN:
                for each in into:
                    each.extend("".join(lines).splitlines(keepends=True))
                self._begun = begun
                WRITTEN.notify_all()
        self.process.wait()
        with WRITTEN:
            WRITTEN.notify_all()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def output(self) -> str:
        return "".join(self.output_lines)

    def wait_for(self, ready: str) -> bool:
        """Wait until it has written something; false if it has ended before."""
        with WRITTEN:
            WRITTEN.wait_for(lambda: self._has_written(ready) or self.process.poll() is not None, READY_SECONDS)
            return self._has_written(ready)

    def _has_written(self, ready: str) -> bool:
        return any(re.search(ready, line) for line in [*self.lines, self._begun])

    def wait(self) -> int:
        code = self.process.wait(READY_SECONDS)
        for reader in self._readers:
            reader.join(1)  # what it has left in the background keeps its streams
        return code

    def interrupt(self) -> Optional[int]:
        """Press Ctrl-C, and return the exit code; None if it had been killed before."""
        if self.process.poll() is not None:
            return None if self.process.returncode < 0 else self.wait()
        os.killpg(self.process.pid, signal.SIGINT)
        return self.wait()


class Pages:
    """Runs the steps of a page, and collects what went wrong.

    Parameters:
        machines: the names of those that the page has.
    """

    def __init__(self, machines: Sequence[str]) -> None:
        self.failures: List[str] = []
        self.outputs: Dict[str, str] = {}
        self.all: List[Running] = []
        (PLACE / ".machines").mkdir()
        (PLACE / "hosts").write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"{ADDRESSES[name]} {' '.join((name, *OTHER_NAMES.get(name, ())))}\n" for name in ADDRESSES)
        )
        _write_stand_ins()
        _ip("link set lo up")
        _ip("link add pages type bridge")
        _ip("link set pages up")
        self.machines = {name: Machine(name) for name in machines}

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.file:
                for name in step.machines:
                    (self.machines[name].home / step.file).write_text(step.scripts[0])
                continue
            for script in step.scripts:
                for name in step.machines:
                    if not self._run_one(step, self.machines[name], script):
                        return
            for line in step.logged:
                if not self._is_logged(line):
                    written = "".join(f"$ {each.script}\n{each.text}" for each in self.all)
                    self.failures.append(f"{step.place}: no program has written: {line}\n{written}")
        self.end()

    def _run_one(self, step: Step, machine: Machine, script: str) -> bool:
        ready = readiness(script)
        if ready and SCHEDULERS.match(bare(script)):
            self._end(machine)
        running = machine.start(script.removesuffix("&").strip() if ready else script)
        self.all.append(running)
        if ready:
            machine.servers.append(running)
            right = running.wait_for(ready)
        else:
            right = running.wait() == 0
            self.outputs[step.place] = self.outputs.get(step.place, "") + running.output
        if not right:
            self.failures.append(f"{step.place}, on {machine.name}: {script}\n{running.text}")
        return right

    def _is_logged(self, line: str) -> bool:
        wanted, is_whole = plain(line.removesuffix("...")), not line.endswith("...")

        def is_there() -> bool:
            written = (plain(each) for running in self.all for each in running.lines)
            return any(each == wanted or (each.startswith(wanted) and not is_whole) for each in written)

        with WRITTEN:
            return WRITTEN.wait_for(is_there, READY_SECONDS)

    def _end(self, machine: Machine) -> None:
        while machine.servers:
            server = machine.servers.pop()
            code = server.interrupt()
            if code and code not in SIGNALLED:
                self.failures.append(f"after Ctrl-C, {server.script} ended with {code}\n{server.text}")

    def end(self) -> None:
        for machine in reversed(list(self.machines.values())):
            self._end(machine)


def bare(command: str) -> str:
    """A command without its variables, and without the folder of its program."""
    return re.sub(r"^\S*/", "", ASSIGNMENTS.sub("", command, count=1)).removesuffix("&").strip() + " "


def readiness(command: str) -> str:
    """What a program that serves writes when it is ready; empty for one that ends by itself."""
    return next((said for program, said in SERVING.items() if re.match(program, bare(command))), "")


def plain(line: str) -> str:
    """A line without times and numbers, on a machine whose home is that of the pages."""
    line = line.replace(f"{PLACE}/a/", "/home/you/")
    return re.sub(r"\d+", "0", re.sub(r"\d{4}-\d\d-\d\dT? ?[\d:+Z-]+", "", line)).strip()


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def _hide(folder: str, machine: str) -> str:
    """What lies in a folder stays there, and what is written into it is the machine's own."""
    if not Path(folder).is_dir():
        return ":"
    kept = PLACE / f".kept/{machine}{folder}"
    links = f"ln -s {kept}/* {folder}/ 2>/dev/null || true"
    if folder in ("/tmp", "/run"):  # sockets and files of programs of this machine are not the page's
        links = f"ln -s {kept}/{TREE.parts[2]} {folder}/" if str(TREE).startswith(f"{folder}/") else ":"
    mounts = f"mount --bind {folder} {kept} && mount -t tmpfs -o mode=1777 tmpfs {folder}"
    return f"mkdir -p {kept} && {mounts} && {{ {links}; }}"


def _write_stand_ins() -> None:
    folder = PLACE / ".stand-ins"
    folder.mkdir()
    names = subprocess.run([sys.executable, "-SE", str(STAND_INS)], capture_output=True, text=True, check=True).stdout
    for name in names.split():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {STAND_INS} {name} "$@"\n')
        path.chmod(0o755)


def main() -> None:
    """Run the plan that is in a file, in the folder that becomes the homes of the machines."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[1]).parent / "machines"
    folder.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(PLACE)], check=True)
    pages = Pages(plan["machines"])
    try:
        pages.run([Step(*each) for each in plan["steps"]])
    except BaseException as error:
        pages.failures.append(repr(error))
    print(json.dumps({"failures": pages.failures, "outputs": pages.outputs}))


if __name__ == "__main__":
    main()
