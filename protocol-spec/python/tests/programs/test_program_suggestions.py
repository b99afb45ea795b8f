"""Unknown options and variables: suggestions."""

from __future__ import annotations

from typing import List

import pytest

from scaler_protocol.programs.options import NetworkAddress, Number, Option, Program, Seconds, Switch, Whole

OPTIONS = [
    Option("address", NetworkAddress(), "where the scheduler is", is_required=True, environment=("SCALER_ADDRESS",)),
    Option("-n --count", Whole(1), "how many", default=3),
    Option("-t --timeout --timeout-seconds", Seconds(0, is_minimum_excluded=True), "how long", default=60.0),
    Option("-p --protected", Switch(), "whether", default=True),
]
PROGRAM = Program("scaler_top", "top", "Show it.", lambda: "scaler_top 1.0", OPTIONS)
ADDRESS = "tcp://127.0.0.1:2345"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--cuont", "4", ADDRESS], "unknown option --cuont; did you mean --count?"),
        (["--cuont=4", ADDRESS], "unknown option --cuont; did you mean --count?"),
        ([ADDRESS, "--timeout_seconds", "4"], "unknown option --timeout_seconds; did you mean --timeout-seconds?"),
        ([ADDRESS, "--no-protectd"], "unknown option --no-protectd; did you mean --no-protected?"),
        ([ADDRESS, "--confg", "x.toml"], "unknown option --confg; did you mean --config?"),
        ([ADDRESS, "--qqqq"], "unknown option --qqqq; see scaler_top -h"),
        ([ADDRESS, "-q"], "unknown option -q; see scaler_top -h"),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest_and_before_its_value_is_misread(
    arguments: List[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        PROGRAM.read(arguments)
    errors = capsys.readouterr().err
    where = "" if "scaler_top -h" in fault else "see scaler_top -h\n"
    assert ended.value.code == 2 and errors == f"scaler_top: error: {fault}\n{where}"


@pytest.mark.parametrize("arguments", [["-n4"], ["--cou", "4"], ["--count=4"], ["-n", "4", "--"]])
def test_abbreviations_and_attached_values_are_known_options(arguments: List[str]) -> None:
    assert PROGRAM.read([*arguments, ADDRESS]).count == 4


def test_a_value_may_be_negative() -> None:
    program = Program("x", "top", "", str, [Option("-d --delta", Number(), "how much")])
    assert program.read(["-d", "-1"]).delta == -1 == 2 * program.read(["-d", "-.5"]).delta


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("SCALER_TOP_CUONT", "did you mean SCALER_TOP_COUNT?"),
        ("SCALER_TPO_COUNT", "did you mean SCALER_TOP_COUNT?"),
        ("SCALER_ADRESS", "did you mean SCALER_ADDRESS?"),
        ("SCALER_RUN_DIR", "did you mean SCALER_RUN_DIRECTORY?"),
        ("SCALER_TOP_WWWW_QQQQQQQQQQQ_VVVVVVVVVVVVV", "see scaler_top -h"),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest_and_has_no_effect(
    variable: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "5")
    assert PROGRAM.read([ADDRESS]).count == 3
    warning = f"scaler_top: warning: environment variable {variable} is unknown and has no effect; {hint}\n"
    assert capsys.readouterr().err == warning


def test_a_variable_of_a_section_by_its_other_name_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program("scaler_cluster", "cluster", "", str, OPTIONS)
    monkeypatch.setenv("SCALER_WORKER_COUNT", "5")
    assert program.read([ADDRESS]).count == 3
    assert "SCALER_WORKER_COUNT is unknown and has no effect; did you mean SCALER_CLUSTER_C" in capsys.readouterr().err


@pytest.mark.parametrize(
    "variable",
    [
        "SCALER_HOME",
        "SCALER_CLUSTER_COUNT",  # of another program
        "SCALER_LOGGING_LEVEL",  # of `scaler`
        "SCALER_TOP_SERVICE_HOST",  # of Kubernetes, for a service of the name scaler-top
        "SCALER_TOP_PORT_8081_TCP_ADDR",
    ],
)
def test_variables_of_others_are_left_alone(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "5")
    PROGRAM.read([ADDRESS])
    assert capsys.readouterr().err == ""
