"""Clients that arrive in one process share a connection only if they have the same key."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from security.keyed_scheduler import KeyedScheduler


def test_copies_of_clients_with_different_keys_have_connections_of_their_own(scheduler: KeyedScheduler) -> None:
    alice, bob = (scheduler.admitted_key("client", name) for name in ("alice", "bob"))
    with scheduler.client(alice) as one, scheduler.client(bob) as other:
        first, second, again = (pickle.loads(pickle.dumps(each)) for each in (one, other, one))
        assert first._shell is again._shell and first._shell is not second._shell
        for copy in (first, second):
            copy.disconnect()


def test_a_copy_in_another_folder_finds_a_key_that_was_given_by_a_relative_path(
    scheduler: KeyedScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key_file = scheduler.admitted_key("client")
    monkeypatch.chdir(key_file.parent)
    with scheduler.client(Path(key_file.name)) as client:
        monkeypatch.chdir(tmp_path)
        sent = pickle.dumps(client)
    copy = pickle.loads(sent)
    assert copy.is_open
    copy.disconnect()
