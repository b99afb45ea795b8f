"""Settings of local programs are options of these programs, and reach them."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
from typing import Any, List

import pytest

from scaler import Cluster, Scheduler, SchedulerClusterCombo
from scaler.cluster.settings import ClusterOptions, ClusterSettings, ComboSettings, SchedulerSettings
from scaler.exceptions import InvalidArgumentError
from scaler.worker.worker_options import CLUSTER, read_options


def command_of(program: Any) -> List[str]:
    command: List[str] = program._command
    return command


def test_every_setting_of_a_cluster_is_an_option_with_the_same_default() -> None:
    options = {option.key: option for option in CLUSTER.options}
    fields = {field.name: field.default for field in dataclasses.fields(ClusterOptions)}
    assert fields.keys() <= options.keys()
    # None and an empty list are the same; where a program logs to is its own affair.
    for name in sorted(fields.keys() - {"logging_paths"}):
        default = options[name].default
        assert (fields[name] or None) == (default or None), name


@pytest.mark.parametrize(
    ("program", "settings"),
    [(Cluster, ClusterSettings), (Scheduler, SchedulerSettings), (SchedulerClusterCombo, ComboSettings)],
)
def test_a_constructor_shows_what_it_takes(program: Any, settings: Any) -> None:
    shown = inspect.signature(program).parameters
    for field in dataclasses.fields(settings):
        parameter = shown[field.name]
        expected = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        assert parameter.default == expected, field.name


def test_settings_become_the_command_line_of_a_cluster() -> None:
    cluster = Cluster(
        "tcp://127.0.0.1:1",
        worker_names=("a", "b"),
        task_timeout_seconds="1m",
        capabilities={"gpu": 2},
        preload="json",
        logging_paths=("/dev/null",),
    )
    options = read_options(command_of(cluster)[3:])

    assert cluster.slots == options.num_of_workers == 2
    assert options.address == "tcp://127.0.0.1:1"
    assert options.worker_names == ("a", "b")
    assert options.task_timeout_seconds == 60
    assert options.capabilities == {"gpu": 2.0}
    assert list(options.preload) == ["json"]
    assert list(options.logging_paths) == ["/dev/null"]


def test_settings_become_the_command_line_of_a_scheduler() -> None:
    command = shlex.join(command_of(Scheduler(protected=False, object_memory_limit="1KB", announce=True)))

    assert "tcp://127.0.0.1:0 --exit-when-stdin-closes" in command
    assert "--no-protected" in command and "--announce" in command
    assert "--object-memory-limit 1000" in command


def test_a_combo_hands_each_its_own() -> None:
    settings = ComboSettings(n_workers=3, protected=False, per_worker_queue_size=7, client_timeout_seconds=9)

    of_scheduler = SchedulerSettings(**settings.of_scheduler)
    of_cluster = ClusterSettings(**settings.of_cluster("tcp://127.0.0.1:1"))

    assert (of_scheduler.protected, of_scheduler.client_timeout_seconds) == (False, 9)
    assert (of_cluster.n_workers, of_cluster.address) == (3, "tcp://127.0.0.1:1")
    assert of_scheduler.per_worker_queue_size == of_cluster.per_worker_queue_size == 7


def test_arguments_that_a_program_does_not_take_are_named() -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'nonsense'$"):
        Cluster("tcp://127.0.0.1:1", nonsense=1)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'address'$"):
        Cluster()  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(InvalidArgumentError, match="death_timeout_seconds"):
        Cluster("tcp://127.0.0.1:1", death_timeout_seconds=-1)


def test_threads_of_a_network_that_needs_none_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.compat.earlier_arguments._warned", set())
    with pytest.warns(UserWarning, match="worker_io_threads has no effect"):
        untyped: Any = Cluster
        untyped("tcp://127.0.0.1:1", worker_io_threads=2)
    with pytest.warns(UserWarning, match=": io_threads has no effect"):
        untyped = Scheduler
        untyped("tcp://127.0.0.1:1", io_threads=2)
    assert read_options(["tcp://127.0.0.1:1", "--io-threads", "2"]).address == "tcp://127.0.0.1:1"
