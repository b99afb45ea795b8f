"""How a program connects to a scheduler: with a key, or without one where it is certain who answers.

    Unix socket of this user ──────────▶ plain: the kernel says whose it is, and that makes us its owner
    Unix socket of root ───────────────▶ CURVE if there is a key, which root may require; else plain
    insecure, on request ──────────────▶ plain
    a key ─────────────────────────────▶ CURVE: the scheduler proves its key before anything is sent, and we prove ours
    none of these ─────────────────────▶ MissingKeyError, before anything is sent

Rules:
- The key is looked for at each connection, because a scheduler that was started again may have other keys. A relative
  path is one from the folder in which the program was at first: programs change theirs.
- There is no way down: with a key, a scheduler that cannot prove its own gets nothing.
- A program that was given a key is what the key says, on the scheduler's host too: it takes no local socket, at which
  it would be an owner.
"""

from __future__ import annotations

import os
import socket
from typing import Optional

from scaler_protocol.host.addresses import Address
from scaler_protocol.host.connection import connect_to_local_socket
from scaler_protocol.host.peer_credentials import is_of_root_alone, is_of_this_user
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.allow_list import OWNER_ROLE
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.lookup import FILE_VARIABLE, FoundKey, find_key
from scaler_protocol.wire.secure_zmtp import ClientSecurity, SecureZmtp
from scaler_protocol.wire.zmtp import Zmtp

INSECURE_VARIABLE = "SCALER_INSECURE"


class MissingKeyError(KeyFileError):
    """There is no key for a scheduler; the message says what to do."""


class Credentials:
    """What a program has to show to one scheduler.

    Parameters:
        address: of the scheduler.
        key_file: where the key is; None: see `find_key`.
        insecure: connect without a key, unless a file was named; None: as the environment variable SCALER_INSECURE
            says.
        role: of the key that the program needs, for errors.
    """

    def __init__(
        self, address: str, key_file: Optional[str] = None, insecure: Optional[bool] = None, role: str = "client"
    ) -> None:
        named = os.environ.get(FILE_VARIABLE) if key_file is None else key_file
        self.address, self.key_file = address, os.path.abspath(named) if named else key_file
        self._role = role
        self._is_named = bool(named)
        self._is_insecure = not self._is_named and (is_insecure_by_default() if insecure is None else insecure)

    def local_socket(self, address: Address) -> Optional[socket.socket]:
        """A stream to the scheduler's local socket; None: use TCP.

        Raises KeyFileError.
        """
        if self._is_named:
            key_file = self._find_key().key_file
            assert key_file is not None
            if key_file.role != OWNER_ROLE:
                return None
        return connect_to_local_socket(address)

    def protocol(self, stream: socket.socket, socket_type: str, maximum_message_bytes: int) -> Zmtp:
        """What to speak over a connected stream.

        Parameters:
            socket_type: of our end, such as DEALER.
            maximum_message_bytes: that the scheduler may send.

        Raises KeyFileError, MissingLibraryError.
        """
        security = None
        if is_of_root_alone(stream):
            security = _security_of(self._find_key())
        elif not is_of_this_user(stream):
            security = self.security()
        if security is None:
            return Zmtp(socket_type, maximum_message_bytes)
        # SCL-SEC-017, SCL-SEC-018
        return SecureZmtp(security, socket_type, maximum_message_bytes)

    def security(self) -> Optional[ClientSecurity]:
        """The key to use for a connection over which others may listen; None: none is needed.

        Raises KeyFileError, MissingLibraryError.
        """
        found = self._find_key()
        if found.key_file is not None or self._is_insecure or found.is_announced_insecure:
            return _security_of(found)
        command = f"scaler keys new --role {self._role} > FILE"
        raise MissingKeyError(
            f"there is no key for the scheduler at {self.address}: on its host, make one with `{command}`, copy the"
            f" file, and name it in {FILE_VARIABLE}; if the scheduler was started with --insecure, set"
            f" {INSECURE_VARIABLE}=1"
        )

    def _find_key(self) -> FoundKey:
        return FoundKey(None) if self._is_insecure else find_key(self.address, self.key_file)


def _security_of(found: FoundKey) -> Optional[ClientSecurity]:
    if found.key_file is None:
        return None
    return ClientSecurity(load_sodium(), found.key_file.keys, found.key_file.server_keys[0])


def is_insecure_by_default() -> bool:
    """Whether the environment says that keys are not needed."""
    return os.environ.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes", "on")
