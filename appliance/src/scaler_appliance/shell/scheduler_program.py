"""The command line of `scaler_scheduler`.

Rules: every option of the table in `scheduler_options` does what its help says. Exit codes: 0 stopped on request, 1
failed to start (retrying will not help), 2 wrong command line or configuration, EXIT_BROKEN_INVARIANT ended because of
a bug, to be restarted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import logging
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from scaler_appliance import __version__
from scaler_appliance.checks.greeting import places
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_appliance.just_in_time import resume_compiling
from scaler_appliance.shell.admission import Admission
from scaler_appliance.shell.connections import MAXIMUM_WAITING_BYTES, Connections
from scaler_appliance.shell.core_inputs import EXIT_BROKEN_INVARIANT, BrokenInvariantError
from scaler_appliance.shell.listening import listen
from scaler_appliance.shell.memory_use import (
    MESSAGE_SHARE,
    MONITORS_SHARE,
    OBJECTS_SHARE,
    WAITING_SHARE,
    MemoryUse,
)
from scaler_appliance.shell.object_files import ObjectFiles
from scaler_appliance.shell.option_reload import OptionReload, options_of_now
from scaler_appliance.shell.publishing.monitor_address import monitor_address_of
from scaler_appliance.shell.publishing.status_publisher import MAXIMUM_MONITORS, StatusPublisher
from scaler_appliance.shell.publishing.status_publisher import MAXIMUM_WAITING_BYTES as MAXIMUM_PUBLICATIONS_BYTES
from scaler_appliance.shell.scheduler_options import SCHEDULER, changeable_settings
from scaler_appliance.shell.scheduler_recording import SchedulerRecorder
from scaler_appliance.shell.server import Server
from scaler_appliance.shell.standby import Standby
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import parse_address
from scaler_protocol.host.discovery import SCHEDULER as ANNOUNCED_SCHEDULER
from scaler_protocol.host.discovery import announced, keep_announced
from scaler_protocol.host.interpreter import language
from scaler_protocol.host.output_files import write_at_once
from scaler_protocol.host.segments import ObjectDirectory
from scaler_protocol.host.sodium import MissingLibraryError, load_sodium
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory, default_key_directory
from scaler_protocol.programs.event_loop import EventLoop, make_event_loop
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.recording.recording_path import path_of_process, recording_path

DESCRIPTORS_FOR_OTHERS = 64 + MAXIMUM_MONITORS  # the log, files of objects, and connections that are refused
MAXIMUM_MESSAGE_BYTES = 512 << 20

logger = logging.getLogger("scaler")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    options = SCHEDULER.read(arguments)
    service_manager = ServiceManager.of_this_process("Scheduler")
    read_again = functools.partial(SCHEDULER.read_again, arguments)
    try:
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format)
    except (OSError, KeyError, ValueError) as error:
        SCHEDULER.parser().error(f"logging cannot be set up: {error}")
    try:
        with contextlib.closing(_event_loop(options.event_loop)) as loop:
            _run(loop, options, read_again, service_manager)
    except OSError as error:
        logger.error("Scheduler: %s", error)
        print(f"scaler_scheduler: {error}", file=sys.stderr)
        return 1
    except BrokenInvariantError as error:
        text = "Scheduler: stopped by a bug in the scheduler, with exit code %d, for its supervisor to restart it: %s"
        logger.critical(text, EXIT_BROKEN_INVARIANT, error, exc_info=error)
        return EXIT_BROKEN_INVARIANT
    return 0


def _event_loop(kind: str) -> EventLoop:
    try:
        loop = make_event_loop(kind)
    except ImportError:
        SCHEDULER.parser().error(
            "--event-loop uvloop: uvloop is not installed; use builtin, or on CPython: pip install uvloop"
        )
    logger.info("use event loop: %s", kind)
    return loop


class _Bounds(NamedTuple):
    """What follows from the memory limit, in bytes."""

    memory: int  # 0: no limit
    message: int
    waiting: int  # of messages that were sent or received in part: room for two at least
    publications: int  # that wait for monitors
    objects: int  # of their files in memory; 0: no limit


def _bounds(options: argparse.Namespace, memory: MemoryUse, directory: ObjectDirectory) -> _Bounds:
    memory.choose_limit(options.memory_limit)
    limit_bytes = memory.limit_bytes
    message_bytes, waiting_bytes = MAXIMUM_MESSAGE_BYTES, MAXIMUM_WAITING_BYTES
    publications_bytes = MAXIMUM_PUBLICATIONS_BYTES
    if limit_bytes:
        publications_bytes = min(publications_bytes, int(limit_bytes * MONITORS_SHARE))
        message_bytes = min(message_bytes, int(limit_bytes * MESSAGE_SHARE))
        waiting_bytes = min(waiting_bytes, int(limit_bytes * WAITING_SHARE))
    if options.maximum_message_bytes is not None:
        message_bytes = options.maximum_message_bytes
    waiting_bytes = max(waiting_bytes, 2 * message_bytes)
    objects_bytes = _objects_bytes(options, limit_bytes, directory)
    return _Bounds(limit_bytes, message_bytes, waiting_bytes, publications_bytes, objects_bytes)


def tune_garbage_collection() -> None:
    """Keep pauses for finding cycles short, however much the scheduler holds.

    Its long-lived data has no cycles: those that exceptions and callbacks make are found while they are young. On
    CPython, looking through everything would stop the scheduler for a second when a million tasks wait for others, and
    looking through what has come since the last 20 000 containers for 7 ms.
    """
    gc.collect()
    if hasattr(gc, "freeze"):  # CPython
        gc.freeze()
        gc.set_threshold(2_000, 3, 1_000_000)


def _maximum_peers(wanted: int) -> int:
    """How many peers can be served; raises this process's limit of open files as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return wanted
    possible = max(1, limit - DESCRIPTORS_FOR_OTHERS)
    if not wanted:
        text = "Scheduler: serves up to %d peers, because the limit of open files (ulimit -n) is %d"
        logger.info(text, possible, limit)
    if wanted > possible:
        text = (
            "Scheduler: --maximum-peers %d: the limit of open files (ulimit -n) is %d, so that %d peers can be served"
        )
        logger.warning(text, wanted, limit, possible)
    return min(wanted or possible, possible)


def _run(
    loop: EventLoop,
    options: argparse.Namespace,
    read_again: Callable[[], argparse.Namespace],
    service_manager: ServiceManager,
) -> None:
    """Serve; or stand by for another scheduler, and serve whenever it does not."""
    if options.standby_of is None:
        _serve(loop, options, read_again, service_manager)
        return
    listen(parse_address(options.address))[0].close()  # what is wrong with the address is said now
    standby = Standby(loop, _credentials_of_standby(options), options.takeover_seconds, service_manager)
    standby.start()
    while standby.is_needed(options.exit_when_stdin_closes):
        options = options_of_now(options, read_again)
        _serve(loop, options, read_again, service_manager, standby)
        if not standby.has_made_way:
            return


def _credentials_of_standby(options: argparse.Namespace) -> Credentials:
    """With which a standby asks the other scheduler: the owner's key, if there is one."""
    directory = _admission(options).directory
    key_file = directory.owner_file if directory is not None and directory.has_owner() else None
    return Credentials(places(options.standby_of), key_file, options.insecure or None)


def _serve(
    loop: EventLoop,
    options: argparse.Namespace,
    read_again: Callable[[], argparse.Namespace],
    service_manager: ServiceManager,
    standby: Optional[Standby] = None,
) -> None:
    servers: List[Server] = []  # one server, which is created after the transport
    maximum_peers = _maximum_peers(options.maximum_peers)
    with contextlib.ExitStack() as closing:
        with _at("--object-directory", options.object_directory):
            directory = ObjectDirectory(options.object_directory)
        closing.callback(directory.remove)
        _open_spill(options, directory)
        memory = MemoryUse()
        closing.callback(memory.close)
        bounds = _bounds(options, memory, directory)
        admission = _admission(options)
        peers = Connections(
            options.address,
            bounds.message,
            lambda peer: servers[0].peer_gone(peer),
            lambda peer, is_congested: servers[0].congestion(peer, is_congested),
            bounds.waiting,
            admission=admission,
            on_authenticated=lambda peer, grant: servers[0].authenticated(peer, grant),
        )
        closing.callback(peers.close)
        peers.limit_peers(maximum_peers)
        monitor = StatusPublisher(
            options.monitor_address or monitor_address_of(peers.address), bounds.publications, admission=admission
        )
        closing.callback(monitor.close)
        files = ObjectFiles(directory, lambda copied: servers[0].copied(copied))
        closing.callback(files.close)
        settings = _settings(options, maximum_peers, bounds, monitor, files)
        recorder = _recorder(options, settings, loop.time())
        reload = OptionReload(options, read_again, functools.partial(_settings_that_may_change, bounds.memory, files))
        core = SchedulerCore(settings)
        server = Server(loop, core, peers, monitor, files, recorder, memory, admission, service_manager, reload.reload)
        servers.append(server)
        server.take_signals(options.expect_restart)
        if standby is not None:
            standby.serves(server.make_way_for_another)
        logger.info("Scheduler: monitor address is %s", monitor.address)
        logger.info("Scheduler: listening at %s", peers.address)
        if options.announce:
            otherwise = "Scheduler: clients and workers need its address"
            announcement = closing.enter_context(
                announced(
                    ANNOUNCED_SCHEDULER,
                    peers.address,
                    otherwise,
                    monitor_address=monitor.address,
                    **admission.announced,
                )
            )
            keep_announced(announcement, loop.call_later)
        if options.address_file is not None:
            with _at("--address-file", options.address_file):
                write_at_once(options.address_file, f"{peers.address}\n{monitor.address}\n", mode=0o666)
        for part in (
            "AsyncBinder",
            "VanillaTaskManager",
            "VanillaObjectManager",
            "VanillaWorkerManager",
            "StatusReporter",
        ):
            logger.info("%s: started", part)  # names from earlier generations, for tools that read logs
        tune_garbage_collection()
        resume_compiling()
        try:
            server.run(options.exit_when_stdin_closes)
        except BrokenInvariantError:
            _keep_recording(recorder)
            raise
        finally:
            if recorder is not None:
                recorder.close()


def _admission(options: argparse.Namespace) -> Admission:
    """Who may connect.

    Raises OSError if there are no keys.
    """
    if options.insecure:
        text = "Scheduler: --insecure: all who reach %s can run programs as its user, and read all tasks"
        logger.warning(text, options.address)
        return Admission()
    path = options.keys or default_key_directory()
    try:
        arithmetic = load_sodium()
        directory = KeyDirectory(path)
        directory.open_or_create(arithmetic)
        return Admission(directory, arithmetic)
    except (KeyFileError, MissingLibraryError, OSError) as error:
        advice = "name another directory with --keys, or serve all who can connect with --insecure"
        raise OSError(f"there are no keys, {error}; {advice}") from error


def _recorder(options: argparse.Namespace, settings: Settings, now: float) -> Optional[SchedulerRecorder]:
    """The recorder of the core's inputs, if requested."""
    if options.record is None:
        return None
    path = path_of_process(options.record)
    with recording_path("--record", path):
        recorder = SchedulerRecorder(path, settings, now, time.time(), options.record_payloads, options.record_limit)
    logger.info("Scheduler: recording to %s", path)
    return recorder


def _keep_recording(recorder: Optional[SchedulerRecorder]) -> None:
    """The core has failed: keep the recording, so that the next scheduler does not overwrite it."""
    kept = recorder.keep() if recorder is not None else None
    if kept is not None:
        logger.error("Scheduler: to repeat the failure: scaler_scheduler replay %s", kept)
    else:
        logger.error("Scheduler: the failure was not recorded; start the scheduler with --record FILE to find out more")


@contextlib.contextmanager
def _at(option: str, path: Optional[str]) -> Iterator[None]:
    """Name the option in errors about a path that the user chose."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise OSError(f"{option} {path}: {error.strerror or error}") from error


def _open_spill(options: argparse.Namespace, directory: ObjectDirectory) -> None:
    """Create the directory on disk.

    Raises OSError when the directory that the user chose cannot be created; the default one is optional.
    """
    try:
        with _at("--object-spill-directory", options.object_spill_directory):
            directory.open_spill(options.object_spill_directory)
    except OSError as error:
        if options.object_spill_directory is not None:
            raise
        logger.warning("Scheduler: objects stay in memory, their directory on disk cannot be created: %s", error)


def _objects_bytes(options: argparse.Namespace, memory_limit_bytes: int, directory: ObjectDirectory) -> int:
    """How much the files of objects in memory may use; 0: no limit."""
    if directory.spill is None:
        return 0
    if options.object_memory_limit is not None:
        return int(options.object_memory_limit)
    if os.stat(directory.path).st_dev == os.stat(directory.spill.path).st_dev:
        return 0  # both are the same disk
    system = os.statvfs(directory.path)
    half_bytes = system.f_blocks * system.f_frsize // 2
    return min(half_bytes, int(memory_limit_bytes * OBJECTS_SHARE)) if memory_limit_bytes else half_bytes


def _settings(
    options: argparse.Namespace, maximum_peers: int, bounds: _Bounds, monitor: StatusPublisher, files: ObjectFiles
) -> Settings:
    return Settings(
        **changeable_settings(options),
        protected=options.protected,
        prefetch_seconds=options.prefetch_seconds,
        demand_target_seconds=options.demand_target_seconds,
        maximum_peers=maximum_peers,
        maximum_message_bytes=bounds.message,
        maximum_object_bytes=options.maximum_object_bytes,
        memory_limit_bytes=bounds.memory,
        object_memory_limit_bytes=bounds.objects,
        object_spill_directory=files.directory.spill.path if files.directory.spill is not None else "",
        implementation=m.Implementation(name="scaler-appliance", version=__version__, language=language()),
        scheduler_id=os.urandom(16),
        ticket_seed=os.urandom(32),
        # A random start in the lower half of all numbers, because peers may still have object ids of an earlier
        # scheduler.
        last_session=int.from_bytes(os.urandom(3), "big") >> 1,
        object_directory=files.directory.path,
        object_directory_token=files.directory.token,
        monitor_address=monitor.address,
        requires_grants=True,
    )


def _settings_that_may_change(
    memory_limit_bytes: int, files: ObjectFiles, options: argparse.Namespace
) -> Dict[str, Any]:
    """The values of `option_changes.CHANGEABLE` for given options."""
    return {
        **changeable_settings(options),
        "maximum_peers": _maximum_peers(options.maximum_peers),
        "object_memory_limit_bytes": _objects_bytes(options, memory_limit_bytes, files.directory),
    }
