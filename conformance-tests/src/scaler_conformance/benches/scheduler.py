"""The bench for schedulers: the suite plays their clients and workers.

    bench.client()      a client in a session; bench.worker(slots=2) likewise
    bench.unregistered()    a connection on which nothing has been sent
    bench.raw()         a connection whose bytes the case writes itself

Rules:
- The scheduler is started when the first peer is created. `variant` starts it in another configuration (features.py); a
  case then checks the Welcome, and does not apply if it does not fit.
- All peers are read together, whichever of them a case waits for, and keep their sessions alive by themselves.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any, Dict, List, Mapping, Optional, Type, TypeVar

from scaler_conformance.benches.bench import Bench
from scaler_conformance.judging.verdicts import NotApplicable, Violation
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.curve_keys import KeyFolder, Keys, new_keys
from scaler_conformance.playing.monitor_peers import MonitorTransport, PlayedMonitor
from scaler_conformance.playing.quiet_ports import quiet_port
from scaler_conformance.playing.raw_connection import RawConnection
from scaler_conformance.playing.scheduler_peers import Group, GroupTransport, PlayedClient, PlayedPeer, PlayedWorker

PeerType = TypeVar("PeerType", bound=PlayedPeer)
_LOOK_SECONDS = 0.01


class RoleBench(Bench):
    """One scheduler and its peers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.group = Group()
        self.peers: List[PlayedPeer] = []
        self._address = ""
        self._variant = ""
        self._key_folder: Optional[KeyFolder] = None
        self._server_key = b""
        self._transports: List[Any] = []
        self.raw_connections: List[RawConnection] = []

    # The scheduler --------------------------------------------------------------------------------------------------

    def variant(self, name: str) -> bool:
        """Start the scheduler in another configuration, before its first peer; returns whether `--config` has the
        variant.
        """
        if self._launcher.has_variant(name):
            self._variant = name
        return self._variant == name

    @property
    def address(self) -> str:
        """Where the scheduler listens; starts it if it has not been started."""
        if not self._address:
            self._address = f"tcp://127.0.0.1:{quiet_port()}"
            values = {"address": self._address, "variant": self._variant}
            if self._key_folder is not None:
                values["keys"] = self._key_folder.path
            self.start(values)
        return self._address

    # Keys -----------------------------------------------------------------------------------------------------------

    def require_keys(self, *roles: str) -> Dict[str, Keys]:
        """Start the scheduler so that it requires keys, and admits a key for each of these roles, which are returned.

        Raises NotApplicable if the configuration has no such variant.
        """
        if not self.variant("keys"):
            raise NotApplicable("the configuration has no variant keys, in which the scheduler requires keys")
        folder = self._key_folder = KeyFolder()
        self.at_end(folder.close)
        keys = {role: new_keys() for role in roles}
        server_keys = new_keys()
        self._server_key = server_keys.public
        folder.write_scheduler(server_keys)
        folder.write_admitted({each.public: role for role, each in keys.items()})
        return keys

    def admit_only(self, keys: Mapping[str, Keys]) -> None:
        """Change the list of admitted keys, by role, and have the scheduler read it."""
        assert self._key_folder is not None and self.running is not None
        self._key_folder.write_admitted({each.public: role for role, each in keys.items()})
        self.running.reload()

    # Peers ----------------------------------------------------------------------------------------------------------

    def unregistered(
        self, name: str = "", identity: bytes = b"", make: Type[Any] = PlayedClient, keys: Optional[Keys] = None
    ) -> Any:
        """A connection on which nothing has been sent yet.

        Parameters:
            keys: to prove.
        """
        transport = GroupTransport(self.group, self.address, identity, keys=keys, server_key=self._server_key)
        return self._peer(transport, name or f"{make.role} {len(self.peers) + 1}", make)

    def _peer(self, transport: Any, name: str, make: Type[PeerType]) -> PeerType:
        peer = make(name, transport, self.settings, self._log, self.how_it_ended)
        transport.conversation = peer
        self.at_end(transport.close)
        self._transports.append(transport)
        self.peers.append(peer)
        return peer

    def _greeted(self, peer: Any, fields: Any) -> None:
        welcome = peer.greet(**fields)
        said = welcome.implementation
        self._identification.said(said.name, said.version, said.language)

    def client(self, keys: Optional[Keys] = None, **hello: Any) -> PlayedClient:
        """A client in a session."""
        peer: PlayedClient = self.unregistered(keys=keys)
        self._greeted(peer, hello)
        return peer

    def worker(self, keys: Optional[Keys] = None, **hello: Any) -> PlayedWorker:
        """A worker in a session, with one slot and no queue unless `hello` says otherwise."""
        peer: PlayedWorker = self.unregistered(make=PlayedWorker, keys=keys)
        self._greeted(peer, hello)
        return peer

    def raw(self, **greeting: Any) -> RawConnection:
        """A connection made by hand, after its handshake; see RawConnection.greet."""
        connection = self.connection()
        connection.greet(**greeting)
        return connection

    def connection(self) -> RawConnection:
        """A connection made by hand on which no byte has been sent."""
        self._wait_until_it_listens()
        connection = RawConnection(self.address, self.settings, self.how_it_ended)
        self._transports.append(connection)
        self.raw_connections.append(connection)
        self.at_end(connection.close)
        return connection

    def raw_client(self, **greeting: Any) -> PlayedClient:
        """A client over a connection made by hand, on which nothing has been sent."""
        return self.conversation_over(self.raw(**greeting))

    def conversation_over(self, connection: RawConnection) -> PlayedClient:
        """A client over a connection made by hand."""
        peer = self._peer(connection, f"client {len(self.peers) + 1}", PlayedClient)
        peer.raw = connection
        return peer

    def monitor(self, address: str, keys: Optional[Keys] = None) -> PlayedMonitor:
        """A connection to the scheduler's publisher that has not subscribed to anything yet."""
        transport = MonitorTransport(self.group, address, keys, self._server_key)
        return self._peer(transport, f"monitor {len(self.peers) + 1}", PlayedMonitor)

    def _wait_until_it_listens(self) -> None:
        host, _, port = self.address.rpartition("//")[2].rpartition(":")
        deadline = time.monotonic() + self.settings.deadline_seconds
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            if time.monotonic() > deadline or self.how_it_ended():
                raise Violation(
                    "the scheduler to listen at its address",
                    self.how_it_ended() or f"{self.address} refuses connections",
                )
            time.sleep(_LOOK_SECONDS)

    def quiet(self, *peers: PlayedPeer) -> None:
        """Wait until the scheduler has handled everything that these peers sent, and what follows from it."""
        for _ in range(2):
            for each in peers:
                each.fence()

    # What cases need ------------------------------------------------------------------------------------------------

    def need(self, condition: object, what: str) -> None:
        """Raises NotApplicable unless the scheduler is configured as the case needs it."""
        if not condition:
            raise NotApplicable(f"the scheduler is not configured with {what}; add its variant to the file of --config")

    def expect_end(self) -> None:
        """The scheduler, which was asked to end, exits by itself."""
        code = self.expect_exit("the scheduler to exit")
        check(code == 0, "exit code 0", code)

    # The end --------------------------------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        for each in self._transports:
            each.close()
        if self.running is not None:
            self.running.terminate()
