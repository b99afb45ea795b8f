"""The core's table of a task's states is the one that the specification prints."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest

from scaler_appliance.core.tasks.task_states import FINAL_STATES, TRANSITIONS, Defect, Ignore, TaskEvent, TaskState

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

MACHINES = Path(__file__).resolve().parents[4] / "protocol-spec/machines"


def test_a_tasks_table_is_that_of_the_specification() -> None:
    with (MACHINES / "task.toml").open("rb") as file:
        machine = tomllib.load(file)

    assert set(machine["states"]) == {state.name.lower() for state in TaskState}
    assert set(machine["events"]) == {event.name.lower() for event in TaskEvent}
    assert set(machine["final"]) == {state.name.lower() for state in FINAL_STATES}
    ours: Dict[str, Dict[str, str]] = {state: {} for state in machine["states"]}
    for (state, event), decision in TRANSITIONS.items():
        if isinstance(decision, TaskState):
            text = decision.name.lower()
        else:
            text = f"{'ignore' if isinstance(decision, Ignore) else 'fault'}: {decision.why}"
            assert isinstance(decision, (Ignore, Defect))
        ours[state.name.lower()][event.name.lower()] = text
    assert machine["transitions"] == ours
