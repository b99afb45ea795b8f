"""The options of `scaler_scheduler`: one table that defines its help, its section of a configuration file, its
environment variables and its documentation (see `scaler_protocol.programs.options`).

Rule: every option has a default and a unit, and does what its help says.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Dict, List

from scaler_appliance import __version__
from scaler_appliance.core.placement.tenant_shares import DEFAULT_LIMITS, TenantLimits
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol.host.addresses import parse_address, parse_addresses
from scaler_protocol.host.discovery import connectable
from scaler_protocol.host.interpreter import interpreter_name, python_version
from scaler_protocol.keys.allow_list import ANY_TENANT, Grant, check_grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.keys_options import KEYS
from scaler_protocol.programs.options import (
    EARLIER_LOGGING,
    EARLIER_SECURITY,
    Bytes,
    Choice,
    Directory,
    Earlier,
    Kind,
    NetworkAddress,
    NetworkAddresses,
    NewDirectory,
    NewFile,
    Number,
    Option,
    Program,
    Seconds,
    Switch,
    Whole,
    Words,
    logging_options,
    recording_options,
    service_options,
)

_SOME_SECONDS = Seconds(0, is_minimum_excluded=True)


class _EventLoop(Choice):
    def fault_here(self, value: str) -> str:
        if value != "uvloop":
            return ""
        from importlib.util import find_spec

        return "" if find_spec("uvloop") else "uvloop is not installed; use builtin, or on CPython: pip install uvloop"


_TENANT_FIELDS: Dict[str, Kind] = {
    "weight": Number(0, is_minimum_excluded=True, maximum=1_000_000),
    "maximum-waiting": Whole(0),
    "maximum-running": Whole(1),
    "maximum-objects": Bytes(0),
}
_TENANT_ATTRIBUTES: Dict[str, str] = {
    "weight": "weight",
    "maximum-waiting": "maximum_waiting",
    "maximum-running": "maximum_running",
    "maximum-objects": "maximum_object_bytes",
}


class _TenantText(Kind):
    """What one tenant may have; the value is its text, which is valid."""

    expects = "NAME:OPTION=VALUE,... with the options " + ", ".join(_TENANT_FIELDS)
    metavar = "NAME:OPTION=VALUE,..."

    def parse(self, text: str) -> Any:
        _limits_in(text)
        return text


def _limits_in(text: str) -> List[Any]:
    """A tenant's name, and then the attributes of its TenantLimits.

    Raises ValueError, with what to write instead.
    """
    name, colon, rest = text.partition(":")
    try:
        check_grant(Grant("worker", name, "any"))
    except KeyFileError as error:
        raise ValueError(str(error)) from None
    if name == ANY_TENANT or not colon:
        raise ValueError(f"expected {_TenantText.expects}, got {text!r}")
    values: Dict[str, Any] = {}
    for word in rest.split(","):
        field, _, value = word.partition("=")
        if field not in _TENANT_FIELDS:
            raise ValueError(f"expected {_TenantText.expects}, got the option {field!r} in {text!r}")
        if _TENANT_ATTRIBUTES[field] in values:
            raise ValueError(f"the option {field} is given twice in {text!r}")
        try:
            values[_TENANT_ATTRIBUTES[field]] = _TENANT_FIELDS[field].parse(value)
        except ValueError as error:
            raise ValueError(f"{field} of the tenant {name}: {error}") from None
    return [name, *TenantLimits(**{**DEFAULT_LIMITS._asdict(), **values})]


def _faults(options: argparse.Namespace) -> List[str]:
    """Names that are there twice, and what stands beside --self-test, which is read before the options are."""
    if options.self_test:
        return ["--self-test is given alone, without an address and other options"]
    if options.standby_of is not None:
        own = parse_address(options.address)
        others = (connectable(str(each)) for each in parse_addresses(options.standby_of))
        if connectable(options.address) in others:  # a wildcard is at all addresses; others may stand for it, too
            return [f"--standby-of {options.standby_of}: that is the address of this scheduler itself"]
        if not own.path and not own.port:
            return [f"--standby-of: clients and workers have to know the port of {options.address} beforehand"]
    names = [_limits_in(text)[0] for text in options.tenant]
    return [f"--tenant: {name} is given twice" for name in dict.fromkeys(names) if names.count(name) > 1]


def tenant_settings(texts: List[str]) -> List[List[Any]]:
    """The values of the option as `Settings.tenants` has them."""
    return [_limits_in(text) for text in texts]


def changeable_settings(options: argparse.Namespace) -> Dict[str, Any]:
    """The fields of `Settings` that follow from options which may change while the scheduler runs."""
    return {
        "client_timeout_seconds": options.client_timeout_seconds,
        "worker_timeout_seconds": options.worker_timeout_seconds,
        "heartbeat_interval_seconds": options.heartbeat_interval_seconds,
        "per_worker_queue_size": options.per_worker_queue_size,
        "max_number_of_tasks_waiting": options.max_number_of_tasks_waiting,
        "client_tasks_in_flight": options.client_tasks_in_flight,
        "client_bytes_in_flight": options.client_bytes_in_flight,
        "maximum_attempts": options.maximum_attempts,
        "tenants": tenant_settings(options.tenant),
    }


def version() -> str:
    """A line with all versions that matter in a bug report."""
    import zmq  # which scaler_top and scaler_ui use, and which comes with libsodium

    return (
        f"scaler_scheduler {__version__},"
        f" protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MIN}-{PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX},"
        f" {_interpreter()}, libzmq {zmq.zmq_version()}"
    )


def _interpreter() -> str:
    """Such as "CPython 3.11.7" or "PyPy 7.3.11 (Python 3.9.16)"."""
    name, python = interpreter_name(), python_version()
    implementation = ".".join(map(str, sys.implementation.version[:3]))
    return f"{name} {python}" if name == "CPython" else f"{name} {implementation} (Python {python})"


_TASKS = [
    Option(
        "-mt --max-number-of-tasks-waiting",
        Whole(),
        "reject tasks when N wait, for a worker or for other tasks of their graph, in addition to those that free"
        " workers take at once; -1: no limit",
        default=-1,
        group="tasks",
        is_reloadable=True,
    ),
    Option(
        "-qs --per-worker-queue-size",
        Whole(1),
        "maximum number of tasks that a worker may hold for each of its slots",
        default=1000,
        group="tasks",
        is_reloadable=True,
    ),
    Option(
        "--prefetch-seconds",
        Seconds(0, is_minimum_excluded=True, maximum=60),
        "how much work a worker has in line for each slot, by measured durations; distant workers have as much more as"
        " they do while messages travel",
        default=0.15,
        group="tasks",
    ),
    Option(
        "--demand-target-seconds",
        _SOME_SECONDS,
        "ask those who start workers for so many slots that the tasks which can run now are done in this time;"
        " see scaler_slots_wanted in /metrics of scaler_ui",
        default=10.0,
        group="tasks",
    ),
    Option(
        "--maximum-attempts",
        Whole(1),
        "fail a task after N workers were lost while they held it",
        default=4,
        group="tasks",
        is_reloadable=True,
    ),
    Option(
        "--client-tasks-in-flight",
        Whole(0),
        "unfinished tasks that one client may have before its submit() blocks; 0: no limit",
        default=1024 * 1024,
        group="tasks",
        is_reloadable=True,
    ),
    Option(
        "--client-bytes-in-flight",
        Bytes(0),
        "size of their arguments, and of large results that the client has not fetched; 0: no limit",
        default=256 * 1024 * 1024,
        group="tasks",
        is_reloadable=True,
    ),
]

_PEERS = [
    Option(
        "-ct --client-timeout-seconds",
        _SOME_SECONDS,
        "a client without a heartbeat for this long is lost, or for --worker-timeout-seconds if that is less and it is"
        " on the host of a worker; its tasks are cancelled",
        default=300.0,
        group="clients and workers",
        is_reloadable=True,
    ),
    Option(
        "-wt --worker-timeout-seconds",
        _SOME_SECONDS,
        "a worker without a heartbeat for this long is lost; its tasks run elsewhere",
        default=60.0,
        group="clients and workers",
        is_reloadable=True,
    ),
    Option(
        "-hi --heartbeat-interval-seconds",
        _SOME_SECONDS,
        "interval between the heartbeats of clients and workers; those that come when there are hundreds get a longer"
        " one",
        default=2.0,
        group="clients and workers",
        is_reloadable=True,
    ),
    Option(
        "--maximum-peers",
        Whole(0),
        "refuse further clients and workers when N are connected; 0: as many as the limit of open files allows",
        default=0,
        group="clients and workers",
        is_reloadable=True,
    ),
    Option(
        "--tenant",
        Words(_TenantText(), is_repeated=True),
        "the share and the quotas of a tenant; given once for each. weight: of its share of the workers that serve all"
        " tenants (default 1). maximum-waiting: reject its tasks when N wait. maximum-running: at most N of its tasks"
        " are at workers, the others wait. maximum-objects: take no objects beyond this size together. Without it,"
        " shares are equal, and there are no quotas",
        default=[],
        default_text="none",
        group="clients and workers",
        is_reloadable=True,
    ),
    Option(
        "-p --protected",
        Switch(),
        "refuse clients that ask to shut the cluster down",
        default=True,
        group="clients and workers",
    ),
]

_OBJECTS = [
    Option(
        "--object-directory",
        Directory(),
        "parent of the directory for large objects",
        default_text="/dev/shm, else the temporary directory",
        group="objects",
    ),
    Option(
        "--object-memory-limit",
        Bytes(0),
        "size of the objects there above which the least recently used ones are spilled to disk; 0: no limit",
        default_text="half of the size of that file system, or of the memory limit if that is less",
        group="objects",
        is_reloadable=True,
    ),
    Option(
        "--object-spill-directory",
        Directory(),
        "parent of the directory for objects on disk",
        default_text="the temporary directory",
        group="objects",
    ),
    Option(
        "--maximum-object-bytes",
        Bytes(1),
        "refuse objects larger than this",
        default=1 << 40,
        group="objects",
    ),
]

_MEMORY = [
    Option(
        "--memory-limit",
        Bytes(0),
        "memory of the scheduler, files of objects included: near it, clients are slowed, objects go to disk, and then"
        " new tasks are rejected; 0: no limit",
        default_text="three quarters of the host's or the control group's",
        group="memory",
    ),
]

_NETWORK = [
    Option(
        "-ma --monitor-address",
        NetworkAddress(),
        "where to publish status",
        default_text="ipc:///tmp/HOST_PORT_monitor",
        group="network",
    ),
    Option(
        "--announce",
        Switch(),
        "let clients, workers and monitors of the same user on this host find this scheduler without an address",
        default=True,
        group="network",
    ),
    Option(
        "--keys",
        NewDirectory(),
        "the scheduler's keys, and the list of those that it admits: see `scaler keys -h`; made if there are none",
        default_text="~/.config/scaler/keys",
        group="network",
    ),
    Option(
        "--insecure",
        Switch(),
        "serve all who can connect, without keys: all who reach the address can run programs as its user",
        default=False,
        group="network",
    ),
    Option(
        "--maximum-message-bytes",
        Bytes(1),
        "disconnect peers that send larger messages",
        default_text="512 MiB, or an eighth of the memory limit if that is less",
        group="network",
    ),
    Option(
        "-e -el --event-loop",
        _EventLoop(("builtin", "uvloop")),
        "uvloop requires the uvloop package and CPython",
        default="builtin",
        group="network",
    ),
]

_OBJECTS_ARE_HERE = "the scheduler stores objects itself, at its own address"
_BALANCES_ALWAYS = "the scheduler balances continuously, by the measured durations of tasks"
_POLICY = (
    "tasks are placed by capabilities and measured durations; scaler_provision starts workers when tasks need them"
)
_POOLS = {
    "waterfall": "write a [[provision]] for each line: its name, its maximum, and a priority, the highest first",
    "scaling=vanilla": "write a section [provision] with slots, and a maximum of units that have so many",
    "scaling=capability": "write a section [[provision]] for each set of capabilities, with slots and a maximum",
}

_EARLIER = [
    Earlier("bind_address", becomes=("address",)),
    Earlier("-it --io-threads", why="the network needs no threads"),
    Earlier("-osa --object-storage-address", why=_OBJECTS_ARE_HERE),
    Earlier("-aosa --advertised-object-storage-address", why=_OBJECTS_ARE_HERE),
    Earlier("-ot --object-retention-seconds", why="workers decide how long they keep objects: see scaler_cluster -h"),
    Earlier("-ls --load-balance-seconds", why=_BALANCES_ALWAYS),
    Earlier("-lbt --load-balance-trigger-times", why=_BALANCES_ALWAYS),
    Earlier("-sri --status-report-interval-seconds", why="status is published every second, and contains only changes"),
    Earlier("-et --policy-engine-type", why=_POLICY, instead=_POOLS),
    Earlier("-pc --policy-content", why=_POLICY, instead=_POOLS),
    *EARLIER_LOGGING,
    *EARLIER_SECURITY,
]

_STANDBY = [
    Option(
        "--standby-of",
        NetworkAddresses(),
        "the address of another scheduler with the same keys: this one serves while that one does not. Clients and"
        " workers get both addresses, with a comma in between",
        default=None,
        default_text="none: this scheduler serves at once",
        group="standby",
    ),
    Option(
        "--takeover-seconds",
        Seconds(0, is_minimum_excluded=True),
        "how long there has to be no answer from that scheduler before this one serves, and answers again before it"
        " makes way",
        default=5.0,
        group="standby",
    ),
]

SCHEDULER = Program(
    name="scaler_scheduler",
    page="configuration#scaler_scheduler",
    section="scheduler",
    description="Start a Scaler scheduler: clients submit tasks to it, workers connect to it and run them.",
    epilog="Then, on each machine that should run tasks:  scaler_cluster -n 4 ADDRESS. `scaler_scheduler keys`"
    " makes and revokes the keys of other users' programs, and `scaler_scheduler ping ADDRESS` asks a scheduler whether"
    " it serves.",
    version=version,
    faults=_faults,
    commands=[KEYS],
    options=[
        Option(
            "address",
            NetworkAddress(),
            "where to listen: tcp://127.0.0.1:2345 (port 0: any free one) or ipc:///path",
            is_required=True,
        ),
        *_TASKS,
        *_PEERS,
        *_MEMORY,
        *_OBJECTS,
        *_NETWORK,
        *recording_options("scheduler"),
        *logging_options(is_reloadable=True),
        Option(
            "--address-file",
            NewFile(),
            "when listening, write the address and the monitor address to this file, one per line",
            group="running under another program",
        ),
        Option(
            "--expect-restart",
            Switch(),
            "SIGTERM ends the scheduler and not its cluster, as SIGUSR1 always does: clients and workers wait for the"
            " next scheduler at its address, for as long as their time-outs say",
            default=False,
            group="running under another program",
        ),
        *service_options(),
        *_STANDBY,
        Option(
            "--self-test",
            Switch(has_negation=False),
            "start a scheduler for a moment, run tasks through it, encrypted as well, print versions and exit with 0 if"
            " everything works; it is given alone, needs no network but loopback, and leaves nothing behind",
            default=False,
            group="checks",
            is_command_line_only=True,
        ),
    ],
    earlier=_EARLIER,
)
