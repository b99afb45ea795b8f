"""The command line of `scaler_scheduler`.

Rules: every option, as the table in `scheduler_options` has it, does what it says. Exit codes: 0 stopped as asked,
1 failed to start (starting again will not help), 2 wrong command line or configuration, EXIT_BROKEN_INVARIANT ended by
a fault of its own, to be started again.
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
import time
from typing import Iterator, List, Optional

from scaler_appliance import __version__
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.shell.connections import Connections
from scaler_appliance.shell.core_inputs import EXIT_BROKEN_INVARIANT, BrokenInvariantError
from scaler_appliance.shell.monitor_address import monitor_address_of
from scaler_appliance.shell.object_files import ObjectFiles
from scaler_appliance.shell.recorder import FileRecorder
from scaler_appliance.shell.scheduler_options import SCHEDULER
from scaler_appliance.shell.server import Server
from scaler_appliance.shell.status_publisher import StatusPublisher
from scaler_protocol import messages as m
from scaler_protocol.host.discovery import SCHEDULER as ANNOUNCED_SCHEDULER
from scaler_protocol.host.discovery import announced
from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.programs.logging_setup import setup_logging

logger = logging.getLogger("scaler")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    options = SCHEDULER.read(arguments)
    try:
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format)
    except (OSError, KeyError, ValueError) as error:
        SCHEDULER.parser().error(f"logging cannot be set up: {error}")
    _use_event_loop(options.event_loop)
    try:
        asyncio.run(_serve(options))
    except OSError as error:
        logger.error("Scheduler: %s", error)
        print(f"scaler_scheduler: {error}", file=sys.stderr)
        return 1
    except BrokenInvariantError as error:
        text = "Scheduler: a bug in the scheduler: it ends with exit code %d, to be started again by its supervisor: %s"
        logger.critical(text, EXIT_BROKEN_INVARIANT, error, exc_info=error)
        return EXIT_BROKEN_INVARIANT
    return 0


def _use_event_loop(name: str) -> None:
    if name == "uvloop":
        try:
            import uvloop
        except ImportError:
            SCHEDULER.parser().error(
                "--event-loop uvloop: uvloop is not installed; use builtin, or on CPython: pip install uvloop"
            )
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    logger.info("use event loop: %s", name)


async def _serve(options: argparse.Namespace) -> None:
    servers: List[Server] = []  # the one, which is made after the transport
    with contextlib.ExitStack() as closing:
        peers = Connections(
            options.address,
            options.maximum_message_bytes,
            lambda peer: servers[0].peer_gone(peer),
            lambda peer, is_congested: servers[0].congestion(peer, is_congested),
        )
        closing.callback(peers.close)
        monitor = StatusPublisher(options.monitor_address or monitor_address_of(peers.address), options.io_threads)
        closing.callback(monitor.close)
        with _at("--object-directory", options.object_directory):
            directory = ObjectDirectory(options.object_directory)
        closing.callback(directory.remove)
        _open_spill(options, directory)
        files = ObjectFiles(directory, lambda copied: servers[0].copied(copied))
        closing.callback(files.close)
        settings = _settings(options, monitor, files)
        recorder = _recorder(options, settings)
        server = Server(SchedulerCore(settings), peers, monitor, files, recorder)
        servers.append(server)
        server.take_signals()
        logger.info("Scheduler: monitor address is %s", monitor.address)
        logger.info("Scheduler: listening at %s", peers.address)
        if options.announce:
            otherwise = "Scheduler: clients and workers need its address"
            closing.enter_context(
                announced(ANNOUNCED_SCHEDULER, peers.address, otherwise, monitor_address=monitor.address)
            )
        if options.address_file is not None:
            with _at("--address-file", options.address_file):
                _write_addresses(options.address_file, peers.address, monitor.address)
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
        try:
            await server.run(options.exit_when_stdin_closes)
        except BrokenInvariantError:
            _keep_recording(recorder)
            raise
        finally:
            if recorder is not None:
                recorder.close()


def _recorder(options: argparse.Namespace, settings: Settings) -> Optional[FileRecorder]:
    """What writes down the core's inputs, if the user wants it."""
    if options.record is None:
        return None
    now, unix_now = asyncio.get_running_loop().time(), time.time()
    with _at("--record", options.record):
        recorder = FileRecorder(options.record, settings, now, unix_now, options.record_payloads, options.record_limit)
    logger.info("Scheduler: recording to %s", options.record)
    return recorder


def _keep_recording(recorder: Optional[FileRecorder]) -> None:
    """The core has failed: keep what shows why from the scheduler that replaces this one."""
    kept = recorder.keep() if recorder is not None else None
    if kept is not None:
        logger.error("Scheduler: what led to it is recorded: scaler_scheduler replay %s", kept)
    else:
        logger.error("Scheduler: what led to it is not recorded; start it with --record FILE to find out more")


def _write_addresses(path: str, *addresses: str) -> None:
    with open(path, "w", encoding="utf-8") as address_file:
        address_file.writelines(f"{address}\n" for address in addresses)


@contextlib.contextmanager
def _at(option: str, path: Optional[str]) -> Iterator[None]:
    """An error with a path that the user chose names the option that says it."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise OSError(f"{option} {path}: {error.strerror or error}") from error


def _open_spill(options: argparse.Namespace, directory: ObjectDirectory) -> None:
    """Make the directory on disk.

    Raises OSError when it cannot be made where the user wants it; elsewhere, one does without.
    """
    try:
        with _at("--object-spill-directory", options.object_spill_directory):
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


def _settings(options: argparse.Namespace, monitor: StatusPublisher, files: ObjectFiles) -> Settings:
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
