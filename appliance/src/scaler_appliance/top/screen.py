"""The terminal: keys in, frames out. The only module that uses blessed.

Rules:
- The terminal is always restored: after a key, a signal or an error.
- Only changed lines are written, each at its own position, so that a name whose width the terminal computes differently
  cannot move the lines below it.
- Only `wait` waits: for a key, a signal, the feed or a time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from typing import Dict, Iterator, List, Protocol, Set, Union

from scaler_appliance.top.frame import Size
from scaler_appliance.top.lines import ALARM, BAD, FAINT, NOTICE, PLAIN, SORTED, STOPPED, TITLE, Line

ESCAPE_SECONDS = 0.05  # after which an Esc is a key and not the beginning of one
LOOK_SECONDS = 0.2  # within which a signal is noticed that came just before Python waits
ANSWER_SECONDS = "1"  # in which a terminal says what it is
# A DEC sequence that terminal descriptions often lack, and that all terminals support or ignore.
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)
QUITTING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class ReadableSource(Protocol):
    """What `select` can wait for."""

    def fileno(self) -> int: ...


class MissingTerminalPackageError(Exception):
    """A package that only the live view needs is not installed."""


class NoTerminalError(Exception):
    """There is no usable terminal; the message says why, and what to do."""


class Signals:
    """Signals that `wait` can wait for; a context manager."""

    def __init__(self) -> None:
        self._received: Set[int] = set()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> Signals:
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def _note(self, number: int, _: object) -> None:
        self._received.add(number)

    def fileno(self) -> int:
        return self._reader.fileno()

    def take(self) -> Set[int]:
        """The signals since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        received, self._received = self._received, set()
        return received


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Signals that end the program raise KeyboardInterrupt, as Ctrl-C does.

    One that comes after Python has looked for signals, and before the system waits, does not end that wait. So another
    signal comes periodically.
    """
    previous = {number: signal.signal(number, signal.default_int_handler) for number in QUITTING}
    previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in previous.items():
            signal.signal(number, handler)


class Screen:
    """A terminal that shows frames. To find out what it can do, it is asked, and that can be interrupted.

    Raises NoTerminalError, or MissingTerminalPackageError.
    """

    def __init__(self) -> None:
        if not sys.stdout.isatty():
            raise NoTerminalError("the output is not a terminal; --once prints one frame, --json figures for programs")
        if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
            raise NoTerminalError(
                f"TERM={os.environ.get('TERM', '')} is not a terminal that can show frames; --once prints one"
            )
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        # Some terminals answer no questions, as that of `script` in a pipeline: 5 s for each of two by default.
        os.environ.setdefault("BLESSED_QUERY_TIMEOUT_SECONDS", ANSWER_SECONDS)
        # NO_COLOR should only disable colours, but blessed would also not move the cursor.
        without_colors = os.environ.pop("NO_COLOR", "")
        try:
            import blessed
        except ModuleNotFoundError as error:
            text = f"the live view needs {error.name}: pip install 'scaler-appliance[top]'; --once and --json do not"
            raise MissingTerminalPackageError(text) from None
        self._terminal = blessed.Terminal()
        if without_colors:
            os.environ["NO_COLOR"] = without_colors
        self._styles = self._choose_styles(not without_colors and self._terminal.number_of_colors >= 8)
        self._shown: List[str] = []
        self._shown_size = Size(0, 0)

    def _choose_styles(self, with_colors: bool) -> Dict[str, str]:
        terminal = self._terminal
        styles = {PLAIN: "", TITLE: terminal.bold, SORTED: terminal.reverse, BAD: "", NOTICE: terminal.bold, FAINT: ""}
        styles[ALARM] = terminal.bold + terminal.reverse
        if with_colors:
            styles[ALARM] = terminal.bold_white_on_red
            styles.update({SORTED: terminal.bold_green, BAD: terminal.red, NOTICE: terminal.yellow})
            styles[FAINT] = terminal.cyan
        styles[STOPPED] = terminal.dim or (terminal.bright_black if with_colors else "")
        return {style: str(sequence) for style, sequence in styles.items()}

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Take over the terminal, and restore it afterwards."""
        terminal = self._terminal
        self._shown = []
        with terminal.cbreak():
            try:
                self._write(f"{terminal.enter_fullscreen}{terminal.hide_cursor}{WRAP_OFF}")
                yield
            finally:
                with contextlib.suppress(OSError):  # it has gone
                    self._write(f"{terminal.normal}{WRAP_ON}{terminal.normal_cursor}{terminal.exit_fullscreen}")

    @property
    def size(self) -> Size:
        # A terminal of unknown size, such as a serial line, reports 0.
        return Size(self._terminal.width or 80, self._terminal.height or 24)

    def show(self, lines: List[Line], size: Size) -> None:
        """Show a frame, which was made for this size."""
        painted = [self._painted(each) for each in lines]
        parts = []
        if size != self._shown_size or not self._shown:
            parts.append(f"{self._terminal.home}{self._terminal.clear}")
            self._shown, self._shown_size = [], size
        assert size.lines is not None
        for number in range(size.lines):
            content = painted[number] if number < len(painted) else ""
            if number >= len(self._shown) or content != self._shown[number]:
                # Cleared first, because after a full line the cursor is still on its last character.
                parts.append(f"{self._terminal.move_xy(0, number)}{self._terminal.clear_eol}{content}")
        self._shown = painted + [""] * (size.lines - len(painted))
        self._write("".join(parts))

    def _painted(self, content: Line) -> str:
        normal = self._terminal.normal
        parts = []
        for span in content:
            style = self._styles[span.style]
            parts.append(f"{style}{span.text}{normal}" if style else span.text)
        return "".join(parts).rstrip(" ")

    def _write(self, text: str) -> None:
        self._terminal.stream.write(text)
        self._terminal.stream.flush()

    def wait(self, seconds: float, *others: ReadableSource) -> None:
        """Wait for a key, for any of the others to be readable, or for the time to pass."""
        readers: List[Union[int, ReadableSource]] = [*others, *self._keyboard()]
        select.select(readers, [], [], max(0.0, seconds))

    def _keyboard(self) -> List[int]:
        return [sys.stdin.fileno()] if sys.stdin is not None and sys.stdin.isatty() else []

    def pressed_keys(self) -> Iterator[str]:
        """The pressed keys, by name if they have one."""
        if not self._keyboard():
            return
        while True:
            key = self._terminal.inkey(timeout=0, esc_delay=ESCAPE_SECONDS)
            if not key:
                return
            yield str(key.name or key)


def suspend() -> None:
    """Suspend this process like Ctrl-Z, until it is continued."""
    os.kill(os.getpid(), signal.SIGSTOP)
