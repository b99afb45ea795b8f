"""The command line: which cases run, the output, and the exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, List

import pytest

import scaler_conformance
from scaler_conformance.running.program import main

FOLDER = Path(__file__).resolve().parents[2]
SMOKE = "worker/session/says-hello-first"


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The command of the reference worker, as a process."""
    monkeypatch.setenv("PYTHONPATH", f"{FOLDER}:{FOLDER / 'src'}")
    return ["--", sys.executable, "-m", "mutants.worker.reference_worker", "{address}"]


def test_a_run_that_passes(reference: List[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "tap", "html")}
    options = [option for kind, path in files.items() for option in (f"--{kind}", str(path))]

    assert main(["worker", "--run", SMOKE, "--seed", "5", *options, *reference]) == 0

    printed = capsys.readouterr().out
    assert f"PASS       {SMOKE}" in printed
    assert "worker reference worker 1: 1 PASS" in printed and "seed 5" in printed
    report: Any = json.loads(files["json"].read_text())
    assert report["implementation"]["name"] == "reference worker"
    assert report["counts"] == {"PASS": 1}
    assert report["cases"][0]["teardown"] == "clean"
    assert all(path.read_text() for path in files.values())

    page = tmp_path / "joined.html"
    assert main(["report", "--html", str(page), str(files["json"]), str(files["json"])]) == 0
    assert page.read_text().count("reference worker 1") >= 4


def test_the_list_has_titles_and_requirements(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--list", "--smoke"]) == 0

    printed = capsys.readouterr().out
    assert SMOKE in printed and "SCL-SES-001 MUST" in printed


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["worker"], "no command to test"),
        (["worker", "--", "./it"], "{address}"),
        (["worker", "--run", "nothing/*", "--", "./it", "{address}"], "no case"),
        (["worker", "--config", "no-such-file", "--", "./it", "{address}"], "no-such-file"),
        (["report", "--html", "page.html", "no-such-file"], "no-such-file"),
    ],
)
def test_a_wrong_use_says_what_is_wrong(
    arguments: List[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_command_that_does_not_start_judges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--run", SMOKE, "--", "/no/such/program", "{address}"]) == 2
    assert "cannot be started" in capsys.readouterr().out


def test_a_program_that_ends_at_once_fails_the_case(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "import sys; print('no such option', file=sys.stderr); sys.exit(3)", "{address}"]

    assert main(["worker", "--run", SMOKE, "--trace", "--", *command]) == 1

    printed = capsys.readouterr().out
    assert "ended with exit code 3" in printed and "no such option" in printed


def test_known_failures_and_configurations_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, configuration = tmp_path / "known.toml", tmp_path / "it.toml"
    run = ["worker", "--run", SMOKE]
    known.write_text('["worker/no/such"]\nmessage = "x"\n')
    assert main([*run, "--known-failing", str(known), "--", "./it", "{address}"]) == 2
    assert "there is no case worker/no/such" in capsys.readouterr().err
    known.write_text(f'["{SMOKE}"]\n')
    assert main([*run, "--known-failing", str(known), "--", "./it", "{address}"]) == 2
    assert "has no message" in capsys.readouterr().err
    configuration.write_text('missing = ["wings"]\n')
    assert main([*run, "--config", str(configuration), "--", "./it", "{address}"]) == 2
    assert "unknown feature wings" in capsys.readouterr().err
    configuration.write_text('[variants]\nwinged = ["--wings"]\n')
    assert main([*run, "--config", str(configuration), "--", "./it", "{address}"]) == 2
    assert "unknown variant winged" in capsys.readouterr().err


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == f"scaler-conformance {scaler_conformance.__version__}"
