"""Programs that are replaced while the system has no room for another process, and those that are not replaced."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from typing import Any, List

import pytest
from sdk_tasks import wait_for

from scaler.cluster import child_program


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), MemoryError()],
    ids=["EAGAIN", "ENOMEM", "MemoryError"],
)
def test_a_program_that_cannot_be_replaced_at_once_is_replaced_later(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_program, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.ERROR, "scaler")
    child = child_program._Child([sys.executable, "-c", "import sys; sys.stdin.read()"], dict(os.environ), ())
    first = child.process
    errors: List[BaseException] = [error] * 3
    popen: Any = subprocess.Popen

    def start(*arguments: Any, **keywords: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return popen(*arguments, **keywords)

    monkeypatch.setattr(subprocess, "Popen", start)
    child.start_watching()
    try:
        first.kill()
        wait_for(lambda: child.process is not first, "a replacement")
        assert child.is_alive() and not errors
        assert sum("no replacement can be started" in record.message for record in caplog.records) == 3
    finally:
        child.stop()
    assert child.join(30.0) is not None


@pytest.mark.parametrize("code", [0, 2])
def test_a_program_that_fails_and_is_not_replaced_is_an_error_in_the_log(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "scaler")
    child = child_program._Child([sys.executable, "-c", f"raise SystemExit({code})"], dict(os.environ), ())
    child.start_watching()
    assert child.join(30.0) == code
    assert child._has_ended.wait(30.0)
    errors = [f"Cluster: process {child.process.pid} ended with code 2 and is not started again"] if code else []
    assert [record.message.partition(",")[0] for record in caplog.records] == errors


def test_a_program_that_was_asked_to_end_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "scaler")
    script = "import sys; sys.stdin.read(); raise SystemExit(2)"
    child = child_program._Child([sys.executable, "-c", script], dict(os.environ), (), stops_at_once=True)
    child.start_watching()
    child.stop()
    assert child._has_ended.wait(30.0) and not caplog.records
