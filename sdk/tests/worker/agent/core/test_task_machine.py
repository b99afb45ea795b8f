"""The agent's core does with a task what the table of the specification says, in every state.

    machines/worker-task.toml ──▶ a core with a task in that state ──event──▶ the state that follows, what is sent

Rules:
- Every cell is tried, in each form its event has. Cells that say "fault" cannot happen; that a task is not given back
  where it must not be is tried all the same.
- How the core is brought to a state, and where it keeps it, is in `worker_task_scene`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import pytest
from worker_task_scene import TIME_LIMIT_SECONDS, Scene

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

TREE = next(path for path in Path(__file__).resolve().parents if (path / "protocol-spec").is_dir())
MACHINE: Dict[str, Any] = tomllib.loads((TREE / "protocol-spec/machines/worker-task.toml").read_text("utf-8"))


class Form(NamedTuple):
    """One way in which an event happens, to a task with some options."""

    event: str
    name: str
    happen: Callable[[Scene], None]
    options: Tuple[Tuple[str, Any], ...] = ()
    states: Tuple[str, ...] = tuple(MACHINE["states"])


FORMS = [
    Form("objects_arrive", "the last object", Scene.objects_arrive),
    Form("object_missing", "missing", Scene.object_missing),
    Form("start", "a slot is free", Scene.start),
    Form("finish", "returned", Scene.finish),
    Form("finish", "raised", Scene.fail),
    Form("finish_large", "returned", Scene.finish_large),
    Form("fetched", "the last byte", Scene.fetched),
    Form("result_lost", "gone", Scene.result_lost),
    Form("die_again", "killed", Scene.die_again, (("retries", 1),)),
    Form("die", "killed", Scene.die),
    Form("die", "at most once", Scene.die, (("retries", 1), ("at_most_once", True))),
    Form("overstep", "its time", Scene.overstep, (("time_limit_milliseconds", int(TIME_LIMIT_SECONDS * 1000)),)),
    Form("cancel", "TaskCancel", Scene.cancel),
    Form("force_cancel", "TaskCancel", Scene.force_cancel),
    Form("give_back", "drained", Scene.drain),
    # What waits for objects is not chosen: it cannot be run sooner elsewhere.
    Form("give_back", "balanced", Scene.balance, states=("queued",)),
    Form("session_end", "reset", Scene.end_session),
]


def cells() -> List[Any]:
    """Each pair of state and event that can happen, in each of the event's forms."""
    return [
        pytest.param(state, form, id=f"{state}-{form.event}-{form.name}")
        for state, row in MACHINE["transitions"].items()
        for form in FORMS
        if not row[form.event].startswith("fault") and state in form.states
    ]


def expected_replies(state: str, event: str) -> List[str]:
    """What may be sent: "TaskResult success or failed" is two."""
    reply = re.sub(r" \(.*\)$", "", MACHINE["replies"].get(f"{state}.{event}", ""))
    first, *others = reply.split(" or ")
    head = first.rpartition(" ")[0]
    return [first, *(f"{head} {other}" for other in others)] if reply else []


@pytest.mark.parametrize(("state", "form"), cells())
def test_the_core_does_what_the_table_says(state: str, form: Form) -> None:
    scene = Scene()
    scene.bring_to(state, **dict(form.options))
    form.happen(scene)
    sent = scene.sent()
    target = MACHINE["transitions"][state][form.event]
    replies = expected_replies(state, form.event)

    assert scene.state == (state if target.startswith("ignore") else target)
    assert len(sent) == bool(replies) and set(sent) <= set(replies), f"{sent} instead of {replies}"


@pytest.mark.parametrize("give_back", [Scene.balance, Scene.drain], ids=["balanced", "drained"])
@pytest.mark.parametrize("state", ["running", "again", "fetching", "ended"])
def test_what_has_started_is_not_given_back(state: str, give_back: Callable[[Scene], None]) -> None:
    scene = Scene()
    scene.bring_to(state)
    give_back(scene)

    assert (scene.state, scene.sent()) == (state, [])


def test_every_event_of_the_table_is_tried() -> None:
    assert {form.event for form in FORMS} == set(MACHINE["events"])
