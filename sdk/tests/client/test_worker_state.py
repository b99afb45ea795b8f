"""`worker_state` is a dictionary of the process that runs a task."""

from __future__ import annotations

import copy
import os
import pickle
import uuid
from typing import Dict, List, Tuple

from sdk_tasks import identity

import scaler
from scaler import Client, worker_state

TIMEOUT_SECONDS = 30.0


def test_tasks_of_a_process_share_it_and_this_process_has_its_own(any_client: Client) -> None:
    """The functions travel by value, each with globals of its own."""

    key = uuid.uuid4().hex  # processes outlive a test

    def remember(number: int) -> int:
        worker_state.setdefault(key, []).append(number)
        return os.getpid()

    def recall(_: int) -> Tuple[int, List[int]]:
        return os.getpid(), list(worker_state.get(key, []))

    with any_client.executor() as executor:
        where = list(executor.map(remember, range(40)))
        seen: Dict[int, List[int]] = dict(executor.map(recall, range(40)))
    for process, numbers in seen.items():
        assert numbers == [number for number, there in enumerate(where) if there == process]
    assert key not in worker_state


def test_an_initializer_fills_it_for_functions_that_travel_by_value(any_client: Client) -> None:
    def load(name: str) -> None:
        scaler.worker_state["model of a test"] = {"size": len(name)}

    def predict(number: int) -> int:
        model: Dict[str, int] = scaler.worker_state["model of a test"]
        return model["size"] * number

    with any_client.executor(initializer=load, initargs=("large",)) as executor:
        assert list(executor.map(predict, range(10))) == [5 * number for number in range(10)]


def test_it_travels_by_name_also_as_an_argument(any_client: Client) -> None:
    worker_state["only here"] = object()  # which could be pickled, and is not
    try:
        assert any_client.submit(lambda state: "only here" in state, worker_state).result(TIMEOUT_SECONDS) is False
        assert any_client.submit(identity, worker_state).result(TIMEOUT_SECONDS) is worker_state
        assert pickle.loads(pickle.dumps(worker_state)) is worker_state
        assert copy.copy(worker_state) is copy.deepcopy(worker_state) is worker_state
        assert repr(worker_state).startswith("worker_state({'only here'")
    finally:
        del worker_state["only here"]


def test_a_function_that_uses_it_is_serialised_once(any_client: Client) -> None:
    def count(_: int) -> int:
        worker_state["calls of a test"] = worker_state.get("calls of a test", 0) + 1
        return id(worker_state)

    before = any_client.submit(count, 1)
    worker_state["changed here"] = 1
    try:
        after = any_client.submit(count, 2)
    finally:
        del worker_state["changed here"]
    assert before.result(TIMEOUT_SECONDS) and after.result(TIMEOUT_SECONDS)
    assert before._function is after._function is not None
