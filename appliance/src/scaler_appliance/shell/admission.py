"""Who may connect to the scheduler, and as what.

    caller ─▶ Unix socket, of the scheduler's user or root ─▶ plain: the kernel says who it is; it may do everything
           ─▶ any other ─▶ CURVE: it proves its key, which the list of keys admits and gives a role
           ─▶ --insecure ─▶ plain, and it may do everything

Rules:
- Nothing that a caller sends is passed on before it is known who it is.
- The list is read anew on request. A list that is malformed, or cannot be read, changes nothing: the one before stays
  in force, and the log says so. Connections end whose key it does not admit any more, or as something else.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import Callable, Dict, NamedTuple, Optional

from scaler_appliance.core.peers.authority import OWNER_GRANT
from scaler_protocol.host.connection import is_of_this_user
from scaler_protocol.keys.allow_list import AllowList, Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.wire.curve import Arithmetic
from scaler_protocol.wire.secure_zmtp import SecureZmtp, ServerSecurity
from scaler_protocol.wire.zmtp import Zmtp

logger = logging.getLogger("scaler")


class Caller(NamedTuple):
    """One connection before its handshake.

    Attributes:
        protocol: how it is spoken to.
        is_trusted: it needs no key.
    """

    protocol: Zmtp
    is_trusted: bool


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
        directory: Optional[KeyDirectory],
        arithmetic: Optional[Arithmetic],
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.unix_time = unix_time
        self._directory, self._arithmetic = directory, arithmetic
        self._allow_list = AllowList()
        self._security: Optional[ServerSecurity] = None
        self._read()

    @property
    def announced(self) -> Dict[str, str]:
        """What programs of the same user have to know."""
        return {"security": "none"} if self._directory is None else {"key_directory": self._directory.path}

    def caller(self, stream: socket.socket, socket_type: str, maximum_message_bytes: int) -> Caller:
        """How to speak with a caller.

        Parameters:
            socket_type: our end's.
            maximum_message_bytes: of its messages and of their first frames, until it has a session.
        """
        if self._security is None or is_of_this_user(stream):
            return Caller(Zmtp(socket_type, maximum_message_bytes, maximum_message_bytes), True)
        return Caller(SecureZmtp(self._security, socket_type, maximum_message_bytes, maximum_message_bytes), False)

    def grant_of(self, caller: Caller) -> Optional[Grant]:
        """What a caller may do, after its handshake; None: nothing any more, or nothing yet."""
        if caller.is_trusted:
            return OWNER_GRANT
        protocol = caller.protocol
        assert isinstance(protocol, SecureZmtp)
        return self._allow_list.grant(protocol.peer_key, self.unix_time()) if protocol.peer_key else None

    def reload(self) -> bool:
        """Read the keys anew; returns whether that was possible."""
        try:
            self._read()
        except (KeyFileError, OSError) as error:
            logger.error("Scheduler: the keys are not read anew, those before stay in force: %s", error)
            return False
        if self._directory is not None:
            logger.info("Scheduler: the keys were read anew: %d are admitted", len(self._allow_list.grants))
        return True

    def _read(self) -> None:
        if self._directory is not None and self._arithmetic is not None:
            keys, allow_list = self._directory.server_key_pairs(), self._directory.allow_list()
            self._allow_list = allow_list
            self._security = ServerSecurity(self._arithmetic, keys, self._why_refused)

    def _why_refused(self, public_key: bytes) -> Optional[str]:
        if self._allow_list.grant(public_key, self.unix_time()) is not None:
            return None
        return "the scheduler does not admit this key: it is unknown, was revoked, or has expired"
