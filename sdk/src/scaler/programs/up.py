"""`scaler up [POOLS.toml]`: a scheduler, a provisioner and the user interface, by one command.

Rules:
- It is `scaler CONFIG.toml` where the file need not have the sections [scheduler], [provision] and [ui]: without them,
  the programs have their defaults, and listen on this host only.
- Units on other hosts need a scheduler that they can reach: the file says where, or nothing starts.
- Without a user interface everything else works, and one line says why there is none.
"""

from __future__ import annotations

import argparse
import logging
import os
from typing import Optional, Sequence, Tuple

from scaler.cpus import default_slots
from scaler.exceptions import ScalerError, with_page
from scaler.programs.dev import HOST, free_port, usable_interface
from scaler.programs.from_file import RunningPrograms, has_only_local_units, parts_of
from scaler.programs.scaler_options import DEFAULT_PORT, DEFAULT_UI_PORT, UP
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.options import ConfigurationError, read_sections
from scaler_protocol.programs.options.table import EXIT_USAGE, Sections

_ADDRESS_VARIABLE = "SCALER_SCHEDULER_ADDRESS"
_MAXIMUM_VARIABLE = "SCALER_PROVISION_MAXIMUM"
_UI_PORT_VARIABLE = "SCALER_UI_PORT"

logger = logging.getLogger("scaler")


def main(arguments: Sequence[str]) -> int:
    """Run the program; its exit code: 0 if stopped by a signal, 2 if the file cannot be used, otherwise that of the
    program that ended first."""
    options = UP.read(arguments)
    try:
        sections: Sections = read_sections(options.config) if options.config else {}
        wanted = {"scheduler": _scheduler(options, sections), "provision": _provisioner(sections)}
        why_not = ""
        if options.ui:
            command, why_not = usable_interface()
            if command:
                wanted["ui"] = _interface(options.ui_port, sections)
        parts = parts_of(options.config, sections, wanted)
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format)
    except ScalerError as error:
        UP.parser().exit(EXIT_USAGE, f"{UP.name}: error: {with_page(error)}\n")
    except (ConfigurationError, OSError, KeyError, ValueError) as error:
        UP.parser().exit(EXIT_USAGE, f"{UP.name}: error: {error}\n{UP.page_line}")
    if why_not:
        logger.warning("Scaler: no user interface: %s", why_not)
    return RunningPrograms(options.config, sections, parts).run()


def _scheduler(options: argparse.Namespace, sections: Sections) -> Tuple[str, ...]:
    """The scheduler's address, if the file and the environment have none."""
    if _has(sections, "scheduler", "address") or _ADDRESS_VARIABLE in os.environ:
        if options.port is not None:
            raise ConfigurationError(f"--port {options.port}: the address of [scheduler] says where it listens")
        return ()
    if not has_only_local_units(options.config, sections):
        raise ConfigurationError(
            'workers on other hosts must reach the scheduler: add [scheduler] with address = "tcp://0.0.0.0:'
            f'{DEFAULT_PORT}" to the file'
        )
    return (f"tcp://{HOST}:{free_port(UP.name, options.port, DEFAULT_PORT, 'the scheduler')}",)


def _provisioner(sections: Sections) -> Tuple[str, ...]:
    """The size of the pool, if the file and the environment say nothing about pools."""
    if "provision" in sections or _MAXIMUM_VARIABLE in os.environ:
        return ()
    return ("--maximum", str(default_slots()))


def _interface(port: Optional[int], sections: Sections) -> Tuple[str, ...]:
    """The port of the user interface, if the file and the environment have none."""
    if port is None and (_has(sections, "ui", "port") or _UI_PORT_VARIABLE in os.environ):
        return ()
    return ("--port", str(free_port(UP.name, port, DEFAULT_UI_PORT, "the user interface")))


def _has(sections: Sections, section: str, key: str) -> bool:
    return any(key in entry for entry in sections.get(section, ()))
