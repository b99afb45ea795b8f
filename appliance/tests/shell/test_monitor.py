"""The monitors' socket, and what killed schedulers leave of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import zmq

from scaler_appliance.shell.monitor import Monitor


def test_monitors_get_what_is_published(tmp_path: Path) -> None:
    monitor = Monitor(f"ipc://{tmp_path}/127.0.0.1_80_monitor", io_threads=1)
    with zmq.Context() as context, context.socket(zmq.XSUB) as subscriber:
        subscriber.connect(monitor.address)
        subscriber.send(b"\1")
        while not subscriber.poll(5):
            monitor.publish(b"status")
        assert subscriber.recv() == b"status"
    monitor.close()
    assert list(tmp_path.iterdir()) == []


def test_what_killed_schedulers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "127.0.0.1_1_monitor"))
    left.close()
    used = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    used.bind(str(tmp_path / "127.0.0.1_2_monitor"))
    used.listen()
    (tmp_path / "127.0.0.1_3_monitor").write_text("no socket")
    other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    other.bind(str(tmp_path / "somebody's"))
    other.close()
    new = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new.bind(str(tmp_path / "127.0.0.1_5_monitor"))
    new.close()
    for path in tmp_path.iterdir():
        if path.name != "127.0.0.1_5_monitor":
            os.utime(path, (0, 0))

    monitor = Monitor(f"ipc://{tmp_path}/127.0.0.1_4_monitor", io_threads=1)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "127.0.0.1_2_monitor",
        "127.0.0.1_3_monitor",
        "somebody's",
        "127.0.0.1_4_monitor",
        "127.0.0.1_5_monitor",
    }
    monitor.close()
    used.close()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot listen at ipc"):
        Monitor(f"ipc://{tmp_path}/missing/monitor", io_threads=1)
