"""Code under development reaches the workers: edited and reloaded modules, packages that a client ships, versions."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Iterator, List, Tuple

import cloudpickle
import pytest
from sdk_tasks import wait_for, wait_for_file, wait_until

from scaler import Client, SchedulerClusterCombo
from scaler.client import archives
from scaler.exceptions import ModuleUploadError
from scaler.values.code_notes import read_note
from scaler.values.source_versions import SourceVersions, versions


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder from which this process and the workers import."""
    folder = tmp_path_factory.mktemp("project")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def one_slot(project: Path) -> Iterator[SchedulerClusterCombo]:
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as combo:
        yield combo


@pytest.fixture
def client(one_slot: SchedulerClusterCombo) -> Iterator[Client]:
    with Client(address=one_slot.get_address()) as client:
        yield client


_versions = iter(range(1, 1_000_000))


def write(path: Path, source: str) -> Path:
    """Write a file so that Python sees that it has changed, however soon that is after the last time; at once, as
    editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(f"{source}\n{'#' * next(_versions)}\n")
    return new.replace(path)


def make_package(folder: Path, version: int) -> Path:
    """A package `shipped` of a certain version, with a module that is imported late, and data."""
    write(folder / "shipped/__init__.py", "")
    write(folder / "shipped/late.py", f"VERSION = {version}")
    (folder / "shipped/data.txt").write_text(f"data {version}")
    return folder / "shipped"


def version_of_shipped() -> int:
    return int(importlib.import_module("shipped.late").VERSION)


def file_of_shipped() -> str:
    return str(importlib.import_module("shipped").__file__)


def process_id() -> int:
    return os.getpid()


def travelling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of this module that does not need this module to be imported at the worker."""
    return cloudpickle.loads(_dumps_by_value(function))  # type: ignore[no-any-return]  # cloudpickle has no types


def _dumps_by_value(function: Callable[..., Any]) -> bytes:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(function)  # type: ignore[no-any-return]  # cloudpickle has no types
    finally:
        cloudpickle.unregister_pickle_by_value(module)


# Edited and reloaded -------------------------------------------------------------------------------------------------


def test_a_reloaded_module_is_run_as_it_is_now(client: Client, project: Path) -> None:
    file = write(project / "reloaded.py", "def version(x=0): return 1")
    reloaded = importlib.import_module("reloaded")
    assert client.submit(reloaded.version).result() == 1
    write(file, "def version(x=0): return 2")
    importlib.reload(reloaded)

    assert client.submit(reloaded.version).result() == 2
    assert client.map(reloaded.version, [0, 1]) == [2, 2]
    assert client.get({"a": (reloaded.version,)}, ["a"]) == {"a": 2}


def test_a_module_that_is_imported_again_is_run_as_it_is_now(client: Client, project: Path) -> None:
    file = write(project / "deleted.py", "def version(): return 1")
    deleted = importlib.import_module("deleted")
    assert client.submit(deleted.version).result() == 1

    write(file, "def version(): return 2")
    del sys.modules["deleted"]
    again = importlib.import_module("deleted")

    assert client.submit(again.version).result() == 2
    assert client.submit(deleted.version).result() == 1  # the function as it is, for who has kept the old module


@pytest.mark.parametrize("import_line", ["import helper", "from helper import number", "from helper import *"])
def test_a_reloaded_helper_is_seen_through_the_module_that_imports_it(
    client: Client, project: Path, import_line: str
) -> None:
    helper_file = write(project / "helper.py", "def number(): return 1")
    write(
        project / "user_of_helper.py",
        f"{import_line}\ndef version(): return (helper.number if 'helper' in globals() else number)()",
    )
    for name in ("helper", "user_of_helper"):
        sys.modules.pop(name, None)
    user_of_helper = importlib.import_module("user_of_helper")
    assert client.submit(user_of_helper.version).result() == 1

    write(helper_file, "def number(): return 2")
    importlib.reload(sys.modules["helper"])
    importlib.reload(user_of_helper)

    assert client.submit(user_of_helper.version).result() == user_of_helper.version() == 2


def test_a_helper_that_is_imported_when_the_function_runs_is_seen_too(client: Client, project: Path) -> None:
    file = write(project / "late_helper.py", "NUMBER = 1")
    write(project / "importing_late.py", "def version():\n    import late_helper\n    return late_helper.NUMBER")
    importing_late = importlib.import_module("importing_late")
    assert importing_late.version() == client.submit(importing_late.version).result() == 1

    write(file, "NUMBER = 2")
    importlib.reload(sys.modules["late_helper"])

    assert client.submit(importing_late.version).result() == 2


def test_classes_of_a_reloaded_module_are_those_of_all_functions_that_use_it(client: Client, project: Path) -> None:
    write(project / "shapes.py", "class Shape:\n    pass")
    file = write(project / "making.py", "import shapes\ndef make(): return shapes.Shape()")
    write(project / "judging.py", "import shapes\ndef is_shape(x): return isinstance(x, shapes.Shape)")
    making, judging = importlib.import_module("making"), importlib.import_module("judging")
    assert client.submit(judging.is_shape, client.submit(making.make).result()).result() is True

    write(file, "import shapes\ndef make(): return shapes.Shape(), 2")
    importlib.reload(making)

    shape, _ = client.submit(making.make).result()
    assert client.submit(judging.is_shape, shape).result() is True


def test_a_module_that_autoreload_has_changed_in_place_is_run_as_it_is_now(
    client: Client, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(project / "patched.py", "def version(): return 1")
    patched = importlib.import_module("patched")
    assert client.submit(patched.version).result() == 1
    shell = Shell(monkeypatch)
    SourceVersions().start()
    assert [event for event, _ in shell.callbacks] == ["pre_run_cell"]

    write(file, "def version(): return 2")
    patched.version.__code__ = (lambda: 2).__code__
    versions.on_cell("what is known of the cell")

    assert client.submit(patched.version).result() == 2


def test_objects_that_pass_themselves_off_as_modules_are_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of libraries that cffi has made."""

    class Library:
        __class__ = ModuleType  # type: ignore[assignment]  # as cffi does

    monkeypatch.setitem(sys.modules, "library_of_cffi", Library())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    SourceVersions().start()


class Shell:
    """IPython's, with its extension."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.callbacks: List[Tuple[str, Callable[..., None]]] = []
        self.events = SimpleNamespace(register=lambda event, callback: self.callbacks.append((event, callback)))
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: self))
        monkeypatch.setitem(sys.modules, "IPython.extensions.autoreload", ModuleType("autoreload"))
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


def total(items: List[Any]) -> int:
    return sum(item.price() for item in items)


def test_classes_of_arguments_are_as_they_are_now_though_the_function_does_not_name_them(
    client: Client, project: Path
) -> None:
    file = write(project / "shop.py", "class Item:\n    def price(self): return 1")
    shop = importlib.import_module("shop")
    function = travelling(total)
    assert client.submit(function, [shop.Item()]).result() == 1

    write(file, "class Item:\n    def price(self): return 2")
    importlib.reload(shop)

    assert client.submit(function, [shop.Item()]).result() == 2


def test_by_value_may_be_registered_after_a_function_was_submitted(client: Client, project: Path) -> None:
    write(project / "by_value.py", "NUMBER = 1\ndef number(): return NUMBER")
    by_value: Any = importlib.import_module("by_value")
    assert client.submit(by_value.number).result() == 1
    by_value.NUMBER = 2
    assert client.submit(by_value.number).result() == 1  # a module is what its file is, where it is imported

    cloudpickle.register_pickle_by_value(by_value)
    try:
        assert client.submit(by_value.number).result() == 2
    finally:
        cloudpickle.unregister_pickle_by_value(by_value)
    assert client.submit(by_value.number).result() == 1


def test_who_has_edited_and_not_reloaded_is_told_once_for_each_module(
    client: Client, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(project / "edited.py", "def version(): return 1\ndef other(): return 1")
    edited = importlib.import_module("edited")
    assert client.submit(edited.version).result() == 1

    write(file, "def version(): return 2\ndef other(): return 2")
    assert client.submit(edited.version).result() == 1  # as it is here

    client.restart_processors()
    with caplog.at_level(logging.WARNING, "scaler"):
        results = [client.submit(function).result() for function in (edited.version, edited.other)]
    assert results == [2, 2]
    (message,) = [record.getMessage() for record in caplog.records if "'edited'" in record.getMessage()]
    assert str(file) in message and "reload" in message and "modules=['edited']" in message


def test_installed_code_is_not_compared(client: Client) -> None:
    parts: List[Any] = [b"a pickle"]
    client._shell.code.note(parts)

    top_names = {name.partition(".")[0] for name in read_note(parts[-1]).modules}
    assert "test_code" in top_names or "sdk" in top_names  # this module
    assert not {"json", "pytest", "cloudpickle", "scaler", "scaler_protocol"} & top_names


# Shipped -------------------------------------------------------------------------------------------------------------


def test_two_clients_ship_two_versions_to_the_same_slot_in_turns(
    one_slot: SchedulerClusterCombo, tmp_path: Path
) -> None:
    address = one_slot.get_address()
    function = travelling(version_of_shipped)
    with Client(address, modules=[make_package(tmp_path / "1", 1)]) as first:
        with Client(address, modules=[make_package(tmp_path / "2", 2)]) as second, Client(address) as third:
            for _ in range(5):
                assert first.submit(function).result() == 1
                assert second.submit(function).result() == 2
            with pytest.raises(ModuleNotFoundError, match=r"lacks shipped: .* Client\(modules=\['shipped'\]\)"):
                third.submit(function).result()
            processes = {client.submit(travelling(process_id)).result() for client in (first, second) for _ in range(5)}
    assert len(processes) == 2


def test_what_was_shipped_goes_with_its_last_user(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    package = make_package(tmp_path, 1)
    with Client(one_slot.get_address(), modules=[package]) as first:
        with Client(one_slot.get_address(), modules=[package]) as second:
            file, process = (second.submit(travelling(each)).result() for each in (file_of_shipped, process_id))
            assert first.submit(travelling(file_of_shipped)).result() == file
        assert first.submit(travelling(version_of_shipped)).result() == 1
        assert Path(file).exists()
    wait_for(lambda: not Path(file).parent.parent.exists(), "the folder of the code to go")
    wait_for(lambda: not is_alive(process), "the processor with that code to end")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_shipped_file_that_has_changed_is_shipped_again(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    package = make_package(tmp_path, 1)
    function = travelling(version_of_shipped)
    files = []
    with Client(one_slot.get_address(), modules=[package]) as client:
        for version in range(2, 6):
            write(package / "late.py", f"VERSION = {version}")
            client.upload()
            assert client.submit(function).result() == version
            files.append(Path(client.submit(travelling(file_of_shipped)).result()))
        wait_for(lambda: not any(file.exists() for file in files[:-1]), "the folders of old versions to go")
        assert files[-1].exists()


def test_a_change_is_noticed_without_an_upload(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    package = make_package(tmp_path, 1)
    function = travelling(version_of_shipped)
    with Client(one_slot.get_address(), modules=[package]) as client:
        assert client.submit(function).result() == 1
        write(package / "late.py", "VERSION = 2")
        wait_for(lambda: client.submit(function).result() == 2, "the next look at the files")


def test_uploads_may_come_later_and_are_imported_in_their_order(client: Client, tmp_path: Path) -> None:
    function = travelling(version_of_shipped)
    with pytest.raises(ModuleNotFoundError):
        client.submit(function).result()
    client.upload(make_package(tmp_path / "1", 1))
    assert client.submit(function).result() == 1

    client.upload(str(make_package(tmp_path / "2", 2)))
    assert client.submit(function).result() == 1  # what came first is found first


def data_of_shipped() -> Tuple[str, str]:
    import pkgutil

    data = pkgutil.get_data("shipped", "data.txt")
    assert data is not None
    return data.decode(), Path(file_of_shipped()).with_name("data.txt").read_text()


def test_data_in_a_package_comes_along(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    with Client(one_slot.get_address(), modules=[make_package(tmp_path, 1)]) as client:
        assert client.submit(travelling(data_of_shipped)).result() == ("data 1", "data 1")


def test_instances_of_shipped_classes_are_arguments_and_results(
    one_slot: SchedulerClusterCombo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "points.py", "class Point:\n    x = 1\ndef moved(point):\n    point.x += 1\n    return point")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = importlib.import_module("points")
    with Client(one_slot.get_address(), modules=["points"]) as client:
        reference = client.send_object(points.Point())
        for argument in (points.Point(), reference):
            assert client.submit(points.moved, argument).result().x == 2


def submit_inside(client: Client, function: Callable[[], int]) -> int:
    return client.submit(function).result()


def make_client_inside(function: Callable[[], int]) -> int:
    from scaler import Client

    with Client() as client:
        return client.submit(function).result()


def test_clients_in_tasks_carry_the_code_of_the_task(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    function = travelling(version_of_shipped)
    with Client(one_slot.get_address(), modules=[make_package(tmp_path, 7)]) as client:
        assert client.submit(travelling(submit_inside), client, function).result() == 7
        assert client.submit(travelling(make_client_inside), function).result() == 7
        file = client.submit(travelling(file_of_shipped)).result()
    wait_for(lambda: not Path(file).exists(), "the code to go, though a client was left in a task")


def test_code_is_sent_again_to_a_new_scheduler_session(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    function = travelling(version_of_shipped)
    with Client(one_slot.get_address(), modules=[make_package(tmp_path, 1)]) as client:
        assert client.submit(function).result() == 1
        stream = client._shell.io.transport._stream
        assert stream is not None
        stream.shutdown(socket.SHUT_WR)
        assert client.submit(function).result() == 1


def test_code_of_a_killed_worker_goes_when_the_next_one_starts(project: Path, tmp_path: Path) -> None:
    with SchedulerClusterCombo(n_workers=1, logging_level="ERROR") as combo:
        with Client(combo.get_address(), modules=[make_package(tmp_path, 1)]) as client:
            file = Path(client.submit(travelling(file_of_shipped)).result())
            fork_server = parent_of(client.submit(travelling(process_id)).result())
            agent = parent_of(fork_server)
            os.kill(fork_server, signal.SIGSTOP)  # which would clean up after the agent
            for process in (agent, fork_server):
                os.kill(process, signal.SIGKILL)

            assert client.submit(travelling(version_of_shipped)).result() == 1
            assert not file.exists()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


# New processors ------------------------------------------------------------------------------------------------------


def test_restarted_processors_have_run_nothing_before_and_running_tasks_are_not_lost(
    client: Client, tmp_path: Path
) -> None:
    running, go = tmp_path / "running", tmp_path / "go"
    before = client.submit(process_id).result()
    unfinished = client.submit(wait_for_file, str(go), str(running))
    wait_until(running)

    client.restart_processors()
    after = client.submit(process_id)
    go.touch()

    assert unfinished.result() == str(go)
    assert after.result() != before
    assert client.submit(process_id).result() == after.result()


def test_processors_of_an_earlier_restart_end(client: Client) -> None:
    processes = []
    for _ in range(3):
        client.restart_processors()
        processes.append(client.submit(process_id).result())
    assert len(set(processes)) == 3
    wait_for(lambda: not any(map(is_alive, processes[:-1])), "processors to end that nothing needs")


# What is refused ------------------------------------------------------------------------------------------------------


def refusal(address: str, upload: Any) -> str:
    with pytest.raises(ModuleUploadError) as caught:
        Client(address, modules=[upload])
    return str(caught.value)


def test_what_cannot_be_shipped_is_refused_at_once_and_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "tcp://127.0.0.1:9"  # it is refused before anything is connected
    assert "no module named 'no_such_module'" in refusal(nowhere, "no_such_module")
    assert "no file or folder './no/such/path'" in refusal(nowhere, "./no/such/path")
    assert "part of Python itself" in refusal(nowhere, "json")
    assert "need not be uploaded" in refusal(nowhere, sys.modules["__main__"])
    assert "Scaler itself" in refusal(nowhere, "scaler")
    assert "has no file" in refusal(nowhere, made_by_hand())
    (tmp_path / "empty").mkdir()
    assert "no Python file" in refusal(nowhere, tmp_path / "empty")
    native = make_package(tmp_path / "native", 1)
    (native / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    assert "install it on the workers" in refusal(nowhere, native)
    monkeypatch.setattr(archives, "MAXIMUM_FILES", 10)
    huge = make_package(tmp_path / "huge", 1)
    for number in range(10):
        write(huge / "many" / f"module{number}.py", "")
    assert "most of them in 'many'" in refusal(nowhere, huge)
    with pytest.raises(TypeError, match="not int"):
        Client(nowhere, modules=[1])  # type: ignore[list-item]  # wrong on purpose


def made_by_hand() -> ModuleType:
    module = ModuleType("made_by_hand")
    module.__spec__ = importlib.machinery.ModuleSpec("made_by_hand", None)
    return module


def test_code_that_has_gone_is_missed_at_the_next_upload(client: Client, tmp_path: Path) -> None:
    package = make_package(tmp_path, 1)
    client.upload(package)
    for file in package.iterdir():
        file.unlink()
    package.rmdir()
    with pytest.raises(ModuleUploadError, match="cannot be read"):
        client.upload()


def test_a_change_is_shipped_also_when_other_code_has_gone(client: Client, tmp_path: Path) -> None:
    stays, goes = make_package(tmp_path / "stays", 1), write(tmp_path / "goes.py", "")
    function = travelling(version_of_shipped)
    client.upload(stays, goes)
    assert client.submit(function).result() == 1

    write(stays / "late.py", "VERSION = 2")
    goes.unlink()
    with pytest.raises(ModuleUploadError, match=r"goes\.py cannot be read"):
        client.upload()
    goes.touch()

    assert client.submit(function).result() == 2


# What it costs --------------------------------------------------------------------------------------------------------


def test_a_function_is_serialised_once_while_no_code_changes(client: Client, project: Path) -> None:
    write(project / "steady.py", "def number(): return 1")
    steady = importlib.import_module("steady")
    record = client._shell.functions.add(steady.number)

    importlib.reload(importlib.import_module("graphlib"))  # of code that is installed
    for name in ("steady", "no_such_module"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    assert client._shell.functions.find(steady.number) is record

    write(project / "another.py", "")
    importlib.import_module("another")
    assert client._shell.functions.find(steady.number) is None  # whose tasks may have it among their arguments


def test_threads_may_submit_while_code_changes(one_slot: SchedulerClusterCombo, tmp_path: Path) -> None:
    package = make_package(tmp_path, 0)
    function = travelling(version_of_shipped)
    seen: List[List[int]] = [[], []]

    with Client(one_slot.get_address(), modules=[package]) as client:

        def submit(results: List[int]) -> None:
            for _ in range(15):
                results.append(client.submit(function).result())

        threads = [threading.Thread(target=submit, args=(results,)) for results in seen]
        for thread in threads:
            thread.start()
        for version in range(1, 4):
            write(package / "late.py", f"VERSION = {version}")
            client.upload()
        for thread in threads:
            thread.join()
        assert client.submit(function).result() == 3
    assert all(len(results) == 15 and results == sorted(results) for results in seen)
