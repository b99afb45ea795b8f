"""Where monitors learn about the scheduler: the only module of the appliance that needs libzmq.

Rules:
- Publishing never blocks: what a monitor does not take is dropped, on purpose.
- A monitor can make no demands: nothing that it sends is read.
- A scheduler that was killed leaves its monitor's socket file behind; the next one to start removes it.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time

import zmq

HIGH_WATER_MARK_MESSAGES = 1000
ABANDONED_AFTER_SECONDS = 60.0
_DEFAULT_NAME = re.compile(r"[0-9a-z.]+_\d+_monitor")


class Monitor:
    """A PUB socket.

    Raises OSError when one cannot listen at the address.
    """

    def __init__(self, address: str, io_threads: int) -> None:
        self.address = ""
        sweep_abandoned(os.path.dirname(address[len("ipc://") :]) if address.startswith("ipc:///") else "")
        self._context = zmq.Context(io_threads)
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK_MESSAGES)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.IPV6, int("[" in address))
        try:
            self._publisher.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
        self.address = self._publisher.getsockopt_string(zmq.LAST_ENDPOINT)

    def publish(self, topic: bytes, header: bytes) -> None:
        self._publisher.send_multipart((topic, header), zmq.NOBLOCK)

    def close(self) -> None:
        self._publisher.close()
        self._context.term()
        if self.address.startswith("ipc://") and not self.address.startswith("ipc://@"):
            try:
                os.unlink(self.address[len("ipc://") :])  # libzmq leaves it behind
            except FileNotFoundError:
                pass


def sweep_abandoned(directory: str) -> None:
    """Remove this user's sockets of monitors from a directory if nobody listens at them any more."""
    for entry in os.scandir(directory) if os.path.isdir(directory) else ():
        try:
            if _DEFAULT_NAME.fullmatch(entry.name) and _is_abandoned(entry):
                os.unlink(entry.path)
        except OSError:
            pass  # somebody else was faster, or has a say in it


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        return False
    if time.time() - status.st_mtime < ABANDONED_AFTER_SECONDS:
        return False  # its owner may be about to listen
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(entry.path)
        except ConnectionRefusedError:
            return True
    return False
