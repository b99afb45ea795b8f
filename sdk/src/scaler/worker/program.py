"""The command line of scaler_cluster and scaler_worker: one program, which is one worker host.

Rules:
- The order matters. Arguments are read, logging is set up and the nursery is forked while this process has one thread
  and no event loop; only then is the agent imported. So nothing here may import it at the top.
- Each option does what its help says.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import sys
import time
from math import isfinite
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from scaler.version import __version__
from scaler.worker.nursery import NurseryClient, NurserySettings, start_nursery
from scaler.worker.preload import PreloadError, parse_preload
from scaler.worker.served_functions import parse_served
from scaler.worker.shared_progress import ProgressPage
from scaler.worker.worker_settings import WorkerSettings, default_slots
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol.addresses import AddressError
from scaler_protocol.program_logging import LEVELS, setup_logging

EXIT_USAGE = 2
NURSERY_END_SECONDS = 5.0

_DEFAULTS = WorkerSettings(address="", slots=1)


def _number(minimum: float, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not minimum <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is out of range: give {minimum:g} or more")
        return value

    parse.__name__ = "whole number" if kind is int else "number"  # for the error "invalid … value"
    return parse


def _names(text: str) -> Tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


UNCOUNTED_AMOUNT = float(1 << 31)
"""Of a capability that is there and has no amount: more than any number of tasks takes."""


def _capabilities(text: str) -> Dict[str, float]:
    amounts: Dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, has_amount, number = (piece.strip() for piece in part.partition("="))
        try:
            amount = float(number) if has_amount else -1.0
        except ValueError:
            amount = float("nan")
        if not name or name in amounts or not isfinite(amount) or (amount < 0 and amount != -1):
            raise argparse.ArgumentTypeError(f"{part!r}: write NAME=AMOUNT, or NAME alone, and each name once")
        amounts[name] = UNCOUNTED_AMOUNT if amount == -1 else amount
    return amounts


def _served(text: str) -> Tuple[str, str]:
    try:
        return parse_served(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def make_parser() -> argparse.ArgumentParser:
    """The options, each with its default in the help."""
    own_name = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=own_name if own_name.startswith("scaler_") else "scaler_cluster",
        description="Run tasks of a Scaler scheduler on this host, in a number of worker processes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("address", help="address of the scheduler, such as tcp://127.0.0.1:8516")
    _add_worker_options(parser)
    _add_time_options(parser)
    _add_program_options(parser)
    return parser


def _add_worker_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        *("-n", "--num-of-workers"),
        type=_number(1, int),
        default=default_slots(),
        help="worker processes, each of which runs one task at a time",
    )
    add(
        *("-wn", "--worker-names"),
        type=_names,
        default=(),
        metavar="NAME[,NAME...]",
        help="one name for all, or one for each worker, separated by commas",
    )
    add(
        *("-qs", "--per-worker-queue-size"),
        type=_number(1, int),
        default=_DEFAULTS.per_worker_queue_size,
        help="tasks that the scheduler may queue here for each worker",
    )
    add(
        *("-tm", "--trim-memory-threshold-bytes"),
        type=_number(0, int),
        default=_DEFAULTS.trim_memory_threshold_bytes,
        help="a worker with more resident memory gives freed memory back to the system",
    )
    add(
        *("-pwc", "--per-worker-capabilities"),
        type=_capabilities,
        default="",
        metavar="NAME[=AMOUNT][,...]",
        help="what each worker offers to tasks that ask for it, such as gpu=1,linux; amounts are counted",
    )
    add(
        "--capabilities",
        type=_capabilities,
        default="",
        metavar="NAME[=AMOUNT][,...]",
        help="likewise, what all workers of this host offer together",
    )
    add(
        "--functions",
        action="append",
        type=_served,
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="serve a function by name to clients of any language; NAME*=MODULE serves all public functions of a module"
        " under names that begin so; may be given several times",
    )
    add(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE[:FUNCTION]",
        help="import a module, and call a function of it, before workers start; may be given several times",
    )


def _add_time_options(parser: argparse.ArgumentParser) -> None:
    seconds, some_seconds = _number(0, float), _number(0.01, float)
    add = parser.add_argument
    add(
        *("-hi", "--heartbeat-interval", "--heartbeat-interval-seconds"),
        dest="heartbeat_interval_seconds",
        type=some_seconds,
        default=_DEFAULTS.heartbeat_interval_seconds,
        help="seconds between heartbeats, unless the scheduler asks for another interval",
    )
    add(
        *("-tts", "--task-timeout-seconds"),
        type=seconds,
        default=_DEFAULTS.task_timeout_seconds,
        help="stop a task that runs longer; 0: never",
    )
    add(
        *("-gc", "--garbage-collect-interval-seconds"),
        type=some_seconds,
        default=_DEFAULTS.garbage_collect_interval_seconds,
        help="how often workers collect garbage, between tasks",
    )
    add(
        *("-ot", "--object-retention-seconds"),
        type=seconds,
        default=_DEFAULTS.object_retention_seconds,
        help="workers forget functions and objects that they have not used for so long",
    )
    add(
        *("-ds", "--death-timeout-seconds"),
        type=some_seconds,
        default=_DEFAULTS.death_timeout_seconds,
        help="end when no scheduler has answered for so long",
    )


def _add_program_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        *("-el", "--event-loop"),
        choices=("builtin", "uvloop"),
        default=_DEFAULTS.event_loop,
        help="the agent's event loop",
    )
    add(
        *("-it", "--io-threads"),
        type=_number(1, int),
        default=_DEFAULTS.io_threads,
        help="accepted for scripts of earlier generations: the network needs no threads any more",
    )
    add(
        "--exit-when-stdin-closes",
        action="store_true",
        help="end when standard input, a pipe, is closed by the parent process, or by its death",
    )
    add(
        *("-lp", "--logging-paths"),
        nargs="+",
        default=["/dev/stdout"],
        help="where log lines go: /dev/stdout, /dev/stderr or files",
    )
    add(
        *("-ll", "--logging-level"),
        type=str.upper,
        choices=LEVELS,
        default="INFO",
        help="the least important lines to log",
    )
    add(
        *("-lc", "--logging-config-file"),
        default=None,
        help="a file for logging.config.fileConfig, instead of the two options above",
    )
    version = f"%(prog)s {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})"
    add("--version", action="version", version=version)


def _settings(parser: argparse.ArgumentParser, options: Any) -> WorkerSettings:
    """The settings that the options say; ends the program when they contradict each other."""
    slots, names = options.num_of_workers, options.worker_names
    if len(names) > 1 and len(names) != slots:
        parser.error(f"--worker-names has {len(names)} names for {slots} workers: give one, or one for each")
    if "://" not in options.address:
        parser.error(f"{options.address!r} is no address: write tcp://HOST:PORT")
    capabilities: Dict[str, float] = dict(options.capabilities)
    for name, amount in options.per_worker_capabilities.items():
        capabilities[name] = capabilities.get(name, 0.0) + amount * slots
    for text in options.preload:
        try:
            parse_preload(text)
        except PreloadError as error:
            parser.error(str(error))
    return WorkerSettings(
        address=options.address,
        slots=slots,
        names=names,
        heartbeat_interval_seconds=options.heartbeat_interval_seconds,
        task_timeout_seconds=options.task_timeout_seconds,
        garbage_collect_interval_seconds=options.garbage_collect_interval_seconds,
        trim_memory_threshold_bytes=options.trim_memory_threshold_bytes,
        object_retention_seconds=options.object_retention_seconds,
        death_timeout_seconds=options.death_timeout_seconds,
        per_worker_queue_size=options.per_worker_queue_size,
        event_loop=options.event_loop,
        io_threads=options.io_threads,
        exit_when_stdin_closes=options.exit_when_stdin_closes,
        functions=tuple(options.functions),
        capabilities=tuple(sorted(capabilities.items())),
    )


def main(arguments: Optional[Sequence[str]] = None, note: str = "") -> int:
    """Run one worker host; the exit code of the program.

    Parameters:
        arguments: by default those of the command line.
        note: a warning for the log, as soon as there is one.
    """
    parser = make_parser()
    options = parser.parse_args(arguments)
    settings = _settings(parser, options)
    try:
        logger = setup_logging(options.logging_paths, options.logging_level, options.logging_config_file)
    except (OSError, ValueError) as error:
        parser.error(f"logging cannot be set up: {error}")
    if note:
        logger.warning(note)
    logger.info(
        "ClusterProcess: starting %d workers, heartbeat_interval_seconds=%g, object_retention_seconds=%g",
        settings.slots,
        settings.heartbeat_interval_seconds,
        settings.object_retention_seconds,
    )
    _raise_descriptor_limit()
    page = ProgressPage()
    nursery, nursery_process_id = start_nursery(page, NurserySettings(settings.address, options.preload))
    try:
        return _run_agent(settings, nursery, page, logger)
    finally:
        nursery.close()
        _wait_for_end(nursery_process_id)


def _raise_descriptor_limit() -> None:
    """A processor costs the agent a descriptor, and the usual limit is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run_agent(settings: WorkerSettings, nursery: NurseryClient, page: ProgressPage, logger: logging.Logger) -> int:
    from scaler.worker.agent import Agent, make_event_loop

    try:
        loop = make_event_loop(settings.event_loop)
    except ImportError:
        logger.error("uvloop is not installed: pip install uvloop, or use --event-loop builtin")
        return EXIT_USAGE
    try:
        return Agent(settings, nursery, page, loop).run()
    except AddressError as error:
        logger.error("%s", error)
        return EXIT_USAGE
    finally:
        loop.close()


def _wait_for_end(process_id: int) -> None:
    """Wait until the nursery has removed everything, but not for ever."""
    deadline = time.monotonic() + NURSERY_END_SECONDS
    while time.monotonic() < deadline:
        try:
            if os.waitpid(process_id, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main())
