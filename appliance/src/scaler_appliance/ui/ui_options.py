"""The options of `scaler_ui`: one table that defines its help, its section of a configuration file, its environment
variables and its documentation (see `scaler_protocol.programs.options`).

Rule: a token is in a file or in the environment, never an option, because other users can read command lines.
"""

from __future__ import annotations

import argparse
import os
import platform
from typing import List, Optional

from scaler_appliance import __version__
from scaler_appliance.feed.finding import find_monitor
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

TOKEN_VARIABLE = "SCALER_UI_TOKEN"
SHORTEST_TOKEN = 16
LAST_PORT = 65535


class _Host(Kind):
    expects = "the name or address of a host"
    metavar = "HOST"


def given_token(token_file: Optional[str]) -> Optional[str]:
    """The token from the file, or else from the environment; None when there is none.

    Raises OSError when the file cannot be read, and ValueError when the token is invalid.
    """
    if token_file is not None:
        with open(token_file, encoding="utf-8") as opened:
            return _checked(opened.readline().strip(), token_file)
    text = os.environ.get(TOKEN_VARIABLE)
    return _checked(text, TOKEN_VARIABLE) if text else None


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"{where}: a token must have at least {SHORTEST_TOKEN} printable ASCII characters, such as the output of"
            " `python3 -c 'import secrets; print(secrets.token_urlsafe())'`"
        )
    return token


def _faults(options: argparse.Namespace) -> List[str]:
    try:
        given_token(options.token_file)
    except OSError:
        pass  # reported where the file is opened
    except ValueError as error:
        return [str(error)]
    return []


UI = Program(
    name="scaler_ui",
    section="ui",
    description="Show a Scaler cluster in the browser, and its figures to Prometheus (at /metrics) and to scripts (at"
    " /api/workers and others). It subscribes to the scheduler, and may be started before it.",
    epilog="Without an address it shows the scheduler that you started last on this host. A scheduler logs its monitor"
    " address when it starts:  scaler_ui ipc:///tmp/127.0.0.1_2345_monitor",
    version=lambda: f"scaler_ui {__version__}, {platform.python_implementation()} {platform.python_version()}",
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
            "a host name that browsers use through a proxy, if no token is required; may be given several times",
            default=[],
            group="the page",
        ),
        Option(
            "--allow-actions",
            Switch(),
            "allow viewers to drain and stop workers, if the scheduler is not protected",
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
