"""The options of `scaler CONFIG.toml`: a table like any other program's (see `scaler_protocol.program_options`)."""

from __future__ import annotations

from scaler.version import __version__
from scaler_protocol import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX
from scaler_protocol.program_options import ExistingFile, Option, Program, Switch, logging_options

SCALER = Program(
    name="scaler",
    section="scaler",
    description="Start what a file has sections for: a scheduler, workers, a user interface. Ctrl-C stops all of it.",
    epilog="docs/configuration.md describes the file; so does -h of scaler_scheduler and the others, each its section.",
    version=lambda: f"scaler {__version__} (protocol {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_MAX})",
    is_configured=False,
    options=[
        Option(
            "config",
            ExistingFile(),
            "a TOML file with sections [scheduler], [cluster], of which there may be several, and [ui]",
            metavar="CONFIG.toml",
            is_required=True,
            is_command_line_only=True,
        ),
        Option(
            "--check",
            Switch(has_negation=False),
            "say whether the file is valid for all its programs, or what is not, and exit",
            default=False,
            is_command_line_only=True,
        ),
        Option(
            "--print-config",
            Switch(has_negation=False),
            "print all values of all its programs, with where each is from, and exit",
            default=False,
            is_command_line_only=True,
        ),
        *logging_options(),
    ],
)
