"""The types of option values: on a command line, in the environment, and in a TOML file.

Rules:
- A kind parses text (`parse`) and a TOML value (`from_toml`) to the same Python value; both raise ValueError with a
  message that says what to write instead. `to_toml` writes what `from_toml` reads.
- Parsing looks only at its input. `fault_here` checks the machine, for example whether a file exists, for `--check`.
- Sizes are bytes and durations seconds, written plainly or with a unit, everywhere.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from typing import Any, Dict, List, Optional, Sequence, Tuple

from scaler_protocol.host.addresses import parse_address, parse_addresses
from scaler_protocol.programs.units import DURATION_FORMS, SIZE_FORMS, parse_bytes, parse_seconds

TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


class Kind:
    """Text, and the shared behaviour of all kinds.

    Attributes:
        expects: the expected form, as in "expected a whole number, 1 or more".
        metavar: the placeholder of the value in help texts.
        completes: what a shell completes: "" for nothing, "file" or "directory".
    """

    expects = "text"
    metavar = "TEXT"
    completes = ""

    def parse(self, text: str) -> Any:
        return text

    def from_toml(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise self._wrong(value)
        return self.parse(value)

    def from_environment(self, text: str) -> Any:
        return self.parse(text)

    def to_toml(self, value: Any) -> str:
        return toml_of(value)

    def show(self, value: Any) -> str:
        """A default, as shown to people."""
        return str(value)

    def fault_here(self, value: Any) -> str:
        """Why the value is invalid on this machine; empty if it is valid."""
        return ""

    def _wrong(self, value: Any) -> ValueError:
        return ValueError(f"expected {self.expects}, got {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else toml_of(value)


class _Number(Kind):
    """A number in a range.

    Parameters:
        minimum: the lowest valid value; None for no limit.
        is_minimum_excluded: the value must be above the minimum.
        maximum: the highest valid value; None for no limit.
    """

    noun = "number"
    unit = ""

    def __init__(
        self, minimum: Optional[float] = None, is_minimum_excluded: bool = False, maximum: Optional[float] = None
    ) -> None:
        self.minimum = minimum
        self.is_minimum_excluded = is_minimum_excluded
        self.maximum = maximum
        self.expects = f"a {self.noun}"
        if minimum is not None and maximum is not None and not is_minimum_excluded:
            self.expects += f", {minimum:g}{self.unit} to {maximum:g}{self.unit}"
        elif minimum is not None:
            self.expects += (
                f", above {minimum:g}{self.unit}" if is_minimum_excluded else f", {minimum:g}{self.unit} or more"
            )

    def _read(self, text: str) -> float:
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        try:
            value = self._read(text.strip())
        except ValueError:
            raise self._wrong(text) from None
        return self._in_range(value, text)

    def from_toml(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(value)
        return self._in_range(value, value)

    def _in_range(self, value: float, given: Any) -> Any:
        low = self.minimum
        is_low = low is not None and (value <= low if self.is_minimum_excluded else value < low)
        is_high = self.maximum is not None and value > self.maximum
        if is_low or is_high or not math.isfinite(value):
            raise self._wrong(given)
        return value


class Whole(_Number):
    """A whole number."""

    noun = "whole number"
    metavar = "N"

    def _read(self, text: str) -> float:
        return int(text)

    def from_toml(self, value: Any) -> Any:
        if isinstance(value, float):
            raise self._wrong(value)
        return super().from_toml(value)


class Number(_Number):
    """A number, whole or not."""

    metavar = "N"

    def _read(self, text: str) -> float:
        return float(text)

    def show(self, value: Any) -> str:
        return f"{value:g}"


class Bytes(_Number):
    """A size: a whole number of bytes, or a number with a unit; see `scaler_protocol.programs.units`."""

    noun = f"size such as {SIZE_FORMS}"
    metavar = "BYTES"

    def _read(self, text: str) -> float:
        return parse_bytes(text)

    def from_toml(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, float):
            raise self._wrong(value)
        return super().from_toml(value)

    def show(self, value: Any) -> str:
        power = 0
        while value and value % 1024 == 0 and power < 5:
            value, power = value // 1024, power + 1
        return f"{value}{('', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


class Seconds(_Number):
    """A duration: a number of seconds, or numbers with units; see `scaler_protocol.programs.units`."""

    noun = f"duration such as {DURATION_FORMS}"
    unit = "s"
    metavar = "SECONDS"

    def _read(self, text: str) -> float:
        return parse_seconds(text)

    def from_toml(self, value: Any) -> Any:
        return self.parse(value) if isinstance(value, str) else float(super().from_toml(value))

    def to_toml(self, value: Any) -> str:
        return toml_of(float(value))

    def show(self, value: Any) -> str:
        for unit, seconds in (("h", 3600), ("min", 60)):
            if value > 60 and value % seconds == 0:
                return f"{value / seconds:g}{unit}"
        return f"{value:g}s"


class Switch(Kind):
    """On or off: `--name` and `--no-name`, or only the first.

    Parameters:
        has_negation: there is a `--no-name`.
    """

    expects = "true or false"
    metavar = ""

    def __init__(self, has_negation: bool = True) -> None:
        self.has_negation = has_negation

    def parse(self, text: str) -> Any:
        word = text.strip().lower()
        if word not in TRUE_WORDS + FALSE_WORDS:
            raise self._wrong(text)
        return word in TRUE_WORDS

    def from_toml(self, value: Any) -> Any:
        if not isinstance(value, bool):
            raise self._wrong(value)
        return value

    def show(self, value: Any) -> str:
        return "on" if value else "off"


class Choice(Kind):
    """One of several words.

    Parameters:
        words: the choices.
        is_upper: they are in capitals, and are accepted in lower case too.
    """

    metavar = ""

    def __init__(self, words: Sequence[str], is_upper: bool = False) -> None:
        self.words = tuple(words)
        self.is_upper = is_upper
        self.expects = f"one of {', '.join(words)}"

    def parse(self, text: str) -> Any:
        word = text.upper() if self.is_upper else text
        if word not in self.words:
            raise self._wrong(text)
        return word


class Words(Kind):
    """Several values of a kind: in TOML an array, or a single value; in the environment, words as in a shell.

    Parameters:
        item: the kind of each.
        is_repeated: the option is given once for each value; otherwise it takes all values that follow it.
    """

    def __init__(self, item: Optional[Kind] = None, is_repeated: bool = False) -> None:
        self.item = item or Kind()
        self.is_repeated = is_repeated
        self.expects = f"an array, each {self.item.expects}"
        self.metavar = self.item.metavar
        self.completes = self.item.completes

    def parse(self, text: str) -> Any:
        """Parse one of the values."""
        return self.item.parse(text)

    def from_environment(self, text: str) -> Any:
        return [self.item.parse(word) for word in shlex.split(text)]

    def from_toml(self, value: Any) -> Any:
        return [self.item.from_toml(each) for each in (value if isinstance(value, list) else [value])]

    def to_toml(self, value: Any) -> str:
        return f"[{', '.join(self.item.to_toml(each) for each in value)}]"

    def show(self, value: Any) -> str:
        return " ".join(self.item.show(each) for each in value)

    def fault_here(self, value: Any) -> str:
        return "; ".join(filter(None, map(self.item.fault_here, value)))


class NetworkAddress(Kind):
    """The address of a scheduler or its monitor: `tcp://HOST:PORT` or `ipc:///path`."""

    expects = "an address such as tcp://127.0.0.1:2345"
    metavar = "ADDRESS"

    def parse(self, text: str) -> Any:
        parse_address(text)
        return text


class NetworkAddresses(NetworkAddress):
    """Where one scheduler may be: an address, or several with commas in between, the preferred one first."""

    expects = "an address such as tcp://127.0.0.1:2345, or several with commas in between"
    metavar = "ADDRESS[,ADDRESS...]"

    def parse(self, text: str) -> Any:
        parse_addresses(text)
        return text


class ExistingFile(Kind):
    """A file to be read."""

    expects = "a path"
    metavar = "PATH"
    completes = "file"

    def fault_here(self, value: Any) -> str:
        if not os.path.exists(value):
            return f"there is no file {value}"
        return "" if os.access(value, os.R_OK) and not os.path.isdir(value) else f"{value} is not a readable file"


class Directory(Kind):
    """A directory for new files."""

    expects = "a path"
    metavar = "PATH"
    completes = "directory"

    def fault_here(self, value: Any) -> str:
        if not os.path.isdir(value):
            return f"there is no directory {value}"
        return "" if os.access(value, os.W_OK | os.X_OK) else f"{value} is not writable"


class NewDirectory(Kind):
    """A directory that is made if it is not there."""

    expects = "a path"
    metavar = "PATH"
    completes = "directory"

    def fault_here(self, value: Any) -> str:
        return Directory().fault_here(value if os.path.exists(value) else os.path.dirname(value) or ".")


class NewFile(Kind):
    """A file to be written."""

    expects = "a path"
    metavar = "PATH"
    completes = "file"

    def fault_here(self, value: Any) -> str:
        if os.path.exists(value) or value == "-":
            is_good = value == "-" or (os.access(value, os.W_OK) and not os.path.isdir(value))
            return "" if is_good else f"{value} cannot be written"
        return Directory().fault_here(os.path.dirname(value) or ".")


# The standard library reads TOML but does not write it.

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def toml_of(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(character, _escaped(character)) for character in value) + '"'
    if isinstance(value, dict):
        items: Dict[str, Any] = value
        pairs = (f"{_key(name)} = {toml_of(each)}" for name, each in items.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        several: List[Any] = list(value)
        return "[" + ", ".join(map(toml_of, several)) + "]"
    return str(value)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 32 or ord(character) == 127 else character


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_of(name)


def comma_separated(text: str) -> Tuple[str, ...]:
    """The items between commas, stripped of blanks; empty items are dropped."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)
