"""A service manager's end of NOTIFY_SOCKET, as systemd has it.

Rule: every wait is for a message, with a deadline that fails the test, or for a message that must not come.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Dict, List, Tuple

DEADLINE_SECONDS = 30.0
WATCHDOG = ["WATCHDOG=1"]
SO_PASSCRED = getattr(socket, "SO_PASSCRED", 16)  # on Linux; PyPy does not name it


class PlayedServiceManager:
    """Receives what programs notify.

    Parameters:
        name: a path, or an abstract address, which begins with @.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_PASSCRED, 1)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.settimeout(DEADLINE_SECONDS)

    def environment(self, watchdog_seconds: float = 0.0) -> Dict[str, str]:
        """Variables for a program."""
        watchdog = {"WATCHDOG_USEC": str(int(watchdog_seconds * 1e6))} if watchdog_seconds else {}
        return {"NOTIFY_SOCKET": self.name, **watchdog}

    def take(self) -> List[str]:
        """The lines of the next message."""
        return self.take_with_sender()[0]

    def take_with_sender(self) -> Tuple[List[str], int]:
        """The lines of the next message, and the id of the process that sent it."""
        data, control, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(12))
        process_id: int = struct.unpack("3i", control[0][2])[0]
        return data.decode().split("\n"), process_id

    def take_other(self) -> List[str]:
        """The next message that is no sign of life."""
        while True:
            lines = self.take()
            if lines != WATCHDOG:
                return lines

    def take_until(self, line: str) -> List[str]:
        """The first message with a line, and none before it matters."""
        while True:
            lines = self.take()
            if line in lines:
                return lines

    def has_nothing(self, seconds: float = 0.0) -> bool:
        """Whether no message comes for so long."""
        return not select.select([self._socket], [], [], seconds)[0]

    def drain(self) -> None:
        """Take all that has come."""
        while not self.has_nothing():
            self.take()

    def fill(self) -> int:
        """Send it so many messages that it has no room for more; their number."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            for sent in range(1_000_000):
                try:
                    sender.sendto(b"filling", self._socket.getsockname())
                except BlockingIOError:
                    return sent
        raise AssertionError("there is always room")

    def close(self) -> None:
        self._socket.close()
