"""The state machine of a task is total, and its two forms agree."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler_appliance.core.task_states import (
    AFTER,
    FINAL_STATES,
    TRANSITIONS,
    Fault,
    Ignore,
    TaskEvent,
    TaskState,
    apply,
    first_run,
    runs,
)

PAIRS = list(product(TaskState, TaskEvent))


def test_every_pair_of_state_and_event_is_decided_and_no_other() -> None:
    assert set(TRANSITIONS) == set(PAIRS)


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_the_translation_of_spans_agrees_with_the_table(state: TaskState, event: TaskEvent) -> None:
    decision = TRANSITIONS[state, event]
    states = bytearray([state]) * 3
    if isinstance(decision, Fault):
        with pytest.raises(AssertionError, match=event.name):
            apply(states, 0, 3, event)
        assert decision.why
        return
    apply(states, 1, 2, event)
    after = state if isinstance(decision, Ignore) else decision
    assert states == bytes([state, after, state])


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_nothing_leads_out_of_an_outcome(state: TaskState) -> None:
    assert all(isinstance(TRANSITIONS[state, event], (Ignore, Fault)) for event in TaskEvent)


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
