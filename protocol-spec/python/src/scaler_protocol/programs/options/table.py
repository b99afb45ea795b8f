"""What an option is, what a program is, and how a program's options get their values.

Rules: a program's table is data, made when its module is imported; nothing of the machine is asked before `read`.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from scaler_protocol.programs.options import earlier as earlier_options
from scaler_protocol.programs.options.earlier import Earlier
from scaler_protocol.programs.options.kinds import Kind, Whole
from scaler_protocol.programs.options.sources import ConfigurationError, choose_entry, nearest, read_sections

EXIT_FAULTS = 1  # of --check
EXIT_USAGE = 2

FROM_COMMAND_LINE = "command line"
FROM_DEFAULT = "default"

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Option:
    """An option of a program.

    Parameters:
        names: its flags, with blanks between; the last one gives the name in the program, in files and in the
            environment. A name without dashes is an argument without a flag.
        kind: what its values look like.
        help: what it does, for people who have not read anything else.
        default: the value when nobody says one; None when there is none, or one that is only known later.
        default_text: in words, a default that is only known later.
        group: the heading that it stands under in the help.
        metavar: what stands for the value in the help; by default as the kind has it.
        is_required: the program cannot do without.
        is_command_line_only: it makes no sense in a file or in the environment.
        environment: further variables, which are asked after the option's own.
        find: looks for a value when nobody says one, in the file's sections for instance: the value, and where it is
            from; None when there is none, or ConfigurationError, which says what to do.
    """

    names: str
    kind: Kind
    help: str
    default: Any = None
    default_text: str = ""
    group: str = ""
    metavar: str = ""
    is_required: bool = False
    is_command_line_only: bool = False
    environment: Tuple[str, ...] = ()
    find: Optional[Callable[[Sections], Optional[Tuple[Any, str]]]] = None

    @property
    def flags(self) -> Tuple[str, ...]:
        return tuple(name for name in self.names.split() if name.startswith("-"))

    @property
    def key(self) -> str:
        """The name of the value."""
        return self.names.split()[-1].lstrip("-").replace("-", "_")

    @property
    def keys(self) -> Tuple[str, ...]:
        """All names that a file may use."""
        return tuple(flag.lstrip("-").replace("-", "_") for flag in self.names.split() if flag[:2] == "--") or (
            self.key,
        )

    @property
    def title(self) -> str:
        """How errors name it."""
        return "/".join(self.flags) or self.metavar or self.key.upper()


@dataclass(frozen=True)
class Program:
    """A program and its table of options.

    Parameters:
        name: of the command.
        section: of a configuration file, and the first part of its variables; see `sources.SECTIONS`.
        description: one or two sentences, at the top of the help.
        version: makes the line that `--version` prints.
        options: in the order of the help; those of one group stand together.
        epilog: at the end of the help.
        is_repeated: a file may have several of its section, `[[section]]`.
        faults: what is wrong with values that are each right; may change nothing.
        is_configured: it has a `--config`, a `--check` and a `--print-config`, which `read` sees to.
        commands: programs that are this one with a word behind it, such as "scaler dev" of "scaler"; for completion.
        earlier: options of earlier generations.
    """

    name: str
    section: str
    description: str
    version: Callable[[], str]
    options: Sequence[Option]
    epilog: str = ""
    is_repeated: bool = False
    faults: Optional[Callable[[argparse.Namespace], List[str]]] = None
    is_configured: bool = True
    commands: Sequence[Program] = ()
    earlier: Sequence[Earlier] = ()

    def option(self, key: str) -> Optional[Option]:
        """The option of a name that files may use; None when there is none."""
        wanted = key.replace("-", "_")
        return next((option for option in self.options if wanted in option.keys), None)

    @property
    def configurable_options(self) -> List[Option]:
        """Those that a file and the environment may set."""
        return [option for option in self.options if not option.is_command_line_only]

    def variables(self, option: Option) -> Tuple[str, ...]:
        """The variables of the environment that set an option, the first one first."""
        if option.is_command_line_only:
            return ()
        parts = ["scaler", self.section, option.key] if self.section != "scaler" else ["scaler", option.key]
        return ("_".join(parts).upper(), *option.environment)

    def parser(self, name: str = "") -> argparse.ArgumentParser:
        """The command line's parser. What is not on a command line is not in what it makes of it.

        Parameters:
            name: of the command, where it is another than the table's.
        """
        from scaler_protocol.programs.options.command_line import make_parser

        return make_parser(self, name or self.name)

    def read(self, arguments: Optional[Sequence[str]] = None, name: str = "") -> argparse.Namespace:
        """The values of all options, by their keys.

        Ends the program when it was asked for something else, such as help, and when something is wrong.

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
            parser.exit(EXIT_USAGE, "".join(f"{parser.prog}: error: {fault}\n" for fault in faults))
        if missing:
            parser.error(f"the following arguments are required: {', '.join(missing)}")
        wrong = self.faults(reading.values) if self.faults is not None else []
        if wrong:
            parser.error("; ".join(wrong))
        return reading.values

    def warn_of_unknown_variables(self, name: str) -> None:
        """Write a line on standard error for each variable that seems to be meant for the program and has no effect."""
        from scaler_protocol.programs.options.suggestions import unknown_variables

        for warning in unknown_variables(self, os.environ):
            print(f"{name}: warning: {warning}", file=sys.stderr)

    def _check(self, name: str, reading: Reading, given: argparse.Namespace) -> int:
        faults = list(reading.faults)
        faults += [why or f"{title} is not given, and has no default" for title, why in reading.missing().items()]
        if not faults and self.faults is not None:
            faults += self.faults(reading.values)
        for option in self.options:
            value = getattr(reading.values, option.key)
            fault = option.kind.fault_here(value) if value is not None else ""
            if fault:
                faults.append(f"{reading.place(option)}: {fault}")
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


class Reading:
    """The values of a program's options, and where each came from.

    Parameters:
        given: what is on the command line.
    """

    def __init__(
        self, program: Program, given: Mapping[str, Any], environment: Optional[Mapping[str, str]] = None
    ) -> None:
        self._program = program
        self._environment = os.environ if environment is None else environment
        self._path: Optional[str] = given.get("config")
        self.values = argparse.Namespace()
        self.origins: Dict[str, str] = {}  # by key
        self.faults: List[str] = []
        self.warnings: List[str] = []
        self._sections: Sections = {}
        self._found: Set[str] = set()  # keys of values that nobody has given
        self._not_found: Dict[str, str] = {}  # why, by key
        given = {**given, **self._translated(given.get(earlier_options.DESTINATION, ()), given, False)}
        in_file = self._read_file(given.get("config_entry"))
        for option in program.options:
            value, self.origins[option.key] = self._value_of(option, given, in_file)
            setattr(self.values, option.key, value)

    def _read_file(self, entry: Optional[int]) -> Dict[str, Any]:
        """The values that the file has for this program."""
        if self._path is None:
            return {}
        name = self._program.section
        try:
            self._sections = read_sections(self._path)
            section = choose_entry(self._path, name, list(self._sections.get(name, ())), entry)
        except ConfigurationError as error:
            self.faults.append(str(error))
            return {}
        values: Dict[str, Any] = {}
        earlier = []
        for key, value in section.items():
            found = earlier_options.find(self._program, key) if self._program.option(key) is None else None
            if found is None:
                self._read_key(key, value, values)
            else:
                earlier.append((found, f"{self._path}: [{name}] {key}", value))
        return {**values, **self._translated(earlier, values, True)}

    def _translated(
        self, earlier: Sequence[Tuple[Earlier, str, Any]], known: Mapping[str, Any], is_file: bool
    ) -> Dict[str, Any]:
        """What options of earlier generations mean."""
        translated = earlier_options.translate(self._program, earlier, list(known), is_file)
        self.warnings += translated.warnings
        self.faults += translated.faults
        return translated.values

    def _read_key(self, key: str, value: Any, values: Dict[str, Any]) -> None:
        place = f"{self._path}: [{self._program.section}]"
        option = self._program.option(key)
        if option is None:
            known = [option.key for option in self._program.configurable_options]
            hint = nearest(key.replace("-", "_"), known)
            self.faults.append(f"{place} has no key {key!r}; {hint or f'see {self._program.name} -h'}")
        elif option.is_command_line_only:
            self.faults.append(f"{place} {key}: can only be set on the command line")
        elif option.key in values:
            self.faults.append(f"{place} {key}: this option is set twice, also as {option.key}")
        else:
            try:
                values[option.key] = option.kind.from_toml(value)
            except ValueError as error:
                self.faults.append(f"{place} {key}: {error}")

    def _value_of(self, option: Option, given: Mapping[str, Any], in_file: Mapping[str, Any]) -> Tuple[Any, str]:
        """A value, and where it came from."""
        if option.key in given:
            return given[option.key], FROM_COMMAND_LINE
        for variable in self._program.variables(option):
            text = self._environment.get(variable)
            if text:
                try:
                    return option.kind.from_environment(text), f"environment {variable}"
                except ValueError as error:
                    self.faults.append(f"environment variable {variable}: {error}")
                    return option.default, FROM_DEFAULT
        if option.key in in_file:
            return in_file[option.key], str(self._path)
        if option.find is not None:
            try:
                found = option.find(self._sections)
                if found is not None:
                    self._found.add(option.key)
                    return found
            except ConfigurationError as error:
                self._not_found[option.key] = str(error)
        # Each reading has a list of its own.
        return (list(option.default) if isinstance(option.default, list) else option.default), FROM_DEFAULT

    def missing(self) -> Dict[str, str]:
        """What has no value and needs one, each with what to do if more is known of that."""
        missing = [
            each for each in self._program.options if each.is_required and getattr(self.values, each.key) is None
        ]
        return {option.title: self._not_found.get(option.key, "") for option in missing}

    def place(self, option: Option) -> str:
        """Where an option has its value from, for errors."""
        origin = self.origins[option.key]
        if origin == str(self._path):
            return f"{origin}: [{self._program.section}] {option.key}"
        return f"{option.title} ({origin})"

    def toml(self) -> str:
        """The section as a file would have it, with where each value came from."""
        name = self._program.section
        lines = [f"[[{name}]]" if self._program.is_repeated else f"[{name}]"]
        for option in self._program.configurable_options:
            value, origin = getattr(self.values, option.key), self.origins[option.key]
            if value is None:
                unset = option.default_text or ("not set, and required" if option.is_required else "not set")
                lines.append(f"# {option.key}  # {unset}")
            else:
                # What was found is found again, and may be another then.
                found = "# " if option.key in self._found else ""
                lines.append(f"{found}{option.key} = {option.kind.to_toml(value)}  # {origin}")
        return "\n".join(lines) + "\n"


CONFIG_ENTRY = Option(
    "--config-entry",
    Whole(1),
    "which section to read if there are several, from 1",
    is_command_line_only=True,
)

__all__ = ["CONFIG_ENTRY", "Option", "Program", "Reading"]
