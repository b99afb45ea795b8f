"""Durations and sizes with units, wherever an argument is one; and what is said when they are invalid."""

from __future__ import annotations

import inspect
import re
import typing
from fractions import Fraction
from typing import Any, Callable, Iterator, List, Tuple

import pytest

from scaler import Client, Cluster, ScalerFuture, Scheduler, SchedulerClusterCombo
from scaler.arguments import Duration, Size, seconds, size_in_bytes, whole
from scaler.client.submitter import Submitter
from scaler.cluster.child_program import option_arguments
from scaler.exceptions import ArgumentTypeError, InvalidArgumentError

ADDRESS = "tcp://127.0.0.1:1"

PUBLIC: List[Callable[..., Any]] = [
    Client.__init__,
    Client.info,
    Client.explain,
    Submitter.options,
    Submitter.wait,
    ScalerFuture.cancel,
    Cluster.__init__,
    Cluster.join,
    Scheduler.__init__,
    SchedulerClusterCombo.__init__,
]


def arguments_with_units() -> Iterator[Tuple[str, str, Any]]:
    for function in PUBLIC:
        types = typing.get_type_hints(function)  # earlier names of arguments have none
        for name in inspect.signature(function).parameters:
            if name in types and (name.endswith(("_seconds", "_bytes", "_limit")) or name == "timeout"):
                yield function.__qualname__, name, types[name]


@pytest.mark.parametrize(("function", "name", "hint"), list(arguments_with_units()))
def test_the_type_of_each_duration_and_size_allows_a_text(function: str, name: str, hint: Any) -> None:
    kind = Size if name.endswith(("_bytes", "_limit")) else Duration
    assert hint in (kind, typing.Optional[kind])


@pytest.mark.parametrize(
    ("value", "expected"),
    [(30, 30.0), (0.25, 0.25), ("30", 30.0), ("30s", 30.0), ("5min", 300.0), ("250ms", 0.25), (Fraction(1, 4), 0.25)],
)
def test_a_duration_is_a_number_or_a_text(value: Any, expected: float) -> None:
    assert seconds("timeout", value) == expected


def test_a_duration_may_be_infinite_unless_it_has_a_limit() -> None:
    assert seconds("timeout", float("inf")) == seconds("timeout", "inf") == float("inf")
    with pytest.raises(InvalidArgumentError, match="got inf"):
        seconds("timeout", float("inf"), below=float("inf"))


@pytest.mark.parametrize(("value", "expected"), [(4096, 4096), ("1GB", 10**9), ("1GiB", 1 << 30), ("4096", 4096)])
def test_a_size_is_a_whole_number_or_a_text(value: Any, expected: int) -> None:
    assert size_in_bytes("memory_limit", value) == expected


@pytest.mark.parametrize("value", ["1 parsec", "", "1GB", "5s3h", "nan", -1, "-1s", float("nan"), 10**400])
def test_an_invalid_duration_is_told_with_its_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^timeout_seconds must be ") as caught:
        seconds("timeout_seconds", value, below=1e9)
    assert str(caught.value).endswith(f", got {value!r}")


@pytest.mark.parametrize("value", ["1G", "1m", "", "1.5", "30s", -1, "-1"])
def test_an_invalid_size_is_told_with_its_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^memory_limit must be ") as caught:
        size_in_bytes("memory_limit", value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("check", [seconds, size_in_bytes, whole])
@pytest.mark.parametrize("value", [None, True, [1], b"1s"])
def test_another_type_is_told(check: Callable[[str, Any], Any], value: Any) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        check("limit", value)
    assert re.fullmatch(f"limit must be .*, got {type(value).__name__}", str(caught.value))


def test_programs_are_started_with_plain_numbers() -> None:
    made = option_arguments(task_timeout_seconds="1h", trim_memory_threshold_bytes="1kB", object_memory_limit="2KiB")
    assert made == [
        *("--task-timeout-seconds", "3600"),
        *("--trim-memory-threshold-bytes", "1000"),
        *("--object-memory-limit", "2048"),
    ]
    assert option_arguments(heartbeat_interval_seconds=0.1) == ["--heartbeat-interval-seconds", "0.1"]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Client(ADDRESS, timeout_seconds="soon"), "timeout_seconds"),
        (lambda: Client(ADDRESS, heartbeat_interval_seconds="0s"), "heartbeat_interval_seconds"),
        (lambda: Client(ADDRESS, connect_timeout_seconds="soon"), "connect_timeout_seconds"),
        (lambda: Cluster(ADDRESS, death_timeout_seconds="soon"), "death_timeout_seconds"),
        (lambda: Cluster(ADDRESS, trim_memory_threshold_bytes="1G"), "trim_memory_threshold_bytes"),
        (lambda: Cluster(ADDRESS, n_workers=-1), "n_workers"),
        (lambda: Scheduler(worker_timeout_seconds="soon"), "worker_timeout_seconds"),
        (lambda: SchedulerClusterCombo(object_memory_limit="much"), "object_memory_limit"),
    ],
)
def test_an_invalid_argument_is_told_before_anything_is_started(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be "):
        make()


def test_what_a_running_cluster_is_asked_may_have_units() -> None:
    with SchedulerClusterCombo(
        1, worker_timeout_seconds="30s", object_memory_limit="64MiB", logging_level="ERROR"
    ) as combo:
        with Client(combo.get_address(), timeout_seconds="1min", connect_timeout_seconds="5s") as client:
            future = client.submit(abs, -1)
            assert client.wait([future], "1min").done == {future}
            assert client.info(timeout_seconds="1min").slots == 1
            assert client.explain(future, timeout_seconds="1min")
            assert future.cancel("100ms") is False
            assert client.wait([future], -1).done == {future}, "a deadline that has passed"
