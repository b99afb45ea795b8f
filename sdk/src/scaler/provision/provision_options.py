"""The options of `scaler_provision`: each section [provision] of a file is a pool; without a file, there is one.

See `scaler_protocol.programs.options` for option tables.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import List, Optional, Sequence, Tuple

from scaler.provision.core.pool import PoolSettings
from scaler.provision.kubernetes.pod_options import KUBERNETES_OPTIONS, is_given, kubernetes_faults
from scaler.provision.kubernetes.pod_options import NAMES as _KUBERNETES
from scaler.provision.kubernetes.pods import capabilities_of_resources
from scaler.provision.slurm_script import capabilities_of_gres, fault_of_options, lifetime_of
from scaler.version import __version__
from scaler.worker.worker_options import Capabilities
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol.host.addresses import WILDCARDS, parse_addresses
from scaler_protocol.programs.options import (
    Choice,
    ConfigurationError,
    Kind,
    NetworkAddresses,
    Number,
    Option,
    Program,
    Reading,
    Seconds,
    Switch,
    Whole,
    key_options,
    logging_options,
    read_sections,
    service_options,
)
from scaler_protocol.programs.options.program import EXIT_FAULTS
from scaler_protocol.programs.options.table import Sections

SECTION = "provision"
_DEFAULTS = PoolSettings("")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", re.ASCII)
_EVERYWHERE = ("0.0.0.0", *WILDCARDS)
_COMMANDS = tuple(f"{name}_command" for name in ("start", "list", "stop"))
_SLURM = ("partition", "account", "gres", "sbatch_options", "setup_command")


class _PoolName(Kind):
    """A word that may be a part of the name of a job, a pod or a file."""

    expects = "at most 40 letters, digits, points, dashes and underscores"
    metavar = "NAME"

    def parse(self, text: str) -> str:
        if not _NAME.fullmatch(text):
            raise self._wrong(text)
        return text


def _faults(options: argparse.Namespace) -> List[str]:
    lacking = [_flag(name) for name in _COMMANDS if not getattr(options, name)]
    faults = []
    if options.adapter == "exec" and lacking:
        faults.append(f"--adapter exec needs {', '.join(lacking)} as well")
    if options.adapter == "kubernetes":
        faults += kubernetes_faults(options)
    for adapter, names in (("exec", _COMMANDS), ("slurm", _SLURM), ("kubernetes", _KUBERNETES)):
        given = [_flag(name) for name in names if is_given(options, name)]
        if options.adapter != adapter and given:
            faults.append(f"{given[0]} is for --adapter {adapter}")
    if options.worker_command and options.adapter not in ("slurm", "kubernetes"):
        faults.append("--worker-command is for --adapter slurm or kubernetes")
    if options.worker_key_file and options.adapter not in ("local", "slurm"):
        faults.append("--worker-key-file is for --adapter local or slurm")
    fault = fault_of_options(options.sbatch_options or "")
    if fault:
        faults.append(f"--sbatch-options: {fault}")
    if options.adapter != "local" and options.address and names_no_host(options.address):
        text = f"{options.address} names no host that others could connect to: write the scheduler's name or address"
        faults.append(f"--adapter {options.adapter}: {text}")
    if options.minimum > options.maximum:
        faults.append(f"--minimum {options.minimum} is above --maximum {options.maximum}")
    return faults


def names_no_host(address: str) -> bool:
    """Whether an address is one to listen at, and none to connect to from elsewhere."""
    return any(each.host in _EVERYWHERE for each in parse_addresses(address))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _scheduler_of(sections: Sections) -> Optional[Tuple[str, str]]:
    """The address in the section [scheduler] of the same file."""
    for entry in sections.get("scheduler", ()):
        if isinstance(entry.get("address"), str):
            return entry["address"], "section [scheduler]"
    return None


PROVISION = Program(
    name="scaler_provision",
    page="configuration#scaler_provision",
    section=SECTION,
    description="Start workers when tasks need slots, and let them go when they are idle. What is started at a time is"
    " a unit; units that are alike are a pool. Each section [provision] of a file is a pool.",
    epilog="examples:\n"
    "  scaler_provision tcp://127.0.0.1:2345 --maximum 4 --slots 2\n"
    "  scaler_provision --config scaler.toml\n"
    "  scaler_provision tcp://login1:2345 --adapter slurm --partition batch --slots 16 --maximum 20\n"
    "  scaler_provision tcp://scaler-scheduler:2345 --adapter kubernetes --image registry/workers --maximum 20\n"
    "  scaler_provision tcp://scheduler:2345 --adapter exec --maximum 20 \\\n"
    "    --start-command './start \"$UNIT_ID\"' --list-command ./list --stop-command './stop \"$UNIT_ID\"'\n"
    "docs/how-to/workers-that-come-and-go.md explains pools, states and failures; docs/how-to/slurm.md, jobs;"
    " docs/how-to/kubernetes.md, pods.",
    version=lambda: f"scaler_provision {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})",
    is_repeated=True,
    faults=_faults,
    options=[
        Option(
            "address",
            NetworkAddresses(),
            "address of the scheduler, such as tcp://127.0.0.1:2345",
            is_required=True,
            environment=("SCALER_ADDRESS",),
            find=_scheduler_of,
        ),
        Option("--name", _PoolName(), "of the pool, and the beginning of the ids of its units", default="workers"),
        Option(
            "--adapter",
            Choice(("local", "slurm", "kubernetes", "exec")),
            "what units are. local: workers on this host, which end with this program; slurm: jobs of Slurm;"
            " kubernetes: pods; exec: what three commands start, list and stop",
            default="local",
        ),
        Option("--slots", Whole(1), "of each unit", default=_DEFAULTS.slots),
        Option(
            "--capabilities",
            Capabilities(),
            "of each unit: NAME=AMOUNT, such as gpu=2",
            default={},
            default_text="what --gres or --resources give, else none",
        ),
        Option("--minimum", Whole(0), "units that there are in any case", default=_DEFAULTS.minimum, group="size"),
        Option("--maximum", Whole(0), "units that there are at most", default=_DEFAULTS.maximum, group="size"),
        Option(
            "--backlog",
            Whole(1),
            "units that may be on their way at a time",
            default=_DEFAULTS.backlog,
            group="size",
        ),
        Option(
            "--priority",
            Whole(),
            "pools with a higher one are used first, as far as they can run the tasks",
            default=_DEFAULTS.priority,
            group="size",
        ),
        Option(
            "--cost",
            Number(0),
            "of a unit; of pools with the same priority, the cheapest is used first",
            default=_DEFAULTS.cost,
            group="size",
        ),
        Option(
            "--idle-seconds",
            Seconds(0),
            "let a unit go that has had no tasks for so long, or for as long as it takes to start one, if that is more",
            default=_DEFAULTS.idle_seconds,
            group="times",
        ),
        Option(
            "--sustain-seconds",
            Seconds(0),
            "start units only when slots have been missing for so long",
            default=_DEFAULTS.sustain_seconds,
            group="times",
        ),
        Option(
            "--start-timeout-seconds",
            Seconds(0, is_minimum_excluded=True),
            "a unit that runs and has not connected for so long has failed, and is stopped",
            default=_DEFAULTS.start_timeout_seconds,
            group="times",
        ),
        Option(
            "--lifetime-seconds",
            Seconds(0),
            "how long a unit stays, if it has an end: tasks that say they take longer start none; with --adapter slurm,"
            " the time limit of its job, less a minute for tasks; 0: no end, or the limit of the partition",
            default=_DEFAULTS.lifetime_seconds,
            group="times",
        ),
        Option(
            "--list-interval-seconds",
            Seconds(0, is_minimum_excluded=True),
            "between two listings of the units",
            default=5.0,
            group="times",
        ),
        Option(
            "--start-command",
            Kind(),
            "starts a unit with the id in the variable UNIT_ID, which its workers need as their option unit;"
            " UNIT_ADDRESS, UNIT_POOL, UNIT_SLOTS, UNIT_CAPABILITIES and UNIT_LIFETIME_SECONDS are set as well",
            metavar="COMMAND",
            group="adapters",
        ),
        Option(
            "--list-command",
            Kind(),
            "prints a line for each unit of UNIT_POOL: its id, pending, running or failed, and the reason",
            metavar="COMMAND",
            group="adapters",
        ),
        Option("--stop-command", Kind(), "stops the unit UNIT_ID", metavar="COMMAND", group="adapters"),
        Option(
            "--worker-command",
            Kind(),
            "of Slurm's jobs and of pods: the command of a worker, if it is another one; such as scaler_cluster,"
            " found on the PATH that --setup-command sets",
            default_text="this program's Python, which nodes must have at the same place; the entry point of --image",
            metavar="COMMAND",
            group="adapters",
        ),
        Option(
            "--command-timeout-seconds",
            Seconds(0, is_minimum_excluded=True),
            "how long each command may take, those of Slurm included, and each request to Kubernetes",
            default=60.0,
            group="adapters",
        ),
        Option(
            "--dry-run",
            Switch(has_negation=False),
            "print what each pool would run, such as the script of a Slurm job or the manifest of a pod, and end:"
            " nothing is started",
            default=False,
            group="adapters",
        ),
        Option("--partition", Kind(), "of the jobs", default_text="Slurm's default", metavar="NAME", group="Slurm"),
        Option("--account", Kind(), "of the jobs", default_text="Slurm's default", metavar="NAME", group="Slurm"),
        Option(
            "--gres",
            Kind(),
            "generic resources of each job, such as gpu:a100:2, which is the capability gpu=2 unless --capabilities"
            " says something else",
            metavar="NAME[:TYPE][:COUNT][,...]",
            group="Slurm",
        ),
        Option(
            "--sbatch-options",
            Kind(),
            "further options of sbatch, as in a shell, such as '-q long -o /scratch/me/%j.log'",
            metavar="OPTIONS",
            group="Slurm",
        ),
        Option(
            "--setup-command",
            Kind(),
            "shell commands that a job runs before its worker, such as 'module load python'",
            metavar="COMMAND",
            group="Slurm",
        ),
        Option(
            "--worker-key-file",
            Kind(),
            "the key that workers of this host or of Slurm connect with, of the role worker; nodes must share the file",
            default_text="on this host, --key-file; else the workers' SCALER_KEY_FILE,"
            " else the key of the scheduler's user in a shared home",
            metavar="PATH",
            group="Slurm",
        ),
        *KUBERNETES_OPTIONS,
        *key_options("provisioner"),
        *logging_options(),
        *service_options(),
    ],
)


def read_options(arguments: Optional[Sequence[str]] = None) -> List[argparse.Namespace]:
    """The options of each pool, in the order of the file; see `Program.read`."""
    given = PROVISION.parser().parse_args(arguments)
    path, entry = getattr(given, "config", None), getattr(given, "config_entry", None)
    try:
        count = len(read_sections(path).get(SECTION, ())) if path and entry is None else 0
    except ConfigurationError:  # `read` says what is wrong with the file
        count = 0
    if count < 2:
        return [PROVISION.read(arguments)]
    entries = range(1, count + 1)
    if given.check or given.print_config:
        readings = [Reading(PROVISION, {**vars(given), "config_entry": each}) for each in entries]
        sys.exit(_check(given.config, readings) if given.check else _print(readings))
    words = list(sys.argv[1:] if arguments is None else arguments)
    return [PROVISION.read([*words, "--config-entry", str(each)]) for each in entries]


def fault_of_pools(pools: Sequence[argparse.Namespace]) -> str:
    """Why one program cannot serve all of these pools; empty if it can."""
    names = [each.name for each in pools]
    if len(set(names)) < len(names):
        return f"the names of pools must differ, got {', '.join(names)}: give each section its own name"
    if len({each.address for each in pools}) > 1:
        return "all pools need the same address: run a scaler_provision for each scheduler"
    if len({(each.key_file, each.insecure) for each in pools}) > 1:
        return "all pools need the same key_file and insecure: there is one session for them"
    for option in logging_options():
        found = {each.name: getattr(each, option.key) for each in pools}
        (first, value), *others = found.items()
        differing = next((name for name, other in others if other != value), None)
        if differing is not None:
            return (
                f"all pools need the same {option.key}, since they have one log: {first} has {value}, and {differing}"
                f" has {found[differing]}; set it in each section, or once by {option.names.split()[-1]} or"
                f" {PROVISION.variables(option)[0]}"
            )
    return ""


def _check(path: str, readings: Sequence[Reading]) -> int:
    """Print what is wrong with the pools, and with all of them together."""
    faults = [fault for reading in readings for fault in PROVISION.faults_here(reading)]
    together = "" if faults else fault_of_pools([reading.values for reading in readings])
    if together:
        faults.append(f"{path}: {together}")
    for line in faults or [f"{path} is valid"]:
        print(f"{PROVISION.name}: {line}")
    return EXIT_FAULTS if faults else 0


def _print(readings: Sequence[Reading]) -> int:
    """Print the options of all pools, as a file has them."""
    for reading in readings:
        for fault in reading.faults:
            print(f"{PROVISION.name}: error: {fault}", file=sys.stderr)
    print("\n".join(reading.toml() for reading in readings), end="")
    return EXIT_FAULTS if any(reading.faults for reading in readings) else 0


def pool_of(options: argparse.Namespace) -> PoolSettings:
    """The settings of a pool."""
    is_slurm = options.adapter == "slurm"
    return PoolSettings(
        name=options.name,
        slots=options.slots,
        capabilities={
            **capabilities_of_gres(options.gres or ""),
            **capabilities_of_resources(options.resources),
            **options.capabilities,
        },
        minimum=options.minimum,
        maximum=options.maximum,
        priority=options.priority,
        cost=options.cost,
        backlog=options.backlog,
        idle_seconds=options.idle_seconds,
        sustain_seconds=options.sustain_seconds,
        start_timeout_seconds=options.start_timeout_seconds,
        lifetime_seconds=lifetime_of(options.lifetime_seconds) if is_slurm else options.lifetime_seconds,
    )
