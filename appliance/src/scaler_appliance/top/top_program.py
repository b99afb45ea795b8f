"""The program `scaler_top`: its command line, its subscription, and when it shows frames."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from typing import List, Optional

from scaler_appliance.feed.finding import security_of_monitor
from scaler_appliance.feed.silence import why_silent
from scaler_appliance.feed.status_feed import Feed
from scaler_appliance.top.frame import FeedSource, Size, render
from scaler_appliance.top.json_lines import describe
from scaler_appliance.top.lines import plain
from scaler_appliance.top.screen import (
    QUITTING,
    MissingTerminalPackageError,
    NoTerminalError,
    Screen,
    Signals,
    interruptible,
    suspend,
)
from scaler_appliance.top.top_options import TOP
from scaler_appliance.top.view import View
from scaler_appliance.top.watch import Viewer
from scaler_protocol.host.sodium import MissingLibraryError
from scaler_protocol.keys.errors import KeyFileError

RATES_COME_WITHIN_SECONDS = 2.5  # after the first publication
COLUMNS_WITHOUT_TERMINAL = 160
TICK_SECONDS = 1.0  # for counters of seconds on the screen


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the program; returns its exit code.

    It is 0, or 1 if there was nothing to show or a package is missing, or 2 for a wrong command line.
    """
    options = TOP.read(arguments)
    try:
        security = security_of_monitor(options.address, options.key_file, options.insecure)
    except (KeyFileError, MissingLibraryError) as error:
        print(f"scaler_top: {error}", file=sys.stderr)
        return 1
    feed = Feed(options.address, wants_tasks=False, security=security)
    try:
        return _run(options, feed)
    except NoTerminalError as error:
        print(f"scaler_top: {error}", file=sys.stderr)
        return 2
    except MissingTerminalPackageError as error:
        print(f"scaler_top: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not flush the rest, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        feed.close()


def _run(options: argparse.Namespace, feed: Feed) -> int:
    view = View(sort=options.sort, is_reversed=options.reverse, wanted=options.filter or "")
    if options.once or options.json:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.once:
        return _print_once(options, feed, view)
    if options.json:
        return _print_json(options, feed)
    return _show(options, Viewer(feed, view), feed)


def _print_once(options: argparse.Namespace, feed: Feed, view: View) -> int:
    if not _wait_for_figures(feed, options.timeout_seconds):
        print(
            f"scaler_top: nothing was published at {options.address} within {options.timeout_seconds:g} s:"
            f" {why_silent(options.address)}."
            " check that the scheduler runs, and that this is its monitor address, which it prints when it starts",
            file=sys.stderr,
        )
        return 1
    if options.json:
        print(json.dumps(describe(feed.cluster, feed.address)))
        return 0
    columns = shutil.get_terminal_size((COLUMNS_WITHOUT_TERMINAL, 0)).columns
    source = FeedSource(feed.address, feed.age_seconds(), feed.is_connected(), reason=feed.silence_reason())
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    print("\n".join(plain(render(feed.cluster, view, source, Size(columns, None)).lines)), flush=True)
    return 0


def _wait_for_figures(feed: Feed, timeout_seconds: float) -> bool:
    """Wait for a first publication, and briefly for a second one, which has rates; returns whether there was any."""
    deadline = time.monotonic() + timeout_seconds
    while not feed.cluster.rates:
        rest = deadline - time.monotonic()
        if rest <= 0 or not feed.poll(rest):
            break
        had_figures = feed.cluster.scheduler is not None
        feed.receive()
        if feed.cluster.scheduler is not None and not had_figures:
            deadline = min(deadline, time.monotonic() + RATES_COME_WITHIN_SECONDS)
    return feed.cluster.scheduler is not None


def _print_json(options: argparse.Namespace, feed: Feed) -> int:
    next_at = 0.0
    published = None
    while True:
        feed.poll(TICK_SECONDS)
        feed.receive()
        scheduler = feed.cluster.scheduler
        # A little early, because publications come only about every second.
        if scheduler is not None and scheduler is not published and time.monotonic() >= next_at:
            print(json.dumps(describe(feed.cluster, feed.address)), flush=True)
            published, next_at = scheduler, time.monotonic() + options.interval_seconds - TICK_SECONDS / 2


def _show(options: argparse.Namespace, watch: Viewer, feed: Feed) -> int:
    with interruptible():
        screen = Screen()
    with Signals() as signals:
        while not watch.view.has_quit:
            with screen.shown():
                _show_until_left(options, watch, feed, screen, signals)
            if not watch.view.has_quit:
                suspend()
    return 0


def _show_until_left(options: argparse.Namespace, watch: Viewer, feed: Feed, screen: Screen, signals: Signals) -> None:
    """Show frames until the user quits or suspends the program."""
    next_frame_at = 0.0
    is_due = True
    while True:
        if is_due:
            size = screen.size
            screen.show(watch.frame(size).lines, size)
            is_due, next_frame_at = False, time.monotonic() + options.interval_seconds - TICK_SECONDS / 2
        screen.wait(TICK_SECONDS, feed, signals)
        received = signals.take()
        if received & QUITTING:
            watch.press("\x03")
        if signal.SIGTSTP in received:
            return
        for key in screen.pressed_keys():
            watch.press(key)
            is_due = True
        if watch.view.has_quit:
            return
        has_news = feed.receive()
        is_quiet = not feed.is_connected() or watch.view.is_paused
        is_due = is_due or signal.SIGWINCH in received or ((has_news or is_quiet) and time.monotonic() >= next_frame_at)
