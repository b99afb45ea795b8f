"""The command line of scaler_cluster and scaler_worker: one program, which is one worker.

Rules:
- The order matters. Arguments are read, logging is set up and the fork server is forked while this process has one
  thread and no event loop; only then is the agent imported. So nothing here may import it at the top.
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
from typing import TYPE_CHECKING, Dict, Optional, Sequence

from scaler.values.texts import counted
from scaler.worker.early_signals import held_signals, ignore_late_signals, leave_on_signals
from scaler.worker.exit_codes import EXIT_ERROR, EXIT_USAGE
from scaler.worker.fork_server.fork_server import ForkServerSettings, start_fork_server
from scaler.worker.fork_server.fork_server_client import ForkServerClient
from scaler.worker.fork_server.processor_process import SPAWNS
from scaler.worker.forwarded_signals import FORWARDED_AS
from scaler.worker.progress_page import ProgressPage
from scaler.worker.worker_options import CLUSTER, drain_signals, read_options
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol.host.addresses import AddressError
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.repeated_lines import report_repetitions
from scaler_protocol.programs.service_manager import ServiceManager
from scaler_protocol.recording.recording_path import RecordingPathError

if TYPE_CHECKING:
    from scaler_protocol.programs.event_loop import EventLoop

FORK_SERVER_END_SECONDS = 5.0


def settings_of(options: argparse.Namespace) -> WorkerSettings:
    """The settings for the given options."""
    slots = options.num_of_workers
    capabilities: Dict[str, float] = dict(options.capabilities)
    for name, amount in options.per_worker_capabilities.items():
        capabilities[name] = capabilities.get(name, 0.0) + amount * slots
    return WorkerSettings(
        address=options.address,
        slots=slots,
        names=tuple(options.worker_names),
        heartbeat_interval_seconds=options.heartbeat_interval_seconds,
        task_timeout_seconds=options.task_timeout_seconds,
        garbage_collect_interval_seconds=options.garbage_collect_interval_seconds,
        trim_memory_threshold_bytes=options.trim_memory_threshold_bytes,
        object_retention_seconds=options.object_retention_seconds,
        death_timeout_seconds=options.death_timeout_seconds,
        per_worker_queue_size=options.per_worker_queue_size,
        event_loop=options.event_loop,
        data_address=options.data_address,
        key_file=options.key_file,
        insecure=options.insecure,
        exit_when_stdin_closes=options.exit_when_stdin_closes,
        functions=tuple(options.functions),
        only_named=options.only_named,
        capabilities=tuple(sorted(capabilities.items())),
        drain_timeout_seconds=options.drain_timeout_seconds,
        idle_timeout_seconds=options.idle_timeout_seconds,
        end_of_life=options.end_of_life,
        drain_file=options.drain_file,
        drain_url=options.drain_url,
        drain_url_headers=tuple(options.drain_url_header),
        drain_url_text=options.drain_url_text or "",
        drain_signal=options.drain_signal,
        unit=options.unit,
        record=options.record,
        record_payloads=options.record_payloads,
        record_limit_bytes=options.record_limit,
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one worker; returns the exit code of the program.

    Parameters:
        arguments: by default those of the command line.
    """
    return run(read_options(arguments), service_manager=ServiceManager.of_this_process("Worker"))


def run(options: argparse.Namespace, note: str = "", service_manager: Optional[ServiceManager] = None) -> int:
    """Run one worker; returns the exit code of the program.

    Parameters:
        options: what `read_options` made of the command line.
        note: a warning to log once logging is set up.
        service_manager: notified when the worker is ready and that it works; None: there is none.
    """
    settings = settings_of(options)
    leave_on_signals(drain_signals(options))
    try:
        logger = setup_logging(
            options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format
        )
    except (OSError, KeyError, ValueError) as error:
        CLUSTER.parser().error(f"logging cannot be set up: {error}")
    if note:
        logger.warning(note)
    logger.info(
        "ClusterProcess: starting 1 worker with %s, heartbeat_interval_seconds=%g, object_retention_seconds=%g",
        counted(settings.slots, "slot"),
        settings.heartbeat_interval_seconds,
        settings.object_retention_seconds,
    )
    logger.info("ClusterProcess: the scheduler is at %s", settings.address)
    _raise_descriptor_limit()
    try:
        page = ProgressPage.in_file() if SPAWNS else ProgressPage()
        fork_server, fork_server_process_id = start_fork_server(
            page, ForkServerSettings(settings.address, options.preload, drain_signals(options))
        )
    except (OSError, MemoryError) as error:
        logger.error("ClusterProcess: the fork server cannot be started: %s", str(error) or "out of memory")
        return EXIT_ERROR
    try:
        manager = service_manager or ServiceManager("Worker", {})
        return _run_agent(settings, fork_server, page, logger, manager)
    finally:
        fork_server.close()
        _wait_for_end(fork_server_process_id)
        report_repetitions(is_final=True)  # a supervised agent ends without its `atexit` functions


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files, because each processor costs the agent a descriptor and the usual limit is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run_agent(
    settings: WorkerSettings,
    fork_server: ForkServerClient,
    page: ProgressPage,
    logger: logging.Logger,
    service_manager: ServiceManager,
) -> int:
    from scaler.worker.agent.shell.agent_shell import Agent
    from scaler_protocol.programs.event_loop import make_event_loop

    try:
        loop = make_event_loop(settings.event_loop)
    except ImportError:
        logger.error("uvloop is not installed: pip install uvloop, or use --event-loop builtin")
        return EXIT_USAGE
    try:
        return Agent(settings, fork_server, page, loop, service_manager).run()
    except (AddressError, RecordingPathError) as error:
        logger.error("%s", error)
        return EXIT_USAGE
    finally:
        _ignore_signals(loop, drain_signals(settings))
        loop.close()


def _ignore_signals(loop: EventLoop, others: Sequence[int]) -> None:
    with held_signals(others):
        for number in (*FORWARDED_AS, *FORWARDED_AS.values(), *others):
            loop.remove_signal_handler(number)
        ignore_late_signals(others)


def _wait_for_end(process_id: int) -> None:
    """Wait a bounded time until the fork server has removed everything."""
    deadline = time.monotonic() + FORK_SERVER_END_SECONDS
    while time.monotonic() < deadline:
        try:
            if os.waitpid(process_id, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main())
