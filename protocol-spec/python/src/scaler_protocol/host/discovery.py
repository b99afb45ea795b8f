"""How programs of one user on one host find each other without an address.

    scheduler ──announce──▶ FOLDER/scheduler-4711-….json ◀──find── Client(), scaler_cluster
    scaler_ui ──announce──▶ FOLDER/ui-4712-….json        ◀──find── a client that shows a link

Rules:
- The folder belongs to the user and nobody else can look into it: what stands in it, tokens too, is nobody else's to
  read, and what is found in it was written by the user. A folder of which that is not so is refused.
- A program holds a lock on its file while it runs, from before the file has its name on. A file whose lock is free was
  left by a program that was killed: it is removed, and no process id has to be guessed about.
- Whoever announces something does not fork: a fork would hold the lock on.
- What another host, or a container with a network of its own, has left in the folder is left alone and not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from types import TracebackType
from typing import ContextManager, Dict, Iterator, List, Mapping, Optional, Type

from scaler_protocol.host.addresses import parse_address

ADDRESS_VARIABLE = "SCALER_ADDRESS"
FOLDER_VARIABLE = "SCALER_RUN_DIRECTORY"
SCHEDULER = "scheduler"
USER_INTERFACE = "ui"

_UNFINISHED_PREFIX = "new-"
_MAXIMUM_ENTRY_BYTES = 1 << 16
_numbers = itertools.count(1)

logger = logging.getLogger("scaler")


class DiscoveryError(ValueError):
    """Nothing can be found, or the folder cannot be trusted; the message says what to do."""


@dataclass(frozen=True)
class Entry:
    """A running program of this user on this host.

    Parameters:
        kind: SCHEDULER or USER_INTERFACE.
        address: where clients and workers connect to; of a user interface, the monitor address that it watches.
        process_id: of the program.
        started: when it was announced, in seconds since the epoch.
        details: whatever else it says, such as a scheduler's `monitor_address` or a user interface's `url`.
    """

    kind: str
    address: str
    process_id: int
    started: float
    details: Mapping[str, str]


class Announcement:
    """A program can be found, until this is closed or the process ends.

    Parameters:
        kind, address, details: as of `Entry`. A wildcard address is turned into one that can be connected to.

    Raises DiscoveryError when the folder cannot be trusted, OSError when nothing can be written there.
    """

    def __init__(self, kind: str, address: str, **details: str) -> None:
        folder = own_folder()
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        _check_folder(folder)
        entry = {
            "kind": kind,
            "address": connectable(address),
            "process_id": os.getpid(),
            "started": time.time(),
            "network": _network(),
            "details": details,
        }
        name = f"{kind}-{os.getpid()}-{next(_numbers)}-{os.urandom(4).hex()}.json"
        self.path = os.path.join(folder, name)
        unfinished = os.path.join(folder, _UNFINISHED_PREFIX + name)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write(json.dumps(entry).encode())
            self._file.flush()
            os.rename(unfinished, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            self._file.close()
            raise

    def close(self) -> None:
        """The program cannot be found any more. Idempotent."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self._file.close()

    def __enter__(self) -> Announcement:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def announced(kind: str, address: str, otherwise: str, **details: str) -> ContextManager[object]:
    """Within it, the program can be found; where that cannot be, it works as well, for those who know its address.

    Parameters:
        kind, address, details: as of `Announcement`.
        otherwise: what the log says then, before the reason.
    """
    try:
        return Announcement(kind, address, **details)
    except (DiscoveryError, OSError) as error:
        logger.warning("%s, it is not announced: %s", otherwise, error)
        return contextlib.nullcontext()


def own_folder() -> str:
    """Where this process announces itself: the first folder of `folders`."""
    return folders()[0]


def folders() -> List[str]:
    """Where programs of this user may have announced themselves, the preferred folder first.

    SCALER_RUN_DIRECTORY, if it is set, is the only one. Else it is `$XDG_RUNTIME_DIR/scaler`, where the system has made
    such a directory for the user, and a folder in the temporary directory, for programs that were started without it.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return [os.path.abspath(given)]
    fallback = os.path.join(tempfile.gettempdir(), f"scaler-{os.geteuid()}")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _problem_of(runtime) == "":
        return [os.path.join(runtime, "scaler"), fallback]
    return [fallback]


def entries(kind: str) -> List[Entry]:
    """The programs of a kind that run, the newest first. What others left behind is removed.

    Raises DiscoveryError when a folder cannot be trusted, and nothing is found in another one.
    """
    found: List[Entry] = []
    distrust: Optional[DiscoveryError] = None
    for folder in folders():
        try:
            found += [entry for entry in _entries_in(folder) if entry.kind == kind]
        except DiscoveryError as error:
            distrust = error
    if distrust is not None and not found:
        raise distrust
    return sorted(found, key=lambda entry: entry.started, reverse=True)


def find_scheduler() -> Entry:
    """The scheduler that was started last, by this user on this host.

    The choice is logged, with the number of schedulers: as a warning where there are several.

    Raises DiscoveryError when there is none.
    """
    found = entries(SCHEDULER)
    if not found:
        raise DiscoveryError(
            "no scheduler of this user runs on this host: start one with `scaler dev`, or"
            f" give the address of one, tcp://HOST:PORT, here or in the environment variable {ADDRESS_VARIABLE}"
        )
    chosen = found[0]
    if len(found) == 1:
        logger.info("found the scheduler at %s (process %d)", chosen.address, chosen.process_id)
    else:
        logger.warning(
            "%d schedulers of this user run on this host: taking the newest, at %s (process %d); for another one, give"
            " its address here or in %s",
            len(found),
            chosen.address,
            chosen.process_id,
            ADDRESS_VARIABLE,
        )
    return chosen


def address_given_or_found() -> str:
    """The scheduler's address for whoever was given none: that of the environment, else that of `find_scheduler`."""
    return os.environ.get(ADDRESS_VARIABLE) or find_scheduler().address


def link_to(monitor_address: str) -> str:
    """The URL of the newest user interface that watches a monitor address; empty when there is none."""
    with contextlib.suppress(DiscoveryError, OSError):
        for entry in entries(USER_INTERFACE):
            if entry.address == monitor_address and entry.details.get("url"):
                return entry.details["url"]
    return ""


def connectable(address: str) -> str:
    """The address at which this host reaches who listens at `address`: loopback, for every interface."""
    parsed = parse_address(address)
    if parsed.path:
        return address
    host = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(parsed.host, parsed.host)
    return str(parsed._replace(host=host))


def _entries_in(folder: str) -> Iterator[Entry]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiscoveryError(
            f"{folder}, where schedulers of this user are found, cannot be read: {error.strerror}: give the address of"
            f" one, tcp://HOST:PORT, here or in the environment variable {ADDRESS_VARIABLE}, or name another folder in"
            f" {FOLDER_VARIABLE}"
        ) from None
    _check_folder(folder)
    for name in names:
        if name.endswith(".json"):
            text = _read_if_alive(os.path.join(folder, name))
            entry = _parse(text) if text else None
            if entry is not None:
                yield entry


def _read_if_alive(path: str) -> bytes:
    """What a running program wrote; nothing of one that has ended, whose file is removed."""
    try:
        entry_file = open(path, "rb", buffering=0)
    except OSError:
        return b""  # removed right now
    with entry_file:
        try:
            # Shared, so that two who look at the same time do not take each other for the owner.
            fcntl.flock(entry_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return entry_file.read(_MAXIMUM_ENTRY_BYTES) or b""
        if os.fstat(entry_file.fileno()).st_size:  # an empty one is being made right now
            with contextlib.suppress(OSError):
                os.unlink(path)
    return b""


def _parse(text: bytes) -> Optional[Entry]:
    """None for what is none, or of another network."""
    try:
        read = json.loads(text)
        details: Dict[str, str] = {str(name): str(value) for name, value in read["details"].items()}
        entry = Entry(str(read["kind"]), str(read["address"]), int(read["process_id"]), float(read["started"]), details)
        return entry if read["network"] == _network() else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _check_folder(folder: str) -> None:
    """Raises DiscoveryError."""
    problem = _problem_of(folder)
    if problem:
        raise DiscoveryError(
            f"{folder} is not used to find schedulers, because {problem}: remove it, or name another folder in the"
            f" environment variable {FOLDER_VARIABLE}"
        )


def _problem_of(folder: str) -> str:
    """Why a folder is not this user's alone; empty when it is."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        return error.strerror or "it cannot be read"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to the user with the id {found.st_uid}"
    if found.st_mode & 0o077:
        return f"others can access it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _network() -> str:
    """A name for what addresses mean here: the running system, and which of its network namespaces."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot_id:
            return f"{boot_id.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return os.uname().nodename
