"""The socket that publishes to monitors: the only module of the scheduler that needs libzmq.

Rules:
- Publishing never blocks: what a monitor does not read is dropped, on purpose.
- A monitor can subscribe to a topic and unsubscribe; its other messages are ignored, and not even read if they are
  long.
- Only its owner can access the socket's file, from the moment it is created.
- A scheduler that was killed leaves its monitor's socket file behind; the next one to start removes it.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from typing import NamedTuple, Set

import zmq

STATUS = b"status"
RUNS = b"tasks"
UNSENT_MESSAGES = 20  # to one monitor; some ten seconds' worth
UNREAD_MESSAGES = 100  # from one monitor
MAXIMUM_MESSAGE_BYTES = 1024  # from a monitor; one that sends more is disconnected
REQUESTS_AT_ONCE = 1000
ABANDONED_AFTER_SECONDS = 60.0
_DEFAULT_NAME = re.compile(r"[0-9a-z.]+_\d+_monitor")


class Interest(NamedTuple):
    """The subscriptions of monitors."""

    has_status: bool
    has_runs: bool
    is_new: bool  # there is a new subscriber to the status since the last time


class StatusPublisher:
    """An XPUB socket: to monitors, a PUB socket.

    Raises OSError when one cannot listen at the address.
    """

    def __init__(self, address: str, io_threads: int) -> None:
        self.address = ""
        try:
            sweep_abandoned(os.path.dirname(address[len("ipc://") :]) if address.startswith("ipc:///") else "")
        except OSError as error:
            raise _cannot_listen(address, error) from error
        self._context = zmq.Context(io_threads)
        self._topics: Set[bytes] = set()  # subscribed ones that match ours
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.setsockopt(zmq.XPUB_VERBOSE, 1)  # report every new subscriber, not only the first
        self._publisher.setsockopt(zmq.SNDHWM, UNSENT_MESSAGES)
        self._publisher.setsockopt(zmq.RCVHWM, UNREAD_MESSAGES)
        self._publisher.setsockopt(zmq.MAXMSGSIZE, MAXIMUM_MESSAGE_BYTES)
        self._publisher.setsockopt(zmq.LINGER, 0)
        self._publisher.setsockopt(zmq.IPV6, int("[" in address))
        umask = os.umask(0o177)  # no other user may connect to the file that bind makes
        try:
            self._publisher.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise _cannot_listen(address, error) from error
        finally:
            os.umask(umask)
        self.address = self._publisher.getsockopt_string(zmq.LAST_ENDPOINT)

    def interest(self) -> Interest:
        """The current subscriptions of monitors."""
        # SCL-MON-006
        is_new = False
        for _ in range(REQUESTS_AT_ONCE):
            try:
                request = self._publisher.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            is_wanted, topic = request[:1], request[1:]
            if not (STATUS.startswith(topic) or RUNS.startswith(topic)):
                continue
            if is_wanted == b"\1":
                self._topics.add(topic)
                is_new |= STATUS.startswith(topic)
            elif is_wanted == b"\0":  # its last subscriber has gone
                self._topics.discard(topic)
        has_status, has_runs = (any(map(topic.startswith, self._topics)) for topic in (STATUS, RUNS))
        return Interest(has_status, has_runs, is_new)

    def publish(self, topic: bytes, header: bytes) -> None:
        """Send a message to the subscribers of a topic."""
        # SCL-MON-002
        self._publisher.send_multipart((topic, header), zmq.NOBLOCK)

    def close(self) -> None:
        self._publisher.close()
        self._context.term()
        if self.address.startswith("ipc://") and not self.address.startswith("ipc://@"):
            try:
                os.unlink(self.address[len("ipc://") :])  # libzmq leaves it behind
            except FileNotFoundError:
                pass


def _cannot_listen(address: str, error: OSError | zmq.ZMQError) -> OSError:
    reason = os.strerror(error.errno or 0)  # libzmq's own text repeats the address
    return OSError(f"cannot listen at {address}: {reason}; choose another --monitor-address")


def sweep_abandoned(directory: str) -> None:
    """Remove this user's stale monitor sockets from a directory."""
    for entry in os.scandir(directory) if os.path.isdir(directory) else ():
        try:
            if _DEFAULT_NAME.fullmatch(entry.name) and _is_abandoned(entry):
                os.unlink(entry.path)
        except OSError:
            pass  # another process was faster, or owns it


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
