"""What the benches for workers and clients share: a scheduler that the suite plays."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict

from scaler_conformance.benches.bench import Bench
from scaler_conformance.judging.verdicts import Violation
from scaler_conformance.playing.transports import RouterTransport

HEARTBEAT_MILLISECONDS = 1000
TOKEN_BYTES = 32


class PlayedScheduler(Bench):
    """A bench with a socket to which peers connect."""

    router: RouterTransport

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
