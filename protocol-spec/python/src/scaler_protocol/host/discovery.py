"""How programs of one user on one host discover each other without an address.

    scheduler ──announce──▶ FOLDER/scheduler-4711-….json ◀──find── Client(), scaler_cluster
    scaler_ui ──announce──▶ FOLDER/ui-4712-….json        ◀──find── a client that shows a link

Rules:
- The folder belongs to the user and only the user can access it: its contents, including tokens, are private, and the
  user wrote everything in it. A folder without these properties is rejected.
- A program holds a lock on its file while it runs, from before the file gets its name. A file whose lock is free was
  left by a killed program: a program that looks into the folder, or announces itself there, removes it, without
  guessing from process ids. Two may do so at once: a file is removed under its lock, and names are never used again.
- Other files in the folder are neither read nor removed, because SCALER_RUN_DIRECTORY may name any private folder, such
  as a home directory: a file must have a name of ours, be a regular one, and belong to the user.
- Programs run longer than their files stay: a user who logs out takes `$XDG_RUNTIME_DIR` along, and old files in the
  temporary directory are cleaned up. So an announcement is renewed every RENEWAL_SECONDS.
- A program that announces itself must not fork: the child would keep the lock.
- Running programs of another host, or of a container with its own network, are not used, and their files stay.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Type

from scaler_protocol.host import system
from scaler_protocol.host.addresses import parse_address

ADDRESS_VARIABLE = "SCALER_ADDRESS"
FOLDER_VARIABLE = "SCALER_RUN_DIRECTORY"
SCHEDULER = "scheduler"
USER_INTERFACE = "ui"

RENEWAL_SECONDS = 10.0
_UNFINISHED_PREFIX = "new-"
_MAXIMUM_ENTRY_BYTES = 1 << 16
_UNFINISHED_SECONDS = 60.0
_OWN_NAME = re.compile(rf"({_UNFINISHED_PREFIX})?\w+-\d+-\d+-[0-9a-f]{{8}}\.json")
_numbers = itertools.count(1)

logger = logging.getLogger("scaler")


class DiscoveryError(ValueError):
    """Nothing was found, or the folder cannot be trusted; the message says what to do."""


@dataclass(frozen=True)
class Entry:
    """A running program of this user on this host.

    Parameters:
        kind: SCHEDULER or USER_INTERFACE.
        address: where clients and workers connect; for a user interface, the monitor address that it watches.
        process_id: of the program.
        started: when it was announced, in seconds of this host's steady clock, since the wall clock may be set back
            between two programs.
        details: further data, such as a scheduler's `monitor_address` or a user interface's `url`.
    """

    kind: str
    address: str
    process_id: int
    started: float
    details: Mapping[str, str]


class Announcement:
    """Lets other programs find this program, until it is closed or the process ends.

    Parameters:
        kind, address, details: as in `Entry`. A wildcard address is replaced by one that can be connected to.

    Raises DiscoveryError if the folder cannot be trusted, OSError if it cannot be written.
    """

    def __init__(self, kind: str, address: str, **details: str) -> None:
        self._kind = kind
        self._entry = {
            "kind": kind,
            "address": connectable(address),
            "process_id": os.getpid(),
            "started": time.time(),
            "started_steady": time.monotonic(),
            "network": _network(),
            "details": details,
        }
        self._is_withdrawn = False
        self._announce()

    def _announce(self) -> None:
        folder = own_folder()
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        _check_folder(folder)
        name = f"{self._kind}-{os.getpid()}-{next(_numbers)}-{os.urandom(4).hex()}.json"
        self.path = os.path.join(folder, name)
        unfinished = os.path.join(folder, _UNFINISHED_PREFIX + name)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        try:
            system.flock(self._file, system.LOCK_EX)
            self._file.write(json.dumps(self._entry).encode())
            self._file.flush()
            os.rename(unfinished, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            self._file.close()
            raise
        _remove_stale(folder)

    def renew(self) -> bool:
        """Announce the program again if its file is gone; to be called every RENEWAL_SECONDS.

        Returns whether to go on with that: not after `close`.
        """
        if self._is_withdrawn:
            return False
        with contextlib.suppress(OSError):
            os.utime(self.path)  # folders of temporary files are cleaned of old ones
            return True
        self._file.close()
        with contextlib.suppress(OSError, DiscoveryError):
            self._announce()
        return True

    def close(self) -> None:
        """Withdraw the announcement. Idempotent."""
        self._is_withdrawn = True
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


def announced(kind: str, address: str, otherwise: str, **details: str) -> ContextManager[Optional[Announcement]]:
    """Announce the program within the context; on failure, log a warning: peers can still use its address.

    Parameters:
        kind, address, details: as in `Announcement`.
        otherwise: the start of the warning, before the reason.
    """
    try:
        return Announcement(kind, address, **details)
    except (DiscoveryError, OSError) as error:
        logger.warning("%s, it is not announced: %s", otherwise, error)
        return contextlib.nullcontext()


def keep_announced(announcement: Optional[Announcement], call_later: Callable[..., object]) -> None:
    """Renew an announcement every RENEWAL_SECONDS until it is closed.

    Parameters:
        announcement: None if the program could not be announced.
        call_later: of the program's event loop, which takes seconds, a function and its arguments.
    """
    if announcement is not None and announcement.renew():
        call_later(RENEWAL_SECONDS, keep_announced, announcement, call_later)


def own_folder() -> str:
    """The folder where this process announces itself: the first of `folders`."""
    return folders()[0]


def folders() -> List[str]:
    """The folders where programs of this user may have announced themselves, the preferred folder first.

    If SCALER_RUN_DIRECTORY is set, it is the only one. Otherwise they are `$XDG_RUNTIME_DIR/scaler`, if the system has
    created that directory for the user, and a folder in the temporary directory, for programs started without it.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return [os.path.abspath(given)]
    fallback = os.path.join(tempfile.gettempdir(), f"scaler-{system.user_id()}")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and problem_of_folder(runtime) == "":
        return [os.path.join(runtime, "scaler"), fallback]
    return [fallback]


def entries(kind: str) -> List[Entry]:
    """The running programs of a kind, the newest first. Files of ended programs are removed.

    Raises DiscoveryError if a folder cannot be trusted and the others contain nothing.
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
    """The scheduler that this user started last on this host.

    The choice is logged, with the number of schedulers: as a warning if there are several.

    Raises DiscoveryError if there is none.
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
            "%d schedulers of this user run on this host: using the newest, at %s (process %d); for another one, give"
            " its address here or in %s",
            len(found),
            chosen.address,
            chosen.process_id,
            ADDRESS_VARIABLE,
        )
    return chosen


def address_given_or_found() -> str:
    """The scheduler's address if none was given: from the environment, else from `find_scheduler`."""
    return os.environ.get(ADDRESS_VARIABLE) or find_scheduler().address


def link_to(monitor_address: str) -> str:
    """The URL of the newest user interface that watches a monitor address; empty if there is none."""
    with contextlib.suppress(DiscoveryError, OSError):
        for entry in entries(USER_INTERFACE):
            if entry.address == monitor_address and entry.details.get("url"):
                return entry.details["url"]
    return ""


def connectable(address: str) -> str:
    """The address at which this host reaches a listener at `address`: loopback, for a wildcard."""
    parsed = parse_address(address)
    if parsed.path:
        return address
    host = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(parsed.host, parsed.host)
    return str(parsed._replace(host=host))


def _entries_in(folder: str) -> Iterator[Entry]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiscoveryError(
            f"cannot read {folder}, where schedulers of this user announce themselves: {error.strerror}; give the"
            f" address of one, tcp://HOST:PORT, here or in the environment variable {ADDRESS_VARIABLE}, or another"
            f" folder in {FOLDER_VARIABLE}"
        ) from None
    _check_folder(folder)
    for name in names:
        text = _read_if_alive(folder, name)
        entry = _parse(text) if text else None
        if entry is not None:
            yield entry


def _remove_stale(folder: str) -> None:
    """Remove the files of ended programs, also in a folder in which programs are never looked for."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            _read_if_alive(folder, name)


def _read_if_alive(folder: str, name: str) -> bytes:
    """The file of a running program; empty for an ended program, whose file is removed, and for other files."""
    path = os.path.join(folder, name)
    if not _OWN_NAME.fullmatch(name):
        return b""
    try:
        flags = os.O_RDONLY | system.O_CLOEXEC | system.O_NOFOLLOW | system.O_NONBLOCK  # it may be a pipe
        descriptor = os.open(path, flags)
    except OSError:
        return b""  # just removed
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != system.user_id():
            return b""
        try:
            # A shared lock, so that two simultaneous readers do not take each other for the owner.
            system.flock(descriptor, system.LOCK_SH | system.LOCK_NB)
        except OSError:
            return os.read(descriptor, _MAXIMUM_ENTRY_BYTES)
        found = os.fstat(descriptor)
        # An empty file may be about to be locked and written; an old one is left by a program that was killed then.
        if found.st_size or time.time() - found.st_mtime > _UNFINISHED_SECONDS:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return b""
    finally:
        os.close(descriptor)


def _parse(text: bytes) -> Optional[Entry]:
    """The entry; None if the text is invalid or from another network."""
    try:
        read = json.loads(text)
        details: Dict[str, str] = {str(name): str(value) for name, value in read["details"].items()}
        # Programs of earlier versions say only when that was by the wall clock.
        started = float(read.get("started_steady", float(read["started"]) - time.time() + time.monotonic()))
        entry = Entry(str(read["kind"]), str(read["address"]), int(read["process_id"]), started, details)
        parse_address(entry.address)
        return entry if read["network"] == _network() else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _check_folder(folder: str) -> None:
    """Raises DiscoveryError if the folder cannot be trusted."""
    problem = problem_of_folder(folder)
    if problem:
        raise DiscoveryError(
            f"cannot use {folder} to find schedulers: {problem}; remove it, or name another folder in the"
            f" environment variable {FOLDER_VARIABLE}"
        )


def problem_of_folder(folder: str) -> str:
    """Why a folder is not private to this user; empty if it is."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        return error.strerror or "it cannot be read"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != system.user_id():
        return f"it belongs to the user with the id {found.st_uid}"
    if found.st_mode & 0o077 and system.HAS_USERS:
        return f"others can access it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _network() -> str:
    """An identifier of the address space: the boot of the system, and the network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot_id:
            return f"{boot_id.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()
