"""Keys of CURVE (ZeroMQ RFC 26), for the peers that the suite plays and, in files, for the implementation.

    {keys}/peer.key           of a worker or client: its keys, and the scheduler's public key
    {keys}/scheduler.key      of a scheduler
    {keys}/authorized_keys    the keys that a scheduler admits, one line each: PUBLIC_KEY role=worker name=x

Rules:
- The files have the form that docs/security.md of Scaler describes: lines of TOML, and a list. An implementation with
  another form has a small program in its command that translates them.
- The folder and its files are private, and a file is replaced as a whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import List, Mapping, NamedTuple, Sequence

import zmq
from zmq.auth.thread import ThreadAuthenticator

PEER_KEY, SCHEDULER_KEY, AUTHORIZED_KEYS = "peer.key", "scheduler.key", "authorized_keys"


class Keys(NamedTuple):
    """A key pair, in Z85."""

    public: bytes
    secret: bytes


def new_keys() -> Keys:
    return Keys(*zmq.curve_keypair())


class KeyFolder:
    """The folder that replaces `{keys}` in a command."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="scaler-conformance-keys-")

    @property
    def peer_key(self) -> str:
        return os.path.join(self.path, PEER_KEY)

    def write_peer(self, role: str, keys: Keys, server_key: bytes) -> None:
        names = [f'role = "{role}"', 'tenant = "default"', 'name = "suite"']
        pair = [f'public_key = "{keys.public.decode()}"', f'secret_key = "{keys.secret.decode()}"']
        self._write(PEER_KEY, [*names, *pair, f'server_keys = ["{server_key.decode()}"]'])

    def write_scheduler(self, keys: Keys) -> None:
        lines = [f'public_keys = ["{keys.public.decode()}"]', f'secret_keys = ["{keys.secret.decode()}"]']
        self._write(SCHEDULER_KEY, lines)

    def write_admitted(self, roles: Mapping[bytes, str]) -> None:
        """Write the list of admitted public keys, each with its role."""
        lines = [f"{key.decode()} role={role} name={role}{at}" for at, (key, role) in enumerate(roles.items())]
        self._write(AUTHORIZED_KEYS, lines)

    def _write(self, name: str, lines: Sequence[str]) -> None:
        path = os.path.join(self.path, name)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write("".join(f"{line}\n" for line in lines))
        os.replace(f"{path}.new", path)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class ServerSecurity:
    """What a played scheduler with keys needs: a context of its own, because libzmq asks one authenticator for each.

    Attributes:
        seen: public keys that peers have proved to own, in Z85.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.seen: List[bytes] = []
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = ThreadAuthenticator(self.context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Admits all, since the case decides; called by the authenticator with a key in Z85."""
        self.seen.append(key)
        return True

    def secure(self, socket: zmq.Socket[bytes]) -> None:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self.keys

    def close(self) -> None:
        """To be called after the socket was closed."""
        self._authenticator.stop()
        self.context.term()
