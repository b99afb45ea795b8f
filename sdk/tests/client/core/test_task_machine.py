"""The client's core does with a task what the table of the specification says, in every state.

    machines/client-task.toml ──▶ a core with a task in that state ──event──▶ the state that follows, what is sent

Rules:
- Every cell is tried, in each form its event has. Cells that say "fault" cannot happen.
- The test plays the shell (it opens no result, so each is fetched), the user and the scheduler.
"""

from __future__ import annotations

import itertools
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import pytest

from scaler.values.named_functions import NamedFunction
from scaler_protocol import encode_struct
from scaler_protocol import messages as m

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")
client_core = pytest.importorskip("scaler.client.core.client_core", reason="the client has no core without I/O")
commands = pytest.importorskip("scaler.client.core.commands")
effects = pytest.importorskip("scaler.client.core.effects")
deferring = pytest.importorskip("scaler.client.core.deferring")

TREE = next(path for path in Path(__file__).resolve().parents if (path / "protocol-spec").is_dir())
MACHINE: Dict[str, Any] = tomllib.loads((TREE / "protocol-spec/machines/client-task.toml").read_text("utf-8"))
ECHO = NamedFunction("scaler.conformance/echo")
OBJECT, SIZE = 5 << 40 | 1, 10
ONCE = m.TaskOptions(at_most_once=True)
PREDECESSOR_GONE = encode_struct(m.Failure(kind=m.FailureKind.PREDECESSOR_GONE))


class Future:
    """All that the core knows of a future."""

    def __init__(self) -> None:
        self._task_id = -1
        self._source: Any = None
        self._is_cancel_asked = False


class Scene:
    """A core with a task, which needs the result of another one."""

    def __init__(self, options: Any = None) -> None:
        self.sessions = itertools.count(1)
        self.core = client_core.ClientCore(self._welcome(), itertools.count(1))
        self.needed, self.future = Future(), Future()
        self.core.apply([(self.needed, ECHO, b"", None)])
        self.core.apply([commands.SubmitTask(self.future, ECHO, b"", options, predecessors=(self.needed,))])
        self.messages: List[Any] = []
        self.sent()

    def _welcome(self) -> m.Welcome:
        return m.Welcome(session=next(self.sessions), features=["predecessors"], limits=m.Limits(chunk_bytes=100))

    def turn(self) -> None:
        """What the shell does: a large result is not on this host, and deferred tasks are sent."""
        while True:
            taken = self.core.take_effects()
            if not taken:
                return
            for effect in taken:
                if isinstance(effect, effects.OpenResult):
                    self.core.on_result_opened(effect.object_id, effect.outcome, None)
                elif isinstance(effect, effects.SendDeferred):
                    self.core.apply([commands.SubmitDeferred(effect.task, b"with results", (), ())])
                elif isinstance(effect, effects.Send):
                    self.messages.append(effect.message)

    def receive(self, message: Any, payload: bytes = b"") -> None:
        self.core.on_message(message, payload)

    # States

    def bring_to(self, state: str) -> None:
        if state == "cancelling":
            self.cancel()
        elif state == "fetching":
            self.large_result()
        elif state == "deferred":
            self.predecessor_gone()
        elif state == "ended":
            self.bring_to("fetching")
            self.confirm(m.CancelOutcome.CANCELLED)
        self.sent()
        assert self.state == state

    @property
    def state(self) -> str:
        """As the core has it."""
        if self.core.futures.get(self.future._task_id) is not self.future:
            return "ended"
        if isinstance(self.future._source, deferring.DeferredTask):
            return "deferred"
        if any(fetch.outcome.future is self.future for fetch in self.core.objects._fetching.values()):
            return "fetching"
        return "cancelling" if self.future._is_cancel_asked else "sent"

    # Events

    def cancel(self) -> None:
        self.core.apply([commands.Cancel([self.future], False)])

    def _end(self, future: Future, payload: bytes = b"", **columns: Any) -> None:
        ids, sizes = array("Q", [future._task_id]), array("I", [len(payload)])
        self.receive(m.TaskResult(ids=ids, payload_sizes=sizes, **columns), payload)

    def result(self) -> None:
        self._end(self.future, b"7")

    def failure(self) -> None:
        failure = encode_struct(m.Failure(kind=m.FailureKind.TASK_RAISED))
        self._end(self.future, failure, statuses=bytes([m.TaskStatus.FAILED]))

    def large_result(self) -> None:
        self._end(self.future, objects=array("Q", [OBJECT]))

    def predecessor_gone(self) -> None:
        self._end(self.future, PREDECESSOR_GONE, statuses=bytes([m.TaskStatus.LOST]))

    def fetched(self) -> None:
        self.receive(m.ObjectResponse(id=OBJECT, size=SIZE), bytes(SIZE))

    def result_missing(self) -> None:
        self.receive(m.ObjectResponse(id=OBJECT, status=m.ObjectResponseStatus.MISSING))

    def predecessors_end(self) -> None:
        self._end(self.needed, b"7")

    def confirm(self, outcome: m.CancelOutcome) -> None:
        ids = array("Q", [self.future._task_id])
        self.receive(m.TaskCancelConfirm(ids=ids, outcomes=bytes([outcome])))

    def come_back(self) -> None:
        self.core.on_lost()
        self.core.on_welcome(self._welcome())

    # What is sent

    def sent(self) -> List[str]:
        """The messages about the task or its result since the last time."""
        self.turn()
        taken, self.messages = self.messages, []
        found = []
        for message in taken:
            if isinstance(message, (m.Task, m.TaskCancel)) and self.future._task_id in message.ids:
                found.append(type(message).__name__)
            elif isinstance(message, m.ObjectRequest):
                assert message.id == OBJECT
                found.append("ObjectRequest")
            elif isinstance(message, m.ObjectInstruction):
                assert message.action == m.ObjectAction.DELETE and list(message.ids) == [OBJECT]
                found.append("ObjectInstruction delete")
        return found


class Form(NamedTuple):
    """One way in which an event happens."""

    event: str
    name: str
    happen: Callable[[Scene], None]
    options: Any = None


FORMS = [
    Form("cancel", "Cancel", Scene.cancel),
    Form("result", "success", Scene.result),
    Form("result", "failed", Scene.failure),
    Form("large_result", "object", Scene.large_result),
    Form("predecessor_gone", "lost", Scene.predecessor_gone),
    Form("fetched", "the last byte", Scene.fetched),
    Form("result_missing", "missing", Scene.result_missing),
    Form("predecessors_end", "success", Scene.predecessors_end),
    Form("confirm_cancelled", "cancelled", lambda scene: scene.confirm(m.CancelOutcome.CANCELLED)),
    Form("confirm_running", "running", lambda scene: scene.confirm(m.CancelOutcome.RUNNING)),
    Form("confirm_not_found", "notFound", lambda scene: scene.confirm(m.CancelOutcome.NOT_FOUND)),
    Form("come_back", "Welcome", Scene.come_back),
    Form("come_back_once", "Welcome", Scene.come_back, ONCE),
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
    scene = Scene(form.options)
    scene.bring_to(state)
    form.happen(scene)
    sent = scene.sent()
    target = MACHINE["transitions"][state][form.event]
    reply = MACHINE["replies"].get(f"{state}.{form.event}", "").partition(",")[0]

    assert scene.state == (state if target.startswith("ignore") else target)
    assert sent == ([reply] if reply else [])


def test_every_event_of_the_table_is_tried() -> None:
    assert {form.event for form in FORMS} == set(MACHINE["events"])


def test_a_task_that_was_deferred_is_sent_under_another_id() -> None:
    scene = Scene()
    scene.bring_to("deferred")
    before: Tuple[int, ...] = (scene.future._task_id,)
    scene.predecessors_end()
    scene.sent()

    assert scene.state == "sent" and scene.future._task_id not in before
