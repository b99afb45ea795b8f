"""Measure the forms that the scheduler comes in, beside each other: `make dist measure-packaging`.

    .venv/bin/python packaging/measure.py --quick
    .venv/bin/python packaging/measure.py --write      # and put the table into packaging/README.md

Prints a table, and writes all runs to build/measure-packaging.json. Rules:

- One run measures all forms, going round them, so that a change of load hits each. A form that was not built is named
  and left out.
- A start lasts from the process's start to the line of its log that says where it listens. At a first start the user's
  home is empty; the file itself is in the disk's cache, as after a download.
- Memory is what all processes of the form have resident after some idle seconds, shared pages by their share (Pss).
- Tasks pass through the scheduler as in benchmarks/zero_worker.py: queued, then drained by ten workers that do no work.
  The wall clock counts these peers as well; CPU time is the scheduler's alone.
- Nodes are those of a reduction tree of a tenth as many, which a client submits and two workers run, after others like
  it.
- A mixed load is that of benchmarks/mixed_load.py: many clients, none of which sends large batches. It takes longest,
  and is measured in the first rounds only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, Optional

TREE = Path(__file__).resolve().parents[1]
DIST = TREE / "dist"
README = TREE / "packaging/README.md"
RESULTS = TREE / "build/measure-packaging.json"
TABLE = re.compile(r"(?<=<!-- measured: begin -->\n).*?(?=<!-- measured: end -->)", re.DOTALL)

START_TIMEOUT_SECONDS = 60
WORKERS = 10
WARM_UP_GRAPHS = 3
QUIET_LOAD = 0.5
ROUNDS_OF_A_MIXED_LOAD = 3
QUICK_WARM_UP_ROUNDS = 1

sys.path.insert(0, str(TREE / "benchmarks"))


@dataclass
class Form:
    """A way to have the scheduler, and what was measured of it; `home` is its user's."""

    name: str
    command: List[str]
    path: str
    home: Path
    size_bytes: int
    options: List[str] = field(default_factory=list)
    version: str = ""
    first_start_ms: List[float] = field(default_factory=list)
    later_start_ms: List[float] = field(default_factory=list)
    idle_mib: List[float] = field(default_factory=list)
    tasks_per_second: List[float] = field(default_factory=list)
    cpu_microseconds_per_task: List[float] = field(default_factory=list)
    cpu_microseconds_per_node: List[float] = field(default_factory=list)
    cpu_microseconds_per_mixed_task: List[float] = field(default_factory=list)

    @property
    def environment(self) -> Dict[str, str]:
        """Of a user who has nothing but this."""
        return {"HOME": str(self.home), "PATH": self.path, "LANG": "C.UTF-8", "TMPDIR": tempfile.gettempdir()}


# The forms.


def forms(folder: Path) -> List[Form]:
    """All forms that are there. Those that are not are said to be left out."""
    found = [
        _file("PyPy single file", DIST / "pypy/scaler_scheduler", "dist-pypy", folder),
        _file("nuitka", DIST / "nuitka/scaler_scheduler", "dist-nuitka", folder),
        *(_pex(implementation, folder) for implementation in ("PyPy", "CPython")),
        _pip("pip on CPython", "CPython", [], [], folder),
        _pip("pip on CPython, uvloop", "CPython", ["uvloop"], ["--event-loop", "uvloop"], folder),
        _pip("pip on PyPy", "PyPy", [], [], folder),
    ]
    return [form for form in found if form is not None]


def _file(name: str, path: Path, target: str, folder: Path) -> Optional[Form]:
    if not path.exists():
        _say(f"{name}: left out, {path.relative_to(TREE)} was not built (make {target})")
        return None
    return Form(name, [str(path)], "/usr/bin:/bin", _new(folder / name), path.stat().st_size)


def _pex(implementation: str, folder: Path) -> Optional[Form]:
    interpreter = _interpreter(implementation)
    form = _file(f"pex on {implementation}", DIST / "pex/scaler_scheduler.pex", "dist-pex", folder)
    if form is None or interpreter is None:
        return None
    programs = _new(folder / f"programs of {implementation}")
    (programs / {"PyPy": "pypy3", "CPython": "python3"}[implementation]).symlink_to(interpreter)
    for tool in ("ldd", "uname"):
        (programs / tool).symlink_to(shutil.which(tool) or tool)
    form.path = str(programs)
    return form


def _pip(
    name: str, implementation: str, packages: Sequence[str], options: Sequence[str], folder: Path
) -> Optional[Form]:
    interpreter = _interpreter(implementation)
    if interpreter is None:
        return None
    environment = folder / name.replace(" ", "-")
    subprocess.run([str(interpreter), "-m", "venv", str(environment)], check=True)
    (site,) = environment.glob("**/site-packages")
    before = _size(site)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheels = DIST / "wheels"
    subprocess.run([*pip, "--find-links", str(wheels), "scaler-appliance", *packages], check=True)
    command = [str(environment / "bin/scaler_scheduler")]
    home = _new(folder / f"home of {name}")
    return Form(name, command, "/usr/bin:/bin", home, _size(site) - before, list(options))


def _interpreter(implementation: str) -> Optional[Path]:
    """An interpreter itself, without the virtual environment around it."""
    if implementation == "CPython":
        return Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    pypy = TREE / ".venv-pypy/bin/pypy3"
    return pypy.resolve() if pypy.exists() else None


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _new(folder: Path) -> Path:
    folder = folder.with_name(re.sub(r"\W+", "-", folder.name))  # a pex wants no blanks in the path of its user's home
    folder.mkdir(parents=True)
    return folder


# What is measured.


class Start:
    """A scheduler that was started by a form, for a `with` block, and how long that took."""

    def __init__(self, form: Form) -> None:
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            [*form.command, "tcp://127.0.0.1:0", *form.options, "--monitor-address", "tcp://127.0.0.1:0"],
            env=form.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.milliseconds = 0.0

    def __enter__(self) -> Start:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "listening at" in line:
                self.milliseconds = (time.monotonic() - self._begin) * 1000
                return self
        raise RuntimeError(f"{self._process.args!r} ended with code {self._process.wait()}; its error is above")

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.stdout.read()
        code = self._process.wait(START_TIMEOUT_SECONDS)
        self._process.stdout.close()
        if code != 0:
            raise RuntimeError(f"{self._process.args!r} stopped with code {code}")

    def resident_mib(self) -> float:
        """Of all its processes."""
        import psutil
        from processes import read_memory

        process = psutil.Process(self._process.pid)
        return read_memory([process, *process.children(recursive=True)]).proportional_mib


def measure_starts(form: Form, later_starts: int, idle_seconds: float) -> None:
    """One first start, some later ones, the last of which idles."""
    shutil.rmtree(form.home)
    form.home.mkdir()
    with Start(form) as start:
        form.first_start_ms.append(start.milliseconds)
    for number in range(later_starts):
        with Start(form) as start:
            form.later_start_ms.append(start.milliseconds)
            if number == later_starts - 1:
                time.sleep(idle_seconds)
                form.idle_mib.append(start.resident_mib())


def measure_tasks(form: Form, tasks: int) -> None:
    """Measure the throughput of tasks that are not run."""
    from zero_worker import SchedulerUnderTest, measure_queued

    scheduler = SchedulerUnderTest(
        form.command, [*form.options, "--logging-level", "WARNING"], environment=form.environment
    )
    form.version = form.version or scheduler.version
    with scheduler:
        figures = measure_queued(scheduler, tasks, WORKERS)
    form.tasks_per_second.append(float(figures["tasks_per_second"]))
    form.cpu_microseconds_per_task.append(float(figures["scheduler_cpu_microseconds_per_task"]))


def measure_graphs(form: Form, nodes: int) -> None:
    """What the scheduler spends on each node of a graph, where it decides node by node."""
    import psutil
    from graph_workloads import tree
    from mixed_load import cpu_seconds
    from zero_worker import SchedulerUnderTest

    from scaler import Client

    graph, key, right = tree(nodes)
    scheduler = SchedulerUnderTest(
        form.command, [*form.options, "--logging-level", "WARNING"], environment=form.environment
    )
    with scheduler:
        # Once it answers: what a form starts to find its interpreter has gone by then.
        with Client(scheduler.address) as client:
            process = psutil.Process(scheduler.process_id)
            command = [sys.executable, "-m", "scaler.worker", scheduler.address, "-n", "2", "--exit-when-stdin-closes"]
            environment = {**os.environ, "PYTHONPATH": str(TREE / "benchmarks")}
            workers = subprocess.Popen([*command, "-ll", "WARNING"], env=environment, stdin=subprocess.PIPE)
            spent = 0.0
            for _ in range(WARM_UP_GRAPHS + 1):
                before = cpu_seconds(process)
                if client.get(graph, [key])[key] != right:
                    raise RuntimeError(f"{form.name}: the graph's result is wrong")
                spent = cpu_seconds(process) - before
        workers.communicate(timeout=START_TIMEOUT_SECONDS)
    form.cpu_microseconds_per_node.append(spent / len(graph) * 1e6)


def measure_mixed(form: Form, warm_up_rounds: Optional[int]) -> None:
    """What the scheduler spends on a task if many clients send few at a time.

    Parameters:
        warm_up_rounds: before those that are measured; None: as many as PyPy needs.
    """
    from mixed_load import WARM_UP_ROUNDS, cpu_microseconds_per_task
    from zero_worker import SchedulerUnderTest

    options = [*form.options, "--logging-level", "ERROR"]
    with SchedulerUnderTest(form.command, options, environment=form.environment) as scheduler:
        rounds = WARM_UP_ROUNDS if warm_up_rounds is None else warm_up_rounds
        form.cpu_microseconds_per_mixed_task.append(cpu_microseconds_per_task(scheduler, rounds))


# What is told.

_FIGURES_OF_TASKS = ("million tasks/s", "CPU µs a task", "CPU µs a node", "CPU µs, mixed")


def table(measured: Sequence[Form]) -> str:
    """Medians, in Markdown."""
    lines = [
        f"| form | MB | first start, ms | later start, ms | idle, MiB | {' | '.join(_FIGURES_OF_TASKS)} | runs on |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for form in measured:
        cells = [
            form.name,
            f"{form.size_bytes / 1e6:.1f}",
            f"{statistics.median(form.first_start_ms):.0f}",
            f"{statistics.median(form.later_start_ms):.0f}",
            f"{statistics.median(form.idle_mib):.0f}",
            f"{statistics.median(form.tasks_per_second) / 1e6:.2f}",
            f"{statistics.median(form.cpu_microseconds_per_task):.2f}",
            f"{statistics.median(form.cpu_microseconds_per_node):.1f}",
            f"{statistics.median(form.cpu_microseconds_per_mixed_task):.0f}",
            form.version,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the forms that the scheduler comes in.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of the tasks: shows that it works")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each form is measured")
    parser.add_argument("--only", default="", metavar="REGEX", help="only forms with such a name")
    parser.add_argument("--write", action="store_true", help="put the table into packaging/README.md")
    options = parser.parse_args()
    rounds, tasks, idle_seconds = (1, 100_000, 1.0) if options.quick else (options.rounds, 1_000_000, 5.0)
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        _say(f"warning: other jobs load this machine ({load:.2f}); these figures are not to be kept")
    with tempfile.TemporaryDirectory(prefix="scaler-packaging-") as folder:
        measured = [form for form in forms(Path(folder)) if re.search(options.only, form.name)]
        for number in range(rounds):
            for form in measured:
                _say(f"round {number + 1} of {rounds}: {form.name}")
                measure_starts(form, 3, idle_seconds)
                measure_tasks(form, tasks)
                measure_graphs(form, tasks // 10)
                if number < ROUNDS_OF_A_MIXED_LOAD:
                    measure_mixed(form, QUICK_WARM_UP_ROUNDS if options.quick else None)
    RESULTS.parent.mkdir(exist_ok=True)
    facts = {"load_before": load, "rounds": rounds, "tasks": tasks, "forms": [asdict(form) for form in measured]}
    RESULTS.write_text(json.dumps(facts, indent=1, default=str) + "\n", encoding="utf-8")
    print(table(measured), end="")
    if options.write:
        text = README.read_text(encoding="utf-8")
        README.write_text(TABLE.sub(lambda _: "\n" + table(measured) + "\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
