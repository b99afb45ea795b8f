"""The command line of `scaler_scheduler`.

Rules: every option appears under -h with its default and its unit, and does what it says. Exit codes: 0 stopped as
asked, 1 failed to start (starting again will not help), 2 wrong command line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import platform
import sys
from typing import List, Optional

from scaler_appliance import __version__
from scaler_appliance.core.scheduler import Scheduler
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.addresses import monitor_address_of
from scaler_appliance.shell.monitor import Monitor
from scaler_appliance.shell.objects import ObjectFiles
from scaler_appliance.shell.peers import Peers
from scaler_appliance.shell.server import Server
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol import messages as m
from scaler_protocol.addresses import AddressError, parse_address
from scaler_protocol.program_logging import LEVELS, setup_logging
from scaler_protocol.segments import ObjectDirectory

logger = logging.getLogger("scaler")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scaler_scheduler",
        description="Start a Scaler scheduler: clients submit tasks to it, workers connect to it and run them.",
        epilog="Then, on each machine that is to run tasks:  scaler_cluster -n 4 ADDRESS",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "address", metavar="ADDRESS", help="where to listen: tcp://127.0.0.1:2345 (port 0: any free one) or ipc:///path"
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print versions and exit")
    tasks = parser.add_argument_group("tasks")
    tasks.add_argument(
        "-mt",
        "--max-number-of-tasks-waiting",
        type=int,
        default=-1,
        metavar="N",
        help="reject tasks when N wait, for a worker or for other tasks of their graph, beyond what free workers take"
        " at once; -1: no limit",
    )
    tasks.add_argument(
        "-qs",
        "--per-worker-queue-size",
        type=_positive_int,
        default=1000,
        metavar="N",
        help="tasks sent ahead to one worker at most",
    )
    tasks.add_argument(
        "--maximum-attempts",
        type=_positive_int,
        default=4,
        metavar="N",
        help="give a task up when N workers were lost with it",
    )
    tasks.add_argument(
        "--client-tasks-in-flight",
        type=_count,
        default=1024 * 1024,
        metavar="N",
        help="tasks without an outcome that one client may have; then its submit() waits; 0: no limit",
    )
    tasks.add_argument(
        "--client-bytes-in-flight",
        type=_count,
        default=256 * 1024 * 1024,
        metavar="BYTES",
        help="arguments of these tasks, likewise; and large results that a client has not taken; 0: no limit",
    )
    peers = parser.add_argument_group("clients and workers")
    peers.add_argument(
        "-ct",
        "--client-timeout-seconds",
        type=_positive_float,
        default=60.0,
        metavar="SECONDS",
        help="a client silent for so long is gone; its tasks are cancelled",
    )
    peers.add_argument(
        "-wt",
        "--worker-timeout-seconds",
        type=_positive_float,
        default=60.0,
        metavar="SECONDS",
        help="a worker silent for so long is lost; its tasks run elsewhere",
    )
    peers.add_argument(
        "-hi",
        "--heartbeat-interval-seconds",
        type=_positive_float,
        default=2.0,
        metavar="SECONDS",
        help="how often peers say that they live",
    )
    peers.add_argument(
        "-p",
        "--protected",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="refuse clients that ask to shut the cluster down",
    )
    objects = parser.add_argument_group("objects")
    objects.add_argument(
        "--object-directory",
        default=None,
        metavar="PATH",
        help="where a directory for large objects is made; by default in /dev/shm, else the temporary directory",
    )
    objects.add_argument(
        "--object-memory-limit",
        type=_count,
        default=None,
        metavar="BYTES",
        help="of objects there; past it, those not used for longest go to disk; 0: no limit; by default half of what"
        " that file system holds",
    )
    objects.add_argument(
        "--object-spill-directory",
        default=None,
        metavar="PATH",
        help="where a directory for objects on disk is made; by default in the temporary directory",
    )
    objects.add_argument(
        "--maximum-object-bytes",
        type=_positive_int,
        default=1 << 40,
        metavar="BYTES",
        help="refuse objects larger than this",
    )
    network = parser.add_argument_group("network")
    network.add_argument(
        "-ma",
        "--monitor-address",
        default=None,
        metavar="ADDRESS",
        help="where to publish status; by default ipc:///tmp/HOST_PORT_monitor",
    )
    network.add_argument(
        "--io-threads", type=_positive_int, default=1, metavar="N", help="ZeroMQ's threads, for monitors"
    )
    network.add_argument(
        "--maximum-message-bytes",
        type=_positive_int,
        default=512 * 1024 * 1024,
        metavar="BYTES",
        help="disconnect peers that send larger messages",
    )
    network.add_argument(
        "-e",
        "-el",
        "--event-loop",
        choices=("builtin", "uvloop"),
        default="builtin",
        help="uvloop needs the package of that name, and CPython",
    )
    logs = parser.add_argument_group("logging")
    logs.add_argument(
        "-lp",
        "--logging-paths",
        nargs="*",
        default=["/dev/stdout"],
        metavar="PATH",
        help="/dev/stdout, /dev/stderr, or files (rotated daily)",
    )
    logs.add_argument(
        "-ll", "--logging-level", default="INFO", choices=LEVELS, help="least severe level that is logged"
    )
    logs.add_argument(
        "-lc",
        "--logging-config-file",
        default=None,
        metavar="PATH",
        help="a logging.config file, which then decides everything about logging",
    )
    service = parser.add_argument_group("running under another program")
    service.add_argument(
        "--address-file",
        default=None,
        metavar="PATH",
        help="when listening, write the address and the monitor address to this file, a line each",
    )
    service.add_argument(
        "--exit-when-stdin-closes",
        action="store_true",
        help="stop when standard input ends: when it is a pipe, its other end is the life line",
    )
    return parser


class _PrintVersion(argparse.Action):
    """argparse's own action would break the line where the terminal ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(_version())
        parser.exit()


def _version() -> str:
    import zmq

    return (
        f"scaler_scheduler {__version__},"
        f" protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MIN}-{PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX},"
        f" {_interpreter()}, libzmq {zmq.zmq_version()}"
    )


def _interpreter() -> str:
    """Such as "CPython 3.11.7" or "PyPy 7.3.11 (Python 3.9.16)"."""
    name, python = platform.python_implementation(), platform.python_version()
    implementation = ".".join(map(str, sys.implementation.version[:3]))
    return f"{name} {python}" if name == "CPython" else f"{name} {implementation} (Python {python})"


def _positive_int(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        parse_address(options.address)
        if options.monitor_address is not None:
            parse_address(options.monitor_address)
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file)
    except (AddressError, OSError, KeyError, ValueError) as error:
        parser.error(str(error))
    _use_event_loop(parser, options.event_loop)
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        logger.error("Scheduler: %s", error)
        print(f"scaler_scheduler: {error}", file=sys.stderr)
        return 1
    return 0


def _use_event_loop(parser: argparse.ArgumentParser, name: str) -> None:
    if name == "uvloop":
        try:
            import uvloop
        except ImportError:
            parser.error("--event-loop uvloop: uvloop is not installed; use builtin, or on CPython: pip install uvloop")
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    logger.info("use event loop: %s", name)


async def _serve(options: argparse.Namespace) -> None:
    servers: List[Server] = []  # the one, which is made after the transport
    with contextlib.ExitStack() as closing:
        peers = Peers(
            options.address,
            options.maximum_message_bytes,
            lambda peer: servers[0].peer_gone(peer),
            lambda peer, is_congested: servers[0].congestion(peer, is_congested),
        )
        closing.callback(peers.close)
        monitor = Monitor(options.monitor_address or monitor_address_of(peers.address), options.io_threads)
        closing.callback(monitor.close)
        directory = ObjectDirectory(options.object_directory)
        closing.callback(directory.remove)
        _open_spill(options, directory)
        files = ObjectFiles(directory, lambda copied: servers[0].copied(copied))
        closing.callback(files.close)
        core = Scheduler(_settings(options, monitor, files))
        server = Server(core, peers, monitor, files)
        servers.append(server)
        server.take_signals()
        logger.info("Scheduler: monitor address is %s", monitor.address)
        logger.info("Scheduler: listening at %s", peers.address)
        if options.address_file is not None:
            with open(options.address_file, "w", encoding="utf-8") as address_file:
                address_file.write(f"{peers.address}\n{monitor.address}\n")
        for part in (
            "AsyncBinder",
            "VanillaTaskManager",
            "VanillaObjectManager",
            "VanillaWorkerManager",
            "StatusReporter",
        ):
            logger.info("%s: started", part)  # names that users' log readers know from earlier generations
        gc.collect()
        gc.freeze() if hasattr(gc, "freeze") else None
        await server.run(options.exit_when_stdin_closes)


def _open_spill(options: argparse.Namespace, directory: ObjectDirectory) -> None:
    """Make the directory on disk.

    Raises OSError when it cannot be made where the user wants it; elsewhere, one does without.
    """
    try:
        directory.open_spill(options.object_spill_directory)
    except OSError as error:
        if options.object_spill_directory is not None:
            raise
        logger.warning("Scheduler: objects stay in memory, there is no directory for them on disk: %s", error)


def _object_memory_limit_bytes(options: argparse.Namespace, directory: ObjectDirectory) -> int:
    if directory.spill is None:
        return 0
    if options.object_memory_limit is not None:
        return int(options.object_memory_limit)
    if os.stat(directory.path).st_dev == os.stat(directory.spill.path).st_dev:
        return 0  # both are the same disk
    system = os.statvfs(directory.path)
    return system.f_blocks * system.f_frsize // 2


def _settings(options: argparse.Namespace, monitor: Monitor, files: ObjectFiles) -> Settings:
    language = f"Python {platform.python_version()} ({platform.python_implementation()})"
    return Settings(
        client_timeout_seconds=options.client_timeout_seconds,
        worker_timeout_seconds=options.worker_timeout_seconds,
        heartbeat_interval_seconds=options.heartbeat_interval_seconds,
        per_worker_queue_size=options.per_worker_queue_size,
        max_number_of_tasks_waiting=options.max_number_of_tasks_waiting,
        client_tasks_in_flight=options.client_tasks_in_flight,
        client_bytes_in_flight=options.client_bytes_in_flight,
        protected=options.protected,
        maximum_attempts=options.maximum_attempts,
        maximum_message_bytes=options.maximum_message_bytes,
        maximum_object_bytes=options.maximum_object_bytes,
        object_memory_limit_bytes=_object_memory_limit_bytes(options, files.directory),
        object_spill_directory=files.directory.spill.path if files.directory.spill is not None else "",
        implementation=m.Implementation(name="scaler-appliance", version=__version__, language=language),
        scheduler_id=os.urandom(16),
        # Somewhere in the lower half of all numbers: a peer may still have ids of objects of a scheduler before this.
        last_session=int.from_bytes(os.urandom(3), "big") >> 1,
        object_directory=files.directory.path,
        object_directory_token=files.directory.token,
        monitor_address=monitor.address,
    )
