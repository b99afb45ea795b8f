"""The folder of a scheduler's keys, which makes its content by itself.

    scheduler.key     the secret keys of the scheduler, the newest first
    owner.key         a key file with the role owner: for all programs of the user who can see this folder
    authorized_keys   the keys that the scheduler admits, see `allow_list`

Rules:
- The folder belongs to its user and only that user can access it; or it is on a read-only mount, such as a secret of
  Kubernetes, and each file is checked by itself.
- Each file gets its name with its whole content, and only once: programs that start at the same time, also on several
  hosts with one home, all use the files of the one that came first. A program that finds some of the files adds the
  others.
- Files are changed by one program at a time, which has made the file `changing.lock`. It is never removed for another
  program, however old: an error says who made it.
- New keys come from libsodium's generator, through the `Arithmetic` that the caller passes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Dict, Iterator, List, Tuple

from scaler_protocol.host import system
from scaler_protocol.host.discovery import own_folder, problem_of_folder
from scaler_protocol.keys.allow_list import DEFAULT_TENANT, AllowList, Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.flat_toml import entries_text, parse_entries
from scaler_protocol.keys.key_file import (
    KeyFile,
    check_names,
    check_pair,
    check_server_keys,
    key_file_text,
    keys_in,
    read_key_file,
    write_key_file,
)
from scaler_protocol.keys.key_text import encode_key
from scaler_protocol.keys.private_files import read_private, read_trusted, write_private
from scaler_protocol.wire.curve import Arithmetic, KeyPair

DIRECTORY_VARIABLE = "SCALER_KEY_DIRECTORY"
SCHEDULER_KEY, OWNER_KEY, AUTHORIZED_KEYS = "scheduler.key", "owner.key", "authorized_keys"
OWNER_NAME = "owner"
LOCK = "changing.lock"
LOCK_TIMEOUT_SECONDS = 10.0
MAXIMUM_LIST_BYTES = 16 << 20  # some hundred thousand keys

_LOOK_INTERVAL_SECONDS = 0.02
_READ_ONLY = 1  # os.ST_RDONLY, which PyPy does not have
_SERVER_COMMENT = (
    "The keys of a Scaler scheduler, the newest first. They are secrets: a program that can read this file can pass",
    "itself off as the scheduler. To replace them: scaler keys rotate",
)
_LIST_COMMENT = """\
# The keys that the scheduler admits, one line each:
#     PUBLIC_KEY role=ROLE tenant=TENANT name=NAME expires=2027-01-01T00:00:00Z
# Change it with `scaler keys`, or with an editor; then send the scheduler SIGHUP.
"""


def default_key_directory() -> str:
    """Where the keys of this user's schedulers are, whether the folder exists yet or not.

    The first of these that applies:

    1. SCALER_KEY_DIRECTORY, if it is set;
    2. `$XDG_CONFIG_HOME/scaler/keys`, if that variable is an absolute path, else `~/.config/scaler/keys`: if the
       folder, or the nearest folder above it that exists, belongs to this user and can be written;
    3. `keys` in the folder where programs of this user announce themselves: on this host only, and perhaps only until
       the user logs out.
    """
    given = os.environ.get(DIRECTORY_VARIABLE)
    if given:
        return os.path.abspath(given)
    configuration = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(configuration):
        configuration = os.path.join(os.path.expanduser("~"), ".config")
    path = os.path.join(configuration, "scaler", "keys")
    return path if _can_make(path) else os.path.join(own_folder(), "keys")


def _can_make(path: str) -> bool:
    """Whether a folder exists, or this user can make it in a place of its own."""
    if not os.path.isabs(path):
        return False  # there is no home
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        return os.stat(path).st_uid == system.user_id() and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False


class KeyDirectory:
    """A folder of keys. Its methods raise KeyFileError if the folder or a file cannot be used.

    Parameters:
        path: of the folder. Only `open_or_create` makes it.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def open_or_create(self, arithmetic: Arithmetic) -> None:
        """Check the folder, and make it and its files if they are missing."""
        with _errors_of(self.path):
            _make_folders(self.path)
        self._check()
        if not os.path.lexists(self._file(SCHEDULER_KEY)):
            self._create(SCHEDULER_KEY, _server_text([arithmetic.new_keys()]))
        server_keys = tuple(keys.public for keys in self.server_key_pairs())
        if _is_read_only(self.path):
            self.allow_list()
            return
        if not self.has_owner():
            self._create_owner(KeyFile("owner", DEFAULT_TENANT, OWNER_NAME, arithmetic.new_keys(), server_keys))
        owner = self.owner()
        if not os.path.lexists(self._file(AUTHORIZED_KEYS)):
            text = AllowList.parse(_LIST_COMMENT, AUTHORIZED_KEYS).with_line(owner.keys.public, owner.grant).text
            self._create(AUTHORIZED_KEYS, text)
        self.allow_list()

    def server_key_pairs(self) -> List[KeyPair]:
        """The scheduler's own keys, the newest first; it should prove to own the one that a peer expects."""
        path = self._file(SCHEDULER_KEY)
        text = self._read(path)
        entries = parse_entries(text, path)
        try:
            check_names(entries, ("public_keys", "secret_keys"), ("public_keys", "secret_keys"))
            public_keys, secret_keys = keys_in(entries, "public_keys"), keys_in(entries, "secret_keys")
            check_server_keys(public_keys)
            if len(public_keys) != len(secret_keys):
                raise KeyFileError(f"it has {len(public_keys)} public and {len(secret_keys)} secret keys")
            pairs = [KeyPair(public, secret) for public, secret in zip(public_keys, secret_keys)]
            for pair in pairs:
                check_pair(pair)
        except KeyFileError as error:
            raise KeyFileError(
                f"cannot use {path}: {error}; restore it, or remove it and {self._file(OWNER_KEY)} to get new ones"
            ) from None
        return pairs

    def owner(self) -> KeyFile:
        """The key file of this user's own programs."""
        self._check()
        return read_key_file(self._file(OWNER_KEY))

    @property
    def owner_file(self) -> str:
        """The path of the key file of this user's own programs."""
        return self._file(OWNER_KEY)

    def has_owner(self) -> bool:
        """Whether there is a key file of this user's own programs."""
        return os.path.lexists(self._file(OWNER_KEY))

    def allow_list(self) -> AllowList:
        """The keys that the scheduler admits, as the file says now."""
        path = self._file(AUTHORIZED_KEYS)
        self._check()
        try:
            text = read_trusted(path, MAXIMUM_LIST_BYTES)
        except FileNotFoundError:
            raise self._missing(path) from None
        return AllowList.parse(text, path)

    def add(self, grant: Grant, public_key: bytes) -> None:
        """Admit a key."""
        with self._changing():
            self._replace(AUTHORIZED_KEYS, self.allow_list().with_line(public_key, grant).text)

    def revoke(self, name_or_public_key: str) -> Dict[bytes, Grant]:
        """Admit keys no longer: all of a name, or one by its Z85 text or fingerprint. Returns what was removed."""
        with self._changing():
            allowed = self.allow_list()
            self._replace(AUTHORIZED_KEYS, allowed.without(name_or_public_key).text)
            return allowed.matching(name_or_public_key)

    def rotate(self, arithmetic: Arithmetic) -> bytes:
        """Put a new server key in front; returns its public key. The old ones stay valid until `forget_old`.

        First the scheduler's file changes and then the owner's, so that no peer expects a key that is in no file.
        """
        with self._changing():
            pairs = [arithmetic.new_keys(), *self.server_key_pairs()]
            check_server_keys([pair.public for pair in pairs])
            self._replace(SCHEDULER_KEY, _server_text(pairs))
            self._give_owner(tuple(pair.public for pair in pairs))
            return pairs[0].public

    def forget_old(self) -> int:
        """Keep the newest server key only; returns how many were removed.

        First the owner's file changes and then the scheduler's, so that no peer expects a key that is in no file.
        """
        with self._changing():
            pairs = self.server_key_pairs()
            self._give_owner((pairs[0].public,))
            self._replace(SCHEDULER_KEY, _server_text(pairs[:1]))
            return len(pairs) - 1

    # Files ------------------------------------------------------------------------------------------------------------

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _check(self) -> None:
        if not os.path.lexists(self.path):
            raise KeyFileError(
                f"there are no keys in {self.path} yet: start a scheduler, or make a key: scaler keys new --role ROLE"
            )
        problem = problem_of_folder(self.path)
        if problem and not _is_read_only(self.path):
            mended = f"run: chmod 700 {self.path}, or " if problem.startswith("others") else ""
            raise KeyFileError(
                f"cannot use the keys in {self.path}: {problem}; {mended}name another folder in {DIRECTORY_VARIABLE}"
            )

    def _read(self, path: str) -> str:
        self._check()
        try:
            return read_private(path)
        except FileNotFoundError:
            raise self._missing(path) from None

    def _missing(self, path: str) -> KeyFileError:
        return KeyFileError(f"there is no file {path}; start a scheduler, or restore it")

    def _create(self, name: str, text: str) -> None:
        """Make a file, unless another program has just made it."""
        with contextlib.suppress(FileExistsError):
            write_private(self._file(name), text)

    def _create_owner(self, owner: KeyFile) -> None:
        """Make the owner's key file, unless another program has just made it."""
        if not os.path.lexists(self._file(AUTHORIZED_KEYS)):
            self._create(OWNER_KEY, key_file_text(owner))
            return
        # The list is of an earlier owner. It changes first, so that it admits each owner's key that there is.
        with self._changing():
            if not self.has_owner():
                self._replace(AUTHORIZED_KEYS, self.allow_list().with_line(owner.keys.public, owner.grant).text)
                self._create(OWNER_KEY, key_file_text(owner))

    def _replace(self, name: str, text: str) -> None:
        write_private(self._file(name), text, is_replaced=True)

    def _give_owner(self, server_keys: Tuple[bytes, ...]) -> None:
        if self.has_owner():
            write_key_file(self._file(OWNER_KEY), self.owner()._replace(server_keys=server_keys), is_replaced=True)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """While the files change: another program that wants to change them waits."""
        self._check()
        path, deadline = self._file(LOCK), time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                write_private(path, f"process {os.getpid()} on {socket.gethostname()}")
                break
            except FileExistsError:
                if time.monotonic() > deadline:
                    raise KeyFileError(
                        f"another program changes the keys in {self.path}: {_owner_of_lock(path)}; if it has ended,"
                        f" remove {path}"
                    ) from None
            time.sleep(_LOOK_INTERVAL_SECONDS)
        try:
            yield
        finally:
            os.unlink(path)


def _make_folders(path: str) -> None:
    """Make a folder, and those above it that are missing, so that only this user can access them."""
    if not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _owner_of_lock(path: str) -> str:
    try:
        return read_private(path)
    except (KeyFileError, OSError):
        return "an unknown one"


def _server_text(pairs: List[KeyPair]) -> str:
    return entries_text(
        _SERVER_COMMENT,
        {
            "public_keys": [encode_key(pair.public) for pair in pairs],
            "secret_keys": [encode_key(pair.secret) for pair in pairs],
        },
    )


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & _READ_ONLY)
    except OSError:
        return False


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KeyFileError(
            f"cannot make the folder {path} for keys: {error.strerror}; name another one in {DIRECTORY_VARIABLE}"
        ) from None
