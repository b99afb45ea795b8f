"""Commands of users: what they leave in the background, what hangs, and what prints without end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Iterator

import pytest
from sdk_tasks import wait_for, wait_until

from scaler.provision import shell_command
from scaler.provision.shell_command import CommandError, CommandOutput, run_command

LIMIT_SECONDS = 60.0


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Path]:
    """A file into which a command notes a process, which is gone afterwards."""
    file = tmp_path / "process"
    yield file
    if file.exists() and exists(process_in(file)):
        os.kill(process_in(file), signal.SIGKILL)


def process_in(file: Path) -> int:
    return int(file.read_text())


def exists(process_id: int) -> bool:
    """Whether there is such a process that has not ended: what a killed one leaves may wait to be collected."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(command: str, seconds: float = LIMIT_SECONDS) -> CommandOutput:
    return run_command(command, os.environ, seconds)


def test_a_command_has_what_it_printed_and_its_exit_code() -> None:
    assert run("echo a; echo b >&2; exit 3") == CommandOutput(3, b"a\n", b"b\n")
    assert run("cat") == CommandOutput(0, b"", b""), "there is no input"
    assert run("kill -9 $$").code == -signal.SIGKILL


def test_what_a_command_leaves_in_the_background_is_not_waited_for(noted: Path) -> None:
    assert run(f"sleep 1000 >/dev/null 2>&1 & echo $! > {noted}; echo started") == CommandOutput(0, b"started\n", b"")
    assert exists(process_in(noted))


def test_what_it_leaves_must_not_hold_its_output(noted: Path) -> None:
    with pytest.raises(CommandError, match=r'holds its output.*as in `worker > "\$UNIT_ID.log" 2>&1 &`'):
        run(f"sleep 1000 & echo $! > {noted}")
    wait_for(lambda: not exists(process_in(noted)), "it to be stopped")


def test_a_connection_that_ssh_shares_may_hold_it(noted: Path) -> None:
    command = (
        f"setsid sh -c 'echo $$ > {noted}; exec sleep 1000 >/dev/null' & until [ -s {noted} ]; do :; done; echo done"
    )
    assert run(command) == CommandOutput(0, b"done\n", b"")
    assert exists(process_in(noted))


def test_a_command_that_hangs_is_stopped_with_what_it_has_started(noted: Path) -> None:
    with pytest.raises(CommandError, match=r"has not ended within 3 s \(command_timeout_seconds\)"):
        run(f"sleep 1000 & echo $! > {noted}; wait", 3.0)
    wait_until(noted)
    wait_for(lambda: not exists(process_in(noted)), "all of it to be stopped")


def test_what_prints_too_much_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_command, "LARGEST_BYTES", 1 << 20)
    assert len(run("head -c 1000000 /dev/zero").output) == 1000000
    with pytest.raises(CommandError, match="printed more than 1 MiB"):
        run("head -c 3000000 /dev/zero")
