"""One run of a soak: windows of load with faults, each followed by a rest in which everything must be well again.

    plan ─▶ faults ─▶ programs ─▶ reports of clients, logs, ledgers, /proc ─▶ verdict ─▶ report

Rule: this is one thread, which turns every TURN_SECONDS; nothing here waits longer for any program.
"""

from __future__ import annotations

import json
import os
import select
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from soak.fault_injection import FaultInjector
from soak.fault_plan import ALL, Window, windows
from soak.live_processes import Usage, usage_of
from soak.log_watch import LogWatch
from soak.machine_means import Machine
from soak.rest_levels import Levels, differences, read_levels
from soak.soak_verdict import Verdict
from soak.soaked_cluster import Program, SoakedCluster
from soak.trends import Trend, trend_of

from scaler.exceptions import ScalerError

TURN_SECONDS = 0.02
UNLIMITED = 1e9
SAMPLE_SECONDS = 2.0
LOG_SECONDS = 1.0
PROGRESS_SECONDS = 10.0
START_SECONDS = 90.0
REST_SECONDS = {"nested": 60.0, "map": 60.0}
"""How long work of a kind may still take when no more of it comes and all faults have passed."""
OTHER_REST_SECONDS = 45.0
LEVELS_SECONDS = 30.0
STATUS_AGE_SECONDS = 10.0
STOPPED_SECONDS = 5.0
"""Between two turns: much longer than a busy machine takes. A virtual machine was stopped, or a disk held up all."""
COMER_SECONDS = (4.0, 12.0)


class Settings(NamedTuple):
    minutes: float
    seed: int
    folder: Path
    faults: FrozenSet[str] = ALL  # their names
    most_a_second: float = UNLIMITED  # submissions of each client


class SoakRun:
    """Parameters:
    settings: of the run.
    say: prints a line.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self._say = say
        self.machine = Machine(settings.folder)
        self.cluster = SoakedCluster(self.machine, settings.seed, settings.most_a_second)
        self.injector = FaultInjector(self.cluster)
        self.verdict = Verdict(self.injector.explains, say)
        self.logs = LogWatch(settings.folder / "logs")
        self.samples: Dict[Tuple[str, int], List[Tuple[float, Usage]]] = {}
        self.first_levels: Optional[Levels] = None
        self.levels: Optional[Levels] = None
        self.rests: List[float] = []  # seconds until all was well, of each
        self.windows_done = 0
        self.load_seconds = 0.0
        self.is_stopped = False  # by Ctrl-C, or since nothing more can be learned
        self.began = time.monotonic()
        self._last_turn = self.began
        self._word = "rest"
        self._told: Dict[int, str] = {}  # the last word to each process
        self._rested: Set[int] = set()
        self._unread: Dict[int, bytes] = {}
        self._unfinished: Dict[int, Dict[str, int]] = {}
        self._status_age_seconds = 0.0
        self._comer_ends_at = 0.0
        self._next_sample = self._next_log = self._next_progress = 0.0
        self._finished_before = (self.began, 0)

    def run(self) -> None:
        try:
            self._wait_for_start()
            settings = self.settings
            for window in windows(settings.seed, settings.minutes, self.machine.means, settings.faults):
                left_seconds = 60.0 * self.settings.minutes - (time.monotonic() - self.began)
                if self.is_stopped or left_seconds <= 0:
                    break
                self._say(str(window))
                self._work(window, min(window.seconds, left_seconds))
                if not self.is_stopped:
                    self._rest()
            self._finish()
        except Exception:
            self.verdict.violate(f"the soak itself failed: {traceback.format_exc()}")
        finally:
            self.injector.undo_all()
            self.cluster.kill()
            self.machine.close()

    # The phases -------------------------------------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        """Until the first clients and workers are there, and have rested once."""
        if not self._turn_until(self._has_rested, START_SECONDS):
            self.verdict.violate(f"the programs did not start within {START_SECONDS:.0f} s")
            self.is_stopped = True

    def _work(self, window: Window, seconds: float) -> None:
        self._word = "work"
        began = time.monotonic()
        faults = list(reversed(window.faults))
        while not self.is_stopped and (now := time.monotonic()) < began + seconds:
            while faults and began + faults[-1].at_seconds <= now:
                self.injector.strike(faults.pop(), now)
            self.injector.undo(now)
            self._turn(now)
        self.injector.undo_all()
        self.load_seconds += time.monotonic() - began
        self.windows_done += 1

    def _rest(self) -> None:
        """Nothing fails any more: all work ends, and everything returns to its level."""
        self._word = "rest"
        self._rested.clear()
        began = time.monotonic()
        if not self._turn_until(self._has_rested, max(OTHER_REST_SECONDS, *REST_SECONDS.values())):
            waiting = {name: self._unfinished.get(each.process.pid) for name, each in self.cluster.clients.items()}
            if not self.is_stopped:
                self.verdict.violate(
                    f"work is unfinished {time.monotonic() - began:.0f} s after the last fault: {waiting}"
                )
                self.is_stopped = True
            return
        left: List[str] = ["not read"]

        def is_at_level() -> bool:
            left[:] = self._compare_levels()
            return not left

        if not self._turn_until(is_at_level, LEVELS_SECONDS, pause_seconds=0.5) and not self.is_stopped:
            for difference in left:
                self.verdict.violate(f"rest {self.windows_done}: {difference}")
        if self.first_levels is None:
            self.first_levels = self.levels
        self.rests.append(time.monotonic() - began)
        self.verdict.check_ledgers(self.settings.folder / "ledgers")

    def _compare_levels(self) -> List[str]:
        try:
            levels = read_levels(self.cluster)
        except ScalerError as error:
            return [f"the scheduler does not answer: {error}"]
        self.levels = levels
        found = differences(levels, self.first_levels)
        if self._status_age_seconds > STATUS_AGE_SECONDS:
            found.append(f"the monitor's last publication is {self._status_age_seconds:.0f} s old")
        return found

    def _finish(self) -> None:
        self._judge(time.monotonic())
        left = self.cluster.stop()
        self.verdict.judge_ends(self.cluster.ends, is_stopping=True)
        self._read_reports()
        self._judge(time.monotonic())
        for process in left:
            self.verdict.violate(f"process {process.pid} still runs after the end")
        for name in os.listdir(self.settings.folder / "work"):
            self.verdict.violate(f"the file {name} is left where the programs were started")
        for name, trend in self.trends().items():
            if not trend.is_flat():
                self.verdict.violate(
                    f"the memory of {name} grew by {trend.growth_bytes / 1e6:.0f} MB in {trend.seconds:.0f} s"
                )
        for program, text, count in self.logs.repeated():
            self.verdict.violate(f"log of {program}: {count} times in a minute: {text}")

    # One turn ---------------------------------------------------------------------------------------------------------

    def _turn_until(self, is_so: Callable[[], bool], seconds: float, pause_seconds: float = 0.0) -> bool:
        deadline = time.monotonic() + seconds
        next_question = 0.0
        while not self.is_stopped:
            now = time.monotonic()
            self._turn(now)
            if now >= next_question:
                if is_so():
                    return True
                next_question = now + pause_seconds
            if now > deadline:
                return False
        return False

    def _turn(self, now: float) -> None:
        if now - self._last_turn > STOPPED_SECONDS:
            self.injector.note_stop(self._last_turn, now)
            self._say(f"    the soak itself was stopped for {now - self._last_turn:.1f} s")
        self.cluster.replace_dead(now)
        self._mind_comer(now)
        for program in self.cluster.clients.values():
            self._tell(program)
        self._read_reports()
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_SECONDS
            self._sample(now)
        if now >= self._next_log:
            self._next_log = now + LOG_SECONDS
            self._judge(now)
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            self._say(self.progress(now))
        self._last_turn = time.monotonic()

    def _tell(self, program: Program) -> None:
        if self._told.get(program.process.pid) != self._word:
            self._told[program.process.pid] = self._word
            program.send(self._word)

    def _mind_comer(self, now: float) -> None:
        """A client comes, works for a while and goes, in the middle of its work."""
        comer = self.cluster.comer
        if comer is not None:
            self._tell(comer)
            if now >= self._comer_ends_at or self._word == "rest":
                comer.ask_to_end()
        if self.cluster.take_ended_comer(now) and self._word == "work":
            self.cluster.start_comer()
            least, most = COMER_SECONDS
            self._comer_ends_at = now + least + (most - least) * (now % 1.0)

    def _has_rested(self) -> bool:
        clients = [client.process.pid for client in self.cluster.clients.values()]
        return self.cluster.comer is None and all(pid in self._rested for pid in clients)

    def _judge(self, now: float) -> None:
        for line in self.logs.read(now, len(self.injector.struck)):
            self.verdict.on_bad_line(line, now)
        self.verdict.read_ledgers(self.settings.folder / "ledgers")
        self.verdict.judge_ends(self.cluster.ends)

    # What clients and the monitor report ------------------------------------------------------------------------------

    def _read_reports(self) -> None:
        programs = {program.process.stdout: program for program in self.cluster.reporting()}
        ready = select.select(
            [pipe for pipe in programs if pipe is not None and not pipe.closed], [], [], TURN_SECONDS
        )[0]
        for pipe in ready:
            program = programs[pipe]
            pid = program.process.pid
            data = os.read(pipe.fileno(), 1 << 16)
            *lines, self._unread[pid] = (self._unread.get(pid, b"") + data).split(b"\n")
            for line in lines:
                self._on_report(program, json.loads(line))
        if not ready:
            return
        if all(not select.select([pipe], [], [], 0)[0] for pipe in ready):
            return
        time.sleep(TURN_SECONDS)  # pipes of programs that have ended are always ready

    def _on_report(self, program: Program, report: Dict[str, Any]) -> None:
        pid = program.process.pid
        ledger = Path(program.command[-2]).name if program.name.startswith("client") else ""
        self.verdict.on_report(program.name, pid, ledger, report)
        if "unfinished" in report:
            self._unfinished[pid] = report["unfinished"]
        if "status_age_seconds" in report:
            self._status_age_seconds = report["status_age_seconds"]
        if "resting" in report and self._word == "rest":
            self._rested.add(pid)
            for kind, seconds in report["resting"].items():
                longest = self.verdict.longest_rest_seconds
                longest[kind] = max(seconds, longest.get(kind, 0.0))
                if seconds > REST_SECONDS.get(kind, OTHER_REST_SECONDS):
                    self.verdict.violate(f"{program.name}: {kind} took {seconds:.0f} s after the last fault")

    # Figures ----------------------------------------------------------------------------------------------------------

    def _sample(self, now: float) -> None:
        for name, pid in self.cluster.long_lived().items():
            usage = usage_of(pid)
            if usage is not None:
                self.samples.setdefault((name, pid), []).append((now, usage))

    def trends(self) -> Dict[str, Trend]:
        """The trend of each program's memory: of the process of it that lived longest."""
        found: Dict[str, Trend] = {}
        for (name, _), samples in self.samples.items():
            trend = trend_of([(at, float(usage.proportional_bytes)) for at, usage in samples])
            if trend is not None and (name not in found or trend.seconds > found[name].seconds):
                found[name] = trend
        return found

    def finished(self) -> int:
        return sum(count for counts in self.verdict.outcome_counts().values() for count in counts.values())

    def progress(self, now: float) -> str:
        at, before = self._finished_before
        finished = self.finished()
        self._finished_before = (now, finished)
        pace = (finished - before) / max(now - at, 0.1)
        resident = {}
        for name, pid in self.cluster.long_lived().items():
            samples = self.samples.get((name, pid))
            if samples:
                resident[name] = samples[-1][1].resident_bytes
        agents = sum(size for name, size in resident.items() if name.startswith("worker"))
        clients = sum(size for name, size in resident.items() if name.startswith("client"))
        here = [client.process.pid for client in self.cluster.clients.values()]
        waiting = sum(sum(self._unfinished.get(pid, {}).values()) for pid in here)
        return (
            f"{now - self.began:6.0f} s  {self._word}  {pace:5.0f} tasks/s  {finished} outcomes, {waiting} waiting  "
            f"{sum(self.injector.counts.values())} faults  RSS MB: scheduler {resident.get('scheduler', 0) >> 20}, "
            f"agents {agents >> 20}, clients {clients >> 20}  {self.verdict.violation_count} violations"
        )
