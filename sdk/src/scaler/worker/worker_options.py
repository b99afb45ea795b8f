"""The options of scaler_cluster and scaler_worker, which are one program: a table that defines its help, its section of
a configuration file, its environment variables and its documentation (see `scaler_protocol.programs.options`).

Rule: each option does what its help says. Nothing here imports the agent (see `program`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import sys
import time
from math import isfinite
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from scaler.cpus import default_slots
from scaler.data_serving.data_address import NO_DATA_ADDRESS, data_address_of
from scaler.exceptions import PreloadError
from scaler.version import __version__
from scaler.worker.fork_server.preload import parse_preload
from scaler.worker.notice_urls import fault_of_url
from scaler.worker.served_functions import parse_served
from scaler.worker.worker_settings import WorkerSettings
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol.programs.options import (
    EARLIER_LOGGING,
    EARLIER_SECURITY,
    Bytes,
    Choice,
    ConfigurationError,
    Earlier,
    Kind,
    NetworkAddresses,
    Option,
    Program,
    Seconds,
    Switch,
    Whole,
    Words,
    key_options,
    logging_options,
    recording_options,
    service_options,
)
from scaler_protocol.programs.options.kinds import comma_separated, toml_of
from scaler_protocol.programs.options.table import Sections

_DEFAULTS = WorkerSettings(address="", slots=1)
_SECONDS, _SOME_SECONDS = Seconds(0), Seconds(0.01)
_HEADER_NAME = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # of HTTP

UNCOUNTED_AMOUNT = float(1 << 31)
"""The amount of a capability that is not counted: more than any number of tasks can use."""


class _Names(Kind):
    """Names, separated by commas; in TOML also an array."""

    expects = "names, separated by commas"

    def parse(self, text: str) -> Any:
        return comma_separated(text)

    def from_toml(self, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return tuple(value)
        return super().from_toml(value)


class Capabilities(Kind):
    """NAME=AMOUNT or NAME, separated by commas; in TOML also a table of amounts, in which `true` means not counted."""

    expects = "capabilities such as gpu=1,linux"

    def parse(self, text: str) -> Any:
        amounts: Dict[str, float] = {}
        for part in comma_separated(text):
            name, has_amount, number = (piece.strip() for piece in part.partition("="))
            try:
                amount = float(number) if has_amount else -1.0
            except ValueError:
                amount = float("nan")
            if not name or name in amounts or not isfinite(amount) or (amount < 0 and amount != -1):
                raise ValueError(f"{part!r}: write NAME=AMOUNT, or NAME alone, and each name once")
            amounts[name] = UNCOUNTED_AMOUNT if amount == -1 else amount
        return amounts

    def from_toml(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return super().from_toml(value)
        amounts: Dict[str, float] = {}
        for name, amount in value.items():
            if amount is True:
                amounts[name] = UNCOUNTED_AMOUNT
            elif isinstance(amount, (int, float)) and not isinstance(amount, bool) and isfinite(amount) and amount >= 0:
                amounts[name] = float(amount)
            else:
                raise ValueError(
                    f"{name}: expected an amount, or true for one that is not counted, not {toml_of(amount)}"
                )
        return amounts

    def to_toml(self, value: Any) -> str:
        return toml_of({name: True if amount == UNCOUNTED_AMOUNT else amount for name, amount in value.items()})


class _Served(Kind):
    expects = "NAME=MODULE:FUNCTION"

    def parse(self, text: str) -> Any:
        return parse_served(text)

    def to_toml(self, value: Any) -> str:
        return toml_of("=".join(value))


class _Preload(Kind):
    expects = "MODULE or MODULE:FUNCTION"

    def parse(self, text: str) -> Any:
        try:
            parse_preload(text)
        except PreloadError as error:
            raise ValueError(str(error)) from None
        return text


class _DataAddress(Kind):
    expects = f"an address such as tcp://10.0.0.7:9000, or {NO_DATA_ADDRESS}"
    metavar = "ADDRESS"

    def parse(self, text: str) -> Any:
        address = data_address_of(text)
        if address is not None and address.path:
            raise ValueError("other hosts cannot reach a path: use an address tcp://HOST:PORT")
        return text


class _NoticeUrl(Kind):
    expects = "a URL such as http://169.254.169.254/latest/meta-data/spot/instance-action"

    def parse(self, text: str) -> Any:
        fault = fault_of_url(text)
        if fault:
            raise ValueError(f"{fault}: {text!r}; expected {self.expects}")
        return text


class _Header(Kind):
    expects = "NAME: VALUE"

    def parse(self, text: str) -> Any:
        name, has_value, value = (part.strip() for part in text.partition(":"))
        if not (has_value and _HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            raise ValueError(f"{text!r}: write NAME: VALUE, such as 'Metadata-Flavor: Google'")
        return name, value

    def to_toml(self, value: Any) -> str:
        return toml_of(": ".join(value))


class _EventLoop(Choice):
    def fault_here(self, value: str) -> str:
        is_missing = value == "uvloop" and importlib.util.find_spec("uvloop") is None
        return "uvloop is not installed: pip install uvloop, or use builtin" if is_missing else ""


def _scheduler_of(sections: Sections) -> Optional[Tuple[str, str]]:
    """The address of the scheduler in the same file, else of one that is found on this host."""
    for section in sections.get("scheduler", ()):
        address = section.get("address")
        if isinstance(address, str) and address:
            return address, "the file's [scheduler]"
    from scaler_protocol.host.discovery import DiscoveryError, find_scheduler

    try:
        return find_scheduler().address, "found on this host"
    except DiscoveryError as error:
        raise ConfigurationError(str(error)) from None


def _faults(options: argparse.Namespace) -> List[str]:
    slots, names = options.num_of_workers, options.worker_names
    faults = []
    if len(names) > 1 and slots is not None and len(names) != slots:
        faults.append(f"--worker-names has {len(names)} names for {slots} slots: give one, or one for each")
    if options.drain_url is None and (options.drain_url_header or options.drain_url_text):
        faults.append("--drain-url-header and --drain-url-text are for --drain-url, which is missing")
    return faults


_WORKERS = [
    Option(
        "-n --num-of-workers",
        Whole(1),
        "slots: how many tasks this worker runs at once, each in a processor, a process of its own",
        default_text="one for each of several names, else usable CPUs less one, at least 1",
        group="the worker",
    ),
    Option(
        "-wn --worker-names",
        _Names(),
        "one name for the worker, or one for each slot, separated by commas",
        default=(),
        metavar="NAME[,NAME...]",
        group="the worker",
    ),
    Option(
        "-qs --per-worker-queue-size",
        Whole(1),
        "tasks that the scheduler may send ahead to this worker for each slot",
        default=_DEFAULTS.per_worker_queue_size,
        group="the worker",
    ),
    Option(
        "-tm --trim-memory-threshold-bytes",
        Bytes(0),
        "a processor with more resident memory gives freed memory back to the system",
        default=_DEFAULTS.trim_memory_threshold_bytes,
        group="the worker",
    ),
    Option(
        "-pwc --per-worker-capabilities",
        Capabilities(),
        "what each slot offers to tasks that ask for it, such as gpu=1,linux; amounts are counted",
        default={},
        metavar="NAME[=AMOUNT][,...]",
        group="the worker",
    ),
    Option(
        "--capabilities",
        Capabilities(),
        "what all slots of this worker offer together, in the same form",
        default={},
        metavar="NAME[=AMOUNT][,...]",
        group="the worker",
    ),
    Option(
        "--functions",
        Words(_Served(), is_repeated=True),
        "serve a function by name to clients of any language; NAME*=MODULE serves all public functions of a module"
        " under names with this prefix; may be given several times",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        group="the worker",
    ),
    Option(
        "--only-named",
        Switch(has_negation=False),
        "run the functions of --functions only, called in json or raw: no function that a client sends, none by its"
        " place (python:), and nothing is unpickled",
        default=_DEFAULTS.only_named,
        group="the worker",
    ),
    Option(
        "--preload",
        Words(_Preload(), is_repeated=True),
        "import a module, and call a function if one is given, before processors start; may be given several times",
        default=[],
        metavar="MODULE[:FUNCTION]",
        group="the worker",
    ),
]

_TIMES = [
    Option(
        "-hi --heartbeat-interval --heartbeat-interval-seconds",
        _SOME_SECONDS,
        "seconds between heartbeats, unless the scheduler asks for another interval",
        default=_DEFAULTS.heartbeat_interval_seconds,
        group="times",
    ),
    Option(
        "-tts --task-timeout-seconds",
        _SECONDS,
        "stop a task that runs longer; 0: never",
        default=_DEFAULTS.task_timeout_seconds,
        group="times",
    ),
    Option(
        "-gc --garbage-collect-interval-seconds",
        _SOME_SECONDS,
        "how often processors collect garbage, between tasks",
        default=_DEFAULTS.garbage_collect_interval_seconds,
        group="times",
    ),
    Option(
        "-ot --object-retention-seconds",
        _SECONDS,
        "forget functions and objects that were not used for this long, and fetch them again when a task needs them",
        default=_DEFAULTS.object_retention_seconds,
        group="times",
    ),
    Option(
        "-ds --death-timeout-seconds",
        _SOME_SECONDS,
        "exit when no scheduler has answered for this long",
        default=_DEFAULTS.death_timeout_seconds,
        group="times",
    ),
]

SLURM_END_VARIABLE = "SLURM_JOB_END_TIME"
"""In which Slurm says when a job ends, in seconds since 1970."""


def _life_in_slurm(sections: Sections) -> Optional[Tuple[float, str]]:
    """How long the Slurm job still runs that this program is in, if it has a limit."""
    text = os.environ.get(SLURM_END_VARIABLE)
    if not text:
        return None
    try:
        seconds = int(text) - time.time()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"environment variable {SLURM_END_VARIABLE}: expected whole seconds since 1970, got {text!r};"
            " give --lifetime-seconds instead"
        ) from None
    return (seconds, f"environment {SLURM_END_VARIABLE}") if seconds > 0 else None  # else Slurm lets it run on


_LEAVING = [
    Option(
        "--drain-timeout-seconds",
        _SECONDS,
        "how long running tasks may take to end when the worker is asked to stop by SIGTERM, Ctrl-C or a notice, or at"
        " its end of life; 0: stop at once",
        default=_DEFAULTS.drain_timeout_seconds,
        group="leaving",
    ),
    Option(
        "--idle-timeout-seconds",
        _SECONDS,
        "leave when there was no task for this long; 0: never",
        default=_DEFAULTS.idle_timeout_seconds,
        group="leaving",
    ),
    Option(
        "--lifetime-seconds",
        _SECONDS,
        "leave in time to have ended so long after the start, and take no task that says it takes longer; 0: stay",
        default_text=f"until {SLURM_END_VARIABLE}, in a Slurm job with a time limit; else 0",
        find=_life_in_slurm,
        group="leaving",
    ),
    Option(
        "--drain-file",
        Kind(),
        "leave when a file with this path appears, by which another program gives notice",
        metavar="PATH",
        group="leaving",
    ),
    Option(
        "--drain-url",
        _NoticeUrl(),
        "leave when this address, which is asked every 2 s, answers with status 200: by such an address clouds give"
        " notice before they take a spot machine away",
        metavar="URL",
        group="leaving",
    ),
    Option(
        "--drain-url-header",
        Words(_Header(), is_repeated=True),
        "a header of these requests, such as 'Metadata-Flavor: Google'; may be given several times",
        default=[],
        metavar="NAME:VALUE",
        group="leaving",
    ),
    Option(
        "--drain-url-text",
        Kind(),
        "an answer is a notice only if it has this text, such as TRUE",
        group="leaving",
    ),
    Option(
        "--drain-signal",
        Choice(("SIGUSR1", "SIGUSR2", "SIGXCPU"), is_upper=True),
        "leave at this signal, by which a batch system gives notice",
        group="leaving",
    ),
    Option(
        "--unit",
        Kind(),
        "the id that this worker has at the program which has started it, such as scaler_provision; the scheduler then"
        " chooses this worker, or others, when fewer are needed",
        metavar="ID",
        group="leaving",
    ),
]

_NETWORK = [
    Option(
        "-el --event-loop",
        _EventLoop(("builtin", "uvloop")),
        "the agent's event loop; uvloop requires the uvloop package and CPython",
        default=_DEFAULTS.event_loop,
        group="network",
    ),
    Option(
        "--data-address",
        _DataAddress(),
        "where other workers fetch large results from this one, as well as it from them; tcp://*:0: any free port of"
        f" the interface with which it reaches the scheduler; {NO_DATA_ADDRESS}: all of them go through the scheduler",
        default=_DEFAULTS.data_address,
        group="network",
    ),
    *key_options("worker"),
]


OTHER_KINDS = "start scaler_cluster on the machines that should run tasks, or let scaler_provision start it there"
"""What to do for workers of kinds that earlier generations had managers for."""

_BY_COMMANDS = (
    'write a section [provision] with adapter = "exec" instead, and three commands of that system: start_command,'
    " list_command and stop_command"
)
INSTEAD_OF_KINDS = {
    "k8s": 'write a section [provision] with adapter = "kubernetes" instead, with image, slots and maximum',
    **dict.fromkeys(("symphony", "aws", "oci"), _BY_COMMANDS),
}
"""What to write for them, by a word in their name."""

_NOTHING_MANAGES = "workers connect to the scheduler themselves, without a manager"

_EARLIER = [
    Earlier("scheduler_address", becomes=("address",)),
    Earlier("-wsa --worker-scheduler-address", becomes=("address",), overrides=True),
    Earlier("-wtqs --per-worker-task-queue-size", becomes=("per_worker_queue_size",)),
    Earlier("-his", becomes=("heartbeat_interval_seconds",)),
    Earlier("-dts", becomes=("death_timeout_seconds",)),
    Earlier("-mtc --max-task-concurrency", becomes=("num_of_workers",), unset=("-1",)),
    Earlier("-it --io-threads", why="the network needs no threads"),
    Earlier("-hps --hard-processor-suspend", why="no task is suspended by a signal", takes="nothing"),
    Earlier("-la --log-hub-address", why="workers log to --logging-paths"),
    Earlier("-osa --object-storage-address", why="the scheduler stores objects itself, at its own address"),
    Earlier("type", only=("baremetal_native",), why=OTHER_KINDS, instead=INSTEAD_OF_KINDS),
    Earlier("-wmi --worker-manager-id", why=_NOTHING_MANAGES),
    Earlier(
        "--mode",
        why="all workers start at once, and stay; scaler_provision starts and stops them with the work",
        instead={"dynamic": "write a section [provision] with slots, and a maximum of units that have so many"},
    ),
    Earlier("--worker-type", why="--worker-names names workers"),
    *EARLIER_LOGGING,
    *EARLIER_SECURITY,
]


def drain_signals(options: Union[argparse.Namespace, WorkerSettings]) -> Tuple[int, ...]:
    """The signals that give notice: one, or none."""
    return () if options.drain_signal is None else (signal.Signals[options.drain_signal],)


def _version() -> str:
    return f"{_own_name()} {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})"


def _own_name() -> str:
    """The name by which this program was started."""
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("scaler_") else "scaler_cluster"


CLUSTER = Program(
    name="scaler_cluster",
    page="configuration#scaler_cluster",
    section="cluster",
    is_repeated=True,
    description="Start a worker: it runs tasks of a Scaler scheduler on this host, as many at once as it has slots.",
    version=_version,
    faults=_faults,
    options=[
        Option(
            "address",
            NetworkAddresses(),
            "address of the scheduler, such as tcp://127.0.0.1:8516; several with commas: where it may be",
            default_text="that of the file's [scheduler], else of this user's newest scheduler on this host",
            is_required=True,
            environment=("SCALER_ADDRESS",),
            find=_scheduler_of,
        ),
        *_WORKERS,
        *_TIMES,
        *_LEAVING,
        *_NETWORK,
        *recording_options("worker's agent"),
        *logging_options(),
        *service_options(),
    ],
    earlier=_EARLIER,
)


def read_options(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """See `Program.read`; the number of slots is known then, and the end of life on the monotonic clock."""
    options = CLUSTER.read(arguments, _own_name())
    options.end_of_life = time.monotonic() + options.lifetime_seconds if options.lifetime_seconds else None
    if options.num_of_workers is None:
        names = len(options.worker_names)
        options.num_of_workers = names if names > 1 else default_slots()
    return options
