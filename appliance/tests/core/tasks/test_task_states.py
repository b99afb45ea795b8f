"""The state machine of a task is total, and its two forms agree."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaler_appliance.core
from scaler_appliance.core.tasks.task_states import (
    AFTER,
    FINAL_STATES,
    TRANSITIONS,
    Defect,
    Ignore,
    TaskEvent,
    TaskState,
    after,
    apply,
    first_run,
    follow,
    runs,
)

CORE = Path(scaler_appliance.core.__file__).parent
PAIRS = list(product(TaskState, TaskEvent))


def test_every_pair_of_state_and_event_is_decided_and_no_other() -> None:
    assert set(TRANSITIONS) == set(PAIRS)


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_the_translation_of_spans_agrees_with_the_table(state: TaskState, event: TaskEvent) -> None:
    decision = TRANSITIONS[state, event]
    states = bytearray([state]) * 3
    if isinstance(decision, Defect):
        with pytest.raises(AssertionError, match=event.name):
            apply(states, 0, 3, event)
        assert decision.why
        return
    apply(states, 1, 2, event)
    next_state = state if isinstance(decision, Ignore) else decision
    assert states == bytes([state, next_state, state])
    assert after(state, event) == next_state


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_nothing_leads_out_of_an_outcome(state: TaskState) -> None:
    assert all(isinstance(TRANSITIONS[state, event], (Ignore, Defect)) for event in TaskEvent)


def test_bytes_that_are_no_state_are_faults() -> None:
    assert all(table[state] == 255 for table in AFTER for state in range(len(TaskState), 256))


@given(
    st.binary(max_size=30).map(lambda data: bytes(byte % 3 for byte in data)), st.integers(0, 31), st.integers(0, 31)
)
def test_runs_are_maximal_spans_of_one_state(states: bytes, start: int, stop: int) -> None:
    stop = min(stop, len(states))
    found = runs(states, start, stop, 1)
    covered = [index for first, end in found for index in range(first, end)]
    assert covered == [index for index in range(start, stop) if states[index] == 1]
    assert all(before[1] < after[0] for before, after in zip(found, found[1:]))
    assert first_run(states, start, stop, 1) == (found[0] if found else None)


@pytest.mark.parametrize("outcome", sorted(FINAL_STATES))
def test_a_column_follows_another_one_where_the_table_leads(outcome: TaskState) -> None:
    states = bytearray([TaskState.QUEUED])
    follow(states, 0, bytes([outcome]))
    assert states == bytes([outcome])
    with pytest.raises(AssertionError):
        follow(states, 0, bytes([TaskState.QUEUED]))


def assignments_to_states(source: str) -> Iterator[int]:
    """The lines in which an entry of a column of states is assigned."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        else:
            continue
        for target in [each for top in targets for each in (top.elts if isinstance(top, ast.Tuple) else [top])]:
            if isinstance(target, ast.Subscript) and ast.unparse(target.value).rpartition(".")[2].endswith("states"):
                yield node.lineno


def test_no_module_but_that_of_the_table_assigns_states() -> None:
    found = [
        f"{path.relative_to(CORE)}:{line}"
        for path in sorted(CORE.rglob("*.py"))
        if path.name != "task_states.py"
        for line in assignments_to_states(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_an_assignment_around_the_table_is_found() -> None:
    lines = [
        "batch.states[0] = 1",
        "s, self.states[a] = x",
        "states[0:2] += b",
        "ended[a.states[0]] += 1",
        "states = b",
    ]
    assert [any(assignments_to_states(line)) for line in lines] == [True, True, True, False, False]
