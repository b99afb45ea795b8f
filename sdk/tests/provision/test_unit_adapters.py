"""Units as three commands say, and the options of pools; processes of this host are in `test_local_units`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Tuple

import pytest

from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.provision_options import pool_of, read_options
from scaler.provision.provision_program import main, worker_command
from scaler.provision.unit_adapters import CommandUnits, UnitError
from scaler_protocol import messages as m

RUNNING = ListedUnit(m.UnitState.STARTING)
ADDRESS = "tcp://127.0.0.1:2345"


def commands(start: str = "true", listing: str = "true", stop: str = "true", seconds: float = 20.0) -> CommandUnits:
    pool = PoolSettings("gpu", slots=2, capabilities={"gpu": 1.0}, lifetime_seconds=60.0)
    return CommandUnits(pool, ADDRESS, start, listing, stop, seconds)


def test_commands_are_told_what_to_start_and_stop(tmp_path: Path) -> None:
    file = tmp_path / "units"
    names = "$UNIT_ID $UNIT_POOL $UNIT_SLOTS $UNIT_CAPABILITIES $UNIT_LIFETIME_SECONDS $UNIT_ADDRESS"
    units = commands(start=f"echo {names} >> {file}", stop=f"echo stop $UNIT_ID >> {file}")

    units.start("gpu-1")
    units.stop("gpu-1")

    assert file.read_text().splitlines() == [f"gpu-1 gpu 2 gpu=1 60 {ADDRESS}", "stop gpu-1"]


def test_a_listing_has_ids_states_and_reasons() -> None:
    lines = r"a\nb PENDING (Resources) more\n\nc running\nd failed node died\n"
    assert commands(listing=f"printf '{lines}'").list() == {
        "a": RUNNING,
        "b": ListedUnit(m.UnitState.PENDING, "(Resources) more"),
        "c": RUNNING,
        "d": ListedUnit(m.UnitState.FAILED, "node died"),
    }


def test_commands_that_fail_say_why() -> None:
    with pytest.raises(UnitError, match="exit code 3: no quota left"):
        commands(start="echo trying >&2; echo no quota left >&2; exit 3").start("a")
    with pytest.raises(UnitError, match="exit code 1: it printed no error"):
        commands(stop="exit 1").stop("a")
    with pytest.raises(UnitError, match=r"within 0\.05 s \(command_timeout_seconds\)"):
        commands(listing="exec sleep 20", seconds=0.05).list()
    with pytest.raises(UnitError, match="the state 'odd' in 'a odd': use pending, running, failed"):
        commands(listing="echo a odd").list()


def test_each_pool_of_a_file_is_checked_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaler.toml"

    def told(option: str, second: str) -> Tuple[object, str]:
        file.write_text(f'[[provision]]\naddress = "{ADDRESS}"\nname = "cpu"\n[[provision]]\n{second}\n')
        with pytest.raises(SystemExit) as ended:
            read_options(["--config", str(file), option])
        return ended.value.code, capsys.readouterr().out

    gpu = f'address = "{ADDRESS}"\nname = "gpu"'
    assert told("--check", gpu) == (0, f"scaler_provision: {file} is valid\n")
    assert told("--check", f"{gpu}\nminimum = 2") == (1, "scaler_provision: --minimum 2 is above --maximum 1\n")
    code, text = told("--check", f'address = "{ADDRESS}"\nname = "cpu"')
    assert code == 1 and text.startswith(f"scaler_provision: {file}: the names of pools must differ")
    code, text = told("--print-config", gpu)
    assert code == 0 and text.count("[[provision]]") == 2 and 'name = "gpu"' in text


def test_each_section_of_a_file_is_a_pool(tmp_path: Path) -> None:
    file = tmp_path / "scaler.toml"
    file.write_text(
        f'[scheduler]\naddress = "{ADDRESS}"\n'
        '[[provision]]\nname = "cpu"\nslots = 8\nmaximum = 4\n'
        '[[provision]]\nname = "gpu"\ncapabilities = { gpu = 2 }\npriority = -1\nkey_file = "/dev/null"\n'
    )
    first, second = read_options(["--config", str(file), "--idle-seconds", "5"])

    assert pool_of(first) == PoolSettings("cpu", slots=8, maximum=4, idle_seconds=5.0)
    assert pool_of(second).capabilities == {"gpu": 2.0} and second.address == ADDRESS
    assert worker_command(second, pool_of(second)) == [
        sys.executable, "-m", "scaler.worker", ADDRESS, "--num-of-workers", "1", "--capabilities", "gpu=2",
        "--key-file", "/dev/null",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--adapter", "exec", "--start-command", "true"],
            "--adapter exec needs --list-command, --stop-command as well",
        ),
        (["--stop-command", "true"], "--stop-command is for --adapter exec"),
        (["--minimum", "3", "--maximum", "2"], "--minimum 3 is above --maximum 2"),
        (["--name", "my pool"], "at most 40 letters, digits, points, dashes and underscores"),
    ],
)
def test_options_that_contradict_one_another_are_named(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([ADDRESS, *arguments])
    assert text in capsys.readouterr().err


def test_pools_must_have_names_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaler.toml"
    file.write_text(f'[[provision]]\naddress = "{ADDRESS}"\n[[provision]]\naddress = "{ADDRESS}"\n')
    assert main(["--config", str(file)]) == 2
    assert "the names of pools must differ, got workers, workers" in capsys.readouterr().err
