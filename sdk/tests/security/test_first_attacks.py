"""What an attacker found before there were keys, tried again; `negative_matrix.FIRST_ATTACKS` names the other tests."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import List

import pytest
from quiet_addresses import quiet_address
from sdk_tasks import wait_for
from security.attackers.another_user import AnotherUser
from security.keyed_peer import tenant_peer
from security.keyed_scheduler import KeyedScheduler

from scaler_protocol.host.addresses import local_socket_name, parse_address
from scaler_protocol.wire.zmtp import Zmtp, greeting

MEBIBYTE = 1 << 20
FORGED = "node\n[CRITICAL]2026-01-01 00:00:00+0000: all disks are full\r\x1b[2J\x85\u2028\u202e"


def memory_of(scheduler: KeyedScheduler) -> int:
    """Resident bytes of its process."""
    assert scheduler.process is not None
    (line,) = [
        each for each in Path(f"/proc/{scheduler.process.pid}/status").read_text().splitlines() if "VmRSS" in each
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("options", [(), ("--insecure",)], ids=["with keys", "insecure"])
def test_peers_that_have_not_said_hello_take_no_memory(tmp_path: Path, options: List[str]) -> None:
    """Three of them took 450 MiB, with a message of 150 MiB each that was never whole."""
    scheduler = KeyedScheduler(tmp_path, *options)
    before, streams = memory_of(scheduler), []
    try:
        parsed = parse_address(scheduler.address)
        for _ in range(3):
            stream = socket.create_connection((parsed.host, parsed.port), 30)
            streams.append(stream)
            protocol = Zmtp("DEALER", 1 << 30)
            with suppress(OSError):
                stream.sendall(protocol.take_output())
                if options:
                    while not protocol.is_ready:
                        protocol.feed(stream.recv(4096))
                        stream.sendall(protocol.take_output())
                stream.sendall(b"\2" + (150 * MEBIBYTE).to_bytes(8, "big"))
                for _ in range(150):
                    stream.sendall(bytes(MEBIBYTE))
        for stream in streams:
            with suppress(ConnectionResetError):
                while stream.recv(65536):
                    pass  # until it is closed
        assert memory_of(scheduler) - before < 8 * MEBIBYTE
    finally:
        for stream in streams:
            stream.close()
        scheduler.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_that_another_user_passes_to_the_local_socket_are_dropped(
    tmp_path: Path, another_user: AnotherUser
) -> None:
    """A process that kept them would run out of descriptors."""
    scheduler = KeyedScheduler(tmp_path, address=quiet_address())
    assert scheduler.process is not None
    descriptors = Path(f"/proc/{scheduler.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    try:

        def attack() -> str:
            streams = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
            file = os.open("/dev/null", os.O_RDONLY)
            for stream in streams:
                stream.connect(local_socket_name(parse_address(scheduler.address)) or "")
                socket.send_fds(stream, [greeting(b"CURVE")], [file] * 200)
            for stream in streams:
                assert stream.recv(10), "it has read what came with the files"
            return "passed"

        assert another_user.runs(attack) == "passed"
        with scheduler.client(scheduler.admitted_key("client")) as client:
            client.info()
        wait_for(lambda: len(list(descriptors.iterdir())) < before + 20, "the descriptors to be closed")
    finally:
        scheduler.stop()


def test_a_hello_forges_no_line_of_the_log(scheduler: KeyedScheduler) -> None:
    before = scheduler.log.count("connected, session")
    with tenant_peer(scheduler, "client", "default", name=FORGED):
        wait_for(lambda: scheduler.log.count("connected, session") > before, "the session in the log")
    lines = scheduler.log_file.read_bytes().split(b"\n")
    assert any(b"all disks are full" in line for line in lines)
    assert not any(line.startswith(b"[CRITICAL]") for line in lines)
    assert not any(each in line.decode() for line in lines for each in ("\r", "\x1b", "\x85", "\u2028", "\u202e"))
