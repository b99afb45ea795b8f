"""The options of our programs: one table per program, from which everything else is derived.

    PROGRAM = Program(
        name="scaler_example",
        section="example",
        description="Say what it does.",
        version=lambda: "scaler_example 1.0",
        options=[
            Option("address", NetworkAddress(), "where the scheduler is", is_required=True),
            Option("-t --timeout-seconds", Seconds(0), "give up after so long; 0: never", default=5.0, group="times"),
            *logging_options(),
        ],
    )

    options = PROGRAM.read()  # exits for -h, --check and so on, and for errors
    options.timeout_seconds

Rules:
- A table feeds the command line and its help, the section of a TOML file, environment variables, shell completion, and
  docs/configuration.md. Options are defined nowhere else.
- Precedence: the command line, then the environment, then the file, then the default.
- All errors are reported together, each with its place and the correction.
- The table costs no start-up time: modules that only some starts need (a TOML reader, difflib, completion) are imported
  on demand.
"""

from __future__ import annotations

from scaler_protocol.programs.options.common import (
    EARLIER_LOGGING,
    EARLIER_SECURITY,
    key_options,
    logging_options,
    recording_options,
    service_options,
)
from scaler_protocol.programs.options.kinds import (
    Bytes,
    Choice,
    Directory,
    ExistingFile,
    Kind,
    NetworkAddress,
    NetworkAddresses,
    NewDirectory,
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
    "NetworkAddress",
    "NetworkAddresses",
    "Bytes",
    "Choice",
    "Directory",
    "ExistingFile",
    "NewDirectory",
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
    "key_options",
    "logging_options",
    "recording_options",
    "read_sections",
    "service_options",
]
