"""The sockets of the suite: a ROUTER in place of a scheduler, and DEALERs in place of clients and workers.

Rules:
- A ROUTER identifies a peer by its connection: each new connection that sends something is a new conversation.
- Nothing is dropped for lack of room: high-water marks are off, and a message that cannot be sent at once is an error
  of the suite.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

import zmq

from scaler_conformance.playing.conversation import Conversation, Transport
from scaler_conformance.playing.curve_keys import ServerSecurity
from scaler_conformance.playing.quiet_ports import quiet_port

_LAST_WORDS_MILLISECONDS = 1000  # for what a scheduler sent just before its end
MakeConversation = Callable[[str, Transport], Conversation]


def open_socket(kind: int, context: Optional[zmq.Context[zmq.Socket[bytes]]] = None) -> zmq.Socket[bytes]:
    """A socket without limits of its queues, which drops unsent messages when it is closed.

    Parameters:
        context: by default, the one of this process.
    """
    made: zmq.Socket[bytes] = (context or zmq.Context.instance()).socket(kind)
    made.set_hwm(0)
    made.linger = 0
    return made


class RouterTransport(Transport):
    """The socket of a played scheduler.

    Parameters:
        make_conversation: makes the conversation of a new peer from its name and this transport.
        security: of a scheduler with keys.
    """

    def __init__(self, make_conversation: MakeConversation, security: Optional[ServerSecurity] = None) -> None:
        self.security = security
        self._make_conversation = make_conversation
        self._by_identity: Dict[bytes, Conversation] = {}
        self._new: List[Conversation] = []
        self._count = 0
        self._socket = self._open_socket()
        self.address = _bind_anywhere(self._socket)

    def _open_socket(self) -> zmq.Socket[bytes]:
        made = open_socket(zmq.ROUTER, self.security.context if self.security is not None else None)
        made.router_mandatory = True
        if self.security is not None:
            self.security.secure(made)
        return made

    def stop_listening(self) -> None:
        """Close all connections; the address is closed until `restart`."""
        self._socket.close(_LAST_WORDS_MILLISECONDS)
        self._by_identity.clear()

    def restart(self) -> None:
        """Close all connections and listen again at the same address, as a restarted scheduler does."""
        self.stop_listening()
        self._new.clear()
        self._socket = self._open_socket()
        _bind_again(self._socket, self.address)

    def take_new(self) -> Optional[Conversation]:
        """The next conversation that a peer has begun."""
        return self._new.pop(0) if self._new else None

    def renew(self, old: Conversation) -> Conversation:
        """A new conversation over the connection of an old one, which receives nothing more."""
        self._count += 1
        made = self._make_conversation(f"peer {self._count}", self)
        for identity, each in self._by_identity.items():
            if each is old:
                self._by_identity[identity] = made
        return made

    def pump(self, seconds: float) -> bool:
        if not self._socket.poll(int(seconds * 1000) + (seconds > 0)):
            return False
        while self._socket.poll(0):
            identity, *frames = self._socket.recv_multipart()
            conversation = self._by_identity.get(identity)
            if conversation is None:
                self._count += 1
                conversation = self._make_conversation(f"peer {self._count}", self)
                self._by_identity[identity] = conversation
                self._new.append(conversation)
            conversation.arrived(frames)
        return True

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        for identity, each in self._by_identity.items():
            if each is conversation:
                try:
                    self._socket.send_multipart([identity, *frames])
                except zmq.ZMQError as error:
                    if error.errno != zmq.EHOSTUNREACH:
                        raise  # else the peer is gone, which the wait for its answer reports
                return

    def close(self) -> None:
        self._socket.close()
        if self.security is not None:
            self.security.close()


def _bind_anywhere(socket: zmq.Socket[bytes]) -> str:
    """Listen at an unused address of this host, where `restart` can listen again."""
    while True:
        address = f"tcp://127.0.0.1:{quiet_port()}"
        try:
            socket.bind(address)
            return address
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise  # else another program took the port first


def _bind_again(socket: zmq.Socket[bytes], address: str) -> None:
    """Listen again. ZeroMQ's I/O thread may hold the port for a moment after `close`."""
    poller = zmq.Poller()
    for _ in range(500):
        try:
            socket.bind(address)
            return
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
            poller.poll(10)
    raise OSError(f"{address} is still in use 5 s after it was closed; another program may have taken the port")


class DealerTransport(Transport):
    """The socket of a played client or worker: one connection to a scheduler, and one conversation.

    Parameters:
        identity: of the connection; by default the scheduler assigns one.
    """

    def __init__(self, address: str, identity: bytes = b"") -> None:
        self._socket = open_socket(zmq.DEALER)
        if identity:
            self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.connect(address)
        self.conversation: Optional[Conversation] = None

    def pump(self, seconds: float) -> bool:
        if not self._socket.poll(int(seconds * 1000) + (seconds > 0)):
            return False
        while self._socket.poll(0):
            frames = self._socket.recv_multipart()
            if self.conversation is not None:
                self.conversation.arrived(frames)
        return True

    def transmit(self, conversation: Conversation, frames: Sequence[bytes]) -> None:
        self._socket.send_multipart(frames)

    def close(self) -> None:
        """Close the connection and drop what has not been sent."""
        self._socket.close()
