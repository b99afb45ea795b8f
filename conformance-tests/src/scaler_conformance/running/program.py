"""The command line of `scaler-conformance`.

Rule: exit code 0 means that cases were judged and the implementation conforms; 1 that it does not; 2 that the suite
could not judge it: a usage error, or an error of the suite.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Callable, Dict, List, NoReturn, Optional, Sequence

from scaler_conformance import __version__
from scaler_conformance.benches.bench import ROLES
from scaler_conformance.benches.implementation import CommandLauncher
from scaler_conformance.cases import Case, cases_of, matches
from scaler_conformance.configuration.configuration_file import Configuration
from scaler_conformance.configuration.features import FEATURES, VARIANTS
from scaler_conformance.configuration.settings import Settings
from scaler_conformance.judging.known_failing import KnownFailing
from scaler_conformance.judging.register import Register
from scaler_conformance.judging.results import Report
from scaler_conformance.reports.console import Console
from scaler_conformance.reports.html_report import html_report
from scaler_conformance.reports.text_reports import json_report, junit_report, tap_report
from scaler_conformance.running.runner import Runner

EXIT_UNJUDGED = 2

_DESCRIPTION = """\
Tests any implementation of a role of the Scaler protocol, in any language, by playing its peers over real sockets."""

_EPILOG = """\
examples:
  scaler-conformance worker -- ./my-worker {address}
  scaler-conformance worker --run 'worker/cancel/*' --trace -- ./my-worker {address}
  scaler-conformance scheduler --smoke -- ./my-scheduler {address}
  scaler-conformance client --json client.json -- ./my-adapter
  scaler-conformance report --html matrix.html worker.json scheduler.json client.json

exit codes: 0 the implementation conforms, 1 it does not, 2 no case was judged or the suite has an error"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; `arguments` are those of the command line by default. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command: List[str] = []
    if "--" in given:
        cut = given.index("--")
        given, command = given[:cut], given[cut + 1 :]
    options = make_parser().parse_args(given)
    if options.role is None:
        make_parser().print_help(sys.stderr)
        return EXIT_UNJUDGED
    if options.role == "report":
        return _report(options)
    if options.list:
        return _list(options)
    return _run(options, command)


def make_parser() -> argparse.ArgumentParser:
    """The parser for the arguments before `--`."""
    parser = argparse.ArgumentParser(
        prog="scaler-conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"scaler-conformance {__version__}")
    parser.add_argument(
        "--features",
        action=_ShowFeatures,
        nargs=0,
        help="list the features that may be missing, and the variants of schedulers",
    )
    roles = parser.add_subparsers(dest="role", metavar="ROLE")
    for role in ROLES:
        _add_run_options(
            roles.add_parser(role, help=f"test a {role}", epilog=_EPILOG, formatter_class=parser.formatter_class)
        )
    report = roles.add_parser("report", help="combine JSON reports into one page")
    report.add_argument("files", nargs="+", type=Path, metavar="JSON")
    report.add_argument("--html", type=Path, required=True, metavar="FILE", help="file to write the page to")
    return parser


class _ShowFeatures(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print("\n".join(f"{name:<18} {text}" for name, text in {**FEATURES, **VARIANTS}.items()))
        parser.exit()


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--list", action="store_true", help="list the cases instead of running them")
    add(
        "--run",
        action="append",
        default=[],
        metavar="GLOB",
        help="run only cases whose id matches, such as 'worker/cancel/*'; repeatable",
    )
    add("--smoke", action="store_true", help="run only the few cases that show whether the set-up works")
    add("--with-keys", action="store_true", help="play each case as a scheduler that requires keys (workers only)")
    add("--strict", action="store_true", help="violated SHOULDs and unclean ends also fail the run")
    add("--seed", type=int, help="seed of all randomness (default: random; printed at the end)")
    add("--trace", action="store_true", help="show the timed wire trace of cases that do not pass")
    add("--quiet", action="store_true", help="show only cases that do not pass, and the summary")
    add("--config", type=Path, metavar="FILE", help="properties of the implementation (TOML)")
    add("--known-failing", type=Path, metavar="FILE", help="cases that are known to fail (TOML); they still run")
    add("--time-scale", type=float, metavar="FACTOR", help="multiply the deadline of every wait (default: 1)")
    add(
        "--effort",
        type=float,
        default=1.0,
        metavar="FRACTION",
        help="fraction of the repetitions of randomised cases (default: 1)",
    )
    add("--jobs", type=int, default=2, metavar="N", help="number of cases to run at a time (default: 2)")
    add("--name", default="", help="name of the implementation in reports (default: the name that it reports)")
    for kind in ("json", "junit", "tap", "html"):
        add(
            f"--{kind}",
            type=Path,
            metavar="FILE",
            help=f"write a report in {kind.upper() if kind != 'junit' else 'JUnit XML'}",
        )


def _usage(message: str) -> int:
    print(f"scaler-conformance: {message}", file=sys.stderr)
    return EXIT_UNJUDGED


def _chosen(options: argparse.Namespace) -> List[Case]:
    return [
        each
        for each in cases_of(options.role)
        if (not options.run or matches(each, options.run)) and (each.smoke or not options.smoke)
    ]


def _list(options: argparse.Namespace) -> int:
    register = Register.load()
    for each in _chosen(options):
        covers = ", ".join(f"{id_} {register[id_].level}" if id_ in register else id_ for id_ in each.covers)
        needs = f"  needs {', '.join(each.features)}" if each.features else ""
        print(f"{each.id}\n    {each.title}\n    {covers}{needs}")
    return 0


def _run(options: argparse.Namespace, command: List[str]) -> int:
    if not command:
        return _usage(f"no command to test; give one after --: scaler-conformance {options.role} -- COMMAND ...")
    if options.role != "client" and not any("{address}" in each for each in command):
        return _usage("the command has no {address}; add it where the implementation expects the scheduler's address")
    try:
        configuration = Configuration.load(options.config) if options.config else Configuration()
        known = KnownFailing.load(options.known_failing) if options.known_failing else KnownFailing()
        register = Register.load()
    except (OSError, ValueError) as error:
        return _usage(str(error))
    unknown = known.unknown(each.id for each in cases_of(options.role))
    if unknown:
        return _usage(f"{options.known_failing}: there is no case {unknown[0]}; --list shows the cases")
    if options.with_keys and (options.role != "worker" or "keys" not in configuration.variants):
        return _usage("--with-keys is for workers, and needs the variant keys in the file of --config")
    cases = _chosen(options)
    if not cases:
        return _usage(f"--run and --smoke select no case for a {options.role}; --list shows the cases")
    settings = Settings(
        time_scale=options.time_scale or configuration.time_scale,
        effort=options.effort,
        seed=random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed,
        missing=configuration.missing,
        with_keys=options.with_keys,
    )
    console = Console(register, options.trace, options.quiet)
    runner = Runner(CommandLauncher(command, configuration.variants), settings, register, known, console.on_result)
    report = runner.run(cases, options.jobs, options.strict)
    report.implementation["command"] = " ".join(command)
    report.implementation["name"] = options.name or configuration.name or report.implementation["name"]
    console.on_end(report)
    return _write(options, report)


def _write(options: argparse.Namespace, report: Report) -> int:
    makers: Dict[str, Callable[[Report], str]] = {
        "json": json_report,
        "junit": junit_report,
        "tap": tap_report,
        "html": lambda each: html_report([each]),
    }
    for kind, make in makers.items():
        path: Optional[Path] = getattr(options, kind)
        if path is not None:
            try:
                path.write_text(make(report), encoding="utf-8")
            except OSError as error:
                return _usage(f"{path} cannot be written: {error.strerror}")
    return report.exit_code


def _report(options: argparse.Namespace) -> int:
    reports = []
    for path in options.files:
        try:
            reports.append(Report.from_json(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            return _usage(f"{path}: {error}")
    try:
        options.html.write_text(html_report(reports), encoding="utf-8")
    except OSError as error:
        return _usage(f"{options.html} cannot be written: {error.strerror}")
    return 0
