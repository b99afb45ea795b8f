"""`scaler_scheduler ping`: whether the scheduler at an address serves, for health checks and scripts."""

from __future__ import annotations

import sys
import time
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from scaler_appliance.checks.greeting import greet, places
from scaler_appliance.shell.scheduler_options import version
from scaler_protocol.host.addresses import parse_addresses, why_not_connected
from scaler_protocol.host.discovery import ADDRESS_VARIABLE, DiscoveryError, address_given_or_found
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.credentials import Credentials
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.programs.options import (
    ConfigurationError,
    ExistingFile,
    NetworkAddresses,
    Option,
    Program,
    Seconds,
    Switch,
)
from scaler_protocol.wire.errors import ProtocolError

NAME = "scaler_scheduler ping"


def _find(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> Optional[Tuple[Any, str]]:
    try:
        return address_given_or_found(), "found on this host"
    except (DiscoveryError, OSError) as error:
        raise ConfigurationError(str(error)) from None


PING = Program(
    name=NAME,
    page="monitoring#health",
    section="ping",
    description="Ask whether a scheduler serves at an address: exit code 0 if it answers, else 1, with the reason.",
    version=version,
    is_configured=False,
    options=[
        Option(
            "address",
            NetworkAddresses(),
            "of the scheduler: tcp://127.0.0.1:2345 or ipc:///path",
            default_text=f"that in {ADDRESS_VARIABLE}, else of the newest scheduler of this user on this host",
            is_required=True,
            is_command_line_only=True,
            find=_find,
        ),
        Option(
            "--timeout-seconds",
            Seconds(0, is_minimum_excluded=True),
            "how long the answer may take",
            default=3.0,
            is_command_line_only=True,
        ),
        Option(
            "--key-file",
            ExistingFile(),
            "the key to connect with, of any role",
            default_text="SCALER_KEY_FILE, else the key of the scheduler's user",
            is_command_line_only=True,
        ),
        Option(
            "--insecure",
            Switch(has_negation=False),
            "connect without a key",
            default=False,
            is_command_line_only=True,
        ),
    ],
)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    options = PING.read(arguments)
    address = places(options.address)
    begin = time.monotonic()
    try:
        credentials = Credentials(address, options.key_file, options.insecure or None)
        how = greet(credentials, begin + options.timeout_seconds)
    except TimeoutError:
        reason = f"the program at {address} did not answer within {options.timeout_seconds:g} s"
    except OSError as error:
        reason = why_not_connected(parse_addresses(address)[0], error)
    except (ProtocolError, KeyFileError, MissingLibraryError) as error:
        reason = f"the scheduler at {address} does not serve this program: {error}"
    else:
        print(f"the scheduler at {address} answered after {(time.monotonic() - begin) * 1000:.1f} ms, {how}")
        return 0
    print(f"{NAME}: {reason}", file=sys.stderr)
    return 1
