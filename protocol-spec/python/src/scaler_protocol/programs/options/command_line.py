"""The argparse parser of a program's option table.

Rule: the help of each option shows its default and the variable that sets it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from scaler_protocol.programs.documentation import link_to
from scaler_protocol.programs.options.earlier import add_to
from scaler_protocol.programs.options.kinds import Choice, Kind, Switch, Words
from scaler_protocol.programs.options.suggestions import meant_option, unknown_option
from scaler_protocol.programs.options.table import CONFIG_ENTRY, EXIT_USAGE, SHELLS, Option, Table


def make_parser(program: Table, name: str) -> argparse.ArgumentParser:
    """See `Program.parser`."""
    # Multi-line texts keep their line breaks, and then the description must have some.
    is_raw = "\n" in program.epilog
    parser = _Parser(
        prog=name,
        description=_wrapped(program.description) if is_raw else program.description,
        epilog=program.epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter if is_raw else argparse.HelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.page = link_to(program.page) if program.page else ""
    parser.add_argument("--version", action=_Print, nargs=0, text=program.version, help="print versions and exit")
    groups: Dict[str, argparse._ArgumentGroup] = {}
    for option in program.options:
        add = parser.add_argument
        if option.group:
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            add = groups[option.group].add_argument
        _add(add, option, help_of(program, option))
    add_to(parser, program)
    _add_configuration(parser, program)
    return parser


def _wrapped(text: str) -> str:
    import shutil
    import textwrap

    # As argparse does it. A terminal may have no size.
    return textwrap.fill(text, max(shutil.get_terminal_size().columns - 2, 11))


def help_of(program: Table, option: Option) -> str:
    """The help text, with the default and the variable."""
    default = default_of(option)
    notes = [f"default: {default}"] if default else []
    notes += [f"env: {variable}" for variable in program.variables(option)[:1]]
    return f"{option.help} ({', '.join(notes)})" if notes else option.help


def default_of(option: Option) -> str:
    """The default as shown to people; empty if it carries no information."""
    is_flag = isinstance(option.kind, Switch) and not option.kind.has_negation
    if option.default_text or is_flag or option.default in (None, "", [], {}, ()):
        return option.default_text
    return option.kind.show(option.default)


def _add(add: Callable[..., argparse.Action], option: Option, text: str) -> None:
    kind = option.kind
    settings: Dict[str, Any] = {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
    if isinstance(kind, Switch):
        flags = list(option.flags)
        if kind.has_negation:
            flags += [f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")]
        add(*flags, action=_OnOff, nargs=0, dest=option.key, **settings)
        return
    settings["type"] = _reader(kind)
    if isinstance(kind, Choice):
        settings["choices"] = kind.words
    elif option.metavar or kind.metavar:
        settings["metavar"] = option.metavar or kind.metavar
    if isinstance(kind, Words):
        settings.update({"action": "append"} if kind.is_repeated else {"nargs": "*"})
    if not option.flags:
        add(option.key, **settings, **({} if "nargs" in settings else {"nargs": "?"}))
    else:
        add(*option.flags, dest=option.key, **settings)


def _reader(kind: Kind) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text is argparse.SUPPRESS:  # Python 3.9 parses this default of an argument as if it were given
            return text
        try:
            return kind.parse(text)
        except ValueError as error:
            # argparse itself rejects an invalid choice.
            if isinstance(kind, Choice):
                return text
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _add_configuration(parser: argparse.ArgumentParser, program: Table) -> None:
    group = parser.add_argument_group("configuration")
    if program.is_configured:
        group.add_argument(
            *("-c", "--config"),
            metavar="FILE",
            default=None,
            help=f"a TOML file whose section [{program.section}] sets options by their long names; the command line"
            " takes precedence over the environment, the environment over the file",
        )
        if program.is_repeated:
            _add(group.add_argument, CONFIG_ENTRY, CONFIG_ENTRY.help)
        group.add_argument(
            "--check",
            action="store_true",
            default=False,
            help="check all options, report what is invalid, and exit",
        )
        group.add_argument(
            "--print-config",
            action="store_true",
            default=False,
            help="print all values as a TOML file, with the source of each, and exit",
        )
    group.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        program=program,
        help="print a script with which a shell completes this program's options, and exit",
    )


class _Parser(argparse.ArgumentParser):
    """Reports an unknown option first: argparse would take its value for another argument.

    Errors end with a link, and do not begin with the usage: of a program with many options, it hides all else.
    """

    page = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments: List[str] = list(sys.argv[1:] if args is None else args)
        flags = [flag for action in self._actions for flag in action.option_strings]
        unknown = unknown_option(flags, arguments)
        if unknown and not {"-h", "--help"} & set(arguments):
            self.error(f"unknown option {unknown}; {meant_option(unknown, flags) or f'see {self.prog} -h'}")
        return super().parse_known_args(arguments, namespace)

    def error(self, message: str) -> NoReturn:
        places = [] if f"{self.prog} -h" in message else [f"{self.prog} -h"]
        places += [self.page] if self.page else []
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n" + (f"see {', or '.join(places)}\n" if places else ""))


class _Print(argparse.Action):
    """argparse's own version action wraps the line at the width of the terminal."""

    def __init__(self, *args: Any, text: Callable[[], str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(self._text())
        parser.exit()


class _PrintCompletion(argparse.Action):
    def __init__(self, *args: Any, program: Table, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._program = program

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: Any, *_: object) -> None:
        from scaler_protocol.programs.options.completion import completion_of

        print(completion_of(self._program, parser.prog, values), end="")
        parser.exit()


class _OnOff(argparse.Action):
    """argparse's own on/off action adds to the help text, differently in each version."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, _: object, option: Optional[str] = None
    ) -> None:
        setattr(namespace, self.dest, not (option or "").startswith("--no-"))

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)


__all__: Sequence[str] = ["help_of", "make_parser"]
