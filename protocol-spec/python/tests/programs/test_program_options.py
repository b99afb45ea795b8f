"""Tables of options: what a command line, the environment and a file say, which goes first, and what is wrong."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from scaler_protocol.programs.options import (
    Bytes,
    Choice,
    ConfigurationError,
    Directory,
    ExistingFile,
    Kind,
    NetworkAddress,
    NewFile,
    Number,
    Option,
    Program,
    Reading,
    Seconds,
    Switch,
    Whole,
    Words,
    logging_options,
    read_sections,
    service_options,
)

pytestmark = pytest.mark.exhaustive_on_pypy  # options are read and completed alike

OPTIONS = [
    Option("address", NetworkAddress(), "where the scheduler is", is_required=True, environment=("SCALER_ADDRESS",)),
    Option("-n --count", Whole(1), "how many", default=3, group="amounts"),
    Option("-r --rate", Number(0), "how many a second", default=0.5, group="amounts"),
    Option("-s --size-bytes", Bytes(0), "how large; 0: no limit", default=1 << 20, group="amounts"),
    Option("-t --timeout --timeout-seconds", Seconds(0, is_minimum_excluded=True), "how long", default=60.0),
    Option("--color", Choice(("red", "blue")), "which color", default="red"),
    Option("-p --protected", Switch(), "whether", default=True),
    Option("--tags", Words(), "which tags", default=["a"]),
    Option("--module", Words(is_repeated=True), "what to import: may be given several times", default=[]),
    Option("--place", Directory(), "where", default_text="somewhere"),
    *logging_options(),
    *service_options(),
]
PROGRAM = Program("scaler_top", "top", "Show it.", lambda: "scaler_top 1.0", OPTIONS, is_repeated=True)
ADDRESS = "tcp://127.0.0.1:2345"


def read(
    *arguments: str, environment: Optional[Mapping[str, str]] = None, program: Program = PROGRAM
) -> Tuple[argparse.Namespace, Dict[str, str], List[str]]:
    reading = Reading(program, vars(program.parser().parse_args(list(arguments))), environment or {})
    return reading.values, reading.origins, reading.faults


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "scaler.toml"
        path.write_text(text)
        return str(path)

    return write


def read_file(path: str, *arguments: str) -> Tuple[argparse.Namespace, List[str]]:
    values, _, faults = read("--config", path, *arguments)
    return values, faults


# Where values are from.


def test_without_a_word_all_is_as_the_table_says() -> None:
    values, origins, faults = read()
    assert (values.count, values.timeout_seconds, values.protected, values.tags) == (3, 60.0, True, ["a"])
    assert values.place is None and values.address is None
    assert set(origins.values()) == {"default"} and faults == []


def test_the_command_line_goes_before_the_environment_before_the_file_before_the_default(file: Any) -> None:
    path = file("[top]\ncount = 5\nrate = 5\nsize_bytes = 5\n")
    environment = {"SCALER_TOP_COUNT": "6", "SCALER_TOP_RATE": "6"}
    values, origins, faults = read("-c", path, "-n", "7", environment=environment)
    assert faults == []
    assert (values.count, values.rate, values.size_bytes, values.color) == (7, 6.0, 5, "red")
    assert [origins[key] for key in ("count", "rate", "size_bytes", "color")] == [
        "command line",
        "environment SCALER_TOP_RATE",
        path,
        "default",
    ]


def test_a_further_variable_is_asked_after_the_options_own() -> None:
    environment = {"SCALER_ADDRESS": ADDRESS}
    assert read(environment=environment)[0].address == ADDRESS
    environment["SCALER_TOP_ADDRESS"] = "ipc:///tmp/x"
    assert read(environment=environment)[0].address == "ipc:///tmp/x"


def test_an_empty_variable_says_nothing() -> None:
    assert read(environment={"SCALER_TOP_COUNT": ""})[0].count == 3


def test_values_of_one_reading_are_not_those_of_the_next() -> None:
    read()[0].tags.append("b")
    assert read()[0].tags == ["a"]


def test_a_value_can_be_found_if_none_is_given(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def find(sections: Mapping[str, Any]) -> Optional[Tuple[str, str]]:
        if "scheduler" not in sections:
            raise ConfigurationError("there is none")
        return str(sections["scheduler"][0]["address"]), "[scheduler]"

    address = Option("address", NetworkAddress(), "", is_required=True, find=find)
    program = Program("scaler_top", "top", "", str, [address])
    path = file(f"[scheduler]\naddress = '{ADDRESS}'\n")
    values, origins, _ = read("-c", path, program=program)
    assert (values.address, origins["address"]) == (ADDRESS, "[scheduler]")
    assert read("-c", path, "ipc:///x", program=program)[0].address == "ipc:///x"
    assert run([], capsys, program) == (2, "", "scaler_top: error: there is none\n")
    assert run(["--check"], capsys, program) == (1, "scaler_top: there is none\n", "")
    assert run(["--print-config"], capsys, program)[0] == 0
    printed = run(["--print-config", "-c", path], capsys, program)[1]
    assert printed == f'[top]\n# address = "{ADDRESS}"  # [scheduler]\n', "it is found again"


def test_what_is_found_and_cannot_be_used_is_an_error_for_an_optional_value_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find(sections: Mapping[str, Any]) -> Optional[Tuple[float, str]]:
        raise ConfigurationError("the clock says 'abc'")

    program = Program("scaler_top", "top", "", str, [Option("--seconds", Seconds(0), "", default=0.0, find=find)])
    assert run([], capsys, program) == (2, "", "scaler_top: error: the clock says 'abc'\n")
    assert read("--seconds", "3", program=program)[0].seconds == 3.0


# What values look like.


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65536),
        ("2 GiB", 2 << 30),
        ("1.5MiB", 3 << 19),
        ("500MB", 500000000),
        ("2gib", 2 << 30),
        ("1kB", 1000),
        ("12B", 12),
        ("1TiB", 1 << 40),
        (".5kB", 500),
        ("1.1GB", 1100000000),
        ("0.0001kB", 1),
    ],
)
def test_sizes_are_understood_wherever_bytes_are_meant(text: str, bytes_: int, file: Any) -> None:
    assert read("-s", text)[0].size_bytes == bytes_
    assert read(environment={"SCALER_TOP_SIZE_BYTES": text})[0].size_bytes == bytes_
    assert read_file(file(f"[top]\nsize_bytes = '{text}'\n"))[0].size_bytes == bytes_
    assert read("-s", Bytes().show(bytes_))[0].size_bytes == bytes_


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("1.5s", 1.5),
        ("10m", 600),
        ("2h30m", 9000),
        ("200ms", 0.2),
        ("1d", 86400),
        ("1h 5min", 3900),
        (" 5 min ", 300),
        ("1m250ms", 60.25),
        (".5s", 0.5),
        ("1e3", 1000),
    ],
)
def test_durations_are_understood_wherever_seconds_are_meant(text: str, seconds: float, file: Any) -> None:
    assert read("-t", text)[0].timeout_seconds == pytest.approx(seconds)
    assert read(environment={"SCALER_TOP_TIMEOUT_SECONDS": text})[0].timeout_seconds == pytest.approx(seconds)
    assert read_file(file(f"[top]\ntimeout_seconds = '{text}'\n"))[0].timeout_seconds == pytest.approx(seconds)
    assert read("-t", Seconds().show(seconds))[0].timeout_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("kind", "value"), [(Bytes(), 3), (Seconds(), 3.5), (Seconds(), 7200.0), (Number(), 3.5)])
def test_plain_numbers_stay_themselves(kind: Kind, value: float) -> None:
    assert kind.from_toml(value) == value == kind.parse(str(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Whole(), "1.5"),
        (Whole(1), "0"),
        (Whole(), "many"),
        (Number(), "nan"),
        (Number(0), "-1"),
        (Bytes(), "2GX"),
        (Bytes(), "2G"),
        (Bytes(), "1.5"),
        (Bytes(), "1iB"),
        (Bytes(), "1m"),
        (Bytes(), "1MB 5kB"),
        (Bytes(), ""),
        (Seconds(), ""),
        (Seconds(), "5min 1h"),
        (Seconds(), "5s5s"),
        (Seconds(), "5 M"),
        (Seconds(0), "-5s"),
        (Bytes(0), "-1"),
        (Seconds(), "1 week"),
        (Seconds(), "inf"),
        (Seconds(), "10mm"),
        (Whole(0, maximum=65535), "65536"),
        (Seconds(0, is_minimum_excluded=True), "0"),
        (Switch(), "perhaps"),
        (Choice(("a", "b")), "c"),
    ],
)
def test_what_is_no_value_of_a_kind_is_told_with_what_is(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        kind.parse(text)
    assert kind.expects in str(error.value) and repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind(), 5),
        (Whole(), True),
        (Whole(), 1.0),
        (Whole(), "5"),
        (Number(), "5"),
        (Bytes(), 1.5),
        (Bytes(), True),
        (Seconds(), False),
        (Seconds(), [1]),
        (Switch(), "true"),
        (Switch(), 1),
        (Choice(("a",)), 1),
        (Words(), [1]),
    ],
)
def test_another_type_in_a_file_is_told_with_the_kind_that_is_expected(kind: Kind, value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        kind.from_toml(value)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("YES", True), ("on", True), ("false", False), ("0", False)])
def test_a_switch_in_the_environment_is_a_word(text: str, value: bool) -> None:
    assert read(environment={"SCALER_TOP_PROTECTED": text})[0].protected is value


@pytest.mark.parametrize(("arguments", "value"), [(["-p"], True), (["--protected"], True), (["--no-protected"], False)])
def test_a_switch_on_a_command_line_is_a_flag_or_its_contrary(arguments: List[str], value: bool) -> None:
    assert read(*arguments, environment={"SCALER_TOP_PROTECTED": str(not value)})[0].protected is value


def test_several_values_are_words_an_array_or_one(file: Any) -> None:
    assert read("--tags", "x", "y z")[0].tags == ["x", "y z"]
    assert read("--module", "x", "--module", "y")[0].module == ["x", "y"]
    assert read(environment={"SCALER_TOP_TAGS": "x 'y z'"})[0].tags == ["x", "y z"]
    assert read_file(file("[top]\ntags = ['x', 'y z']\nmodule = 'q'\n"))[0].tags == ["x", "y z"]
    assert read_file(file("[top]\ntags = ['x', 'y z']\nmodule = 'q'\n"))[0].module == ["q"]


# Files.


@pytest.mark.parametrize("key", ["timeout", "timeout_seconds", "timeout-seconds"])
def test_a_key_is_any_long_name_with_dashes_or_underscores(key: str, file: Any) -> None:
    assert read_file(file(f"[top]\n{key} = 5\n"))[0].timeout_seconds == 5


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[top]\ncuont = 1", "[top] has no key 'cuont'; did you mean 'count'?"),
        ("[top]\nqqqq = 1", "[top] has no key 'qqqq'; see scaler_top -h"),
        ("[top]\ncount = 'many'", "[top] count: expected a whole number, 1 or more, got 'many'"),
        (
            "[top]\ntimeout-seconds = true",
            "[top] timeout-seconds: expected a duration such as 90, 30s, 250ms or 1h30min",
        ),
        ("[top]\ntimeout = 1\ntimeout_seconds = 2", "this option is set twice, also as timeout_seconds"),
        ("[top]\nexit_when_stdin_closes = true", "[top] exit_when_stdin_closes: can only be set on the command line"),
        ("[tob]\ncount = 1", "there is no section [tob]; did you mean 'top'?"),
        ("[wwwwww]\ncount = 1", "there is no section [wwwwww]; there are [scaler], [scheduler]"),
        ("count = 1", "the key 'count' is outside a section"),
        ("[ui]\n[webui]\n", "[webui] and [ui] are the same section"),
        ("[top", "invalid TOML"),
        ("[[top]]\n[[top]]\n", "there are 2 sections [[top]]: choose one with --config-entry, from 1 to 2"),
    ],
)
def test_a_fault_in_a_file_is_told_with_its_place(text: str, fault: str, file: Any) -> None:
    path = file(text)
    (found,) = read_file(path)[1]
    assert found.startswith(f"{path}: ") and fault in found


def test_all_faults_are_told_at_once(file: Any) -> None:
    path = file("[top]\ncuont = 1\nrate = 'x'\n")
    faults = read("-c", path, environment={"SCALER_TOP_SIZE_BYTES": "big"})[2]
    assert len(faults) == 3
    assert faults[2].startswith("environment variable SCALER_TOP_SIZE_BYTES: expected a size such as 4096")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.toml")
    assert read_file(missing)[1] == [f"{missing}: No such file or directory"]
    assert read_file(str(tmp_path))[1] == [f"{tmp_path}: Is a directory"]
    (tmp_path / "no.toml").write_bytes(b"[top]\ncolor = '\xff'\n")
    assert "invalid TOML" in read_file(missing)[1][0]


def test_other_programs_sections_are_theirs(file: Any) -> None:
    values, faults = read_file(file("[scheduler]\nanything = 1\n[[cluster]]\n[[cluster]]\n[top]\ncount = 9\n"))
    assert (values.count, faults) == (9, [])


def test_names_that_others_use_for_sections_are_understood(file: Any) -> None:
    sections = read_sections(file("[[worker]]\nx = 1\n[gui]\ny = 2\n[object_storage_server]\nz = 3\n"))
    assert sections == {"cluster": [{"x": 1}], "ui": [{"y": 2}]}


def test_one_of_several_sections_is_chosen_by_its_number(file: Any) -> None:
    path = file("[[top]]\ncount = 1\n[[top]]\ncount = 2\n")
    assert read_file(path, "--config-entry", "2")[0].count == 2
    assert read_file(path, "--config-entry", "3")[1] == [
        f"{path}: --config-entry 3 is above the number of [top] sections, 2"
    ]


# What programs do.


def run(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str], program: Program = PROGRAM
) -> Tuple[Any, str, str]:
    with pytest.raises(SystemExit) as end:
        program.read(list(arguments))
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


def test_reading_gives_the_values() -> None:
    assert PROGRAM.read([ADDRESS, "-n", "4"]).count == 4


def test_what_is_required_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = run(["-n", "4"], capsys)
    assert code == 2 and "the following arguments are required: ADDRESS" in errors


def test_a_wrong_command_line_and_a_wrong_file_end_a_program_with_two(
    file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = run([ADDRESS, "-n", "0"], capsys)
    assert code == 2 and "argument -n/--count: expected a whole number, 1 or more, got '0'" in errors
    path = file("[top]\ncuont = 1\n")
    code, _, errors = run([ADDRESS, "-c", path], capsys)
    assert code == 2
    assert errors == f"scaler_top: error: {path}: [top] has no key 'cuont'; did you mean 'count'?\n"


def test_what_does_not_fit_together_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program("x", "top", "", str, OPTIONS, faults=lambda values: ["too many"] if values.count > 5 else [])
    assert program.read([ADDRESS]).count == 3
    code, _, errors = run([ADDRESS, "-n", "6"], capsys, program)
    assert code == 2 and "too many" in errors
    assert run([ADDRESS, "-n", "6", "--check"], capsys, program)[:2] == (1, "x: too many\n")


def test_check_says_that_all_is_well(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(f"[top]\naddress = '{ADDRESS}'\n")
    assert run(["-c", path, "--check"], capsys) == (0, f"scaler_top: {path} is valid\n", "")
    assert run([ADDRESS, "--check"], capsys) == (0, "scaler_top: the configuration is valid\n", "")


def test_check_names_all_that_is_wrong_also_with_this_machine(
    file: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(f"[top]\nplace = '{tmp_path}/none'\nlogging_config_file = '{tmp_path}'\nrate = 'x'\n")
    code, out, _ = run(["-c", path, "--check", "-lp", f"{tmp_path}/none/log"], capsys)
    assert code == 1
    assert out.splitlines() == [
        f"scaler_top: {path}: [top] rate: expected a number, 0 or more, got 'x'",
        "scaler_top: ADDRESS is required, and was not given",
        f"scaler_top: {path}: [top] place: there is no directory {tmp_path}/none",
        f"scaler_top: -lp/--logging-paths (command line): there is no directory {tmp_path}/none",
        f"scaler_top: {path}: [top] logging_config_file: {tmp_path} is not a readable file",
    ]


def test_paths_are_checked_for_what_is_done_with_them(tmp_path: Path) -> None:
    there, nowhere = tmp_path / "there", str(tmp_path / "no" / "where")
    there.write_text("")
    assert ExistingFile().fault_here(str(there)) == "" == NewFile().fault_here(str(there))
    assert NewFile().fault_here(str(tmp_path / "new")) == "" == Directory().fault_here(str(tmp_path))
    for kind in (ExistingFile(), NewFile(), Directory()):
        assert "there is no" in kind.fault_here(nowhere)
    assert "cannot be written" in NewFile().fault_here(str(tmp_path))


def test_what_print_config_prints_is_a_file_that_says_the_same(
    file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_TOP_TAGS", "'a \"b\"' 'c\\d'")
    monkeypatch.setenv("SCALER_TOP_PLACE", "/tmp/\té")
    path = file(f"[top]\naddress = '{ADDRESS}'\nsize_bytes = '2GiB'\n")
    code, printed, errors = run(["-c", path, "-t", "10m", "--no-protected", "--print-config"], capsys)
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert f"size_bytes = 2147483648  # {path}" in lines
    assert "timeout_seconds = 600.0  # command line" in lines
    assert "protected = false  # command line" in lines
    assert "count = 3  # default" in lines
    assert "# logging_config_file  # not set" in lines
    assert 'tags = ["a \\"b\\"", "c\\\\d"]  # environment SCALER_TOP_TAGS' in lines
    said = Reading(PROGRAM, {"config": path, "timeout_seconds": 600.0, "protected": False}).values
    monkeypatch.delenv("SCALER_TOP_TAGS")
    monkeypatch.delenv("SCALER_TOP_PLACE")
    assert read_file(file(printed))[0] == said


def test_print_config_tells_faults_and_what_is_missing(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, errors = run(["-c", file("[top]\nx = 1\n"), "--print-config"], capsys)
    assert code == 1 and "has no key 'x'" in errors and "# address  # not set, and required" in printed


def test_the_help_has_groups_defaults_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["-h"], capsys)
    text = " ".join(out.split())
    assert code == 0
    both = "-n, --count N" if sys.version_info >= (3, 13) else "-n N, --count N"  # as argparse has it
    assert f"amounts: {both} how many (default: 3, env: SCALER_TOP_COUNT)" in text
    assert "how large; 0: no limit (default: 1MiB, env: SCALER_TOP_SIZE_BYTES)" in text
    assert "where (default: somewhere, env: SCALER_TOP_PLACE)" in text
    assert "configuration: -c FILE, --config FILE" in text or "configuration: -c, --config FILE" in text


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"], capsys) == (0, "scaler_top 1.0\n", "")


# Completion.

COMMAND = Program("scaler dev", "scaler", "Start it all.", str, [Option("-n --workers", Whole(), "how many")])
INNER_COMMAND = Program("scaler keys new", "scaler", "Make one.", str, [Option("--role", Choice(["one"]), "which")])
OUTER_COMMAND = Program(
    "scaler keys", "scaler", "Keys.", str, [Option("--all", Switch(), "each")], commands=[INNER_COMMAND]
)
WITH_COMMANDS = Program(
    "scaler",
    "scaler",
    "",
    str,
    [Option("config", ExistingFile(), "a file")],
    commands=[COMMAND, OUTER_COMMAND],
    is_configured=False,
)


def completions(shell: str, program: Program, words: List[str], tmp_path: Path, capsys: Any) -> List[str]:
    """What a shell offers for the last of the words."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here (Debian: apt-get install {shell})")
    code, script, _ = run(["--print-completion", shell], capsys, program)
    assert code == 0
    path = tmp_path / "completion"
    path.write_text(script)
    quoted = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        function = script.rsplit("complete -F ", 1)[1].split()[0]
        asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; {function}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        command = ["bash", "--norc", "-c", f". {path}; {asked}"]
    else:
        command = ["fish", "--no-config", "-c", f'source {path}; complete -C "{" ".join(words)}" | cut -f 1']
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=home)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_options_and_their_values(shell: str, tmp_path: Path, capsys: Any) -> None:
    def offered(*words: str) -> List[str]:
        return completions(shell, PROGRAM, ["scaler_top", *words], tmp_path, capsys)

    every = set(offered("--"))
    for option in PROGRAM.options:
        assert {flag for flag in option.flags if flag.startswith("--")} <= every
    assert {"--no-protected", "--help", "--version", "--config", "--check", "--print-config"} <= every
    assert offered("--colo") == ["--color"]
    assert offered("--color", "") == ["blue", "red"] or offered("--color", "") == ["red", "blue"]
    (tmp_path / "a.toml").write_text("")
    assert "a.toml" in offered("--config", "a")


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_with_options_of_their_own(shell: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "data.toml").write_text("")
    assert {"dev", "data.toml"} <= set(completions(shell, WITH_COMMANDS, ["scaler", "d"], tmp_path, capsys))
    assert "--workers" in completions(shell, WITH_COMMANDS, ["scaler", "dev", "--w"], tmp_path, capsys)
    assert "--workers" not in completions(shell, WITH_COMMANDS, ["scaler", "--w"], tmp_path, capsys)


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_of_commands(shell: str, tmp_path: Path, capsys: Any) -> None:
    def offered(*words: str) -> List[str]:
        return completions(shell, WITH_COMMANDS, ["scaler", *words], tmp_path, capsys)

    assert "keys" in offered("k") and "new" not in offered("n")
    assert "new" in offered("keys", "n")
    assert "--all" in offered("keys", "--a") and "--all" not in offered("keys", "new", "--a")
    assert "--role" in offered("keys", "new", "--r") and "--role" not in offered("keys", "--r")
    assert offered("keys", "new", "--role", "") == ["one"]
    assert "new" not in offered("dev", "n")


@pytest.mark.parametrize("program", [PROGRAM, WITH_COMMANDS], ids=lambda program: program.name)
def test_zsh_takes_the_script(program: Program, tmp_path: Path, capsys: Any) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here (Debian: apt-get install zsh)")
    path = tmp_path / "completion"
    path.write_text(run(["--print-completion", "zsh"], capsys, program)[1])
    commands = f"autoload -U compinit; compinit -D; source {path}; print $_comps[{program.name}]"
    done = subprocess.run(["zsh", "-f", "-c", commands], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"_{program.name}\n", "")


def test_there_is_no_completion_for_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--print-completion", "cmd"], capsys)[0] == 2
