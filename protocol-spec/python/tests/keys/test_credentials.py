"""What a program speaks over a connection, by whose socket it is and which key there is."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import List, Optional

import pytest

from scaler_protocol.host.discovery import Announcement, Entry, entries
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys import credentials, lookup
from scaler_protocol.keys.credentials import Credentials, MissingKeyError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import write_key_file
from scaler_protocol.wire.secure_zmtp import SecureZmtp

ADDRESS = "tcp://127.0.0.1:2345"
WHOSE = {"this user": (True, False), "root": (True, True), "another": (False, False)}


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("insecure", [True, False])
def test_who_is_spoken_to_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str, has_key: bool, insecure: bool
) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "keys"))
    monkeypatch.delenv("SCALER_KEY_FILE", raising=False)
    if has_key:
        KeyDirectory(str(tmp_path / "keys")).open_or_create(load_sodium())
    is_trusted, is_root = WHOSE[whose]
    monkeypatch.setattr(credentials, "is_of_this_user", lambda stream: is_trusted)
    monkeypatch.setattr(credentials, "is_of_root_alone", lambda stream: is_root)
    one, other = socket.socketpair()
    with one, other:
        shown = Credentials(ADDRESS, insecure=insecure)
        if whose == "another" and not (has_key or insecure):
            with pytest.raises(MissingKeyError, match="scaler keys new"):
                shown.protocol(one, "DEALER", 1000)
            return
        protocol = shown.protocol(one, "DEALER", 1000)
        needs_key = whose != "this user" and has_key and not insecure
        assert isinstance(protocol, SecureZmtp) is needs_key


def test_announcements_are_read_once_for_a_scheduler_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "keys"))
    monkeypatch.delenv("SCALER_KEY_FILE", raising=False)
    reads: List[str] = []

    def counted(kind: str) -> List[Entry]:
        reads.append(kind)
        return entries(kind)

    monkeypatch.setattr(lookup, "entries", counted)
    with Announcement("scheduler", ADDRESS, security="none"):
        assert Credentials(ADDRESS).security() is None
    assert reads == ["scheduler"]


@pytest.mark.parametrize("given", [None, "shown.key"])
def test_a_program_that_has_changed_its_folder_connects_again_with_its_key(
    given: Optional[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyDirectory(str(tmp_path / "keys"))
    keys.open_or_create(load_sodium())
    write_key_file(str(tmp_path / "shown.key"), keys.owner())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALER_KEY_FILE", "no.key" if given else "shown.key")
    shown = Credentials(ADDRESS, given)
    monkeypatch.chdir("keys")
    security = shown.security()
    assert security is not None and security.keys == keys.owner().keys
