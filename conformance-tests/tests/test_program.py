"""The program says plainly that it cannot judge anything yet."""

from __future__ import annotations

import pytest

import scaler_conformance
from scaler_conformance.__main__ import NOTHING_JUDGED, main


def test_without_cases_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == NOTHING_JUDGED == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no test cases yet" in printed.err
    assert "protocol-spec/" in printed.err


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == f"scaler-conformance {scaler_conformance.__version__}"
