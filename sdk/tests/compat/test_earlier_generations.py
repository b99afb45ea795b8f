"""Programs written for Scaler 1.x and 2.x run unmodified.

The same imports and calls as parfun, opengris-parfun and pargraph make; `make dropin` runs their own tests.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from scaler import Client, Cluster, ScalerFuture, Scheduler, SchedulerClusterCombo
from scaler.compat import earlier_arguments, installation
from scaler.compat.compatibility_table import ARGUMENTS, MODULES, WITHOUT_COUNTERPART
from scaler.compat.modules import reason_for_absence
from scaler.exceptions import ScalerError

CALLABLES: Dict[str, Any] = {
    "Client": Client,
    "Cluster": Cluster,
    "Scheduler": Scheduler,
    "SchedulerClusterCombo": SchedulerClusterCombo,
    "ScalerFuture.cancel": ScalerFuture.cancel,
    "Program.join": Cluster.join,
}

# What each constructor took, in the order of its documentation.
FIRST_GENERATION = {
    "Client": "address profiling timeout_seconds heartbeat_interval_seconds serializer",
    "SchedulerClusterCombo": "n_workers address monitor_address worker_io_threads scheduler_io_threads"
    " max_number_of_tasks_waiting heartbeat_interval_seconds client_timeout_seconds worker_timeout_seconds"
    " object_retention_seconds task_timeout_seconds death_timeout_seconds load_balance_seconds"
    " load_balance_trigger_times garbage_collect_interval_seconds trim_memory_threshold_bytes per_worker_queue_size"
    " hard_processor_suspend protected event_loop logging_paths logging_level logging_config_file",
    "Cluster": "address worker_io_threads worker_names heartbeat_interval_seconds task_timeout_seconds"
    " death_timeout_seconds garbage_collect_interval_seconds trim_memory_threshold_bytes hard_processor_suspend"
    " event_loop logging_paths logging_level logging_config_file",
    "Scheduler": "address monitor_address io_threads max_number_of_tasks_waiting client_timeout_seconds"
    " worker_timeout_seconds object_retention_seconds load_balance_seconds load_balance_trigger_times"
    " per_worker_queue_size protected event_loop logging_paths logging_config_file logging_level",
}
SECOND_GENERATION = {
    "Client": "address profiling timeout_seconds heartbeat_interval_seconds serializer stream_output"
    " object_storage_address security_config",
    "SchedulerClusterCombo": FIRST_GENERATION["SchedulerClusterCombo"].replace(
        "per_worker_queue_size", "per_worker_task_queue_size"
    )
    + " object_storage_address per_worker_capabilities scaler_policy worker_manager_id security_config",
}


@pytest.fixture(autouse=True)
def _no_warning_was_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_arguments, "_warned", set())


@pytest.mark.filterwarnings("ignore:.*is a module of an earlier generation:DeprecationWarning")
@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_earlier_module_has_its_names(module: str) -> None:
    imported = importlib.import_module(module)
    assert imported.__name__ == module
    for name in MODULES[module]:
        assert getattr(imported, name) is not None
    assert set(MODULES[module]) <= set(dir(imported))
    with pytest.raises(AttributeError, match="has no attribute 'never_there'"):
        imported.never_there


def test_an_earlier_module_never_shadows_one_that_exists() -> None:
    package = Path(installation.package_folder())
    for module in [*MODULES, *WITHOUT_COUNTERPART]:
        path = package.joinpath(*module.split(".")[1:])
        assert not path.exists() or module in WITHOUT_COUNTERPART, module
        assert not path.with_suffix(".py").exists(), module


@pytest.mark.parametrize("module", ["scaler.io.ymq", "scaler.protocol.capnp", "scaler.compat.ray", "scaler.ui.app"])
def test_a_module_without_counterpart_says_why(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="belongs to an earlier generation of Scaler") as failure:
        importlib.import_module(module)
    assert failure.value.name is not None and module.startswith(failure.value.name)  # it, or a package that it is in
    assert reason_for_absence(failure.value.name) in str(failure.value)


def test_an_unknown_module_is_missing_as_any_other() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'scaler.never_there'$"):
        importlib.import_module("scaler.never_there")


def test_what_was_pickled_by_an_earlier_name_loads_as_the_class_of_today() -> None:
    from scaler import ObjectReference

    by_earlier_name = b"cscaler.client.object_reference\nObjectReference\n."
    assert pickle.loads(by_earlier_name) is ObjectReference


def test_a_module_with_a_better_place_warns_at_its_import_and_others_do_not() -> None:
    program = "import warnings; warnings.simplefilter('error'); import {}"
    warned = subprocess.run(
        [sys.executable, "-c", program.format("scaler.utility.exceptions")], capture_output=True, text=True
    )
    assert "import its names from scaler.exceptions" in warned.stderr
    silent = subprocess.run(
        [sys.executable, "-c", program.format("scaler.utility.network_util")], capture_output=True, text=True
    )
    assert (silent.returncode, silent.stderr) == (0, "")


@pytest.mark.parametrize("owner", sorted(CALLABLES))
def test_every_argument_of_both_generations_is_a_parameter_now(owner: str) -> None:
    parameters = inspect.signature(CALLABLES[owner]).parameters
    wanted = {*FIRST_GENERATION.get(owner, "").split(), *SECOND_GENERATION.get(owner, "").split(), *ARGUMENTS[owner]}
    assert wanted <= parameters.keys()


def test_every_argument_of_the_table_has_a_new_name_or_a_reason() -> None:
    for owner, arguments_of_owner in ARGUMENTS.items():
        today = inspect.signature(inspect.unwrap(_function_of(owner))).parameters
        for name, argument in arguments_of_owner.items():
            assert bool(argument.becomes) != bool(argument.why), f"{owner}: {name}"
            assert name not in today
            assert not argument.becomes or argument.becomes in today


def _function_of(owner: str) -> Any:
    return CALLABLES[owner].__init__ if isinstance(CALLABLES[owner], type) else CALLABLES[owner]


def taken(**given: Any) -> Dict[str, Any]:
    """What a constructor with earlier arguments hands on."""

    @earlier_arguments.accepts_earlier("SchedulerClusterCombo")
    def constructor(per_worker_queue_size: int = 1000, **others: Any) -> Dict[str, Any]:
        return {"per_worker_queue_size": per_worker_queue_size, **others}

    result: Dict[str, Any] = constructor(**given)
    return result


def test_a_renamed_argument_warns_once_and_has_its_value() -> None:
    with pytest.warns(
        DeprecationWarning, match="per_worker_task_queue_size was renamed to per_worker_queue_size"
    ) as told:
        assert taken(per_worker_task_queue_size=7) == {"per_worker_queue_size": 7}
        assert taken(per_worker_task_queue_size=8) == {"per_worker_queue_size": 8}
    assert [each.filename for each in told] == [__file__]


def test_of_two_spellings_the_value_that_is_not_the_default_is_taken() -> None:
    with pytest.warns(
        DeprecationWarning
    ):  # opengris-parfun passes its default by one name, and its user's by the other
        assert taken(per_worker_queue_size=1, per_worker_task_queue_size=1000) == {"per_worker_queue_size": 1}
    assert taken(per_worker_queue_size=1000, per_worker_task_queue_size=1) == {"per_worker_queue_size": 1}
    with pytest.warns(UserWarning, match="using per_worker_queue_size"):
        assert taken(per_worker_queue_size=1, per_worker_task_queue_size=2) == {"per_worker_queue_size": 1}


def test_an_argument_without_effect_says_why_if_it_asks_for_something() -> None:
    with pytest.warns(UserWarning, match="load_balance_seconds has no effect: the scheduler balances continuously"):
        assert taken(load_balance_seconds=1) == {"per_worker_queue_size": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken(hard_processor_suspend=False, security_config=None)


def test_an_argument_that_no_generation_had_is_still_an_error() -> None:
    with pytest.raises(TypeError, match="never_there"):
        Client("tcp://127.0.0.1:1", never_there=1)  # type: ignore[call-arg]  # wrong on purpose


# As parfun does ------------------------------------------------------------------------------------------------------


def inside() -> bool:
    from scaler.worker.agent.processor.processor import Processor  # type: ignore[import-not-found]  # of old

    processor = Processor.get_current_processor()
    return processor is not None and str(processor.scheduler_address()).startswith("tcp://")


def nested(n: int) -> int:
    """As opengris-parfun's `use_worker_client` does."""
    with Client(address=None, profiling=True) as client:
        return int(client.submit(pow, n, 2).result())


def test_a_session_of_parfun(any_client: Client) -> None:
    from scaler.client.object_reference import ObjectReference  # type: ignore[import-not-found]  # of old
    from scaler.worker.agent.processor.processor import Processor

    assert Processor.get_current_processor() is None
    assert any_client.submit(inside).result()
    with Client(address=any_client._address, profiling=True, timeout_seconds=60) as session:
        data = session.send_object([1, 2, 3])
        assert isinstance(data, ObjectReference)
        durations: List[int] = []
        is_called = threading.Event()

        def on_done(future: Any) -> None:
            durations.append(int(future.profiling_info().cpu_time_s * 1e9))
            is_called.set()

        future = session.submit(sum, data)
        future.add_done_callback(on_done)
        assert future.result() == 6
        assert is_called.wait(30)
        assert durations[0] >= 0
        assert session.submit(nested, 3).result() == 9
        assert {any_client.identity: 1, session.identity: 2}[any_client.identity] == 1
        assert any_client.identity != session.identity


def parent(n: int) -> int:
    """Waits for its tasks by a semaphore that their callbacks release, as a session of parfun does."""
    guard = threading.Semaphore(1)
    results: List[int] = []

    def note(done: Any) -> None:
        results.append(done.result())
        guard.release()

    with Client() as client:
        for value in range(3):
            guard.acquire()
            future = client.submit(pow, value, n)
            future.add_done_callback(note)
        guard.acquire()
    return sum(results)


def test_tasks_that_wait_by_callbacks_leave_their_slots_to_what_they_wait_for(any_client: Client) -> None:
    parents = [any_client.submit(parent, n) for n in (1, 2, 3, 4)]  # on two slots
    assert [each.result(60) for each in parents] == [3, 5, 9, 17]


def add(a: int, b: int) -> int:
    return a + b


def test_a_graph_of_the_second_generation(any_client: Client) -> None:
    graph = {"a": 1, "b": 2, "c": (add, "a", "b")}
    assert any_client.get(graph, ["c", "a"], True, None, False) == {"c": 3, "a": 1}
    futures = any_client.get(graph, keys=["c"], block=False, capabilities={}, reserialize=True)
    assert futures["c"].result() == 3
    with pytest.deprecated_call(match="timeout was renamed to timeout_seconds"):
        assert futures["c"].cancel(timeout=1) is False


def test_a_client_without_a_scheduler_says_so_in_the_words_of_the_second_generation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SCALER_ADDRESS", raising=False)
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "nothing runs here"))
    with pytest.raises(ValueError, match="No scheduler address provided, and not running inside a worker context"):
        Client()


@pytest.fixture
def scheduler_alone() -> Iterator[SchedulerClusterCombo]:
    with SchedulerClusterCombo(n_workers=0, logging_level="ERROR", address=None) as combo:
        yield combo


def test_the_hooks_of_earlier_tests(scheduler_alone: SchedulerClusterCombo) -> None:
    with Client(scheduler_alone.get_address(), timeout_seconds=0.5) as client:
        future = client.submit(add, 1, 2)
        assert not scheduler_alone._cluster.is_alive()
        scheduler_alone._scheduler.kill()
        with pytest.deprecated_call(match="timeout was renamed to timeout_seconds"):
            assert scheduler_alone._scheduler.join(timeout=30) == -9  # type: ignore[call-arg]  # as of old
        from scaler.utility.exceptions import DisconnectedError  # type: ignore[import-not-found]  # of old

        with pytest.raises((TimeoutError, DisconnectedError)):
            future.result(timeout=30)


def test_workers_of_a_native_worker_manager(scheduler_alone: SchedulerClusterCombo) -> None:
    address = scheduler_alone.get_address()
    program = f"""
from scaler.config.common.logging import LoggingConfig
from scaler.config.common.worker import WorkerConfig
from scaler.config.common.worker_manager import WorkerManagerConfig
from scaler.config.section.native_worker_manager import NativeWorkerManagerConfig, NativeWorkerManagerMode
from scaler.config.types.address import AddressConfig
from scaler.config.types.worker import WorkerCapabilities
from scaler.worker_manager_adapter.baremetal.native import NativeWorkerManager

NativeWorkerManager(
    NativeWorkerManagerConfig(
        WorkerManagerConfig(AddressConfig.from_string("{address}"), "any id", max_task_concurrency=1),
        worker_config=WorkerConfig(per_worker_capabilities=WorkerCapabilities.from_string("gpu=2,linux")),
        logging_config=LoggingConfig(level="ERROR"),
        mode=NativeWorkerManagerMode.FIXED,
    )
).run()
"""
    with subprocess.Popen([sys.executable, "-c", program]) as manager:
        with Client(scheduler_alone.get_address()) as client:
            assert client.submit_verbose(add, (1, 2), {}, capabilities={"gpu": 2, "linux": -1}).result(60) == 3
        manager.terminate()
        assert manager.wait(30) == 0


# Beside another distribution -----------------------------------------------------------------------------------------


def test_another_distribution_by_the_same_name_is_told_once(
    any_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opengris_scaler-2.9.0.dist-info").mkdir()
    (tmp_path / "scaler_sdk-0.1.0.dist-info").mkdir()
    (tmp_path / "scaler_protocol-1.0.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installation, "_has_warned", False)
    with pytest.warns(RuntimeWarning, match=r"scaler-sdk and opengris-scaler 2\.9\.0 are both installed") as told:
        for _ in range(2):
            Client(any_client._address).disconnect()
    assert [each.filename for each in told] == [__file__]
    assert "pip uninstall opengris-scaler scaler-sdk" in str(told[0].message)


def test_no_other_distribution_is_found_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "scaler_sdk-0.1.0.dist-info").mkdir()
    assert installation.other_installations([str(tmp_path), str(tmp_path / "missing"), ""]) == []
    (tmp_path / "scaler-1.9.9.dist-info").mkdir()
    assert installation.other_installations([str(tmp_path), str(tmp_path)]) == ["scaler 1.9.9"]


def test_files_of_another_distribution_among_ours_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "about.py").touch()
    monkeypatch.setattr(installation, "_has_warned", False)
    monkeypatch.setattr(installation, "package_folder", lambda: str(tmp_path))
    for make in (lambda: Client("tcp://127.0.0.1:1"), lambda: SchedulerClusterCombo(n_workers=1)):
        with pytest.raises(ScalerError, match=r"are mixed, and both are imported as scaler: .*pip uninstall "):
            make()
