"""The command line of `scaler_ui`.

Rules: every option of the table in `ui_options` does what its help says. Exit codes: 0 stopped on request, 1 failed to
start, 2 wrong command line or configuration. A token is never logged.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.util
import logging
import secrets
import socket
import sys
from typing import TYPE_CHECKING, List, Optional
from urllib.parse import quote

from scaler_appliance.ui.access import is_loopback
from scaler_appliance.ui.ui_options import UI, given_token, trusted_proxies
from scaler_protocol.host.discovery import USER_INTERFACE, announced, keep_announced
from scaler_protocol.host.output_files import write_at_once
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.service_manager import ServiceManager

if TYPE_CHECKING:
    from scaler_appliance.ui.watching import Watch

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")  # of the extra `ui`
EVERYWHERE = ("", "*", "0.0.0.0", "::")

logger = logging.getLogger("scaler")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code."""
    options = UI.read(arguments)
    service_manager = ServiceManager.of_this_process("scaler_ui")
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        what = " and ".join(missing)
        print(f"scaler_ui: {what} not installed: pip install 'scaler-appliance[ui]'", file=sys.stderr)
        return 1
    try:
        token = given_token(options.token_file)
    except OSError as error:
        UI.parser().error(f"--token-file {options.token_file}: {error.strerror or error}")
    except ValueError as error:
        UI.parser().error(str(error))
    try:
        setup_logging(options.logging_paths, options.logging_level, options.logging_config_file, options.logging_format)
    except (OSError, KeyError, ValueError) as error:
        UI.parser().error(f"logging cannot be set up: {error}")
    try:
        asyncio.run(_serve(options, token, service_manager))
    except OSError as error:
        logger.error("scaler_ui: %s", error)
        print(f"scaler_ui: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace, token: Optional[str], service_manager: ServiceManager) -> None:
    # Imported late, so that -h and errors of the command line are printed at once.
    from scaler_appliance.feed.finding import security_of_monitor
    from scaler_appliance.feed.status_feed import Feed
    from scaler_appliance.ui.actions import shut_down_worker
    from scaler_appliance.ui.application import make_application
    from scaler_appliance.ui.serving import Serving, listen
    from scaler_appliance.ui.ui_state import UiState
    from scaler_appliance.ui.watching import Watch

    _log_for_uvicorn()
    proxies = trusted_proxies(options)
    # Without a token, any program of this user may look, but not let workers leave.
    needs_token = proxies is not None or options.allow_actions or not is_loopback(options.host)
    is_made = token is None and needs_token
    if is_made:
        token = secrets.token_urlsafe(24)
    with contextlib.ExitStack() as closing:
        listener = closing.enter_context(listen(options.host, options.port))
        try:
            security = security_of_monitor(options.monitor_address, options.key_file, options.insecure)
        except (KeyFileError, MissingLibraryError) as error:
            raise OSError(str(error)) from error
        feed = Feed(options.monitor_address, security=security)
        closing.callback(feed.close)
        state = UiState(feed, options.allow_actions)
        watch = Watch(feed, state)
        ask = functools.partial(shut_down_worker, key_file=options.key_file, insecure=options.insecure or None)
        application = make_application(state, watch, token, options.allowed_host, ask_to_shut_down=ask, proxies=proxies)
        serving = Serving(application, listener, lambda: _stop(watch, service_manager))
        serving.take_signals()
        url = _url(options.host, listener.getsockname()[1])
        link = f"{url}?token={quote(token)}" if token is not None else url
        otherwise = "scaler_ui: clients will not show a link to this page"
        announcement = closing.enter_context(announced(USER_INTERFACE, options.monitor_address, otherwise, url=link))
        keep_announced(announcement, asyncio.get_running_loop().call_later)
        logger.info("scaler_ui: watching %s", options.monitor_address)
        logger.info("scaler_ui: listening at %s", url)
        if is_made:
            print(f"scaler_ui: open {link}", flush=True)
        if options.link_file is not None:
            try:
                write_at_once(options.link_file, f"{link}\n")  # it may contain the token
            except OSError as error:
                raise OSError(f"--link-file {options.link_file}: {error.strerror or error}") from error
        service_manager.ready(f"listening at {url}")
        service_manager.watch(asyncio.get_running_loop())
        await serving.run(watch.run(), options.exit_when_stdin_closes)
        logger.info("scaler_ui: stopped")


def _stop(watch: Watch, service_manager: ServiceManager) -> None:
    """The program is about to end."""
    service_manager.stopping("asked to stop")
    watch.close()


def _log_for_uvicorn() -> None:
    """Send uvicorn's log to ours."""
    logging.getLogger("uvicorn").handlers = logger.handlers
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _url(host: str, port: int) -> str:
    name = socket.gethostname() if host in EVERYWHERE else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
