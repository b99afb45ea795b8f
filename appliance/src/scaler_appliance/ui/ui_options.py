"""The options of `scaler_ui`: one table that defines its help, its section of a configuration file, its environment
variables and its documentation (see `scaler_protocol.programs.options`).

Rule: a token is in a file or in the environment, never an option, because other users can read command lines.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
from typing import List, Optional

from scaler_appliance import __version__
from scaler_appliance.feed.finding import find_monitor
from scaler_appliance.ui.access import TOKEN_VARIABLE, TrustedProxies, normal_address
from scaler_protocol.host.interpreter import interpreter_name, python_version
from scaler_protocol.keys.private_files import read_private
from scaler_protocol.programs.options import (
    EARLIER_LOGGING,
    EARLIER_SECURITY,
    Earlier,
    ExistingFile,
    Kind,
    NetworkAddress,
    NewFile,
    Option,
    Program,
    Switch,
    Whole,
    Words,
    key_options,
    logging_options,
    service_options,
)

SHORTEST_TOKEN = 16
LAST_PORT = 65535


class _HeaderName(Kind):
    expects = "the name of an HTTP header, such as X-Forwarded-User"
    metavar = "NAME"

    def parse(self, text: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9-]+", text):
            raise ValueError(self.expects)
        return text


class _IpAddress(Kind):
    expects = "an IP address"
    metavar = "ADDRESS"

    def parse(self, text: str) -> str:
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            raise ValueError(f"{text!r} is not {self.expects}") from None


class _Host(Kind):
    expects = "the name or address of a host"
    metavar = "HOST"


def given_token(token_file: Optional[str]) -> Optional[str]:
    """The token from the file, or else from the environment; None when there is none.

    Raises FileNotFoundError when the file does not exist, KeyFileError when it cannot be read or others can read it,
    and ValueError when the token is invalid.
    """
    if token_file is not None:
        return _checked(read_private(token_file).partition("\n")[0].strip(), token_file)
    text = os.environ.get(TOKEN_VARIABLE)
    return _checked(text, TOKEN_VARIABLE) if text else None


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"{where}: a token must have at least {SHORTEST_TOKEN} printable ASCII characters, such as the output of"
            " `python3 -c 'import secrets; print(secrets.token_urlsafe())'`"
        )
    return token


def trusted_proxies(options: argparse.Namespace) -> Optional[TrustedProxies]:
    """The proxies that log users in; None when there are none."""
    if options.trusted_user_header is None:
        return None
    return TrustedProxies(options.trusted_user_header.lower(), frozenset(map(normal_address, options.trusted_proxy)))


def _faults(options: argparse.Namespace) -> List[str]:
    try:
        given_token(options.token_file)
    except OSError:
        pass  # reported where the file is opened
    except ValueError as error:
        return [str(error)]
    if (options.trusted_user_header is None) != (not options.trusted_proxy):
        return ["--trusted-user-header and --trusted-proxy need each other: which header, and whose"]
    return []


UI = Program(
    name="scaler_ui",
    page="configuration#scaler_ui",
    section="ui",
    description="Show a Scaler cluster in the browser, and its figures to Prometheus (at /metrics) and to scripts (at"
    " /api/workers and others). It subscribes to the scheduler, and may be started before it.",
    epilog="Without an address it shows the scheduler that you started last on this host. A scheduler logs its monitor"
    " address when it starts:  scaler_ui ipc:///tmp/127.0.0.1_2345_monitor",
    version=lambda: f"scaler_ui {__version__}, {interpreter_name()} {python_version()}",
    faults=_faults,
    options=[
        Option(
            "monitor_address",
            NetworkAddress(),
            "where the scheduler publishes its status: ipc:///path or tcp://HOST:PORT",
            metavar="MONITOR_ADDRESS",
            default_text="that of the scheduler in SCALER_ADDRESS, else of the file's [scheduler],"
            " else of the newest scheduler of this user on this host",
            is_required=True,
            find=find_monitor,
        ),
        Option(
            "--host",
            _Host(),
            "the interface to listen at; 0.0.0.0: all. Addresses other than loopback require a token",
            default="127.0.0.1",
            group="the page",
        ),
        Option(
            "--port",
            Whole(0, maximum=LAST_PORT),
            "the port to listen at; 0: any free one",
            default=8081,
            group="the page",
            metavar="PORT",
        ),
        Option(
            "--token-file",
            ExistingFile(),
            f"a file with the token that viewers must present; the variable {TOKEN_VARIABLE} may contain it instead",
            default_text="generated, and printed in a link, if one is required",
            group="the page",
        ),
        Option(
            "--allowed-host",
            Words(_Host(), is_repeated=True),
            "a host name that browsers use through a proxy, if they present no token; may be given several times",
            default=[],
            group="the page",
        ),
        Option(
            "--trusted-user-header",
            _HeaderName(),
            "the header in which a proxy of --trusted-proxy names the user that it has logged in, who needs no token;"
            " the proxy must remove it from what browsers send",
            default_text="none",
            group="the page",
        ),
        Option(
            "--trusted-proxy",
            Words(_IpAddress(), is_repeated=True),
            "the IP address of such a proxy; may be given several times. All who can connect from there are trusted",
            default=[],
            group="the page",
        ),
        Option(
            "--allow-actions",
            Switch(),
            "allow viewers to drain workers, and to stop them if the scheduler is not protected; requires a token",
            default=False,
            group="the page",
        ),
        *key_options("admin", "the scheduler"),
        *logging_options(),
        Option(
            "--link-file",
            NewFile(),
            "when listening, write the link to the page to this file, which only this user may read",
            group="running under another program",
        ),
        *service_options(),
    ],
    earlier=[
        Earlier("--gui-address", becomes=("host", "port")),
        Earlier("-bi --broadcast-interval-seconds", why="pages are updated as changes arrive"),
        Earlier("-tl --task-log-max-size", why="the page keeps what fits in its memory"),
        Earlier("-sri --status-report-interval-seconds", why="the scheduler decides how often it publishes"),
        *EARLIER_LOGGING,
        *EARLIER_SECURITY,
    ],
)
