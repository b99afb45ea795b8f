"""The values of a program's options, and the source of each.

command line, else environment, else file, else `Option.find`, else the default
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from scaler_protocol.programs.options import earlier as earlier_options
from scaler_protocol.programs.options.sources import (
    ConfigurationError,
    choose_entry,
    line_of,
    nearest,
    read_sections,
)
from scaler_protocol.programs.options.table import Earlier, Option, Sections, Table

FROM_COMMAND_LINE = "command line"
FROM_DEFAULT = "default"


class Reading:
    """The values of a program's options, and the source of each.

    Parameters:
        given: the options on the command line.
        names_lines: faults say in which line of the file they are, as far as that can be found.
    """

    def __init__(
        self,
        program: Table,
        given: Mapping[str, Any],
        environment: Optional[Mapping[str, str]] = None,
        names_lines: bool = False,
    ) -> None:
        self._program = program
        self._environment = os.environ if environment is None else environment
        self._path: Optional[str] = given.get("config")
        self._entry: Optional[int] = given.get("config_entry")
        self._names_lines = names_lines
        self.values = argparse.Namespace()
        self.origins: Dict[str, str] = {}  # by key
        self.faults: List[str] = []
        self.warnings: List[str] = []
        self._sections: Sections = {}
        self._found: Set[str] = set()  # keys of values that `find` returned
        self._not_found: Dict[str, str] = {}  # why, by key
        given = {**given, **self._translated(given.get(earlier_options.DESTINATION, ()), given, False)}
        in_file = self._read_file()
        for option in program.options:
            value, self.origins[option.key] = self._value_of(option, given, in_file)
            setattr(self.values, option.key, value)

    def _read_file(self) -> Dict[str, Any]:
        """The values in the file for this program."""
        if self._path is None:
            return {}
        name = self._program.section
        try:
            self._sections = read_sections(self._path)
            section = choose_entry(self._path, name, list(self._sections.get(name, ())), self._entry)
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
        """The values of options of earlier generations, by today's keys."""
        translated = earlier_options.translate(self._program, earlier, list(known), is_file)
        self.warnings += translated.warnings
        self.faults += translated.faults
        return translated.values

    def _read_key(self, key: str, value: Any, values: Dict[str, Any]) -> None:
        place = f"{self._path}{self._line(key)}: [{self._program.section}]"
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

    def _line(self, key: str) -> str:
        if not self._names_lines or self._path is None:
            return ""
        line = line_of(self._path, self._program.section, self._entry or 1, key)
        return f", line {line}" if line else ""

    def _value_of(self, option: Option, given: Mapping[str, Any], in_file: Mapping[str, Any]) -> Tuple[Any, str]:
        """A value, and its source."""
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
                if option.is_required:
                    self._not_found[option.key] = str(error)
                else:
                    self.faults.append(str(error))
        # Each reading has its own list.
        return (list(option.default) if isinstance(option.default, list) else option.default), FROM_DEFAULT

    def missing(self) -> Dict[str, str]:
        """Required options without a value, each with what to do if that is known."""
        missing = [
            each for each in self._program.options if each.is_required and getattr(self.values, each.key) is None
        ]
        return {option.label: self._not_found.get(option.key, "") for option in missing}

    def place(self, option: Option) -> str:
        """The source of an option's value, for errors."""
        origin = self.origins[option.key]
        if origin == str(self._path):
            return f"{origin}: [{self._program.section}] {option.key}"
        return f"{option.label} ({origin})"

    def toml(self) -> str:
        """The section as TOML, with the source of each value."""
        name = self._program.section
        lines = [f"[[{name}]]" if self._program.is_repeated else f"[{name}]"]
        for option in self._program.configurable_options:
            value, origin = getattr(self.values, option.key), self.origins[option.key]
            if value is None:
                unset = option.default_text or ("not set, and required" if option.is_required else "not set")
                lines.append(f"# {option.key}  # {unset}")
            else:
                # A value from `find` may be another one next time.
                found = "# " if option.key in self._found else ""
                lines.append(f"{found}{option.key} = {option.kind.to_toml(value)}  # {origin}")
        return "\n".join(lines) + "\n"
