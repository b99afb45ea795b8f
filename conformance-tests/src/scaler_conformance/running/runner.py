"""Runs cases and judges them.

Rules:
- A case that fails never keeps the next one from running; each case starts its own implementation.
- The register decides what a Violation means: of a MUST, the case fails; of a SHOULD, it is not strict.
- Any other exception is an error of the suite, and is reported with its place.
"""

from __future__ import annotations

import datetime
import random
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, Sequence

from scaler_conformance import __version__
from scaler_conformance.benches.bench import Bench, Identification, bench_class
from scaler_conformance.benches.implementation import Launcher, NotStartedError
from scaler_conformance.cases import Case
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.known_failing import KnownFailing
from scaler_conformance.judging.register import Register
from scaler_conformance.judging.results import CaseResult, Report
from scaler_conformance.judging.verdicts import NotApplicable, Teardown, Verdict, Violation
from scaler_conformance.playing.wire_log import WireLog

_QUIET = (Verdict.PASS, Verdict.NOT_APPLICABLE)


class Runner:
    """Runs cases against one implementation.

    Parameters:
        on_result: called after each case, on the thread that ran it.
    """

    def __init__(
        self,
        launcher: Launcher,
        settings: Settings,
        register: Register,
        known_failing: KnownFailing,
        on_result: Callable[[CaseResult], None] = lambda result: None,
    ) -> None:
        self._launcher = launcher
        self._settings = settings
        self._register = register
        self._known_failing = known_failing
        self._on_result = on_result
        self._identification = Identification()

    def run(self, cases: Sequence[Case], jobs: int = 1, strict: bool = False) -> Report:
        """Run cases, `jobs` at a time; the results are in the order of the cases."""
        started, began = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            results: List[CaseResult] = list(pool.map(self.run_case, cases))
        role = cases[0].role if cases else ""
        said = self._identification
        return Report(
            role=role,
            suite_version=__version__,
            implementation={
                "name": said.name or self._launcher.name,
                "version": said.version,
                "language": said.language,
                "command": self._launcher.name,
            },
            seed=self._settings.seed,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - began, 3),
            strict=strict,
            requirements={id_: each._asdict() for id_, each in self._register.of_role(role).items()},
            cases=results,
        )

    def run_case(self, case: Case) -> CaseResult:
        """Run one case and judge it."""
        result = CaseResult(case.id, list(case.covers), case.title, case.expectation, Verdict.PASS)
        began = time.monotonic()
        log = WireLog()
        bench: Bench
        try:
            generator = random.Random(f"{self._settings.seed}/{case.id}")
            bench = bench_class(case.role)(self._settings, self._launcher, log, generator, self._identification)
        except Exception:
            self._blame_suite(result)
            return result
        try:
            self._perform(case, bench, result)
        finally:
            self._end(bench, result)
        result.seconds = round(time.monotonic() - began, 3)
        self._known_failing.apply(result)
        if result.verdict not in _QUIET or result.teardown in (Teardown.UNCLEAN, Teardown.LEAK):
            result.trace = log.lines()
            result.output = bench.running.output() if bench.running is not None else ""
        self._on_result(result)
        return result

    def _perform(self, case: Case, bench: Bench, result: CaseResult) -> None:
        try:
            for feature in case.features:
                bench.need_feature(feature)
            case.function(bench)
        except NotApplicable as reason:
            result.verdict, result.message = Verdict.NOT_APPLICABLE, str(reason)
        except Violation as violation:
            self._blame_implementation(case, violation, result)
        except NotStartedError as error:
            result.verdict, result.message = Verdict.ERROR, str(error)
        except Exception:
            self._blame_suite(result)

    def _blame_implementation(self, case: Case, violation: Violation, result: CaseResult) -> None:
        blamed = violation.requirement or case.covers[0]
        requirement = self._register[blamed if blamed in self._register else case.covers[0]]
        result.verdict = Verdict.NON_STRICT if requirement.is_advice else Verdict.FAIL
        result.requirement = requirement.id
        result.expected, result.came = violation.expected, violation.came
        result.message = str(violation)

    def _blame_suite(self, result: CaseResult) -> None:
        lines = traceback.format_exc().strip().splitlines()
        result.verdict, result.message = Verdict.ERROR, f"error of the suite: {lines[-1]}"
        result.came = "\n".join(lines[-12:])

    def _end(self, bench: Bench, result: CaseResult) -> None:
        try:
            result.teardown = bench.tear_down()
        except Violation:
            result.teardown = Teardown.UNCLEAN
        except Exception:
            self._blame_suite(result)
