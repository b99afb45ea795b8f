"""Options that several programs share."""

from __future__ import annotations

from typing import Any, List

from scaler_protocol.programs.logging_setup import FORMATS, LEVELS
from scaler_protocol.programs.options.kinds import Bytes, Choice, ExistingFile, NewFile, Switch, Words
from scaler_protocol.programs.options.table import Earlier, Option


class _LogPath(NewFile):
    """A file to be written, or one of the standard streams.

    The option takes all words that follow it, and so an address behind it, too, which is no name of a log.
    """

    def parse(self, text: str) -> Any:
        if text.startswith(("tcp://", "ipc://")):
            raise ValueError(f"{text} is an address, not a file: write it before this option, or after it and --")
        return super().parse(text)

    def fault_here(self, value: str) -> str:
        return "" if value in ("/dev/stdout", "/dev/stderr") else super().fault_here(value)


def logging_options(group: str = "logging", is_reloadable: bool = False) -> List[Option]:
    """The destination and format of log lines: the parameters of `setup_logging`.

    Parameters:
        is_reloadable: the program can change the level while it runs.
    """
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
            "the lowest level that is logged",
            default="INFO",
            group=group,
            is_reloadable=is_reloadable,
        ),
        Option(
            "--logging-format",
            Choice(FORMATS),
            "text; json: one object per line, with stable names; or journal: for systemd, which knows the time",
            default="text",
            group=group,
        ),
        Option(
            "-lc --logging-config-file",
            ExistingFile(),
            "a logging.config file, which then controls all logging",
            group=group,
        ),
    ]


def recording_options(who: str, group: str = "recording") -> List[Option]:
    """The recording of a program's core: the parameters of a recorder.

    Parameters:
        who: whose core it is.
    """
    return [
        Option(
            "--record",
            NewFile(),
            f"write everything that reaches the {who} to this file, for scaler replay; payloads are left out;"
            " %p stands for the process id; a recording that is there already is renamed to PATH.previous",
            group=group,
        ),
        Option(
            "--record-payloads",
            Switch(),
            "write payloads, too: arguments and results of tasks",
            default=False,
            group=group,
        ),
        Option(
            "--record-limit",
            Bytes(0),
            "stop recording when the file reaches this size; 0: no limit",
            default=1 << 30,
            group=group,
        ),
    ]


def service_options(group: str = "running under another program") -> List[Option]:
    """Options of a program that another of our programs starts."""
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


def key_options(role: str, group: str = "network") -> List[Option]:
    """How a program connects to its scheduler.

    Parameters:
        role: of the key that it needs.
    """
    return [
        Option(
            "--key-file",
            ExistingFile(),
            f"the key to connect with, of the role {role}: see `scaler keys -h`",
            default_text="SCALER_KEY_FILE, else the key of the scheduler's user",
            group=group,
        ),
        Option(
            "--insecure",
            Switch(has_negation=False),
            "connect without a key, to a scheduler that was started with --insecure",
            default=False,
            group=group,
        ),
    ]


NO_TLS = "connections are encrypted with keys: see `scaler keys -h`"

EARLIER_LOGGING = (Earlier("-lcf", becomes=("logging_config_file",)),)
EARLIER_SECURITY = (Earlier("-tc --tls-cert", why=NO_TLS), Earlier("-tk --tls-key", why=NO_TLS))
"""Options of earlier generations that several programs shared."""
