"""The key file of a peer: its own key pair, and the public keys of the scheduler. One file is all that a peer needs.

    # The key of a peer of Scaler. It is a secret: ...
    role = "worker"
    tenant = "default"
    name = "alice-laptop"
    expires = "2027-01-01T00:00:00Z"
    public_key = "..."
    secret_key = "..."
    server_keys = ["..."]

Rules:
- `private_files` says which files are read and how they are written, `flat_toml` what they may contain.
- Role, tenant, name and expiry are for people and for programs that choose among files: the scheduler goes by its own
  list, whatever the file says.
- The first server key is the one that the scheduler must prove to own.
- The secret is in no `repr` and no error.
"""

from __future__ import annotations

import hmac
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from scaler_protocol.keys.allow_list import DEFAULT_TENANT, Grant, check_grant
from scaler_protocol.keys.allow_list import ROLES as ROLES
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_time, time_text
from scaler_protocol.keys.flat_toml import Value, entries_text, parse_entries
from scaler_protocol.keys.key_text import decode_key, encode_key
from scaler_protocol.keys.private_files import read_private, write_private
from scaler_protocol.wire.curve import ForgedError, KeyPair

MAXIMUM_SERVER_KEYS = 16

_COMMENT = (
    "The key of a peer of Scaler. It is a secret: a program that can read this file can connect with this key.",
    "Keep its mode at 0600. Use it with --key-file FILE, or SCALER_KEY_FILE=FILE.",
)
_REQUIRED = ("role", "name", "public_key", "secret_key", "server_keys")
_ALL = (*_REQUIRED, "tenant", "expires")


class KeyFile(NamedTuple):
    """The content of a key file.

    Attributes:
        role: one of ROLES.
        tenant, name: as the scheduler's list has them.
        keys: the peer's own.
        server_keys: public keys of the scheduler, at least one; the first is used.
        expires: when the scheduler stops to admit the key, in Unix seconds; None if it does not.
    """

    role: str
    tenant: str
    name: str
    keys: KeyPair
    server_keys: Tuple[bytes, ...]
    expires: Optional[float] = None

    def __repr__(self) -> str:
        return f"KeyFile({self.role} {self.name!r} of {self.tenant!r}, {encode_key(self.keys.public)})"

    @property
    def grant(self) -> Grant:
        """What the scheduler's list should say of the key."""
        return Grant(self.role, self.tenant, self.name, self.expires)


def read_key_file(path: str) -> KeyFile:
    """Read a key file.

    Raises KeyFileError if it does not exist, is not private, or is malformed; `MissingLibraryError` without libsodium.
    """
    try:
        text = read_private(path)
    except FileNotFoundError:
        raise KeyFileError(
            f"there is no key file {path}; where the scheduler runs, make one: scaler keys new --role ROLE > FILE"
        ) from None
    return parse_key_file(text, path)


def write_key_file(path: str, key_file: KeyFile, is_replaced: bool = False) -> None:
    """Write a key file of mode 0600; readers see all of it, or none.

    Parameters:
        is_replaced: a file of that name is replaced, rather than an error.

    Raises KeyFileError if there is a file already, it cannot be written, or the content is invalid.
    """
    text = key_file_text(key_file)
    try:
        write_private(path, text, is_replaced)
    except FileExistsError:
        raise KeyFileError(f"{path} exists already: choose another name, or remove it") from None


def key_file_text(key_file: KeyFile) -> str:
    """The text of a key file; times are rounded down to whole seconds.

    Raises KeyFileError if the content is invalid.
    """
    check_grant(key_file.grant)
    check_server_keys(key_file.server_keys)
    check_pair(key_file.keys)
    entries: Dict[str, Value] = {"role": key_file.role, "tenant": key_file.tenant, "name": key_file.name}
    if key_file.expires is not None:
        entries["expires"] = time_text(key_file.expires)
    entries["public_key"] = encode_key(key_file.keys.public)
    entries["secret_key"] = encode_key(key_file.keys.secret)
    entries["server_keys"] = [encode_key(each) for each in key_file.server_keys]
    return entries_text(_COMMENT, entries)


def parse_key_file(text: str, where: str) -> KeyFile:
    """Read the text of a key file.

    Parameters:
        where: the name of the file, for errors.

    Raises KeyFileError; `MissingLibraryError` without libsodium.
    """
    entries = parse_entries(text, where)
    try:
        check_names(entries, _REQUIRED, _ALL)
        keys = KeyPair(key_in(entries, "public_key"), key_in(entries, "secret_key"))
        check_pair(keys)
        server_keys = tuple(keys_in(entries, "server_keys"))
        check_server_keys(server_keys)
        for server_key in server_keys:
            _check_strength(server_key, keys)
        expires = parse_time(text_in(entries, "expires")) if "expires" in entries else None
        tenant = text_in(entries, "tenant") if "tenant" in entries else DEFAULT_TENANT
        key_file = KeyFile(text_in(entries, "role"), tenant, text_in(entries, "name"), keys, server_keys, expires)
        check_grant(key_file.grant)
    except KeyFileError as error:
        raise KeyFileError(f"cannot use {where}: {error}; restore it, or make a new one: scaler keys new") from None
    return key_file


def check_pair(keys: KeyPair) -> None:
    """Raises KeyFileError if the two keys of a pair do not belong together."""
    # Each program that looks for a key imports this module; ctypes, which that one imports, takes longer than all else.
    from scaler_protocol.host.sodium import load_sodium

    if not hmac.compare_digest(load_sodium().public_key(keys.secret), keys.public):
        raise KeyFileError("public_key and secret_key do not belong together")


def check_server_keys(server_keys: Sequence[bytes]) -> None:
    """Raises KeyFileError if this is not a possible list of server keys."""
    if not 1 <= len(server_keys) <= MAXIMUM_SERVER_KEYS:
        raise KeyFileError(f"server_keys must have 1 to {MAXIMUM_SERVER_KEYS} keys, got {len(server_keys)}")
    if len(set(server_keys)) < len(server_keys):
        raise KeyFileError("server_keys has a key twice")


def _check_strength(server_key: bytes, keys: KeyPair) -> None:
    """Raises KeyFileError if a server key is one of the few that are the same to all secret keys."""
    from scaler_protocol.host.sodium import load_sodium

    try:
        load_sodium().box(server_key, keys.secret)
    except ForgedError:
        raise KeyFileError("server_keys has a key that is not that of a server") from None


def check_names(entries: Dict[str, Value], required: Sequence[str], known: Sequence[str]) -> None:
    """Raises KeyFileError if names are missing or unknown."""
    missing = [name for name in required if name not in entries]
    if missing:
        raise KeyFileError(f"{', '.join(missing)} is missing")
    if not entries.keys() <= set(known):
        raise KeyFileError(f"it has an unknown name; the names are {', '.join(known)}")


def text_in(entries: Dict[str, Value], name: str) -> str:
    """The text of an entry; raises KeyFileError if it is a list."""
    value = entries[name]
    if not isinstance(value, str):
        raise KeyFileError(f"{name} must be one text")
    return value


def key_in(entries: Dict[str, Value], name: str) -> bytes:
    """The key of an entry; raises KeyFileError."""
    return _key(text_in(entries, name), name)


def keys_in(entries: Dict[str, Value], name: str) -> List[bytes]:
    """The keys of an entry that is a list; raises KeyFileError."""
    value = entries[name]
    if isinstance(value, str):
        raise KeyFileError(f"{name} must be a list of texts")
    return [_key(each, name) for each in value]


def _key(text: str, name: str) -> bytes:
    try:
        return decode_key(text)
    except KeyFileError as error:
        raise KeyFileError(f"{name}: {error}") from None
