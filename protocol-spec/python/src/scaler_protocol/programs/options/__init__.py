"""The options of our programs: one table for each, from which all else is made.

    PROGRAM = Program(
        name="scaler_example",
        section="example",
        description="Say what it does.",
        version=lambda: "scaler_example 1.0",
        options=[
            Option("address", Address(), "where the scheduler is", is_required=True),
            Option("-t --timeout-seconds", Seconds(0), "give up after so long; 0: never", default=5.0, group="times"),
            *logging_options(),
        ],
    )

    options = PROGRAM.read()  # ends the program for -h, --check and the like, and for what is wrong
    options.timeout_seconds

Rules:
- A table feeds the command line and its help, the section of a TOML file, variables of the environment, completion in
  shells, and docs/configuration.md. Nothing else says what options there are.
- Of an option's values the command line's goes first, then the environment's, then the file's, then the default.
- What is wrong is said with where it is and what to write instead; all that is wrong at once.
- Programs start as fast as without a table: what only some starts need (a TOML reader, difflib, completion) is imported
  when it is needed.
"""

from __future__ import annotations

from scaler_protocol.programs.options.common import (
    EARLIER_LOGGING,
    EARLIER_SECURITY,
    logging_options,
    service_options,
)
from scaler_protocol.programs.options.kinds import (
    Address,
    Bytes,
    Choice,
    Directory,
    ExistingFile,
    Kind,
    NewFile,
    Number,
    Seconds,
    Switch,
    Whole,
    Words,
)
from scaler_protocol.programs.options.program import Program
from scaler_protocol.programs.options.reading import Reading
from scaler_protocol.programs.options.sources import ConfigurationError, read_sections
from scaler_protocol.programs.options.table import Earlier, Option

__all__ = [
    "Option",
    "Program",
    "Reading",
    "Kind",
    "Address",
    "Bytes",
    "Choice",
    "Directory",
    "ExistingFile",
    "NewFile",
    "Number",
    "Seconds",
    "Switch",
    "Whole",
    "Words",
    "Earlier",
    "EARLIER_LOGGING",
    "EARLIER_SECURITY",
    "ConfigurationError",
    "logging_options",
    "read_sections",
    "service_options",
]
