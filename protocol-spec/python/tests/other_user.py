"""A second user, for tests that run as root: which files another user can read or write."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OTHER_USER_ID = 65_534  # it needs no entry in /etc/passwd

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

_BECOME_OTHER_USER = f"""
import os
os.chdir("/")
os.umask(0o022)
os.setgroups([])
os.setgid({OTHER_USER_ID})
os.setuid({OTHER_USER_ID})
"""


def run_as_other_user(imports: str, code: str, *arguments: str, **environment: str) -> str:
    """What a Python program prints whose code another user runs, without groups of ours.

    Parameters:
        imports: what to run before, as root: the other user may not be able to read the interpreter's files.
        code: what to run as the other user.
        arguments, environment: of the program; the environment has nothing else.
    """
    result = subprocess.run(
        [sys.executable, "-B", "-c", f"{imports}\n{_BECOME_OTHER_USER}\n{code}", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return result.stdout.strip()
