"""The options of `scaler CONFIG.toml` and of `scaler dev`, `up` and `drain`: tables like those of any other program.

See `scaler_protocol.programs.options` for option tables.
"""

from __future__ import annotations

import argparse
from typing import List, Optional, Tuple

from scaler.cpus import default_slots
from scaler.version import __version__
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol.host.discovery import DiscoveryError, find_scheduler
from scaler_protocol.keys.keys_options import KEYS
from scaler_protocol.programs.logging_setup import LEVELS
from scaler_protocol.programs.options import (
    Choice,
    ConfigurationError,
    Directory,
    ExistingFile,
    NetworkAddresses,
    Option,
    Program,
    Seconds,
    Switch,
    Whole,
    Words,
    key_options,
    logging_options,
)
from scaler_protocol.programs.options.table import Sections
from scaler_protocol.recording.replay_options import REPLAY

DEFAULT_PORT = 2345
DEFAULT_UI_PORT = 8081
_MAXIMUM_PORT = 65535


def _version() -> str:
    return f"scaler {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})"


def _faults_of_ports(options: argparse.Namespace) -> List[str]:
    ports = {"--port": options.port, "--ui-port": options.ui_port}
    return [
        f"{flag} {port}: ports go up to {_MAXIMUM_PORT}"
        for flag, port in ports.items()
        if port and port > _MAXIMUM_PORT
    ]


def _ports() -> List[Option]:
    return [
        Option(
            "--port",
            Whole(0),
            "where the scheduler listens; 0: any free port",
            default_text=f"{DEFAULT_PORT}, or any free port if that is taken",
            metavar="PORT",
            is_command_line_only=True,
        ),
        Option(
            "--ui-port",
            Whole(0),
            "where the user interface listens; 0: any free port",
            default_text=f"{DEFAULT_UI_PORT}, or any free port if that is taken",
            metavar="PORT",
            is_command_line_only=True,
        ),
        Option("--ui", Switch(), "start the user interface", default=True, is_command_line_only=True),
    ]


DEV = Program(
    name="scaler dev",
    page="cluster#scaler-dev",
    section="dev",
    description="Start a scheduler, a worker and the user interface on this machine, and say how to use them."
    " Ctrl-C stops everything.",
    version=_version,
    is_configured=False,
    faults=_faults_of_ports,
    options=[
        Option(
            "-n --num-of-workers",
            Whole(1),
            "slots: how many tasks the worker runs at once, each in a processor, a process of its own",
            default_text="usable CPUs less one, at least 1",
            find=lambda _: (default_slots(), "the CPUs of this machine"),
            is_command_line_only=True,
        ),
        *_ports(),
        Option(
            "-ll --logging-level",
            Choice(LEVELS, is_upper=True),
            "the lowest level that scheduler and worker log",
            default="INFO",
            is_command_line_only=True,
        ),
        Option(
            "--record",
            Directory(),
            "write everything that reaches the scheduler and the worker to files in this folder, for scaler replay;"
            " payloads are left out",
            is_command_line_only=True,
        ),
    ],
)


def _scheduler_here(sections: Sections) -> Optional[Tuple[str, str]]:
    """The address of a scheduler that is found on this host."""
    try:
        return find_scheduler().address, "found on this host"
    except DiscoveryError as error:
        raise ConfigurationError(str(error)) from None


def _faults_of_drain(options: argparse.Namespace) -> List[str]:
    return [] if options.workers or options.all_on else ["which worker? give its name or session, or --all-on HOST"]


DRAIN = Program(
    name="scaler drain",
    page="how-to/workers-that-come-and-go#scaler-drain",
    section="drain",
    description="Let workers finish their running tasks and leave, and wait until they have left. Tasks that have not"
    " begun go to other workers at once.",
    epilog="examples:\n"
    "  scaler drain gpu-node-3\n"
    "  scaler drain 1042 1043 --timeout-seconds 600\n"
    "  scaler drain --all-on node7 --address tcp://scheduler:2345 --key-file admin.key",
    version=_version,
    is_configured=False,
    faults=_faults_of_drain,
    options=[
        Option(
            "workers",
            Words(),
            "names or session numbers, as scaler_top shows them",
            metavar="WORKER",
            is_command_line_only=True,
        ),
        Option(
            "--all-on",
            Words(is_repeated=True),
            "all workers on this host; may be given several times",
            metavar="HOST",
            is_command_line_only=True,
        ),
        Option(
            "--now",
            Switch(has_negation=False),
            "stop the workers at once: what they run goes to other workers; a protected scheduler refuses",
            default=False,
            is_command_line_only=True,
        ),
        Option("--wait", Switch(), "wait until they have left", default=True, is_command_line_only=True),
        Option(
            "--timeout-seconds",
            Seconds(0),
            "how long to wait; 0: as long as it takes",
            default=0.0,
            is_command_line_only=True,
        ),
        Option(
            "--address",
            NetworkAddresses(),
            "address of the scheduler, such as tcp://127.0.0.1:8516",
            default_text="this user's newest scheduler on this host",
            is_required=True,
            environment=("SCALER_ADDRESS",),
            find=_scheduler_here,
        ),
        *key_options("admin or provisioner"),
    ],
)

UP = Program(
    name="scaler up",
    page="cluster#scaler-up",
    section="scaler",
    description="Start a scheduler, the user interface, and a provisioner, which starts workers when tasks need them"
    " and lets them go when they are idle. Without a file, workers are on this machine. Ctrl-C stops everything.",
    epilog="examples:\n"
    "  scaler up\n"
    "  scaler up pools.toml\n"
    "The file is one of `scaler CONFIG.toml`: [provision] for each pool of workers, and what [scheduler], [cluster] and"
    " [ui] are to do differently.",
    version=_version,
    is_configured=False,
    faults=_faults_of_ports,
    options=[
        Option(
            "config",
            ExistingFile(),
            "a TOML file with a section [provision] for each pool of workers",
            default_text="a pool of workers on this machine",
            metavar="POOLS.toml",
            is_command_line_only=True,
        ),
        *_ports(),
        *logging_options(),
    ],
)


def _program(word: str, description: str, page: str) -> Program:
    """One that has a name of its own, `scaler_WORD`, and a table of options, which may not be here."""
    return Program(
        name=f"scaler {word}",
        page=page,
        section=word,
        description=description,
        version=_version,
        is_configured=False,
        options=[
            Option("arguments", Words(), f"those of scaler_{word}", metavar="ARGUMENT", is_command_line_only=True)
        ],
    )


PROGRAMS = {
    "scheduler": _program("scheduler", "Start a scheduler.", "configuration#scaler_scheduler"),
    "worker": _program("worker", "Start a worker.", "configuration#scaler_cluster"),
    "provision": _program("provision", "Start workers when tasks need them.", "configuration#scaler_provision"),
    "top": _program("top", "Watch a scheduler in the terminal.", "configuration#scaler_top"),
    "ui": _program("ui", "Start the user interface.", "configuration#scaler_ui"),
}

SCALER = Program(
    name="scaler",
    page="configuration#scaler",
    section="scaler",
    description="Start the programs that a file has sections for: a scheduler, workers, a provisioner, which starts"
    " workers when tasks need them, and a user interface. Ctrl-C stops all of them.",
    epilog="commands, each of which explains itself with -h:\n"
    "  dev        start all of them on this machine, without a file\n"
    "  up         start as many workers as tasks need, here or elsewhere\n"
    "  drain      let a worker finish its tasks and leave\n"
    "  keys       make and revoke the keys of other users' programs\n"
    "  replay     repeat what a scheduler, worker or client has recorded\n"
    "  scheduler, worker, provision, top, ui\n"
    "             one program alone: `scaler top` is scaler_top\n"
    "\n"
    "docs/configuration.md describes the file; so does -h of each program, its section.",
    version=_version,
    is_configured=False,
    commands=[DEV, UP, DRAIN, KEYS, REPLAY, *PROGRAMS.values()],
    options=[
        Option(
            "config",
            ExistingFile(),
            "a TOML file with sections [scheduler], [cluster] and [provision], of which there may be several, and [ui]",
            metavar="CONFIG.toml",
            is_required=True,
            is_command_line_only=True,
        ),
        Option(
            "--check",
            Switch(has_negation=False),
            "check the file for all its programs, report what is invalid, and exit",
            default=False,
            is_command_line_only=True,
        ),
        Option(
            "--print-config",
            Switch(has_negation=False),
            "print all values of all its programs, with the source of each, and exit",
            default=False,
            is_command_line_only=True,
        ),
        *logging_options(),
    ],
)
