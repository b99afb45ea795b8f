"""The core does with an object what the table of the specification says, in every state.

    machines/object.toml ──▶ a core with an object in that state ──event──▶ the state that follows, who is told what

Rules:
- The object's bytes have not arrived yet, and a client waits for them. A worker runs a task that
  needs it, or has run one.
- Cells that say "fault" cannot happen.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Set

import pytest
from scheduler_harness import Harness, Peer, Worker

from scaler_protocol import decode_struct
from scaler_protocol import messages as m

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

TREE = next(path for path in Path(__file__).resolve().parents if (path / "protocol-spec").is_dir())
MACHINE: Dict[str, Any] = tomllib.loads((TREE / "protocol-spec/machines/object.toml").read_text("utf-8"))
SIZE = 20
NEEDED = ("let_go_needed", "last_need_ends")  # events that only happen while a task needs the object


class Scene:
    """An object of a worker or a client, and those who need it.

    Parameters:
        is_result: a worker made it, for a task that it runs.
    """

    def __init__(self, is_result: bool) -> None:
        self.harness = Harness(chunk_bytes=10)
        self.runner = self.harness.worker()
        self.client = self.harness.client()
        self.waiter = self.harness.client()
        self.owner: Peer = self.harness.client()
        self._next_id = 0
        if is_result:
            self.runner.send(m.DisconnectRequest())
            self.owner = self.harness.worker()
            self.submit()
            (self.instance,) = self._taken(self.owner)
            self.runner = self.harness.worker()
        self.object_id = self.owner.announce(1, SIZE, m.ObjectStorage.REMOTE)
        self.waiter.send(m.ObjectRequest(id=self.object_id, offset=0, length=10))

    def submit(self, *dependencies: int) -> None:
        """A client submits a task that needs the object, or nothing."""
        counts = [len(dependencies)] if dependencies else []
        self.client.submit([self._next_id], dependency_counts=counts, dependencies=dependencies)
        self._next_id += 1

    def _taken(self, worker: Peer) -> List[int]:
        """The instances that a worker was sent."""
        return [each for message, _ in worker.inbox if isinstance(message, m.Task) for each in message.ids]

    def need(self) -> None:
        self.submit(self.object_id)

    def end_need(self) -> None:
        self.runner.finish(self._taken(self.runner))

    def let_go(self) -> None:
        self.owner.delete(self.object_id)

    def leave(self) -> None:
        self.owner.vanish()

    def hand_over(self) -> None:
        assert isinstance(self.owner, Worker)
        self.owner.finish([self.instance], [b""], objects=[self.object_id])

    def delete_as_another(self) -> None:
        self.waiter.delete(self.object_id)

    def lose_bytes(self) -> None:
        self.harness.core.on_object_unreadable(self.harness.now, self.object_id)
        self.harness.tick()

    @property
    def state(self) -> str:
        """As the core has it."""
        record = self.harness.state.objects.find(self.object_id)
        if record is None:
            return "gone"
        if not record.held:
            return "needed"
        return "broken" if record.is_broken else "held"

    def bring_to(self, state: str, is_needed: bool) -> None:
        self.need()
        if state == "broken":
            self.lose_bytes()
        if state == "needed":
            self.let_go()
        elif not is_needed:
            self.end_need()
        if state == "gone":
            self.let_go()
        assert self.state == state
        if state == "gone" or not (is_needed or state == "needed"):
            self.runner.inbox.clear()
        self.client.inbox.clear()
        self.waiter.inbox.clear()

    def told(self) -> Set[str]:
        """What was said to those who need the object."""
        found: Set[str] = set()
        for message, payload in self.client.inbox:
            if isinstance(message, m.TaskResult) and m.TaskStatus.LOST in message.statuses:
                kind = m.FailureKind(decode_struct(m.Failure, payload).kind)
                found.add(f"TaskResult lost, {_camel_case(kind.name)}")
            elif isinstance(message, m.TaskResult) and list(message.objects) == [self.object_id]:
                found.add("TaskResult success")
        for message, _ in self.waiter.inbox:
            assert isinstance(message, m.ObjectResponse) and message.status == m.ObjectResponseStatus.MISSING
            found.add("ObjectResponse missing")
        for message, _ in self.runner.inbox:
            if isinstance(message, m.ObjectInstruction) and message.action == m.ObjectAction.DELETE:
                assert message.ids == array("Q", [self.object_id])
                found.add("ObjectInstruction delete")
        return found


def _camel_case(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(map(str.capitalize, rest))


class Form(NamedTuple):
    """One way in which an event happens."""

    event: str
    name: str
    happen: Callable[[Scene], None]
    is_result: bool = False
    then: str = ""  # what it brings with it


FORMS = [
    Form("need", "Task", Scene.need),
    Form("hand_over", "TaskResult", Scene.hand_over, is_result=True),
    Form("break", "unreadable", Scene.lose_bytes),
    Form("break", "unreadable result", Scene.lose_bytes, is_result=True),
    Form("let_go", "deletes", Scene.let_go),
    Form("let_go", "leaves", Scene.leave, then="break"),
    Form("let_go_needed", "deletes", Scene.let_go),
    Form("let_go_needed", "leaves", Scene.leave, then="break"),
    Form("last_need_ends", "TaskResult", Scene.end_need),
    Form("delete_again", "delete", Scene.delete_as_another),
]


def cells() -> List[Any]:
    """Each pair of state and event that can happen, in each of the event's forms."""
    return [
        pytest.param(state, form, id=f"{state}-{form.event}-{form.name}")
        for state, row in MACHINE["transitions"].items()
        for form in FORMS
        if not row[form.event].startswith("fault")
    ]


@pytest.mark.parametrize(("state", "form"), cells())
def test_the_core_does_what_the_table_says(state: str, form: Form) -> None:
    scene = Scene(form.is_result)
    scene.bring_to(state, is_needed=form.event in NEEDED)
    form.happen(scene)

    expected: Set[str] = set()
    # What is broken already breaks no more.
    for event in filter(None, (form.event, form.then if state != "broken" else "")):
        replies = MACHINE["replies"].get(f"{state}.{event}", "")
        expected.update(reply.partition(", to ")[0] for reply in replies.split("; ") if reply)
        target = MACHINE["transitions"][state][event]
        state = state if target.startswith("ignore") else target
    assert scene.state == state
    assert scene.told() == expected


def test_every_event_of_the_table_is_tried() -> None:
    assert {form.event for form in FORMS} == set(MACHINE["events"])


def test_a_result_is_its_clients_from_then_on() -> None:
    scene = Scene(is_result=True)
    scene.hand_over()
    scene.leave()

    assert scene.state == "broken", "its bytes were with the worker"
    scene.client.delete(scene.object_id)
    assert scene.state == "gone"
