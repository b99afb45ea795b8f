"""Addresses: which there are, what they mean, and what an error says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scaler_protocol.host.addresses import (
    Address,
    AddressError,
    local_socket_name,
    parse_address,
    parse_addresses,
    resolve,
    resolve_all,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:2345", Address("127.0.0.1", 2345)),
        ("tcp://host.example:80", Address("host.example", 80)),
        ("tcp://[::1]:80", Address("::1", 80)),
        ("tcp://*:0", Address("*", 0)),
        ("tcp://0.0.0.0:*", Address("0.0.0.0", 0)),
        ("ipc:///tmp/x", Address("", 0, "/tmp/x")),
        ("ipc://@name", Address("", 0, "@name")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text.replace(":*", ":0")


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:80", "http://here:80", "tcp://", "tcp://:80", "tcp://h:99999", "tcp://h", "ipc://"]
)
def test_what_is_none_is_told_what_one_looks_like(text: str) -> None:
    with pytest.raises(AddressError, match="use one such as tcp"):
        parse_address(text)


def test_a_path_has_a_limit() -> None:
    assert parse_address("ipc://" + "p" * 107).path == "p" * 107
    with pytest.raises(AddressError, match="longer than 107 bytes"):
        parse_address("ipc://" + "p" * 108)


def test_a_relative_path_is_the_same_place_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(parse_address("ipc://s").from_any_folder()) == f"ipc://{tmp_path}/s"
    for text in ("ipc:///tmp/../x", "ipc://@name", "tcp://127.0.0.1:80", "ipc://" + "p" * 107):
        assert str(parse_address(text).from_any_folder()) == text


def test_what_the_system_takes() -> None:
    assert resolve(Address("127.0.0.1", 80)) == (socket.AF_INET, ("127.0.0.1", 80))
    assert resolve(Address("*", 0), listens=True) == (socket.AF_INET, ("0.0.0.0", 0))
    assert resolve(Address("", 0, "/tmp/x")) == (socket.AF_UNIX, "/tmp/x")
    assert resolve(Address("", 0, "@name")) == (socket.AF_UNIX, "\0name")


def test_only_this_host_has_a_local_socket() -> None:
    here = local_socket_name(Address("127.0.0.1", 80))
    assert here == local_socket_name(Address("localhost", 80)) == local_socket_name(Address("0.0.0.0", 80))
    assert local_socket_name(Address("127.0.0.1", 81)) != here or here is None
    assert local_socket_name(Address("192.0.2.1", 80)) is None
    assert local_socket_name(Address("", 0, "/tmp/x")) is None


def test_a_list_names_the_places_of_one_scheduler() -> None:
    a, b, path = Address("a", 1), Address("b", 1), Address("", 0, "/tmp/x,y")
    assert parse_addresses("tcp://a:1") == (a,)
    assert parse_addresses("tcp://a:1,tcp://b:1") == parse_addresses("tcp://a:1, tcp://b:1") == (a, b)
    assert parse_addresses("ipc:///tmp/x,y,tcp://a:1") == (path, a), "a comma may be part of a path"
    with pytest.raises(AddressError, match="use one such as tcp"):
        parse_addresses("tcp://a:1,b:1")
    with pytest.raises(AddressError, match="twice"):
        parse_addresses("tcp://a:1,tcp://a:1")


def test_families_take_turns_in_the_order_of_the_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["fd00::1", "fd00::2", "10.0.0.1", "10.0.0.1"]
    found = [(socket.AF_INET6 if ":" in host else socket.AF_INET, 1, 6, "", (host, 1)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert [target[1][0] for target in resolve_all(Address("a", 1))] == ["fd00::1", "10.0.0.1", "fd00::2"]
