"""One hierarchy: what users meet derives from ScalerError and is defined in `scaler.exceptions`.

The rules are checked in the sources, so that new modules are covered as well.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import sys
import traceback
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple, Type

import pytest

import scaler
from scaler import exceptions
from scaler.exceptions import RemoteTraceback, ScalerError, WorkerDiedError, with_page
from scaler_protocol.programs.documentation import DOCS_URL_VARIABLE

PACKAGE = Path(scaler.__file__).parent

NEVER_SEEN = {
    "scaler.worker.frames.FrameError",  # between an agent and its processors
    "scaler.worker.fork_server.agent_connection.AgentGoneError",  # ends the fork server
    "scaler.worker.agent.shell.code_folders.CodeError",  # ends in the agent, as the text of a failure
    "scaler.provision.slurm_units.SlurmMissingError",  # these seven end in the provisioner, as reasons
    "scaler.provision.slurm_units.SlurmJobGoneError",
    "scaler.provision.slurm_units.SlurmLimitError",
    "scaler.provision.slurm_units.SlurmRefusedError",
    "scaler.provision.slurm_units.SlurmUnavailableError",
    "scaler.provision.shell_command.CommandError",
    "scaler.provision.unit_adapters.UnitError",
    "scaler.provision.kubernetes.api_errors.ConflictError",  # as do these eight
    "scaler.provision.kubernetes.api_errors.ExpiredError",
    "scaler.provision.kubernetes.api_errors.KubernetesAccessError",
    "scaler.provision.kubernetes.api_errors.KubernetesForbiddenError",
    "scaler.provision.kubernetes.api_errors.KubernetesRefusedError",
    "scaler.provision.kubernetes.api_errors.KubernetesUnavailableError",
    "scaler.provision.kubernetes.api_errors.NotFoundError",
    "scaler.provision.kubernetes.api_errors.ThrottledError",
    "scaler.provision.kubernetes.manifest_files.ManifestError",  # ends the program, as the fault of an option
    "scaler.compat.names.CapnpDeserializationError",  # these three are caught by earlier programs, and never raised
    "scaler.compat.names.ClientCancelledException",
    "scaler.compat.names.TaskNotFoundError",
    "scaler.conformance.Failure",  # what a function raises that is there to fail
}
"""Public exceptions of modules that no user meets. Private ones, which begin with an underscore, are not listed."""

SEEN_BY_USERS = ("aio", "client", "cluster", "graph", "values/named_functions.py", "arguments.py")

OTHERS = {
    ("future.py", "CancelledError"): "what asyncio promises",
    ("future_internals.py", "CancelledError"): "what `concurrent.futures` promises",
    ("future_internals.py", "FutureTimeoutError"): "likewise",
    ("completions.py", "FutureTimeoutError"): "as that of `concurrent.futures.as_completed`",
    ("aio_client.py", "AttributeError"): "what `__getattr__` promises",
    ("loop_transport.py", "NotImplementedError"): "what the loop has raised, with the reason",
    ("lone_tasks.py", "TimeoutError"): "caught in the client, which treats its scheduler as lost",
    ("transport.py", "OSError"): "caught in the client: it becomes SchedulerUnreachableError",
    ("future_internals.py", "NotImplementedError"): "by no future that there is: each class says how it is loaded",
    ("client_driver.py", "MalformedMessageError"): "handled there, as what cannot be read: no client raises it",
    ("client_serving.py", "AssertionError"): "at a connection to a worker, which a client never opens",
    ("map_methods.py", "NotImplementedError"): "by no client that there is: each says which options it has",
    ("client_replay.py", "RecordingError"): "of `scaler replay`, which prints it: no client raises it",
}
"""What modules that users see raise besides, and why that is right."""

DEFINED: Dict[str, Type[BaseException]] = {
    name: value
    for name, value in vars(exceptions).items()
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == exceptions.__name__
}


NEWER_PYTHON = dict.fromkeys(["scaler.adapters.pandas_engine", "scaler.pandas"], (3, 11))
"""The oldest versions that have a release of what a module needs."""


def modules() -> List[str]:
    found = [info.name for info in pkgutil.walk_packages(scaler.__path__, "scaler.")]
    assert "scaler.client.client" in found
    return [each for each in found if not each.endswith("__main__") and sys.version_info >= NEWER_PYTHON.get(each, ())]


def test_no_other_module_defines_an_exception_that_users_meet() -> None:
    outside: Set[str] = set()
    for name in modules():
        for value in vars(importlib.import_module(name)).values():
            if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__.startswith("scaler."):
                is_private = value.__name__.startswith("_")
                if value.__module__ != exceptions.__name__ and not is_private:
                    outside.add(f"{value.__module__}.{value.__name__}")
    assert outside == NEVER_SEEN


def test_all_of_them_are_public_and_have_one_base() -> None:
    assert sorted(DEFINED) == sorted(exceptions.__all__)
    for defined in DEFINED.values():
        assert issubclass(defined, ScalerError) and defined.__doc__


def raised_in(path: Path) -> Iterator[str]:
    """The names of what a module raises; not what it raises again."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, (ast.Call, ast.Name)):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(raised).rpartition(".")[2]
            if name[:1].isupper():
                yield name


def test_what_the_client_and_the_local_cluster_raise_is_of_the_hierarchy() -> None:
    raised: Set[Tuple[str, str]] = set()
    for part in SEEN_BY_USERS:
        path = PACKAGE / part
        for file in [path] if path.is_file() else path.rglob("*.py"):
            raised.update((file.name, name) for name in raised_in(file))
    assert ("arguments.py", "InvalidArgumentError") in raised and ("order.py", "GraphCycleError") in raised
    outside = {each for each in raised if each[1] not in DEFINED}
    assert outside <= OTHERS.keys(), "raise an exception of scaler.exceptions instead"
    assert OTHERS.keys() <= outside, "what is not raised any more is not listed"


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        ("InvalidArgumentError", (ValueError,)),
        ("ArgumentTypeError", (TypeError,)),
        ("InvalidAddressError", (ValueError,)),
        ("SchedulerNotFoundError", (ValueError,)),
        ("ShutdownRefusedError", (ValueError,)),
        ("ProfileNotAvailableError", (ValueError,)),
        ("TooManyReferences", (ValueError,)),
        ("GraphCycleError", (ValueError,)),
        ("WrongArgumentsError", (TypeError,)),
        ("ProgramStartError", (OSError,)),
        ("AlreadyStartedError", (RuntimeError,)),
        ("MissingPackageError", (ImportError, ModuleNotFoundError)),
        ("MissingObjects", (KeyError,)),
        ("DisconnectedError", (ConnectionError,)),
    ],
)
def test_code_that_catches_builtin_exceptions_still_catches_these(kind: str, bases: List[type]) -> None:
    for base in bases:
        assert issubclass(DEFINED[kind], base)


@pytest.mark.parametrize("name", sorted(DEFINED))
def test_each_survives_a_pickle_with_its_text(name: str) -> None:
    loaded = pickle.loads(pickle.dumps(DEFINED[name]("what failed, why, what to do")))
    assert type(loaded) is DEFINED[name] and "what failed, why, what to do" in str(loaded)


# The link to its page in the documentation.

SITE = "https://docs.example.org/v1"


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, None))


@pytest.mark.parametrize("name", sorted(DEFINED.keys() - {"RemoteTraceback"}))
def test_a_traceback_ends_with_the_link_which_is_no_part_of_the_text_or_the_pickle(name: str) -> None:
    error = DEFINED[name]("what failed")
    assert isinstance(error, ScalerError)
    assert shown(error) == f"scaler.exceptions.{name}: what failed\nsee docs/reference/errors.md#{name.lower()}\n"
    assert error.page == f"docs/reference/errors.md#{name.lower()}"
    assert str(error) == "what failed" and b"docs/" not in pickle.dumps(error)


def test_the_link_leads_to_the_site_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    error = WorkerDiedError("what failed")
    monkeypatch.setenv(DOCS_URL_VARIABLE, f"{SITE}/")
    assert error.page == f"{SITE}/reference/errors.html#workerdiederror"
    assert with_page(error) == f"what failed\nsee {SITE}/reference/errors.html#workerdiederror"


def test_a_subclass_of_the_user_has_the_page_of_its_base() -> None:
    class MineError(WorkerDiedError):
        pass

    assert MineError("what failed").page == WorkerDiedError("").page


def test_notes_come_before_the_link_and_travel_without_it() -> None:
    error = WorkerDiedError("what failed")
    error.add_note("first")
    error.__notes__ = [*error.__notes__, "second"]
    loaded = pickle.loads(pickle.dumps(error))
    for each in (error, loaded, copy.copy(error)):
        assert each.__notes__ == ["first", "second", f"see {error.page}"]
        assert each.__dict__["__notes__"] == ["first", "second"]


def test_a_traceback_of_a_worker_has_no_link_of_its_own() -> None:
    remote = RemoteTraceback("on a worker")
    assert remote.page == "" and remote.__notes__ == [] and with_page(remote) == str(remote)


def test_other_errors_are_printed_as_they_are() -> None:
    assert with_page(OSError("what failed")) == "what failed"
