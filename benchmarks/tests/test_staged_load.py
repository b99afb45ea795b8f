"""The figures of a pool, from notes that were written by hand, and the ideal that they are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elastic import staged_load
from elastic.staged_load import Stage, TaskGroup, figures, ideal_seconds

STAGES = (Stage(0.0, (TaskGroup("long", 2, 4.0),)), Stage(20.0, (TaskGroup("short", 1, 1.0),)))
NOTES = """\
100.5 asked a
102.5 up a
103.0 begin long-0 a
104.0 begin long-1 b
105.0 down b
107.0 end long-0 a
107.0 begin long-1 a
111.0 end long-1 a
112.0 down a
113.0 asked c
114.0 up c
121.0 asked d
122.0 up d
122.0 begin short-0 d
123.0 end short-0 d
"""


def figures_of(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(staged_load, "STAGES", STAGES)
    path = tmp_path / "notes"
    path.write_text(text)
    return figures(path, 100.0, 130.0, units=2, boot_seconds=1.0)


def test_what_a_pool_did_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures_of("100.5 asked b\n102.5 up b\n" + NOTES, tmp_path, monkeypatch)

    assert found["stages"] == [
        {"seconds": 11.0, "of ideal": 2.2, "units started": 3},
        {"seconds": 3.0, "of ideal": 1.5, "units started": 1},
    ]
    assert found["utilisation"] == round(9.0 / (9.5 + 2.5 + 16.0 + 8.0), 3)
    assert (found["units started"], found["units without a task"], found["units at a time"]) == (4, 1, 2)
    assert found["flaps"] == 1, "c came after b and a had gone, and no tasks had come since; d came with a task"
    assert (found["tasks stopped in the middle"], found["tasks run again"]) == (1, 1)
    assert found["units left at the end"] == 2


def test_a_task_without_an_end_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="2 of 3 tasks have ended"):
        figures_of("100.5 asked b\n102.5 up b\n" + NOTES.replace("123.0 end short-0 d\n", ""), tmp_path, monkeypatch)


def test_the_ideal_begins_with_one_boot_and_waits_for_what_comes_before() -> None:
    assert ideal_seconds(Stage(0.0, (TaskGroup("six", 15, 6.0),)), 8, 5.0) == 17.0
    stage = Stage(0.0, (TaskGroup("blocker", 1, 15.0), TaskGroup("blocked", 30, 2.0, "blocker")))
    assert ideal_seconds(stage, 8, 5.0) == 28.0
