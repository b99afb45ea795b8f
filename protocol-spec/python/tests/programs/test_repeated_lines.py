"""Lines that repeat themselves are counted after the first few."""

from __future__ import annotations

import io
import logging
import logging.config
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from scaler_protocol.programs import repeated_lines
from scaler_protocol.programs.logging_setup import setup_logging
from scaler_protocol.programs.repeated_lines import MAXIMUM_KINDS, RepetitionFilter, limit_repetitions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class KeepingHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Log:
    """A logger with a handler that keeps its lines, and a clock that a test moves."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.clock = Clock()
        self.handler = KeepingHandler()
        limit_repetitions(self.handler, "scaler", self.clock)
        logger.addHandler(self.handler)

    @property
    def repetition_filter(self) -> RepetitionFilter:
        (found,) = self.handler.filters
        assert isinstance(found, RepetitionFilter)
        return found

    def take(self) -> List[str]:
        lines, self.handler.lines = self.handler.lines, []
        return lines


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of our programs, as it was before when the test is over."""
    logger = logging.getLogger("scaler")
    before = (list(logger.handlers), logger.level, logger.propagate)
    logger.handlers, logger.propagate = [], False
    logger.setLevel("DEBUG")
    yield logger
    logger.handlers, logger.level, logger.propagate = before


@pytest.fixture
def log(logger: logging.Logger) -> Log:
    return Log(logger)


def test_a_flood_of_warnings_that_differ_in_numbers_is_five_lines_and_a_count_each_minute(log: Log) -> None:
    for minute in range(3):
        for number in range(1000):
            log.logger.warning("peer %d was dropped after %.1f s (session %x)", number, number / 7, number + (1 << 40))
        lines = log.take()
        if minute:
            counted = lines.pop(0)
            assert (
                counted
                == "... and 995 more like it in 60 seconds: peer 999 was dropped after 142.7 s (session 100000003e7)"
            )
        assert len(lines) == 5 and lines[4].startswith("peer 4 was")
        log.clock.now += 60


def test_tracebacks_count_as_their_lines(log: Log) -> None:
    for number in range(50):
        try:
            raise MemoryError(number)
        except MemoryError:
            log.logger.exception("internal error %d", number)
    assert sum("Traceback" in line for line in log.take()) == 5


def test_lines_of_another_text_level_or_logger_are_written(log: Log) -> None:
    child = log.logger.getChild("worker")
    for _ in range(9):
        log.logger.warning("%s", "one")
        log.logger.warning("%s", "two")
        log.logger.error("%s", "one")
        child.warning("%s", "one")
    assert log.take() == ["one", "two", "one", "one"] * 5


def test_information_that_differs_in_numbers_is_written_a_hundred_times(log: Log) -> None:
    for number in range(150):
        log.logger.info("Processor[%d] started", number)
        log.logger.info("Processor[0] is the same one")
    lines = log.take()
    assert len([line for line in lines if line.endswith("started")]) == 100
    assert len(lines) == 105
    log.clock.now += 60
    log.repetition_filter.report()
    assert log.take() == [
        "... and 50 more like it in 60 seconds: Processor[149] started",
        "... and 145 more like it in 60 seconds: Processor[0] is the same one",
    ]


def test_lines_of_users_and_their_tasks_are_all_written(log: Log) -> None:
    for name in ("", "user", "scalerlike"):
        logger = logging.getLogger(name)
        logger.addHandler(log.handler)
        try:
            for _ in range(20):
                logger.warning("the same")
        finally:
            logger.removeHandler(log.handler)
        assert log.take() == ["the same"] * 20


def test_a_count_is_written_without_another_line_when_its_minute_is_over_or_the_program_ends(log: Log) -> None:
    for _ in range(7):
        log.logger.error("again")
    log.take()
    log.repetition_filter.report()
    assert log.take() == []
    log.clock.now += 60
    repeated_lines.report_repetitions()
    assert log.take() == ["... and 2 more like it in 60 seconds: again"]
    for _ in range(6):
        log.logger.error("again")
    log.take()
    log.clock.now += 3
    repeated_lines.report_repetitions(is_final=True)
    assert log.take() == ["... and 1 more like it in 3 seconds: again"]
    repeated_lines.report_repetitions(is_final=True)
    assert log.take() == []


def test_nothing_is_written_where_the_destination_has_been_closed(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    limit_repetitions(handler, "scaler")
    logger.addHandler(handler)
    for number in range(20):
        logger.warning("peer %d is gone", number)
    stream.close()  # as a test runner closes what a test has printed to
    repeated_lines.report_repetitions(is_final=True)
    assert capsys.readouterr().err == ""


def test_memory_is_bounded_and_a_count_that_is_forgotten_is_written(log: Log) -> None:
    for _ in range(8):
        log.logger.error("the first %s", "x" * 10_000)
    log.take()
    for number in range(3 * MAXIMUM_KINDS):
        log.logger.error("text %s", "".join("abcdefghij"[int(digit)] for digit in str(number)))
    lines = log.take()
    counts = [line for line in lines if line.startswith("... and ")]
    assert len(counts) == 1 and counts[0].startswith("... and 3 more like it in 0 seconds: the first xxx")
    assert len(counts[0]) < 300
    assert len(lines) == 3 * MAXIMUM_KINDS + 1
    assert len(log.repetition_filter._kinds) == MAXIMUM_KINDS


def test_a_line_whose_arguments_do_not_fit_is_left_to_the_handler(
    log: Log, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    record = logging.LogRecord("scaler", logging.ERROR, __file__, 1, "%d %d", (1,), None)
    assert log.repetition_filter.filter(record)


def test_threads_write_no_more_than_one_would(log: Log) -> None:
    barrier = threading.Barrier(8)

    def repeat() -> None:
        barrier.wait()
        for number in range(500):
            log.logger.error("thread-safe %d", number)

    threads = [threading.Thread(target=repeat) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.repetition_filter.report(is_final=True)
    lines = log.take()
    assert len(lines) == 6
    assert lines[-1].startswith("... and 3995 more like it in 0 seconds: thread-safe ")


def test_all_destinations_of_a_program_are_limited(logger: logging.Logger, tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    setup_logging(list(map(str, paths)), "INFO")
    for _ in range(20):
        logger.error("repeated")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    for path in paths:
        assert path.read_text().count("repeated\n") == 5


def test_a_configuration_file_s_handlers_are_limited(logger: logging.Logger, tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    path = tmp_path / "log"
    config = tmp_path / "config"
    config.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=file\n[formatters]\nkeys=plain\n[formatter_plain]\nformat=%(message)s\n"
        "[logger_root]\nlevel=INFO\nhandlers=file\n"
        f"[handler_file]\nclass=FileHandler\nformatter=plain\nargs=({str(path)!r},)\n"
    )
    logger.propagate = True
    try:
        setup_logging([], "INFO", str(config))
        for _ in range(20):
            logger.error("ours")
            logging.getLogger("user").error("of a user")
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers, root.level = before
    text = path.read_text()
    assert text.count("ours\n") == 5
    assert text.count("of a user\n") == 20


def test_the_last_count_is_written_when_a_program_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = (
        "import time\n"
        "time.monotonic = lambda: 1000.0\n"  # the program may have to wait for a processor
        "from scaler_protocol.programs.logging_setup import setup_logging\n"
        f"logger = setup_logging([{str(path)!r}], 'INFO')\n"
        "for _ in range(57): logger.error('over and over')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    lines = path.read_text().splitlines()
    assert len(lines) == 7
    assert "[ERROR]" in lines[-1] and lines[-1].endswith(": ... and 52 more like it in 0 seconds: over and over")
