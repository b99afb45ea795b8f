"""Log lines: those that users' tools know, and JSON for those that read nothing else."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from scaler_protocol.programs.logging_setup import setup_logging


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """The logger of our programs, as it was before when the test is over."""
    logger = logging.getLogger("scaler")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.level, logger.propagate = before


def json_lines(path: Path) -> List[Dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_text_is_what_users_know(tmp_path: Path) -> None:
    path = tmp_path / "log"
    setup_logging([str(path)], "INFO").warning("%d workers", 3)
    first, second = path.read_text().splitlines()
    assert re.fullmatch(r"\[INFO\]\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}: logging to \(.*\)", first)
    assert re.fullmatch(r"\[WARNING\]\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}: 3 workers", second)


FORGED = "a worker\n[CRITICAL]2026-01-01 00:00:00+0000: the disk is on fire\r\x1b[2J\x9b31m\u202egnorw\ud800"


def test_a_text_of_a_peer_forges_no_line_and_controls_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logger = setup_logging([str(path)], "INFO")
    logger.info("%s\tconnected", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed")
    text = path.read_text()
    assert len(re.findall(r"^\[", text, re.M)) == 3 and len(re.findall(r"^    \[CRITICAL", text, re.M)) == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text) and "\tconnected" in text
    assert "\\u001b[2J" in text and "\\u202egnorw" in text


def test_neither_does_it_in_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    setup_logging([str(path)], "INFO", line_format="json").warning("%s", FORGED)
    assert json_lines(path)[1]["message"] == FORGED
    assert path.read_text().count("\n") == 2 and "\x9b" not in path.read_text()


def test_the_journal_learns_the_level_of_each_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logger = setup_logging([str(path)], "DEBUG", line_format="journal")
    for level in (logging.DEBUG, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "of %s", level)
    logger.warning("%s", "one\n<0>two")
    first, *lines = path.read_text().splitlines()
    assert first.startswith("<6>logging to ")
    assert lines == ["<7>of 10", "<4>of 30", "<3>of 40", "<2>of 50", "<4>one", "<4>    <0>two"]


def test_json_is_an_object_a_line_with_the_same_names_in_each(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logger = setup_logging([str(path)], "info", line_format="json")
    logger.warning('%s\nsays "no" – %s', "it", "é")
    logger.getChild("worker").info("there")
    logger.debug("not this")
    lines = json_lines(path)
    assert all(list(line) == ["time", "level", "logger", "process", "message"] for line in lines)
    assert [line["message"] for line in lines[1:]] == ['it\nsays "no" – é', "there"]
    assert [line["level"] for line in lines] == ["INFO", "WARNING", "INFO"]
    assert [line["logger"] for line in lines] == ["scaler", "scaler", "scaler.worker"]
    assert {line["process"] for line in lines} == {os.getpid()}
    time = re.sub(r"\.(\d{3})(?=[+-])", r".\g<1>000", str(lines[0]["time"]))  # as old versions of Python want it
    assert datetime.fromisoformat(time).utcoffset() is not None


def test_json_has_what_was_raised(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logger = setup_logging([str(path)], "INFO", line_format="json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("it failed")
    line = json_lines(path)[-1]
    assert line["message"] == "it failed"
    assert str(line["exception"]).startswith("Traceback") and str(line["exception"]).endswith("ValueError: a\nb")


def test_another_format_or_level_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of text, json"):
        setup_logging(["-"], "INFO", line_format="xml")
    with pytest.raises(ValueError, match="use one of DEBUG"):
        setup_logging(["-"], "LOUD")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_lines_that_cannot_be_written_are_reported_once_without_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    logger = setup_logging(["/dev/full"], "INFO")
    logger.info("one")
    logger.info("two")
    assert capfd.readouterr().err == "scaler: log lines are lost: [Errno 28] No space left on device\n"
    for handler in logger.handlers:
        with contextlib.suppress(OSError):  # what is left in its buffer
            handler.close()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'formatters' is missing|is an empty file"),
        ("no section", "no section headers"),
        ("[formatters]\nkeys=\n[handlers]\nkeys=h\n[handler_h]\nclass=nowhere.Handler\n", "nowhere"),
    ],
)
def test_an_invalid_configuration_file_is_named_with_what_is_wrong(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "logging.ini"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} is not a valid logging.config file: .*({what})"):
        setup_logging([], "INFO", str(path))


def test_a_configuration_file_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"logging\.ini"):
        setup_logging([], "INFO", str(tmp_path / "logging.ini"))
