"""Progress bars of `map`, `get` and `wait`."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import threading
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future, as_completed
from typing import Any, Callable, List

import pytest
from tqdm import tqdm

from scaler import Client, NamedFunction


class Screen(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def counts(self) -> List[str]:
        """All "done/total" that were drawn."""
        return re.findall(r"(\d+/\d+) ", self.getvalue())


ReplaceScreen = Callable[[bool], Screen]


@pytest.fixture
def replace_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Screen]:
    """Lets standard error lead to a terminal, or to a file, until the test ends."""

    def replace(is_terminal: bool) -> Screen:
        screen = Screen(is_terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return replace


def fail(_: int) -> None:
    raise ValueError("no")


def test_map_counts_calls_not_chunks(any_client: Client, replace_screen: ReplaceScreen) -> None:
    terminal = replace_screen(True)
    assert any_client.map(abs, range(5000), progress=True) == list(range(5000))
    assert terminal.counts()[0] == "0/5000" and terminal.counts()[-1] == "5000/5000"
    assert "abs: 100%" in terminal.getvalue()


def test_starmap_get_and_named_functions_have_bars(any_client: Client, replace_screen: ReplaceScreen) -> None:
    terminal = replace_screen(True)
    assert any_client.starmap(pow, [(2, 3), (3, 2)], progress=True) == [8, 9]
    assert terminal.counts()[-1] == "2/2"
    graph = {"a": 1, "b": (abs, -2), "c": (abs, -3), "d": (max, "b", "c")}
    assert any_client.get(graph, ["b", "c", "d"], progress=True) == {"b": 2, "c": 3, "d": 3}
    assert terminal.counts()[-1] == "3/3"
    assert any_client.map(NamedFunction("python:math:sqrt"), [4, 9, 16, 25], progress=True) == [2, 3, 4, 5]
    assert terminal.counts()[-1] == "4/4"


def test_a_view_has_bars_too(any_client: Client, replace_screen: ReplaceScreen) -> None:
    terminal = replace_screen(True)
    view = any_client.options(progress=True)
    assert view.map(abs, [-1, 2]) == [1, 2]
    assert terminal.counts()[-1] == "2/2"
    assert view.options(priority=1).get({"a": (abs, -1)}, ["a"]) == {"a": 1}
    assert terminal.counts()[-1] == "1/1"
    drawn = terminal.getvalue()
    assert view.map(abs, [-1, 2], progress=False) == [1, 2]
    assert terminal.getvalue() == drawn


def test_an_option_of_the_client_alone_does_not_travel(any_client: Client) -> None:
    assert any_client.options(progress=True)._task_options is any_client.options()._task_options is None
    with_bar = any_client.options(progress=True, priority=3)
    assert with_bar._task_options is any_client.options(priority=3)._task_options


def test_a_file_gets_no_bar_unless_it_always_shall(any_client: Client, replace_screen: ReplaceScreen) -> None:
    file = replace_screen(False)
    assert any_client.map(abs, [-1], progress=True) == [1]
    assert file.getvalue() == ""
    assert any_client.map(abs, [-1], progress="always") == [1]
    assert file.counts()[-1] == "1/1"


def test_without_a_wish_nothing_is_shown(any_client: Client, replace_screen: ReplaceScreen) -> None:
    terminal = replace_screen(True)
    assert any_client.map(abs, [-1]) == [1]
    assert terminal.getvalue() == ""


def test_wait_is_the_standard_librarys(any_client: Client, replace_screen: ReplaceScreen) -> None:
    terminal = replace_screen(True)
    futures = [any_client.submit(abs, -number) for number in range(1000)]
    for progress in (False, True):
        done, not_done = any_client.wait(futures, progress=progress)
        assert (len(done), len(not_done)) == (1000, 0)
    assert terminal.counts()[-1] == "1000/1000"


@pytest.mark.parametrize("return_when", [ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION])
def test_wait_ends_when_it_should(any_client: Client, replace_screen: ReplaceScreen, return_when: str) -> None:
    replace_screen(True)
    never: Future[Any] = Future()
    never.set_running_or_notify_cancel()
    futures: List[Future[Any]] = [any_client.submit(abs, -1), any_client.submit(fail, 1), never]
    if return_when == ALL_COMPLETED:
        threading.Timer(0.2, never.set_result, [None]).start()
    done, not_done = any_client.wait(futures, 30.0, return_when, progress=True)
    assert done | not_done == set(futures)
    assert (never in done) == (return_when == ALL_COMPLETED)
    assert return_when != FIRST_EXCEPTION or futures[1] in done
    assert never in done or not never._waiters


def test_wait_gives_up_in_time_and_leaves_nothing_behind(any_client: Client, replace_screen: ReplaceScreen) -> None:
    replace_screen(True)
    never: Future[Any] = Future()
    done, not_done = any_client.wait([never], 0.01, progress=True)
    assert (done, not_done) == (set(), {never})
    assert not never._waiters
    assert any_client.wait([], progress=True).done == set()


def test_an_error_ends_the_bar(any_client: Client, replace_screen: ReplaceScreen) -> None:
    replace_screen(True)
    with pytest.raises(ValueError, match="no"):
        any_client.map(fail, range(10), progress=True)
    with pytest.raises(ValueError, match="no"):
        any_client.get({"a": (fail, 1), "b": (fail, 2)}, ["a", "b"], progress=True)


def test_tqdm_itself_shows_futures_as_they_come(any_client: Client) -> None:
    screen = Screen(is_terminal=True)
    futures = [any_client.submit(abs, -number) for number in range(20_000)]
    assert sum(future.result() for future in tqdm(as_completed(futures), total=len(futures), file=screen)) == sum(
        range(20_000)
    )
    assert screen.counts()[-1] == "20000/20000"


def test_a_notebook_is_no_terminal_and_has_bars(
    any_client: Client, replace_screen: ReplaceScreen, monkeypatch: Any
) -> None:
    file = replace_screen(False)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    assert any_client.map(abs, [-1], progress=True) == [1]
    assert file.counts()[-1] == "1/1"


def test_what_is_no_wish_is_refused(any_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("often", 1, 0, None):
        if wrong is not None:
            with pytest.raises(TypeError, match="progress must be True, False or 'always'"):
                any_client.options(progress=wrong)  # type: ignore[arg-type]  # wrong on purpose
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'scaler-sdk\[progress\]'"):
        any_client.map(abs, [-1], progress=True)
    assert any_client.map(abs, [-1], progress=False) == [1]
