"""How the reference worker and client use a key, and what the mutants among them look at first."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

from scaler_conformance.configuration.toml_files import load_toml


def secure(made: Any, key_file: str) -> None:
    """Have a socket prove the key in a file, and demand that the scheduler proves its own."""
    table = load_toml(Path(key_file))
    made.curve_publickey, made.curve_secretkey = table["public_key"].encode(), table["secret_key"].encode()
    made.curve_serverkey = table["server_keys"][0].encode()


def offered_mechanism(address: str) -> str:
    """The mechanism in the greeting of who listens at an address; empty if there is none."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    greeting = b""
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1) as connection:
        while len(greeting) < 64:
            data = connection.recv(64 - len(greeting))
            if not data:
                break
            greeting += data
    return greeting[12:32].rstrip(b"\0").decode("latin-1")
