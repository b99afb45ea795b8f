"""What all tests share: no test finds a scheduler that it did not start, and other programs find none of a test.

Rules:
- Schedulers announce themselves in a folder of this test process, removed at its end; their keys are in there, too.
- No example of a property has a time limit of its own: how long one takes depends on what else the machine does.
- Programs that tests start write and use bytecode, also where the environment says otherwise, as images of containers
  do: some thousand programs start, and compiling all their modules takes each of them as long as all else.
- A process of tests that crashes is not replaced: the process in its place would wait for ever for a file of tests of
  which nothing is left. So the other processes go on, and the run ends and names the test that crashed.
- What failed is told in a line at once, before pytest goes through the source to report it: that has crashed processes,
  and then nothing else said why the test had failed.
- Where each thread of a process was when it crashed stands at the end of the run, with the files that it had run: what
  is printed at once is far from the end, and between what others print.
- The garbage collector does not run while tests are collected, and does not go through what the collected tests and
  their modules keep: that took an eighth of the processor time of tests that start no programs. Later it runs after
  ten thousand new objects and not after 700, as few of them are in cycles.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Generator, Iterator, List

import hypothesis
import pytest

EXAMPLES_VARIABLE = "SCALER_EXAMPLES_PERCENT"
"""How many of its examples a property is tried with, on a platform that repeats what another one shows."""

hypothesis.settings.register_profile(
    "scaler", deadline=None, max_examples=int(os.environ.get(EXAMPLES_VARIABLE, "100"))
)
hypothesis.settings.load_profile("scaler")

LONG_FILES = {
    "test_pypy.py",
    "test_whole_system.py",
    "test_implementations.py",
    "test_soak.py",
    "test_mutants.py",
    "test_ui_program.py",
}
"""They are handed out first: what is left to the end keeps only one processor busy."""


MOST_CHARACTERS_OF_A_FAILURE = 500
CRASH_FOLDER = pytest.StashKey[Path]()
CRASHED = pytest.StashKey[List[str]]()
OBJECTS_OF_A_COLLECTION = 10_000


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("exhaustive_on_pypy") and is_on_pypy(item):
            item.add_marker("exhaustive")
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    zmq = sys.modules.get("zmq")
    if zmq is not None:
        # The traceback of a test that failed keeps its sockets. A later test may be running when the garbage collector
        # meets them, and if it meets their context first, that would wait for ever for the sockets to be closed.
        zmq.Context.__del__ = lambda context: None
    if hasattr(gc, "freeze"):  # PyPy has none
        gc.collect()
        gc.freeze()
        gc.set_threshold(OBJECTS_OF_A_COLLECTION)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is None or call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
        return
    with contextlib.suppress(Exception):  # an exception may have no text
        text = " ".join(call.excinfo.exconly().split())[:MOST_CHARACTERS_OF_A_FAILURE]
        os.write(2, f"{item.nodeid} failed ({call.when}): {text}\n".encode("utf-8", "replace"))


def is_on_pypy(item: pytest.Item) -> bool:
    """Whether PyPy runs the test, or the scheduler that it is about."""
    callspec = getattr(item, "callspec", None)
    return sys.implementation.name == "pypy" or (callspec is not None and "pypy" in callspec.params.values())


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads it
def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "maxworkerrestart", "") is None:  # there is pytest-xdist, and nothing was asked of it
        config.option.maxworkerrestart = "0"
    folder = tempfile.mkdtemp(prefix="scaler-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.stash[CRASH_FOLDER] = Path(folder)
    os.environ["SCALER_RUN_DIRECTORY"] = folder
    os.environ["SCALER_KEY_DIRECTORY"] = os.path.join(folder, "keys")
    os.environ.pop("SCALER_KEY_FILE", None)
    os.environ.pop("SCALER_INSECURE", None)
    os.environ.pop("SCALER_ADDRESS", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So starts a shell what it runs in the background (`make test &`), and every program that a test starts and
        # interrupts would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGQUIT", "SIGHUP"):  # the latter by `nohup make test`; Windows has neither
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist, before a process of tests starts."""
    node.workerinput["crash_folder"] = str(node.config.stash[CRASH_FOLDER])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Of pytest-xdist, when a process of tests has ended."""
    if error is not None:
        node.config.stash.setdefault(CRASHED, []).append(node.gateway.id)


def pytest_sessionstart(session: pytest.Session) -> None:  # pytest's own plugin has enabled the fault handler before
    arguments = getattr(session.config, "workerinput", None)
    if arguments is not None:
        session.config.pluginmanager.register(_CrashReport(Path(arguments["crash_folder"]), arguments["workerid"]))


class _CrashReport:
    """What a process of tests leaves behind if it crashes."""

    def __init__(self, folder: Path, name: str) -> None:
        self._files = open(folder / f"{name}.files", "w", buffering=1)
        self._stacks = open(folder / f"{name}.stacks", "w")
        self._last = ""
        faulthandler.enable(file=self._stacks, all_threads=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        path = nodeid.partition("::")[0]
        if path != self._last:
            self._last = path
            self._files.write(f"  {path}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in config.stash.get(CRASHED, []):
        path = config.stash[CRASH_FOLDER] / f"{name}.stacks"
        if path.exists():
            stacks, _, _ = path.read_text(errors="replace").partition("\nExtension modules:")
            terminalreporter.section(f"where {name} was when it crashed")
            terminalreporter.write_line(stacks or "It was killed.")
            terminalreporter.write_line("It had run tests of, last the one in which it crashed:")
            terminalreporter.write_line(path.with_suffix(".files").read_text())


@pytest.fixture(autouse=True)
def _interrupts_reach_python() -> Iterator[None]:
    """A program that a test runs in this process resets SIGINT when it ends: the next SIGINT would kill the tests."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)


INTERRUPTER = """
import os, signal, sys

class Interrupter:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT_IMPORT_OF"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter)
"""


@pytest.fixture
def run_interrupted(tmp_path: Path) -> Callable[[List[str], str], subprocess.CompletedProcess[str]]:
    """Runs this Python with some arguments; Ctrl-C comes when it imports the module that is named second."""

    def run(arguments: List[str], module: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "sitecustomize.py").write_text(INTERRUPTER)
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "INTERRUPT_AT_IMPORT_OF": module}
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=environment)

    return run
