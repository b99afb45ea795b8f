"""Where monitors learn about the scheduler: the only module of the appliance that needs libzmq.

Rules:
- Publishing never blocks: what a monitor does not take is dropped, on purpose.
- A monitor can make no demands: nothing that it sends is read.
"""

from __future__ import annotations

import os

import zmq

HIGH_WATER_MARK_MESSAGES = 1000


class Monitor:
    """A PUB socket.

    Raises OSError when one cannot listen at the address.
    """

    def __init__(self, address: str, io_threads: int) -> None:
        self.address = ""
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

    def publish(self, header: bytes) -> None:
        self._publisher.send(header, zmq.NOBLOCK)

    def close(self) -> None:
        self._publisher.close()
        self._context.term()
        if self.address.startswith("ipc://") and not self.address.startswith("ipc://@"):
            try:
                os.unlink(self.address[len("ipc://") :])  # libzmq leaves it behind
            except FileNotFoundError:
                pass
