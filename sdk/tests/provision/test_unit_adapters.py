"""Units as three commands say, and the options of pools; processes of this host are in `test_local_units`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

from scaler.provision import unit_adapters
from scaler.provision.core.pool import PoolSettings
from scaler.provision.core.provision_core import ListedUnit
from scaler.provision.provision_options import pool_of, read_options
from scaler.provision.provision_program import instance_of, main, worker_command
from scaler.provision.unit_adapters import CommandUnits, UnitError
from scaler.provision.unit_commands import digest_of, is_unit_of, worker_arguments
from scaler.worker.worker_options import CLUSTER
from scaler_protocol import messages as m

RUNNING = ListedUnit(m.UnitState.STARTING)
ADDRESS = "tcp://127.0.0.1:2345"


def commands(start: str = "true", listing: str = "true", stop: str = "true", seconds: float = 20.0) -> CommandUnits:
    pool = PoolSettings("gpu", slots=2, capabilities={"gpu": 1.0}, lifetime_seconds=60.0)
    return CommandUnits(pool, ADDRESS, start, listing, stop, seconds)


def unit(number: int, address: str = ADDRESS, pool: str = "gpu") -> str:
    return f"{pool}-{digest_of(address)}0ff1ce-{number}"


def test_commands_are_told_what_to_start_and_stop(tmp_path: Path) -> None:
    file = tmp_path / "units"
    names = "$UNIT_ID $UNIT_POOL $UNIT_SLOTS $UNIT_CAPABILITIES $UNIT_LIFETIME_SECONDS $UNIT_ADDRESS"
    units = commands(start=f"echo {names} >> {file}", stop=f"echo stop $UNIT_ID >> {file}")

    units.start("gpu-1")
    units.stop("gpu-1")

    assert file.read_text().splitlines() == [f"gpu-1 gpu 2 gpu=1 60 {ADDRESS}", "stop gpu-1"]


def test_large_numbers_reach_commands_and_workers_as_they_are(tmp_path: Path) -> None:
    seconds, amount = 1_209_601.0, 17_179_869_185.0
    pool = PoolSettings("big", capabilities={"memory": amount}, lifetime_seconds=seconds)
    file = tmp_path / "units"
    start = f'echo "$UNIT_CAPABILITIES $((UNIT_LIFETIME_SECONDS / 60))" > {file}'
    CommandUnits(pool, ADDRESS, start, "true", "true", 20.0).start("big-1")
    assert file.read_text() == "memory=17179869185 20160\n"

    read = CLUSTER.parser().parse_args(worker_arguments(pool, "big-1", ADDRESS))
    assert read.capabilities == {"memory": amount}
    options = read_options([ADDRESS, "--capabilities", "memory=17179869185", "--lifetime-seconds", "1209601"])[0]
    started = CLUSTER.parser().parse_args(worker_command(options, pool_of(options))[3:])
    assert (started.lifetime_seconds, started.capabilities) == (seconds, {"memory": amount})


def test_a_listing_has_ids_states_and_reasons() -> None:
    a, b, c, d = (unit(number) for number in range(4))
    lines = rf"{a}\n{b} PENDING (Resources) more\n\n{c} running\n{d} failed node died\n"
    assert commands(listing=f"printf '{lines}'").list() == {
        a: RUNNING,
        b: ListedUnit(m.UnitState.PENDING, "(Resources) more"),
        c: RUNNING,
        d: ListedUnit(m.UnitState.FAILED, "node died"),
    }


def test_machines_that_are_no_units_of_the_pool_at_its_scheduler_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: List[str] = []
    monkeypatch.setattr(unit_adapters.logger, "warning", lambda text, *values: warnings.append(text % values))
    own = unit(7)
    others = ["NAME STATUS", "database running", "gpu-1 stopped", unit(1, pool="gpu2"), unit(1, "tcp://192.0.2.1:2345")]
    units = commands(listing="printf '%s\\n' " + " ".join(f"'{each}'" for each in [*others, own, f"x{own}", f"{own}x"]))
    for _ in range(2):
        assert units.list() == {own: RUNNING}
    (said,) = warnings
    assert said.startswith("the list command of the pool gpu printed 'NAME', no unit of it")


def test_ids_tell_the_schedulers_whose_units_commands_list() -> None:
    def instance(address: str, *adapters: str) -> str:
        return instance_of([argparse.Namespace(address=address, adapter=each) for each in adapters])

    one, other = instance("tcp://a:1", "local", "exec"), instance("tcp://b:1", "exec")
    assert is_unit_of(f"p-{one}-3", "p", "tcp://a:1") and not is_unit_of(f"p-{one}-3", "p", "tcp://b:1")
    assert is_unit_of(f"p-{other}-3", "p", "tcp://b:1")
    assert len(instance("tcp://a:1", "slurm")) == 6, "the names of jobs have it in any case"


def test_commands_that_fail_say_why() -> None:
    with pytest.raises(UnitError, match="exit code 3: no quota left"):
        commands(start="echo trying >&2; echo no quota left >&2; exit 3").start("a")
    with pytest.raises(UnitError, match="exit code 1: it printed no error"):
        commands(stop="exit 1").stop("a")
    with pytest.raises(UnitError, match=r"within 0\.05 s \(command_timeout_seconds\)"):
        commands(listing="exec sleep 20", seconds=0.05).list()
    with pytest.raises(UnitError, match=r"the state 'odd' in '\S+ odd': use pending, running, failed"):
        commands(listing=f"echo {unit(1)} odd").list()
    with pytest.raises(UnitError, match=r"exit code 1: it printed no error; if it found no units, let it exit with 0$"):
        commands(listing="echo a | grep b").list()


def test_the_reason_is_not_lost_behind_a_long_command() -> None:
    script = "\njobs=$(false) || {\n    echo no daemon >&2\n    exit 1\n}\n" + 80 * "# and more\n"
    with pytest.raises(UnitError) as error:
        commands(listing=script).list()
    assert str(error.value) == "'jobs=$(false) || {' ... has ended with exit code 1: no daemon"
    assert all(line.startswith("#") for line in commands(listing=script).described().splitlines())


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
    own, _ = read_options(["--config", str(file), "--key-file", "/dev/null", "--worker-key-file", "worker.key"])
    assert worker_command(own, pool_of(own))[-2:] == ["--key-file", "worker.key"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--adapter", "exec", "--start-command", "true"],
            "--adapter exec needs --list-command, --stop-command as well",
        ),
        (["--stop-command", "true"], "--stop-command is for --adapter exec"),
        (
            ["--adapter", "kubernetes", "--worker-key-file", "key"],
            "--worker-key-file is for --adapter local or slurm",
        ),
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


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:2345", "tcp://*:2345", "tcp://head:1,tcp://[::]:2345"])
def test_units_elsewhere_need_an_address_that_they_can_connect_to(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file has it in its section of the scheduler, which listens there."""
    file = tmp_path / "scaler.toml"
    file.write_text(f'[scheduler]\naddress = "{address}"\n[provision]\nadapter = "slurm"\n')
    with pytest.raises(SystemExit):
        main(["--config", str(file), "--dry-run"])
    assert f"{address} names no host that others could connect to: write the scheduler's" in capsys.readouterr().err
    assert main(["--config", str(file), "--adapter", "local", "--dry-run"]) == 0


def test_pools_must_have_names_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaler.toml"
    file.write_text(f'[[provision]]\naddress = "{ADDRESS}"\n[[provision]]\naddress = "{ADDRESS}"\n')
    assert main(["--config", str(file)]) == 2
    assert "the names of pools must differ, got workers, workers" in capsys.readouterr().err
