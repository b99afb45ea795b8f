"""A table of options, which says everything about them: flags, kinds, defaults, variables, help.

Rules: data. Reading a command line, files and the environment by it is the work of modules above this one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol.programs.options.kinds import Kind, Whole

SHELLS = ("bash", "zsh", "fish")

Sections = Mapping[str, Sequence[Mapping[str, Any]]]


class Earlier(NamedTuple):
    """An option of an earlier generation.

    Parameters:
        names: as of `Option`; a name without dashes is one of files alone.
        becomes: the option that it is now; of several, each gets a part of the value, which colons separate.
        why: why it has no effect, if it has none.
        takes: how many values follow it on a command line: one, or nothing.
        unset: values that mean that nobody says one.
        only: the values that it may have; others cannot be had here, and `why` says why.
        overrides: it goes before the option that it is now, where both are given.
    """

    names: str
    becomes: Tuple[str, ...] = ()
    why: str = ""
    takes: str = "one"
    unset: Tuple[str, ...] = ()
    only: Tuple[str, ...] = ()
    overrides: bool = False

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
class Table:
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
        is_configured: it has a `--config`, a `--check` and a `--print-config`, which `Program.read` sees to.
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
    commands: Sequence[Table] = ()
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


CONFIG_ENTRY = Option(
    "--config-entry",
    Whole(1),
    "which section to read if there are several, from 1",
    is_command_line_only=True,
)
