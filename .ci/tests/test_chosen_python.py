"""Which Python `.ci/prepare` makes environments with: that of the distribution, if `python3` is known to be slower."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Optional, Tuple

import pytest

PREPARE = Path(__file__).resolve().parents[1] / "prepare"
SYSTEM = "/usr/bin/python3"
IS_USABLE = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))"


def chosen(folder: Path, python: str = "python3") -> Tuple[str, str]:
    """What is chosen, and what people are told, if the first `python3` on the path is in a folder."""
    found = re.search(r"^choose_python\(\) \{\n.*?^\}\n", PREPARE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    script = f'say() {{ echo "$*" >&2; }}\nPYTHON={python}\n{found[0]}choose_python\necho "$PYTHON"\n'
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def made_with(folder: Path, arguments: Optional[str]) -> Path:
    """A folder with a `python3` that says so of itself; None: nothing."""
    says = f"sysconfig.get_config_vars()['CONFIG_ARGS'] = {arguments!r}"
    played = f"import sys, sysconfig; {says}; sys.base_prefix = '/opt'; exec(sys.argv[2])"
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", played])} "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.mark.skipif(
    not Path(SYSTEM).exists() or subprocess.run([SYSTEM, "-c", IS_USABLE], capture_output=True).returncode != 0,
    reason=f"{SYSTEM} makes no environments here",
)
def test_one_without_profiles_gives_way_unless_it_was_named(tmp_path: Path) -> None:
    folder = made_with(tmp_path, "'--prefix=/opt'")
    python, told = chosen(folder)
    assert python == SYSTEM and f"{folder}/python3 was compiled without profiles" in told
    assert chosen(folder, f"{folder}/python3") == (f"{folder}/python3", "")


@pytest.mark.parametrize("arguments", ["'--enable-optimizations' '--with-lto'", None])
def test_one_with_profiles_or_of_which_that_is_not_known_is_taken(tmp_path: Path, arguments: Optional[str]) -> None:
    assert chosen(made_with(tmp_path, arguments)) == ("python3", "")


@pytest.mark.skipif(not Path(SYSTEM).exists(), reason=f"there is no {SYSTEM}")
def test_an_environment_of_the_system_s_own_is_no_slower(tmp_path: Path) -> None:
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    assert chosen(tmp_path / "bin") == ("python3", "")
