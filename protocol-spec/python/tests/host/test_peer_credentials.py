"""Who is at the other end of a Unix domain socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from scaler_protocol.host.peer_credentials import is_trusted_user, user_of_peer

ANOTHER_USER = 65534

CALLER = """
import os, socket, sys
if os.getuid() == 0:
    os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as stream:
    stream.connect(sys.argv[1])
    stream.recv(1)
"""


def test_both_ends_know_each_other() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        assert user_of_peer(one) == user_of_peer(other) == os.getuid()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_told_apart() -> None:
    name = f"\0scaler-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        listener.listen()
        command = [sys.executable, "-c", CALLER.replace("sys.argv[1]", repr(name)), "", str(ANOTHER_USER)]
        with subprocess.Popen(command, cwd="/") as caller:
            stream, _ = listener.accept()
            with stream:
                assert user_of_peer(stream) == ANOTHER_USER
                assert not is_trusted_user(user_of_peer(stream))
        assert caller.returncode == 0


def test_this_user_and_root_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert is_trusted_user(1000) and is_trusted_user(0)
    assert not is_trusted_user(1001)
