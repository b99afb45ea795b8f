"""Whose process has connected, by real connections."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from scaler_appliance.ui import local_users
from scaler_appliance.ui.local_users import is_of_this_user

OTHER_USER = 65534

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no system but Linux says whose a connection is")

Ends = Tuple[socket.socket, socket.socket]  # the client's and the server's


@pytest.fixture(params=["127.0.0.1", "::1", "127.0.0.1 at a socket of IPv6"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], Ends]]:
    host, _, is_mapped = request.param.partition(" ")
    family = socket.AF_INET6 if is_mapped or ":" in host else socket.AF_INET
    try:
        server = socket.create_server(("::" if is_mapped else host, 0), family=family, dualstack_ipv6=bool(is_mapped))
    except OSError as error:
        pytest.skip(f"no {request.param} here: {error}")
    opened: List[socket.socket] = [server]

    def connect_once() -> Ends:
        client = socket.create_connection((host, server.getsockname()[1]))
        opened.extend((client, server.accept()[0]))
        return client, opened[-1]

    yield connect_once
    for each in opened:
        each.close()


def scope_of(server: socket.socket) -> Dict[str, Any]:
    """As uvicorn describes a request that has come here."""
    return {"client": server.getpeername()[:2], "server": server.getsockname()[:2]}


def test_this_user_may_look(connect: Callable[[], Ends]) -> None:
    _, server = connect()
    assert is_of_this_user(scope_of(server))


def test_a_connection_that_no_process_has_any_more_is_no_users(connect: Callable[[], Ends]) -> None:
    client, server = connect()
    scope = scope_of(server)
    client.close()
    assert not is_of_this_user(scope), "Linux calls it root's"
    server.close()
    assert not is_of_this_user(scope)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user_may_not(connect: Callable[[], Ends]) -> None:
    seen, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(OTHER_USER)
            _, server = connect()
            os.write(seen[1], repr(scope_of(server)).encode())
            os.read(done[0], 1)
        finally:
            os._exit(0)
    scope = eval(os.read(seen[0], 1000))  # of a process of ours
    try:
        assert not is_of_this_user(scope)
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for each in (*seen, *done):
            os.close(each)


def test_where_the_system_does_not_say_all_users_count_as_this_one(
    connect: Callable[[], Ends], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client, server = connect()
    scope = scope_of(server)
    client.close()
    monkeypatch.setattr(local_users, "_TABLES", tmp_path)
    assert is_of_this_user(scope) and is_of_this_user({"client": None, "server": None})
