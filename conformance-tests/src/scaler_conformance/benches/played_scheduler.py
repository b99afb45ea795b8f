"""What the benches for workers and clients share: a scheduler that the suite plays."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, Optional

from scaler_conformance.benches.bench import Bench
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.curve_keys import KeyFolder, Keys, ServerSecurity, new_keys
from scaler_conformance.playing.false_scheduler import FalseScheduler
from scaler_conformance.playing.transports import RouterTransport

HEARTBEAT_MILLISECONDS = 1000
TOKEN_BYTES = 32


class PlayedScheduler(Bench):
    """A bench with a socket to which peers connect."""

    router: RouterTransport
    peer_role = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.key_folder: Optional[KeyFolder] = None  # of an implementation with a key
        self.peer_keys: Optional[Keys] = None
        self._false_scheduler: Optional[FalseScheduler] = None

    # Keys -----------------------------------------------------------------------------------------------------------

    def open_router(self, security: Optional[ServerSecurity] = None) -> RouterTransport:
        """The socket of the scheduler."""
        raise NotImplementedError

    def need_keys(self) -> None:
        """Raises NotApplicable if the implementation cannot be given a key."""
        raise NotImplementedError

    @property
    def scheduler_address(self) -> str:
        """Where the implementation is told to connect."""
        return self.router.address if self._false_scheduler is None else self._false_scheduler.address

    def start_values(self) -> Dict[str, str]:
        """What the command of the implementation is started with."""
        values = {"address": self.scheduler_address}
        if self.key_folder is not None:
            values.update(variant="keys", keys=self.key_folder.path)
        return values

    def play_with_keys_if_all_do(self) -> None:
        """Begin with keys if every case of this run does."""
        if self.settings.with_keys:
            self.play_with_keys()

    def play_with_keys(self) -> None:
        """Play a scheduler that requires keys, for an implementation that has one; before it is started."""
        server_keys = self._give_key()
        self.router.close()
        self.router = self.open_router(ServerSecurity(server_keys))
        self.at_end(self.router.close)

    def play_false_scheduler(self, mechanism: str) -> FalseScheduler:
        """Listen as one that does not have the key of the scheduler that the implementation is to connect to.

        Parameters:
            mechanism: that it offers: NULL, PLAIN or CURVE.
        """
        self._give_key()
        self._false_scheduler = FalseScheduler(mechanism, self.settings, self.how_it_ended)
        self.at_end(self._false_scheduler.close)
        return self._false_scheduler

    def _give_key(self) -> Keys:
        self.need_keys()
        self.key_folder = KeyFolder()
        self.at_end(self.key_folder.close)
        self.peer_keys, server_keys = new_keys(), new_keys()
        self.key_folder.write_peer(self.peer_role, self.peer_keys, server_keys.public)
        return server_keys

    # What is offered ------------------------------------------------------------------------------------------------

    @property
    def heartbeat_milliseconds(self) -> int:
        """The heartbeat interval that a Welcome requests: a small part of the deadline."""
        return max(20, int(min(1.0, self.settings.time_scale) * HEARTBEAT_MILLISECONDS))

    def object_directory(self) -> Dict[str, Any]:
        """The fields of a Welcome that offer a shared object directory."""
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        path = tempfile.mkdtemp(prefix="scaler-conformance-", dir=base)
        self.at_end(lambda: shutil.rmtree(path, ignore_errors=True))
        token = self.random.getrandbits(8 * TOKEN_BYTES).to_bytes(TOKEN_BYTES, "little")
        with open(os.path.join(path, "token"), "wb") as file:
            file.write(token)
        return {"objectDirectory": path, "objectDirectoryToken": token}

    def idle(self) -> None:
        try:
            self.router.pump(0)
        except Violation:
            pass  # invalid messages are ignored while the implementation ends
