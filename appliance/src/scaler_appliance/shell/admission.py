"""Who may connect to the scheduler, and as what.

    caller ─▶ Unix socket, of the scheduler's user or root ─▶ plain: the kernel says who it is; it may do everything
           ─▶ any other ─▶ CURVE: it proves its key, which the list of keys admits and gives a role
           ─▶ --insecure ─▶ plain, and it may do everything

Rules:
- Nothing that a caller sends is passed on before it is known who it is.
- The list is read again on request. A list that is malformed, or cannot be read, changes nothing: the one before stays
  in force, and the log says so. Connections end whose key it does not admit any more, or as something else.
"""

from __future__ import annotations

import logging
import socket
import time
from math import inf
from typing import Callable, Dict, Optional

from scaler_appliance.core.peers.authority import OWNER_GRANT
from scaler_protocol.host.peer_credentials import is_caller_of_this_user
from scaler_protocol.keys.allow_list import AllowList, Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.lookup import DIRECTORY_DETAIL, NO_SECURITY, SECURITY_DETAIL
from scaler_protocol.wire.curve import Arithmetic, KeyRejectedError
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp

_REVOKED = "its key was revoked, or has expired"

logger = logging.getLogger("scaler")


class Caller:
    """One connection, as far as it matters who it is.

    Attributes:
        protocol: how it is spoken to.
        is_trusted: it needs no key.
        grant: what it may do, once that is known.
    """

    __slots__ = ("protocol", "is_trusted", "grant")

    def __init__(self, protocol: Zmtp, is_trusted: bool) -> None:
        self.protocol, self.is_trusted = protocol, is_trusted
        self.grant: Optional[Grant] = None


class Admission:
    """Decides about callers.

    Parameters:
        directory: of the scheduler's keys; None: it is insecure, and all callers may do everything.
        arithmetic: of a library, for CURVE.
        unix_time: the time by which keys expire.

    Raises KeyFileError if the keys cannot be read.
    """

    def __init__(
        self,
        directory: Optional[KeyDirectory] = None,
        arithmetic: Optional[Arithmetic] = None,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.directory, self._arithmetic, self._unix_time = directory, arithmetic, unix_time
        self._allow_list = AllowList()
        self._security: Optional[ServerSecurity] = None
        self._next_expiry = inf  # of the keys of peers, in Unix seconds
        self._read()

    @property
    def announced(self) -> Dict[str, str]:
        """What programs of the same user have to know."""
        return {SECURITY_DETAIL: NO_SECURITY} if self.directory is None else {DIRECTORY_DETAIL: self.directory.path}

    @property
    def is_insecure(self) -> bool:
        """Whether all who can connect are served, without a key."""
        return self.directory is None

    def caller(self, stream: socket.socket, socket_type: str, maximum_message_bytes: int) -> Caller:
        """How to speak with a caller.

        Parameters:
            socket_type: our end's.
            maximum_message_bytes: of its messages and of their first frames, until it has a session.
        """
        if self._security is None or is_caller_of_this_user(stream):
            return Caller(Zmtp(socket_type, maximum_message_bytes, maximum_message_bytes), True)
        # SCL-SEC-015
        return Caller(SecureZmtp(self._security, socket_type, maximum_message_bytes, maximum_message_bytes), False)

    def authenticate(self, caller: Caller) -> Grant:
        """Who a caller is whose handshake is complete.

        Raises KeyRejectedError if its key is not admitted any more.
        """
        grant = self._grant_of(caller)
        if grant is None:
            raise KeyRejectedError(_REVOKED)
        caller.grant = grant
        if grant.expires is not None:
            self._next_expiry = min(self._next_expiry, grant.expires)
        return grant

    def check(self, caller: Caller) -> None:
        """Raises KeyRejectedError if the key of a caller is not admitted any more, or as something else."""
        # SCL-SEC-019
        before = caller.grant
        if before is not None:
            grant = self.authenticate(caller)
            if (grant.role, grant.tenant) != (before.role, before.tenant):
                raise KeyRejectedError(_REVOKED)

    def has_expired(self) -> bool:
        """Whether a key of a caller may have expired: then all are to be checked."""
        if self._unix_time() < self._next_expiry:
            return False
        self._next_expiry = inf
        return True

    def _grant_of(self, caller: Caller) -> Optional[Grant]:
        if caller.is_trusted:
            return OWNER_GRANT
        assert isinstance(caller.protocol, SecureZmtp)
        return self._allow_list.grant(caller.protocol.peer_key, self._unix_time())

    def reload(self) -> bool:
        """Load the keys again; returns whether that was possible."""
        try:
            self._read()
        except (KeyFileError, OSError) as error:
            logger.error("Scheduler: the keys cannot be loaded again, those from before are still used: %s", error)
            return False
        if self.directory is not None:
            logger.info("Scheduler: the keys were loaded again: %d are admitted", len(self._allow_list.grants))
        return True

    def _read(self) -> None:
        if self.directory is not None and self._arithmetic is not None:
            keys, allow_list = self.directory.server_key_pairs(), self.directory.allow_list()
            self._allow_list = allow_list
            self._security = ServerSecurity(self._arithmetic, keys, self._why_refused)

    def _why_refused(self, public_key: bytes) -> Optional[str]:
        if self._allow_list.grant(public_key, self._unix_time()) is not None:
            return None
        return "the scheduler does not admit this key: it is unknown, was revoked, or has expired"
