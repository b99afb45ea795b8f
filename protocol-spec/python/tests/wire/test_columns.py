"""The generated checks of batches: every column that disagrees is found and named."""

from __future__ import annotations

from array import array
from typing import Any, Callable, List, Type

import pytest

from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m

BATCHES: List[Type[Any]] = [
    kind for kind in vars(m).values() if isinstance(kind, type) and hasattr(kind, "check_columns")
]


def task(**changes: Any) -> m.Task:
    columns: Any = {"ids": [4, 5], "payload_sizes": [1, 2], "dependency_counts": [0, 2], "dependencies": [8, 9]}
    return m.Task(**{**columns, **changes})


def test_the_batches_are_those_that_carry_columns() -> None:
    assert {kind.__name__ for kind in BATCHES} == {
        "Task", "TaskResult", "TaskCancelConfirm", "GraphTask", "GraphTaskResult", "ObjectInstruction", "WorkerColumns",
        "ProcessorColumns", "ClientColumns", "FunctionColumns", "GraphColumns", "ObjectColumns", "ActorColumns",
        "TaskRuns",
    }  # fmt: skip


def test_columns_that_agree_pass_and_those_that_a_batch_does_not_need_are_empty() -> None:
    task().check_columns(3)
    task(predecessor_counts=[1, 0], predecessors=[2]).check_columns(3)
    m.Task(ids=[4, 5], payload_sizes=[1, 2]).check_columns(3)
    for kind in BATCHES:
        check(kind(), kind)


def check(batch: Any, kind: Type[Any]) -> None:
    has_payload = kind in (m.Task, m.TaskResult, m.GraphTask, m.GraphTaskResult)
    batch.check_columns(0) if has_payload else batch.check_columns()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: task(payload_sizes=[3]), "Task: payload_sizes has 1 entries, ids has 2"),
        (lambda: task(payload_sizes=[]), "Task: payload_sizes has 0 entries, ids has 2"),
        (
            lambda: task(payload_sizes=[1, 1]),
            "Task: the sum of payload_sizes is 2, the length of the payload frame",
        ),
        (lambda: task(dependency_counts=[2]), "Task: dependency_counts has 1 entries, ids has 2"),
        (lambda: task(dependencies=[8]), "Task: the sum of dependency_counts is 2, the length of dependencies is 1"),
        (
            lambda: task(dependency_counts=[]),
            "the sum of dependency_counts is 0, the length of dependencies is 2",
        ),
        (lambda: task(predecessor_counts=[1, 1]), "predecessor_counts is 2, the length of predecessors is 0"),
    ],
)
def test_tasks_whose_columns_disagree_are_malformed(make: Callable[[], m.Task], why: str) -> None:
    with pytest.raises(MalformedMessageError) as raised:
        make().check_columns(3)
    assert why in str(raised.value)


APART = {
    ("TaskResult", "runs"),
    ("GraphTask", "predecessor_offsets"),
    ("GraphTask", "predecessors"),
    ("GraphTask", "targets"),
}
"""Columns with entries of their own, which other checks look at."""

LISTS = [
    (kind, name)
    for kind in BATCHES
    for name in kind.__slots__
    if isinstance(getattr(kind(), name), (bytes, list, array)) and name not in ("scheduler_id", "failures")
]


@pytest.mark.parametrize(("kind", "name"), LISTS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_an_entry_without_counterparts_is_found_in_every_column(kind: Type[Any], name: str) -> None:
    entry: Any = ["text"] if kind is m.ObjectInstruction and name == "names" else [1]
    batch = kind(**{name: entry})
    if (kind.__name__, name) in APART:
        check(batch, kind)
    else:
        with pytest.raises(MalformedMessageError, match=f"{kind.__name__}.*{name}"):
            check(batch, kind)
