"""Who is at the other end of a Unix domain socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from scaler_protocol.host import peer_credentials
from scaler_protocol.host.peer_credentials import is_caller_of_this_user, is_of_root_alone, is_of_this_user

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
        assert is_of_this_user(one) and is_of_this_user(other)


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
                assert not is_of_this_user(stream)
        assert caller.returncode == 0


def test_root_is_trusted_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    own = os.geteuid()
    with one, other:
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        assert is_of_this_user(one) is (own == 0)


def test_of_other_sockets_the_kernel_says_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        assert not is_of_this_user(stream)


def test_the_user_that_stands_for_all_others_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a user namespace, the kernel gives all users that it does not know the same number."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        monkeypatch.setattr(peer_credentials, "user_of_others", os.geteuid)
        assert not is_of_this_user(one) and not is_of_root_alone(one)


def test_root_at_the_other_end_is_told_from_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        assert not is_of_root_alone(one)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(peer_credentials, "user_of_peer", lambda stream: 0)
        assert is_of_root_alone(one) and is_of_this_user(one)


def test_a_caller_of_root_is_another_user() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other, pytest.MonkeyPatch.context() as patch:
        assert is_caller_of_this_user(one)
        patch.setattr(os, "geteuid", lambda: 1000)
        patch.setattr(peer_credentials, "user_of_peer", lambda stream: 0)
        assert not is_caller_of_this_user(one)
