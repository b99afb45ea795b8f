"""Shell completion: a script generated from a program's option table.

Rule: the script is self-contained and runs no program while the user types. It is generated here, because a completion
library would be in each binary, and none supports all three shells.
"""

from __future__ import annotations

import re
import shlex
from typing import List, NamedTuple, Sequence, Tuple

from scaler_protocol.programs.options.kinds import Choice, Switch, Words
from scaler_protocol.programs.options.table import CONFIG_ENTRY, SHELLS, Option, Table


class _Flag(NamedTuple):
    """An option as the shells see it.

    Parameters:
        completes: as `Kind.completes`.
        is_long_list: it accepts any number of values.
    """

    flags: Tuple[str, ...]
    help: str
    takes_value: bool = False
    words: Tuple[str, ...] = ()
    completes: str = ""
    is_list: bool = False


def completion_of(program: Table, name: str, shell: str) -> str:
    """The script for a shell.

    Parameters:
        name: of the command.
        shell: one of SHELLS.
    """
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](program, name)


def _flags(program: Table) -> List[_Flag]:
    flags = [_flag(option) for option in program.options if option.flags]
    flags += [
        _Flag((f"--no-{option.flags[-1][2:]}",), f"not: {option.help}") for option in program.options if _has_no(option)
    ]
    flags += [_Flag(("-h", "--help"), "show all options and exit"), _Flag(("--version",), "print versions and exit")]
    if program.is_configured:
        flags.append(_Flag(("-c", "--config"), "a TOML file that sets options", True, completes="file"))
        flags.append(_Flag(("--check",), "check all options, and exit"))
        flags.append(_Flag(("--print-config",), "print all values, and exit"))
    if program.is_configured and program.is_repeated:
        flags.append(_flag(CONFIG_ENTRY))
    flags.append(_Flag(("--print-completion",), "print a script for the completion of options, and exit", True, SHELLS))
    return flags


def _has_no(option: Option) -> bool:
    return isinstance(option.kind, Switch) and option.kind.has_negation


def _flag(option: Option) -> _Flag:
    kind, text = option.kind, re.split(r"[;:]", option.help)[0]
    item = kind.item if isinstance(kind, Words) else kind
    words = item.words if isinstance(item, Choice) else ()
    is_list = isinstance(kind, Words) and not kind.is_repeated
    return _Flag(option.flags, text, not isinstance(kind, Switch), words, kind.completes, is_list)


def _argument_completes(program: Table) -> str:
    """The completion for positional arguments."""
    return next((option.kind.completes for option in program.options if not option.flags), "")


def _function(name: str) -> str:
    return "_" + re.sub(r"\W", "_", name)


def _command_words(program: Table) -> List[str]:
    return [command.name.split()[-1] for command in program.commands]


# bash -----------------------------------------------------------------------------------------------------------------


def _bash(program: Table, name: str) -> str:
    return "".join([*_bash_functions(program, name, 1), f"complete -F {_function(name)} {name}\n"])


def _bash_functions(program: Table, name: str, depth: int) -> List[str]:
    """Those of its commands, and its own.

    Parameters:
        depth: how many words come before its own arguments.
    """
    functions = []
    for command, word in _named_commands(program):
        functions += _bash_functions(command, f"{name} {word}", depth + 1)
    return [*functions, _bash_function(program, name, depth)]


def _named_commands(program: Table) -> Sequence[Tuple[Table, str]]:
    return list(zip(program.commands, _command_words(program)))


def _bash_function(program: Table, name: str, depth: int) -> str:
    lines = [
        f"{_function(name)}() {{",
        '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
    ]
    lines.append("    COMPREPLY=()")
    for word in _command_words(program):
        inner = _function(f"{name} {word}")
        is_given = f'$COMP_CWORD -gt {depth} && "${{COMP_WORDS[{depth}]}}" == {word}'
        lines.append(f"    [[ {is_given} ]] && {{ {inner}; return; }}")
    lines.append('    case "$previous" in')
    for flag in _flags(program):
        if flag.takes_value:
            action = _bash_action(flag.completes, flag.words)
            lines.append(f"        {'|'.join(flag.flags)}) {action}return ;;")
    every_flag = " ".join(text for flag in _flags(program) for text in flag.flags)
    lines += [
        "    esac",
        '    if [[ "$current" == -* ]]; then',
        f"        mapfile -t COMPREPLY < <(compgen -W '{every_flag}' -- \"$current\")",
        "    else",
        f"        {_bash_action(_argument_completes(program), tuple(_command_words(program))) or ':'}".rstrip(),
        "    fi",
        "}",
        "",
    ]
    return "\n".join(lines)


def _bash_action(completes: str, words: Tuple[str, ...]) -> str:
    given = {"file": " -f", "directory": " -d"}.get(completes, "") + (f" -W '{' '.join(words)}'" if words else "")
    if not given:
        return ""
    prefix = "compopt -o filenames 2>/dev/null; " if completes else ""
    return f'{prefix}mapfile -t COMPREPLY < <(compgen{given} -- "$current"); '


# zsh ------------------------------------------------------------------------------------------------------------------


def _zsh(program: Table, name: str) -> str:
    own = _function(name)
    end = f'if [[ "$funcstack[1]" == "{own}" ]]; then\n    {own} "$@"\nelse\n    compdef {own} {name}\nfi\n'
    return "".join([f"#compdef {name}\n", *_zsh_functions(program, name), end])


def _zsh_functions(program: Table, name: str) -> List[str]:
    """Those of its commands, and its own."""
    functions = []
    for command, word in _named_commands(program):
        functions += _zsh_functions(command, f"{name} {word}")
    return [*functions, _zsh_function(program, name)]


def _zsh_function(program: Table, name: str) -> str:
    lines = [f"{_function(name)}() {{"]
    for word in _command_words(program):
        inner = _function(f"{name} {word}")
        lines.append(f"    if (( CURRENT > 2 )) && [[ $words[2] == {word} ]]; then")
        lines.append(f"        shift words; (( CURRENT-- )); {inner}; return")
        lines.append("    fi")
    lines.append("    _arguments \\")
    for flag in _flags(program):
        names = flag.flags[0] if len(flag.flags) == 1 else "{" + ",".join(flag.flags) + "}"
        several = "'*'" if flag.is_list else f"'({' '.join(flag.flags)})'"
        text = re.sub(r"([\[\]:\\])", r"\\\1", flag.help)
        action = f":value:{_zsh_action(flag.completes, flag.words)}" if flag.takes_value else ""
        lines.append(f"        {several}{names}{shlex.quote(f'[{text}]{action}')} \\")
    argument = _zsh_action(_argument_completes(program), tuple(_command_words(program)))
    lines += [f"        {shlex.quote('*:argument:' + argument)}", "}", ""]
    return "\n".join(lines)


def _zsh_action(completes: str, words: Tuple[str, ...]) -> str:
    if words and completes:
        return f'_alternative "words:word:({" ".join(words)})" "files:file:_files"'
    if words:
        return f"({' '.join(words)})"
    return {"file": "_files", "directory": "_files -/"}.get(completes, " ")


# fish -----------------------------------------------------------------------------------------------------------------


def _fish(program: Table, name: str) -> str:
    lines = [] if _argument_completes(program) else [f"complete -c {name} -f"]
    return "\n".join([*lines, *_fish_tree(program, name, [])]) + "\n"


def _fish_tree(program: Table, name: str, given: List[str]) -> List[str]:
    """The lines for its options and its commands.

    Parameters:
        given: the conditions under which its own arguments are completed.
    """
    words = _command_words(program)
    own = [*given, f"not __fish_seen_subcommand_from {' '.join(words)}"] if words else given
    lines = _fish_lines(program, name, "; and ".join(own))
    for command, word in _named_commands(program):
        condition = "; and ".join(own) if given else "__fish_use_subcommand"
        text = _fish_text(command.description)
        lines.append(f"complete -c {name} -n {_fish_text(condition)} -a {word} -d {text}")
        lines += _fish_tree(command, name, [*given, f"__fish_seen_subcommand_from {word}"])
    return lines


def _fish_lines(program: Table, name: str, condition: str) -> List[str]:
    lines = []
    for flag in _flags(program):
        line = f"complete -c {name}" + (f" -n {_fish_text(condition)}" if condition else "")
        for text in flag.flags:
            line += (
                f" -l {text[2:]}" if text[:2] == "--" else f" -s {text[1:]}" if len(text) == 2 else f" -o {text[1:]}"
            )
        if flag.takes_value:
            line += " -r -F" if flag.completes else " -x"
        if flag.words:
            line += f" -a {_fish_text(' '.join(flag.words))}"
        lines.append(f"{line} -d {_fish_text(flag.help)}")
    return lines


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
