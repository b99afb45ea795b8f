"""Options that several programs have."""

from __future__ import annotations

from typing import List

from scaler_protocol.programs.logging_setup import FORMATS, LEVELS
from scaler_protocol.programs.options.kinds import Choice, ExistingFile, NewFile, Switch, Words
from scaler_protocol.programs.options.table import Earlier, Option


class _LogPath(NewFile):
    """A file that is written, or one of the standard streams, which are there."""

    def fault_here(self, value: str) -> str:
        return "" if value in ("/dev/stdout", "/dev/stderr") else super().fault_here(value)


def logging_options(group: str = "logging") -> List[Option]:
    """Where log lines go and how they look: what `setup_logging` takes."""
    return [
        Option(
            "-lp --logging-paths",
            Words(_LogPath()),
            "/dev/stdout, /dev/stderr, or files (rotated daily)",
            default=["/dev/stdout"],
            group=group,
        ),
        Option(
            "-ll --logging-level",
            Choice(LEVELS, is_upper=True),
            "least severe level that is logged",
            default="INFO",
            group=group,
        ),
        Option(
            "--logging-format",
            Choice(FORMATS),
            "text, or json: one object a line, with the same names in each",
            default="text",
            group=group,
        ),
        Option(
            "-lc --logging-config-file",
            ExistingFile(),
            "a logging.config file, which then decides everything about logging",
            group=group,
        ),
    ]


def service_options(group: str = "running under another program") -> List[Option]:
    """What a program that is started by another one of ours has."""
    return [
        Option(
            "--exit-when-stdin-closes",
            Switch(has_negation=False),
            "stop when standard input ends, such as a pipe from a process that has died",
            default=False,
            group=group,
            is_command_line_only=True,
        )
    ]


NO_TLS = "connections are not encrypted by TLS; keep them on a trusted network"

EARLIER_LOGGING = (Earlier("-lcf", becomes=("logging_config_file",)),)
EARLIER_SECURITY = (Earlier("-tc --tls-cert", why=NO_TLS), Earlier("-tk --tls-key", why=NO_TLS))
"""Options of earlier generations that several programs had."""
