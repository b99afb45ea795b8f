"""The empty root of the other tests is empty, and what runs in it behaves as if it had been started directly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from empty_root import SHELL, EmptyRoot

C_LIBRARY_AND_SHELL = ("ld-linux", "lib", "sh", "null", "zero", "urandom")


def test_it_holds_the_c_library_and_a_shell(c_library_root: EmptyRoot) -> None:
    files = [path.name for path in c_library_root.folder.rglob("*") if not path.is_dir()]
    assert "sh" in files
    assert [name for name in files if not name.startswith(C_LIBRARY_AND_SHELL)] == []
    assert c_library_root.run(SHELL, "-c", "python3 || pypy3 || tar || xz").returncode == 127


def test_programs_see_nothing_else_and_their_exit_code_comes_back(c_library_root: EmptyRoot, tmp_path: Path) -> None:
    finished = c_library_root.run(SHELL, "-c", f"echo /* $HOME; test -e {tmp_path} || exit 5")
    assert finished.returncode == 5
    assert set(finished.stdout.split()) <= {"/bin", "/dev", "/lib", "/lib64", "/root", "/tmp", "/usr"}


def test_signals_reach_the_program(c_library_root: EmptyRoot) -> None:
    script = "trap 'exit 9' TERM; echo ready; while :; do read line; done"
    with c_library_root.start(SHELL, "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(BrokenPipeError):  # the signal may have ended `read`, and so the program, already
            os.write(process.stdin.fileno(), b"\n")
        assert process.wait(30) == 9
