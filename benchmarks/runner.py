"""Run groups of measurements, each in a fresh process, competitors interleaved; collect their figures.

A measurement that fails or hangs is a reported error beside the others' figures, never the end of the run,
and none leaves a process behind: everything it started carries its marker and is killed with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from plan import Group, Measurement
from processes import MARKER_VARIABLE, end_marked_processes

FOLDER = Path(__file__).resolve().parent
_STOP_GRACE_SECONDS = 20.0
_LOG_TAIL_LINES = 6


@dataclass
class Series:
    """All runs of one measurement."""

    measurement: Measurement
    version: str = ""
    runs: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Interpreters:
    """Which Python runs what: measuring processes by engine name, and the scheduler measured alone."""

    default: str = sys.executable
    by_engine: Mapping[str, str] = field(default_factory=dict)
    schedulers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def run_groups(
    groups: Sequence[Group], repetitions: int, interpreters: Interpreters, report: Callable[[str], None]
) -> list[Series]:
    """Run every group `repetitions` times, going round its members: a change of load hits all of them."""
    finished = []
    for group in groups:
        series = [Series(measurement) for measurement in group]
        for repetition in range(repetitions):
            for one in series:
                if one.errors:
                    continue  # it failed before: it would only cost the others' time
                run_once(one, interpreters)
                report(_progress(one, repetition, repetitions))
        finished.extend(series)
    return finished


def run_once(series: Series, interpreters: Interpreters) -> None:
    """Run one measurement once more, and keep its figures or its error."""
    with tempfile.TemporaryDirectory(prefix="scaler-benchmark-") as folder:
        output = Path(folder) / "figures.json"
        log = Path(folder) / "log.txt"
        ended_well = _run_process(series.measurement, interpreters, output, log)
        if output.exists():
            record = json.loads(output.read_text())
            series.version = record["version"]
            if not ended_well:
                record["figures"]["stop_seconds"] = "did not stop"
            series.runs.append(record["figures"])
        else:
            lines = log.read_text(errors="replace").strip().splitlines()
            series.errors.append("\n".join(lines[-_LOG_TAIL_LINES:]) or "ended without a word")


def _run_process(measurement: Measurement, interpreters: Interpreters, output: Path, log: Path) -> bool:
    """Whether the measuring process ended by itself and with success."""
    marker = uuid.uuid4().hex
    environment = dict(os.environ, **interpreters.environment)
    environment[MARKER_VARIABLE] = marker
    environment["PYTHONPATH"] = str(FOLDER)
    with open(log, "wb") as log_file:
        process = subprocess.Popen(
            _command(measurement, interpreters, output),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = _wait(process, measurement.timeout_seconds, output)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            end_marked_processes(marker)
        if code is None:
            log_file.write(f"\nno end within {measurement.timeout_seconds:.0f} s: killed\n".encode())
    return code == 0


def _wait(process: subprocess.Popen[bytes], timeout_seconds: float, output: Path) -> Optional[int]:
    """Wait for the measurement, and no longer than a moment for its stopping once it has its figures."""
    waited = 0.0
    while waited < timeout_seconds:
        step = _STOP_GRACE_SECONDS
        measured_before = output.exists()
        try:
            return process.wait(step)
        except subprocess.TimeoutExpired:
            waited += step
        if measured_before:
            return None
    return None


def _command(measurement: Measurement, interpreters: Interpreters, output: Path) -> list[str]:
    python = interpreters.by_engine.get(measurement.engine, interpreters.default)
    command = [
        python,
        str(FOLDER / "measure.py"),
        "--benchmark",
        measurement.benchmark,
        "--output",
        str(output),
    ]
    command += ["--workers", str(measurement.workers), "--amount", str(measurement.amount)]
    if measurement.engine.startswith("scheduler-"):
        return [*command, "--python", interpreters.schedulers[measurement.scheduler_python]]
    return [*command, "--engine", measurement.engine, "--style", measurement.style]


def _progress(series: Series, repetition: int, repetitions: int) -> str:
    measurement = series.measurement
    workers = measurement.workers
    where = f"{measurement.benchmark} {measurement.amount:,}, {measurement.engine}, {workers} workers"
    if series.errors:
        return f"{where}: FAILED: {series.errors[-1].splitlines()[-1]}"
    figures = series.runs[-1]
    shown = [f"{name} {value:,.2f}" for name, value in figures.items() if isinstance(value, float)][:4]
    return f"{where} [{repetition + 1}/{repetitions}]: {', '.join(shown)}"
