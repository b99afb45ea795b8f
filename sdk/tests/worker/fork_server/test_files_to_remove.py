"""Which files a fork server removes at its end."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from scaler.worker.fork_server import fork_server as fork_server_module


def test_patterns_in_directories_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """Each session brings a pattern, and its directory goes with the scheduler."""
    control, other_end = socket.socketpair()
    page: Any = None
    fork_server = fork_server_module._ForkServer(control, page, fork_server_module.ForkServerSettings("tcp://a:1"))
    lasting = f"{tmp_path}/new-*"
    for number in range(10):
        directory = tmp_path / f"scheduler [{number}]"
        directory.mkdir()
        fork_server._add_pattern(lasting)
        fork_server._add_pattern(f"{tmp_path}/scheduler [[]{number}]/new-*")
        assert len(fork_server._patterns) == 2
        directory.rmdir()
    assert fork_server._patterns[0] == lasting
    for descriptor in (fork_server._wakeup_read, fork_server._wakeup_write):
        os.close(descriptor)
    control.close()
    other_end.close()
