"""`scaler_provision`: reads the options, makes pools and adapters, and runs the loop.

Rule: exit codes are 0, it was stopped, or `--dry-run` has printed what it would do; 1, the scheduler refuses or ends
it; 2, an option is invalid.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shlex
import signal
import sys
import threading
from types import FrameType
from typing import Dict, List, Optional, Sequence

from scaler.exceptions import ScalerError, with_page
from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ProvisionCore
from scaler.provision.kubernetes.pod_options import kubernetes_units
from scaler.provision.provision_options import PROVISION, fault_of_pools, pool_of, read_options
from scaler.provision.provisioner import Provisioner
from scaler.provision.slurm_script import SlurmSettings
from scaler.provision.slurm_units import SlurmUnits
from scaler.provision.unit_adapters import CommandUnits, LocalUnits, UnitAdapter, UnitError
from scaler.provision.unit_commands import amounts_text, digest_of, number_text
from scaler.worker.worker_options import CLUSTER
from scaler_protocol.host.addresses import parse_addresses
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.options import Reading

EXIT_FAILED = 1
EXIT_USAGE = 2
_INSTANCE_BYTES = 3
_ON_OTHER_HOSTS = ("slurm", "kubernetes")  # are units, unless there is one host only

logger = logging.getLogger("scaler")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the program; its exit code."""
    pools = read_options(arguments)
    first = pools[0]
    fault = fault_of_pools(pools)
    if fault:
        return _usage(fault)
    settings = {each.name: pool_of(each) for each in pools}
    try:
        adapters = {each.name: _adapter(each, settings[each.name]) for each in pools}
    except UnitError as error:
        return _usage(str(error))
    if any(each.dry_run for each in pools):
        for name, adapter in adapters.items():
            print(f"# Pool {name}\n{adapter.described()}\n")
        return 0
    try:
        setup_logging(first.logging_paths, first.logging_level, first.logging_config_file, first.logging_format)
    except (OSError, KeyError, ValueError) as error:
        return _usage(f"logging cannot be set up: {error}")
    for each in pools:
        if each.adapter in _ON_OTHER_HOSTS and all(part.is_local for part in parse_addresses(each.address)):
            logger.warning(
                "the workers of the pool %s connect to %s, which on another host is that host itself",
                *(each.name, each.address),
            )
    try:
        credentials = Credentials(first.address, first.key_file, first.insecure or None, "provisioner")
        places = {name: adapter.place for name, adapter in adapters.items() if adapter.place}
        core = ProvisionCore(list(settings.values()), instance_of(pools), places)
        provisioner = Provisioner(
            credentials, core, adapters, {each.name: each.list_interval_seconds for each in pools}
        )
    except (ScalerError, KeyFileError, MissingLibraryError, OSError) as error:
        return _fail(with_page(error))
    _stop_on_signals(provisioner)
    if first.exit_when_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, args=(provisioner,), daemon=True).start()
    return _ended(provisioner.run())


def instance_of(pools: Sequence[argparse.Namespace]) -> str:
    """A part of the ids of units.

    Where commands of the user list them, nothing but their ids tells units of this scheduler from those of others.
    """
    own = secrets.token_hex(_INSTANCE_BYTES)
    return digest_of(pools[0].address) + own if any(each.adapter == "exec" for each in pools) else own


def _adapter(options: argparse.Namespace, pool: PoolSettings) -> UnitAdapter:
    if options.adapter == "exec":
        return CommandUnits(
            pool,
            options.address,
            options.start_command,
            options.list_command,
            options.stop_command,
            options.command_timeout_seconds,
        )
    if options.adapter == "slurm":
        return SlurmUnits(pool, slurm_settings(options), options.command_timeout_seconds)
    if options.adapter == "kubernetes":
        return kubernetes_units(options, pool)
    return LocalUnits(worker_command(options, pool), Reading(CLUSTER, {}).values.drain_timeout_seconds)


def slurm_settings(options: argparse.Namespace) -> SlurmSettings:
    """What a pool's jobs are made of; other options of workers come from the environment, `SCALER_CLUSTER_...`."""
    words = shlex.split(options.worker_command) if options.worker_command else [sys.executable, "-m", "scaler.worker"]
    return SlurmSettings(
        address=options.address,
        worker=words,
        partition=options.partition or "",
        account=options.account or "",
        gres=options.gres or "",
        time_limit_seconds=options.lifetime_seconds,
        options=shlex.split(options.sbatch_options or ""),
        setup=options.setup_command or "",
        worker_key_file=options.worker_key_file,
        insecure=bool(options.insecure),
    )


def worker_command(options: argparse.Namespace, pool: PoolSettings) -> List[str]:
    """The command of a worker of this host; its other options come from the environment, `SCALER_CLUSTER_...`."""
    given: Dict[str, Optional[str]] = {
        "--num-of-workers": str(pool.slots),
        "--capabilities": amounts_text(pool.capabilities) or None,
        "--lifetime-seconds": number_text(pool.lifetime_seconds) if pool.lifetime_seconds else None,
        "--key-file": options.worker_key_file or options.key_file,
    }
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    insecure = ["--insecure"] if options.insecure else []
    return [sys.executable, "-m", "scaler.worker", options.address, *words, *insecure]


def _stop_on_signals(provisioner: Provisioner) -> None:
    def stop(_number: int, _frame: Optional[FrameType]) -> None:
        provisioner.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _stop_when_stdin_closes(provisioner: Provisioner) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    provisioner.stop()


def _ended(failure: str) -> int:
    if failure:
        return _fail(failure)
    logger.info("stopped")
    return 0


def _fail(text: str) -> int:
    print(f"{PROVISION.name}: {text}", file=sys.stderr)
    return EXIT_FAILED


def _usage(text: str) -> int:
    print(f"{PROVISION.name}: error: {text}\n{PROVISION.page_line}", end="", file=sys.stderr)
    return EXIT_USAGE
