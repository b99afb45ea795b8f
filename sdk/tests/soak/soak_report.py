"""The one-page report of a soak, as data and as Markdown."""

from __future__ import annotations

import os
import platform
import time
from typing import Any, Dict, List

from soak.soak_run import SoakRun

SHOWN_FAULTS = 20


def report_of(run: SoakRun) -> Dict[str, Any]:
    """All figures, for JSON."""
    verdict, injector = run.verdict, run.injector
    seconds = time.monotonic() - run.began
    return {
        "passed": not verdict.violation_count and not run.is_stopped,
        "interrupted": run.is_stopped and not verdict.violation_count,
        "seed": run.settings.seed,
        "seconds": round(seconds, 1),
        "load_seconds": round(run.load_seconds, 1),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": f"{platform.system()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "means": sorted(run.machine.means),
        "windows": run.windows_done,
        "outcomes": run.finished(),
        "outcomes_by_kind": verdict.outcome_counts(),
        "ran_at_most_once": verdict.ran_once,
        "excused": dict(verdict.excused),
        "faults": injector.counts,
        "longest_seconds": {kind: round(value, 2) for kind, value in sorted(verdict.longest_seconds.items())},
        "longest_rest_seconds": {kind: round(value, 2) for kind, value in sorted(verdict.longest_rest_seconds.items())},
        "quiet_after_seconds": [round(each, 2) for each in run.rests],
        "memory": {
            name: {
                "seconds": round(trend.seconds),
                "level_mb": round(trend.level_bytes / 1e6, 1),
                "mb_per_hour": round(trend.bytes_per_hour / 1e6, 1),
                "error_mb_per_hour": round(trend.error_bytes_per_hour / 1e6, 1),
                "is_flat": trend.is_flat(),
            }
            for name, trend in sorted(run.trends().items())
        },
        "levels_first": run.first_levels._asdict() if run.first_levels else None,
        "levels_last": run.levels._asdict() if run.levels else None,
        "log_lines": run.logs.lines,
        "log_lines_most_common": run.logs.most_common(),
        "violation_count": verdict.violation_count,
        "violations": verdict.violations,
        "last_faults": injector.last(SHOWN_FAULTS) if verdict.violation_count else [],
        "folder": str(run.settings.folder),
    }


def page_of(report: Dict[str, Any]) -> str:
    """The report as one page of Markdown."""
    state = "passed" if report["passed"] else "interrupted" if report["interrupted"] else "FAILED"
    lines = [
        f"# Soak of {report['seconds'] / 60:.0f} minutes: {state}",
        "",
        f"Seed {report['seed']}, {report['date']}; {report['machine']}; with {', '.join(report['means']) or '-'}.",
        "",
        "| figure | value |",
        "| --- | --- |",
        f"| windows of load | {report['windows']}, {report['load_seconds']:.0f} s in total |",
        f"| outcomes | {report['outcomes']} |",
        f"| tasks that may run at most once, and ran | {report['ran_at_most_once']}, none twice |"
        if not any("at most once" in text for text in report["violations"])
        else f"| tasks that may run at most once, and ran | {report['ran_at_most_once']} |",
        f"| faults | {sum(report['faults'].values())}: {_counts(report['faults'])} |",
        f"| errors that a fault explains | {_counts(report['excused']) or 'none'} |",
        f"| quiet after a window | at most {max(report['quiet_after_seconds'], default=0):.1f} s |",
        f"| log lines | {report['log_lines']} |",
        f"| violations | {report['violation_count']} |",
        "",
        "| kind of work | outcomes | longest, with faults | longest, after the last fault |",
        "| --- | --- | --- | --- |",
    ]
    for kind, counts in report["outcomes_by_kind"].items():
        longest, rest = report["longest_seconds"].get(kind, 0.0), report["longest_rest_seconds"].get(kind, 0.0)
        lines.append(f"| {kind} | {_counts(counts)} | {longest:.1f} s | {rest:.1f} s |")
    lines += ["", "| private memory of | watched | level | slope |", "| --- | --- | --- | --- |"]
    for name, trend in report["memory"].items():
        slope = f"{trend['mb_per_hour']:+.1f} ± {trend['error_mb_per_hour']:.1f} MB an hour"
        lines.append(f"| {name} | {trend['seconds']} s | {trend['level_mb']} MB | {slope} |")
    lines += ["", "| most frequent log lines | program | times | most in a minute |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{text.replace('|', '/')}` | {program} | {count} | {most} |"
        for program, text, count, most in report["log_lines_most_common"]
    ]
    if report["violations"]:
        lines += _failure(report)
    return "\n".join(lines) + "\n"


def _counts(counts: Dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))


def _failure(report: Dict[str, Any]) -> List[str]:
    return [
        "",
        "## What failed",
        "",
        *(f"- {text}" for text in report["violations"]),
        "",
        f"The logs are in `{report['folder']}`. The last faults:",
        "",
        *(f"- {text}" for text in report["last_faults"]),
    ]
