"""The table of a program's options: flags, kinds, defaults, variables, help.

Rules: data only. Higher modules read the command line, files and the environment with it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol.programs.documentation import link_to
from scaler_protocol.programs.options.kinds import Kind, Whole

SHELLS = ("bash", "zsh", "fish")
EXIT_USAGE = 2

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


class Earlier(NamedTuple):
    """An option of an earlier generation.

    Parameters:
        names: as in `Option`; a name without dashes is valid in files only.
        becomes: the option that replaces it; if there are several, each gets a part of the value, separated by colons.
        why: why it has no effect, if it has none.
        takes: how many values follow it on a command line: one or none.
        unset: values that mean "not given".
        only: the supported values; `why` says why others are rejected.
        overrides: it takes precedence over the option that replaces it, if both are given.
        instead: what to write for a value that has one of these words in it; the first one counts.
    """

    names: str
    becomes: Tuple[str, ...] = ()
    why: str = ""
    takes: str = "one"
    unset: Tuple[str, ...] = ()
    only: Tuple[str, ...] = ()
    overrides: bool = False
    instead: Mapping[str, str] = {}

    def advice_for(self, value: Any) -> str:
        """What to write instead of a value; empty if that is not known."""
        return next((text for word, text in self.instead.items() if word in str(value)), "")

    @property
    def flags(self) -> Tuple[str, ...]:
        return tuple(name for name in self.names.split() if name.startswith("-"))

    @property
    def key(self) -> str:
        return self.names.split()[-1].lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Option:
    """An option of a program.

    Parameters:
        names: its flags, separated by blanks; the last one gives the name in the program, in files and in the
            environment. A name without dashes is a positional argument.
        kind: the type of its values.
        help: what it does, for readers of this line alone.
        default: the value if none is given; None if there is no default, or if it is only known later.
        default_text: a description of a default that is only known later.
        group: its heading in the help.
        metavar: the placeholder of the value in the help; by default that of the kind.
        is_required: the program needs a value.
        is_command_line_only: it cannot be set in a file or in the environment.
        is_reloadable: its program uses another value when it reads its options again; all others need a new start.
        environment: further variables, which are read after the option's own.
        find: looks for a value if none is given, for example in the file's sections: the value and its source;
            None if there is none, or ConfigurationError, which says what to do.
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
    is_reloadable: bool = False
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
    def label(self) -> str:
        """Its name in errors."""
        return "/".join(self.flags) or self.metavar or self.key.upper()


@dataclass(frozen=True)
class Table:
    """A program and its table of options.

    Parameters:
        name: of the command.
        section: of a configuration file, and the first part of its variables; see `sources.SECTIONS`.
        description: one or two sentences, at the top of the help.
        version: returns the line that `--version` prints.
        options: in the order of the help, grouped.
        epilog: at the end of the help.
        is_repeated: a file may repeat its section, `[[section]]`.
        faults: checks combinations of values that are each valid; changes nothing.
        is_configured: it has `--config`, `--check` and `--print-config`, which `Program.read` handles.
        commands: subcommands, such as "scaler dev" of "scaler"; for completion.
        earlier: options of earlier generations.
        page: the section of the documentation that errors of usage link to, such as `configuration#scaler_ui`.
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
    commands: Sequence[Table] = ()
    earlier: Sequence[Earlier] = ()
    page: str = ""

    def option(self, key: str) -> Optional[Option]:
        """The option with this name in files; None if there is none."""
        wanted = key.replace("-", "_")
        return next((option for option in self.options if wanted in option.keys), None)

    @property
    def configurable_options(self) -> List[Option]:
        """The options that a file and the environment may set."""
        return [option for option in self.options if not option.is_command_line_only]

    def variables(self, option: Option) -> Tuple[str, ...]:
        """The environment variables that set an option, in order of precedence."""
        if option.is_command_line_only:
            return ()
        parts = ["scaler", self.section, option.key] if self.section != "scaler" else ["scaler", option.key]
        return ("_".join(parts).upper(), *option.environment)

    @property
    def page_line(self) -> str:
        """The last line of an error of usage; empty if there is no page."""
        return f"see {link_to(self.page)}\n" if self.page else ""


CONFIG_ENTRY = Option(
    "--config-entry",
    Whole(1),
    "which section to read if there are several, from 1",
    is_command_line_only=True,
)
