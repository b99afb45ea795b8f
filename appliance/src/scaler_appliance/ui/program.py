"""The command line of `scaler_ui`.

Rules: every option appears under -h with its default, and does what it says. Exit codes: 0 stopped as asked, 1 failed
to start, 2 wrong command line. A token never stands on a command line, where other users may read it, nor in a log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import platform
import secrets
import socket
import stat
import sys
from typing import List, Optional, Tuple
from urllib.parse import quote

from scaler_appliance import __version__
from scaler_appliance.ui.finding import NotFoundError, announced, find_monitor_address
from scaler_protocol.addresses import AddressError, parse_address
from scaler_protocol.program_logging import LEVELS, setup_logging

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8081
TOKEN_VARIABLE = "SCALER_UI_TOKEN"
SHORTEST_TOKEN = 16
EVERYWHERE = ("", "*", "0.0.0.0", "::")

logger = logging.getLogger("scaler")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scaler_ui",
        description="Show a Scaler cluster in the browser, and its figures to Prometheus (at /metrics) and to scripts"
        " (at /api/workers and the like). It listens to what the scheduler publishes, and may be started before it.",
        epilog="The scheduler logs its monitor address when it starts:  scaler_ui ipc:///tmp/127.0.0.1_2345_monitor",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "monitor_address",
        metavar="MONITOR_ADDRESS",
        nargs="?",
        default=None,
        help="where the scheduler publishes its status: ipc:///path or tcp://HOST:PORT",
    )
    parser.add_argument(
        "--version", action="version", version=f"scaler_ui {__version__}, Python {platform.python_version()}"
    )
    page = parser.add_argument_group("the page")
    page.add_argument(
        "--host",
        default=DEFAULT_HOST,
        metavar="HOST",
        help="which interface to listen at; 0.0.0.0: all. Other than loopback addresses need a token",
    )
    page.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="PORT", help="0: any free one")
    page.add_argument(
        "--token-file",
        default=None,
        metavar="PATH",
        help=f"whoever looks must know the token in this file, or in the environment variable {TOKEN_VARIABLE}; by"
        " default one is made and printed where one is needed",
    )
    page.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers reach this server through a proxy, where no token is needed; may be given"
        " several times",
    )
    page.add_argument(
        "--allow-actions",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="let who looks drain and stop workers, if the scheduler is not protected",
    )
    logs = parser.add_argument_group("logging")
    logs.add_argument(
        "-lp",
        "--logging-paths",
        nargs="*",
        default=["/dev/stdout"],
        metavar="PATH",
        help="/dev/stdout, /dev/stderr, or files (rotated daily)",
    )
    logs.add_argument(
        "-ll", "--logging-level", default="INFO", choices=LEVELS, help="least severe level that is logged"
    )
    logs.add_argument(
        "-lc",
        "--logging-config-file",
        default=None,
        metavar="PATH",
        help="a logging.config file, which then decides everything about logging",
    )
    service = parser.add_argument_group("running under another program")
    service.add_argument(
        "--link-file",
        default=None,
        metavar="PATH",
        help="when listening, write the link to the page to this file, which nobody else may read",
    )
    service.add_argument(
        "--exit-when-stdin-closes",
        action="store_true",
        help="stop when standard input ends: when it is a pipe, its other end is the life line",
    )
    return parser


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port")
    return value


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        monitor_address = options.monitor_address or find_monitor_address()
        parse_address(monitor_address)
        token, is_made = _token(options)
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file)
    except (AddressError, NotFoundError, OSError, KeyError, ValueError) as error:
        parser.error(str(error))
    try:
        asyncio.run(_serve(options, monitor_address, token, is_made))
    except OSError as error:
        logger.error("scaler_ui: %s", error)
        print(f"scaler_ui: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace, monitor_address: str, token: Optional[str], is_made: bool) -> None:
    # Only now, so that -h and what is wrong with the command line are told at once.
    from scaler_appliance.monitoring.feed import Feed
    from scaler_appliance.ui.application import make_application
    from scaler_appliance.ui.serving import Serving, listen
    from scaler_appliance.ui.state import State
    from scaler_appliance.ui.watching import Watch

    logging.getLogger("uvicorn").handlers = logger.handlers
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with contextlib.ExitStack() as closing:
        listener = closing.enter_context(listen(options.host, options.port))
        feed = Feed(monitor_address)
        closing.callback(feed.close)
        state = State(feed, options.allow_actions)
        watch = Watch(feed, state)
        application = make_application(state, watch, token, options.allowed_host)
        url = _url(options.host, listener.getsockname()[1])
        link = f"{url}?token={quote(token)}" if token is not None else url
        closing.enter_context(announced(monitor_address, link))
        logger.info("scaler_ui: watching %s", monitor_address)
        logger.info("scaler_ui: listening at %s", url)
        if is_made:
            print(f"scaler_ui: open {link}", flush=True)
        if options.link_file is not None:
            _write_link(options.link_file, link)
        await Serving(application, listener, watch.close).run(watch.run(), options.exit_when_stdin_closes)
        logger.info("scaler_ui: stopped")


def _token(options: argparse.Namespace) -> Tuple[Optional[str], bool]:
    """The token, None where none is needed; and whether it was made here.

    Raises OSError and ValueError when the given one cannot be used.
    """
    from scaler_appliance.ui.access import is_loopback

    if options.token_file is not None:
        with open(options.token_file, encoding="utf-8") as token_file:
            if os.fstat(token_file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                logger.warning("scaler_ui: others may read %s: chmod 600 %s", options.token_file, options.token_file)
            return _checked(token_file.readline().strip(), options.token_file), False
    if os.environ.get(TOKEN_VARIABLE):
        return _checked(os.environ[TOKEN_VARIABLE], TOKEN_VARIABLE), False
    if is_loopback(options.host):
        return None, False
    return secrets.token_urlsafe(24), True


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"{where}: a token has at least {SHORTEST_TOKEN} printable ASCII characters, such as those of"
            " `python3 -c 'import secrets; print(secrets.token_urlsafe())'`"
        )
    return token


def _url(host: str, port: int) -> str:
    name = socket.gethostname() if host in EVERYWHERE else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def _write_link(path: str, link: str) -> None:
    """It may hold the token. Whole at once: who waits for the file finds it complete."""
    unfinished = f"{path}.{os.getpid()}"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as link_file:
        link_file.write(f"{link}\n")
    os.replace(unfinished, path)
