"""A program with an option table: its parser, `--check` and `--print-config`.

Rules: a program's table is data, created when its module is imported; nothing inspects the machine before `read`.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import List, Optional, Sequence

from scaler_protocol.programs.options.reading import Reading
from scaler_protocol.programs.options.sources import ConfigurationError
from scaler_protocol.programs.options.table import EXIT_USAGE, Table

EXIT_FAULTS = 1  # of --check


@dataclass(frozen=True)
class Program(Table):
    """A program with an option table. Its parameters are those of `Table`."""

    def parser(self, name: str = "") -> argparse.ArgumentParser:
        """The command line's parser. Its result contains only the options that are given.

        Parameters:
            name: of the command, if it differs from the table's.
        """
        from scaler_protocol.programs.options.command_line import make_parser

        return make_parser(self, name or self.name)

    def read(self, arguments: Optional[Sequence[str]] = None, name: str = "") -> argparse.Namespace:
        """The values of all options, by their keys.

        Exits if something else was requested, such as help, and if there are errors.

        Parameters:
            arguments: by default those of the command line.
            name: as in `parser`.
        """
        parser = self.parser(name)
        given = parser.parse_args(arguments)
        self.warn_of_unknown_variables(parser.prog)
        reading = Reading(self, vars(given))
        if self.is_configured and (given.check or given.print_config):
            sys.exit(self._check(parser.prog, reading, given) if given.check else self._print(parser.prog, reading))
        for warning in reading.warnings:
            print(f"{parser.prog}: warning: {warning}", file=sys.stderr)
        missing = reading.missing()
        faults = [*reading.faults, *filter(None, missing.values())]
        if faults:
            lines = [f"{parser.prog}: error: {fault}\n" for fault in faults]
            parser.exit(EXIT_USAGE, "".join([*lines, self.page_line]))
        if missing:
            parser.error(f"the following arguments are required: {', '.join(missing)}")
        wrong = self.faults(reading.values) if self.faults is not None else []
        if wrong:
            parser.error("; ".join(wrong))
        return reading.values

    def read_again(self, arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
        """What `read` would return now, for the same command line; nothing is printed, and it does not exit.

        Raises ConfigurationError, which names all faults, each with its file and line.
        """
        given = vars(self.parser().parse_args(arguments))
        reading = Reading(self, given, names_lines=True)
        missing = [why or f"{label} is required, and was not given" for label, why in reading.missing().items()]
        faults = [*reading.faults, *missing]
        if not faults and self.faults is not None:
            place = (
                f"{given['config']}: " if given.get("config") else ""
            )  # the command line had no fault when it was read
            faults = [f"{place}{fault}" for fault in self.faults(reading.values)]
        if faults:
            raise ConfigurationError("; ".join(faults))
        return reading.values

    def warn_of_unknown_variables(self, name: str) -> None:
        """Print a line on standard error for each unknown variable that seems to be meant for the program."""
        from scaler_protocol.programs.options.suggestions import unknown_variables

        for warning in unknown_variables(self, os.environ):
            print(f"{name}: warning: {warning}", file=sys.stderr)

    def faults_here(self, reading: Reading) -> List[str]:
        """What `--check` finds: all faults, also those that only this machine shows, such as a missing file."""
        faults = list(reading.faults)
        faults += [why or f"{label} is required, and was not given" for label, why in reading.missing().items()]
        if not faults and self.faults is not None:
            faults += self.faults(reading.values)
        for option in self.options:
            value = getattr(reading.values, option.key)
            fault = option.kind.fault_here(value) if value is not None else ""
            if fault:
                faults.append(f"{reading.place(option)}: {fault}")
        return faults

    def _check(self, name: str, reading: Reading, given: argparse.Namespace) -> int:
        faults = self.faults_here(reading)
        for fault in [*faults, *(f"warning: {warning}" for warning in reading.warnings)]:
            print(f"{name}: {fault}")
        if not faults:
            print(f"{name}: {given.config or 'the configuration'} is valid")
        return EXIT_FAULTS if faults else 0

    def _print(self, name: str, reading: Reading) -> int:
        for fault in reading.faults:
            print(f"{name}: error: {fault}", file=sys.stderr)
        print(reading.toml(), end="")
        return EXIT_FAULTS if reading.faults else 0
