"""What `scaler.client.shell.future_internals` relies on, tested with the real class on the Python that runs this file.

    python standard_library_checks.py SOURCES ...      the folders of the packages; no other package is needed

Each check is about one line of that module's docstring, and its name says which. The names of those that hold are
printed.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import queue
import sys
import threading
import types
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, _base, as_completed, wait
from typing import Any, Callable, List

TIMEOUT_SECONDS = 30.0

FIELDS_OF_A_FUTURE = {"_state", "_result", "_exception", "_waiters", "_done_callbacks", "_condition"}


def internals() -> Any:
    """The module, without the rest of the package, which needs packages that may not be installed."""
    for name in ("scaler.client", "scaler.client.shell", "scaler.client.core"):
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = [f"{folder}/{name.replace('.', '/')}" for folder in sys.path]
            sys.modules[name] = module
    return importlib.import_module("scaler.client.shell.future_internals")


class Futures:
    """Futures of one client, with their payloads: a value, or the failure of a task."""

    def __init__(self, count: int) -> None:
        self.module = module = internals()
        self.condition = module.shared_condition()
        self._client = types.SimpleNamespace(_shell=types.SimpleNamespace(condition=self.condition))
        self.loaded_with_the_condition: List[bool] = []
        condition, loaded = self.condition, self.loaded_with_the_condition

        class LoadedFuture(module.FutureWithSharedCondition):  # type: ignore[misc, name-defined]  # loaded
            def _loaded(self, payload: Any) -> Any:
                loaded.append(condition._is_owned())
                return None, ValueError(payload.decode())

        self.all = [LoadedFuture() for _ in range(count)]
        for future in self.all:
            future._client = self._client

    def _tell(self, watched: List[Any]) -> None:
        for future, waiters in self.module.waiting_for(watched):
            future._notify(waiters)

    def cancel(self, future: Any) -> None:
        with self.condition:
            watched = self.module.settle_cancelled([future])
        self._tell(watched)

    def succeed(self, future: Any) -> None:
        with self.condition:
            watched = self.module.settle_results([future], b"", [0])
        self._tell(watched)

    def fail(self, future: Any) -> None:
        with self.condition:
            future._has_failed = True
            watched: List[Any] = []
            self.module.settle_outcome(future, b"broken", watched)
        self._tell(watched)

    def in_a_thread(self, wait_for: Any) -> queue.SimpleQueue[Any]:
        """Let a thread wait; returns when it waits. Its answer comes by the queue."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        appended = threading.Event()
        for future in self.all:
            watch_appends(future._waiters, appended)
        threading.Thread(target=lambda: answer.put(wait_for()), daemon=True).start()
        assert appended.wait(TIMEOUT_SECONDS)
        return answer


def watch_appends(waiters: List[Any], appended: threading.Event) -> None:
    class Watched(type(waiters)):  # type: ignore[misc]  # private
        def append(self, waiter: Any) -> None:
            super().append(waiter)
            appended.set()

    waiters.__class__ = Watched


def check_a_future_has_these_fields_and_no_others() -> None:
    assert vars(Future()).keys() == FIELDS_OF_A_FUTURE


def check_these_are_the_states() -> None:
    states = [_base.PENDING, _base.RUNNING, _base.CANCELLED, _base.CANCELLED_AND_NOTIFIED, _base.FINISHED]
    assert sorted(states) == sorted(vars(_base)["_FUTURE_STATES"])
    assert Future()._state == _base.PENDING


def check_a_future_that_was_not_initialised_is_pending() -> None:
    future = Futures(1).all[0]
    assert not (future.done() or future.cancelled() or future.running())


def check_wait_appends_a_waiter_with_an_event_and_removes_it() -> None:
    futures = Futures(1)
    (future,) = futures.all
    kinds: List[Any] = []
    wait_in_thread = futures.in_a_thread(lambda: wait([future], TIMEOUT_SECONDS))
    with futures.condition:  # `wait` has installed its waiter when it lets go of it
        kinds += [type(waiter.event) for waiter in future._waiters]
    assert kinds == [threading.Event]
    futures.succeed(future)
    assert wait_in_thread.get(timeout=TIMEOUT_SECONDS).done == {future}
    assert list(future._waiters) == []


def check_wait_gets_results_exceptions_and_cancellations() -> None:
    for how in ("succeed", "fail", "cancel"):
        futures = Futures(2)
        first, second = futures.all
        answer = futures.in_a_thread(lambda both=futures.all: wait(both, TIMEOUT_SECONDS, FIRST_COMPLETED))
        getattr(futures, how)(second)
        assert answer.get(timeout=TIMEOUT_SECONDS) == ({second}, {first}), how


def check_wait_for_a_failure_loads_nothing_with_the_condition_held() -> None:
    futures = Futures(2)
    first, second = futures.all
    futures.fail(first)
    assert wait(futures.all, TIMEOUT_SECONDS, FIRST_EXCEPTION) == ({first}, {second})
    assert True not in futures.loaded_with_the_condition
    assert str(first.exception(0)) == "broken"
    assert futures.loaded_with_the_condition == [False]


def check_as_completed_gets_results_exceptions_and_cancellations() -> None:
    futures = Futures(3)
    completed = as_completed(futures.all, TIMEOUT_SECONDS)
    for how, future in zip(("succeed", "fail", "cancel"), futures.all):
        getattr(futures, how)(future)
        assert next(completed) is future, how
    assert next(completed, None) is None
    assert [list(future._waiters) for future in futures.all] == [[], [], []]


def check_callbacks_are_appended_and_called_at_once_when_it_is_late() -> None:
    futures = Futures(1)
    (future,) = futures.all
    called: List[str] = []
    future.add_done_callback(lambda _: called.append("before"))
    assert called == [] and len(future._done_callbacks) == 1
    futures.cancel(future)
    future._run_callbacks()
    future.add_done_callback(lambda _: called.append("after"))
    assert called == ["before", "after"]


def check_callbacks_are_added_with_the_condition_held() -> None:
    futures = Futures(1)
    owned: List[bool] = []

    class Callbacks(List[Any]):
        def append(self, callback: Any) -> None:
            owned.append(futures.condition._is_owned())
            super().append(callback)

    futures.all[0].__dict__["_done_callbacks"] = Callbacks()
    futures.all[0].add_done_callback(print)
    assert owned == [True]


def check_the_condition_is_entered_and_left_by_calls_of_c() -> None:
    condition = Futures(0).condition
    with condition:
        assert condition._is_owned()
    assert not condition._is_owned()
    assert not any(inspect.isfunction(getattr(condition, name)) for name in ("__enter__", "__exit__", "acquire"))


def check_a_future_keeps_what_others_set_while_garbage_is_collected() -> None:
    """What another thread does then, a finaliser does here, which runs at a certain moment."""
    module = internals()
    names = {*module.NAMES_WITH_A_PLACE} - {"_client", "_waiters", "_done_callbacks"}
    acts: List[Callable[[Any], Any]] = [
        *(lambda each, name=name: setattr(each, name, None) for name in names),
        lambda each: each._waiters,
        lambda each: module.set_attribute(each, "_cause", 0),
    ]
    for act in acts:
        another, future = Futures(100).all[-2:]
        another.of_a_user = 1  # takes the last place

        class Garbage:
            def __init__(self) -> None:
                self.cycle = self

            def __del__(self, future: Any = future) -> None:
                future._done_callbacks.append("callback")
                module.set_attribute(future, "_stack", "stack")

        with_garbage(Garbage, act, future)
        assert (future._done_callbacks, future._stack) == (["callback"], "stack")
        assert {"_client", "_done_callbacks", "_stack"} <= set(vars(future))


def with_garbage(kind: Callable[[], Any], act: Callable[[Any], Any], future: Any) -> None:
    """Let garbage be collected by the first thing that is made, which is a dictionary if one is."""
    gc.collect()
    gc.disable()
    kind()
    if sys.implementation.name == "cpython":
        thresholds = gc.get_threshold()
        gc.set_threshold(1)
        spare: List[Any] = [{} for _ in range(200)]  # what the interpreter keeps of these is used up
        gc.enable()
        act(future)
        gc.set_threshold(*thresholds)
        del spare
    else:
        gc.enable()
        act(future)
    gc.collect()


def check_asyncio_waits_for_a_future() -> None:
    futures = Futures(1)
    (future,) = futures.all

    async def run() -> bool:
        wrapped: asyncio.Future[Any] = asyncio.wrap_future(future)
        futures.fail(future)
        future._run_callbacks()
        try:
            await asyncio.wait_for(wrapped, TIMEOUT_SECONDS)
        except ValueError:
            return True
        return False

    assert asyncio.run(run())


CHECKS = {name: value for name, value in list(globals().items()) if name.startswith("check_")}


def main() -> None:
    sys.path[:0] = sys.argv[1:]
    for name, check in CHECKS.items():
        check()
        print(name)


if __name__ == "__main__":
    main()
