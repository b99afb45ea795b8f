"""docs/migrating/scaler.md matches the compatibility tables, and the programs accept what it lists."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import List

import pytest

from scaler.programs.__main__ import main as run_scaler
from scaler_protocol.programs.options import Program, Reading
from scaler_protocol.programs.options.table import Earlier

TREE = Path(__file__).resolve().parents[2]


def load_page_tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("migrating_page", TREE / ".ci/migrating_page.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


page = load_page_tool()

# The command lines in the documentation of both generations, with every option.
COMMAND_LINES = """
scaler_scheduler tcp://127.0.0.1:8516 --io-threads 1 -mt -1 -ct 60 -wt 60 -ot 60 -ls 1 -lbt 2 -qs 1000 -e builtin -p
scaler_scheduler tcp://127.0.0.1:8516 -lp /dev/stdout -ll INFO -ma tcp://127.0.0.1:8518 --load-balance-seconds=-1
scaler_scheduler tcp://127.0.0.1:8516 -osa tcp://127.0.0.1:8517 -aosa tcp://127.0.0.1:8517 -sri 1 -it 1 -el builtin
scaler_scheduler tcp://127.0.0.1:8516 -et simple -pc allocate=even_load -tc cert.pem -tk key.pem
scaler_cluster tcp://127.0.0.1:8516 -n 4 -wn name -hi 2 -tts 0 -gc 30 -ds 300 -tm 1000000 -el builtin -it 1 -hps
scaler_cluster tcp://127.0.0.1:8516 -la tcp://127.0.0.1:9000 -lp /dev/stdout -ll INFO
scaler_cluster tcp://127.0.0.1:8516 -wmi any -wsa tcp://127.0.0.1:8516 -osa tcp://127.0.0.1:8517 -mtc 4 -wtqs 1000
scaler_cluster tcp://127.0.0.1:8516 -pwc linux,gpu=1 -his 2 -dts 300 --mode fixed --worker-type NAT --preload os.path
scaler_cluster tcp://127.0.0.1:8516 -tc cert.pem -tk key.pem
scaler_top tcp://127.0.0.1:8518 -t 5 -tc cert.pem -tk key.pem
scaler_ui tcp://127.0.0.1:8518 --host 127.0.0.1 --port 50001
scaler_ui tcp://127.0.0.1:8518 --gui-address 127.0.0.1:50001 -bi 0.5 -tl 500 -sri 1 -tc cert.pem -tk key.pem
""".strip().splitlines()

# The example of the second generation's README, with a few more keys.
FILE = """
[object_storage_server]
bind_address = "tcp://127.0.0.1:8517"

[scheduler]
bind_address = "tcp://127.0.0.1:8516"
object_storage_address = "tcp://127.0.0.1:8517"
policy_engine_type = "simple"
policy_content = "allocate=even_load; scaling=vanilla"

[[worker_manager]]
type = "{kind}"
scheduler_address = "tcp://127.0.0.1:8516"
worker_manager_id = "wm-native"
mode = "fixed"
max_task_concurrency = {count}
per_worker_task_queue_size = 10
per_worker_capabilities = "linux,cpu=8"

[gui]
gui_address = "127.0.0.1:8081"
"""


def program_named(name: str) -> Program:
    found: Program = next(program for program in page.PROGRAMS if program.name == name)
    return found


def read(command_line: str) -> Reading:
    name, *words = command_line.split()
    program = program_named(name)
    return Reading(program, vars(program.parser().parse_args(words)), {})


def test_the_page_shows_the_tables() -> None:
    written = page.PAGE.read_text(encoding="utf-8")
    assert page.page_of(written) == written, "make migrating-page"


@pytest.mark.parametrize("command_line", COMMAND_LINES)
def test_a_command_line_of_an_earlier_generation_is_read_without_a_fault(command_line: str) -> None:
    reading = read(command_line)
    assert not reading.faults
    assert not reading.missing()


@pytest.mark.parametrize("program", page.PROGRAMS, ids=lambda program: program.name)
def test_each_earlier_option_becomes_another_or_says_why_not(program: Program) -> None:
    today = {flag for option in program.options for flag in option.flags}
    for earlier in program.earlier:
        assert bool(earlier.becomes) != bool(earlier.why), earlier.names
        assert all(program.option(key) is not None for key in earlier.becomes), earlier.names
        assert not today.intersection(earlier.flags)
        assert program.option(earlier.key) is None or not earlier.names.split()[-1].startswith("--")


def test_what_has_another_name_has_its_value_and_what_has_no_effect_is_told() -> None:
    reading = read("scaler_cluster tcp://127.0.0.1:1 -wsa tcp://127.0.0.1:2 -mtc 4 -wtqs 7 -hps")
    values = reading.values
    assert (values.address, values.num_of_workers, values.per_worker_queue_size) == ("tcp://127.0.0.1:2", 4, 7)
    assert reading.warnings == ["-hps has no effect: no task is suspended by a signal"]
    assert (
        read("scaler_cluster tcp://127.0.0.1:1 -mtc -1").values.num_of_workers
        == read("scaler_cluster tcp://127.0.0.1:1").values.num_of_workers
    )


def test_an_option_by_both_names_and_a_bad_value_are_faults() -> None:
    both = read("scaler_cluster tcp://127.0.0.1:1 -qs 1 -wtqs 2")
    assert both.faults == ["-wtqs: this option is set twice, also as -qs/--per-worker-queue-size"]
    assert "-wtqs: " in read("scaler_cluster tcp://127.0.0.1:1 -wtqs none").faults[0]
    assert read("scaler_ui tcp://127.0.0.1:1 --gui-address nonsense").faults == [
        "--gui-address: expected HOST:PORT, got 'nonsense'"
    ]


def test_help_does_not_show_them() -> None:
    for program in page.PROGRAMS:
        shown = program.parser().format_help()
        assert not [each for earlier in program.earlier for each in earlier.flags if f" {each} " in shown]


def check_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], **values: object) -> List[str]:
    """What `scaler FILE --check` prints."""
    path = tmp_path / "config.toml"
    path.write_text(FILE.format(**values), encoding="utf-8")
    code = run_scaler([str(path), "--check"])
    printed = capsys.readouterr().out.splitlines()
    return [f"code {code}", *printed]


def test_a_file_of_the_second_generation_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, *warnings, last = check_file(tmp_path, capsys, kind="baremetal_native", count=-1)
    assert (code, last) == ("code 0", f"scaler: {tmp_path / 'config.toml'} is valid")
    of_policy = [line for line in warnings if "policy_content has no effect" in line]
    assert len(of_policy) == 1 and "scaling=vanilla', write a section [provision]" in of_policy[0]
    assert all(": warning: " in line and " has no effect: " in line for line in warnings)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("aws_raw_ecs", 'write a section [provision] with adapter = "exec" instead, and three commands'),
        ("orb_aws_ec2", 'write a section [provision] with adapter = "exec" instead, and three commands'),
        ("oci_hpc", 'write a section [provision] with adapter = "exec" instead, and three commands'),
        ("symphony", 'write a section [provision] with adapter = "exec" instead, and three commands'),
        ("k8s_raw", 'write a section [provision] with adapter = "kubernetes" instead, with image'),
        ("other", "start scaler_cluster on the machines"),
    ],
)
def test_workers_of_other_kinds_are_a_fault_that_says_what_to_write(
    kind: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, *printed = check_file(tmp_path, capsys, kind=kind, count=1)
    [fault] = [line for line in printed if ": warning: " not in line]
    assert code == "code 1"
    assert f"type: {kind!r} is not supported, only baremetal_native: {advice}" in fault


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        (
            "--policy-content",
            "allocate=even_load; scaling=vanilla",
            "write a section [provision] with slots, and a max",
        ),
        (
            "--policy-content",
            "allocate=capability; scaling=capability",
            "write a section [[provision]] for each set of",
        ),
        ("--policy-engine-type", "waterfall_v1", "write a [[provision]] for each line"),
        ("--policy-content", "allocate=even_load; scaling=no", ""),
    ],
)
def test_a_policy_that_scales_has_no_effect_and_says_what_to_write(option: str, value: str, advice: str) -> None:
    program = program_named("scaler_scheduler")
    given = vars(program.parser().parse_args(["tcp://127.0.0.1:1", option, value]))
    [warning] = Reading(program, given, {}).warnings
    assert warning.startswith(f"{option} has no effect: tasks are placed by")
    assert (f"; for {value!r}, {advice}" in warning) if advice else warning.endswith("when tasks need them")


def test_managers_that_scale_say_what_to_write() -> None:
    [fixed] = read("scaler_cluster tcp://127.0.0.1:1 --mode fixed").warnings
    [dynamic] = read("scaler_cluster tcp://127.0.0.1:1 --mode dynamic").warnings
    assert (
        dynamic
        == f"{fixed}; for 'dynamic', write a section [provision] with slots, and a maximum of units that have so many"
    )


def test_the_worker_manager_is_scaler_cluster_and_knows_one_kind() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "scaler_worker_manager"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    checked = run("baremetal_native", "tcp://127.0.0.1:1", "-wmi", "any", "--mode", "fixed", "-mtc", "2", "--check")
    assert checked.returncode == 0, checked.stderr
    assert "-wmi has no effect: workers connect to the scheduler themselves" in checked.stdout
    refused = run("aws_hpc", "tcp://127.0.0.1:1")
    assert refused.returncode == 2
    assert "workers of kind 'aws_hpc' are not supported, only baremetal_native: write a section" in refused.stderr


def test_an_earlier_option_of_files_alone_has_no_flag() -> None:
    assert Earlier("bind_address", becomes=("address",)).flags == ()
