"""scaler_ui as a service: it notifies the service manager that it is ready, works and stops."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from played_service_manager import PlayedServiceManager
from ui.running import Program

pytestmark = pytest.mark.exhaustive_on_pypy  # service managers are told the same there


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_ready_gives_signs_of_life_while_its_loop_goes_on_and_stops(tmp_path: Path, number: int) -> None:
    manager = PlayedServiceManager(str(tmp_path / "notify"))
    address = f"ipc://{tmp_path}/monitor"
    arguments = (address, "--port", "0", "--insecure")
    program = Program(sys.executable, tmp_path, *arguments, **manager.environment(0.6))
    try:
        ready = manager.take()
        assert ready[0] == "READY=1" and ready[1].startswith("STATUS=listening at http://127.0.0.1:")
        assert [manager.take() for _ in range(3)] == [["WATCHDOG=1"]] * 3
        if number == signal.SIGTERM:
            program.process.send_signal(signal.SIGSTOP)
            os.waitpid(program.process.pid, os.WUNTRACED)
            manager.drain()
            assert manager.has_nothing(1.5)
            program.process.send_signal(signal.SIGCONT)
            manager.take_until("WATCHDOG=1")
        program.process.send_signal(number)
        assert manager.take_until("STOPPING=1") == ["STOPPING=1", "STATUS=stopping: asked to stop"]
        assert program.process.wait(30) == 0
    finally:
        program.process.kill()
        program.process.communicate()
        manager.close()
