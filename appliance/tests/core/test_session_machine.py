"""The core does with a connection and its session what the table of the specification says, in every state.

    machines/session-at-scheduler.toml ──▶ a core in that state ──event──▶ the state that follows, what the peer is sent

Rules:
- Every cell is tried in every form its event has: several messages, clients and workers, orders of clients and of the
  scheduler itself. Cells that say "fault" cannot happen.
- The core has one flag for workers that drain and for those that leave: what a worker was told tells them apart.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Set

import pytest
from scheduler_harness import Harness, Peer, hello

from scaler_appliance.core.effects import PeerError
from scaler_protocol import messages as m
from scaler_protocol.session.features import DRAIN_REQUESTS

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

TREE = next(path for path in Path(__file__).resolve().parents if (path / "protocol-spec").is_dir())
MACHINE: Dict[str, Any] = tomllib.loads((TREE / "protocol-spec/machines/session-at-scheduler.toml").read_text("utf-8"))
CLIENT, WORKER = m.Role.CLIENT, m.Role.WORKER
BOTH = (CLIENT, WORKER)


class Connection:
    """The peer whose table it is, and a client beside it that gives orders.

    Parameters:
        role: the peer's, as soon as it has a session.
    """

    def __init__(self, role: m.Role) -> None:
        self.harness = Harness(protected=False)
        self.role = role
        self.peer = self._connect(b"the peer")
        self.other = self._connect(b"another client")
        self.is_connected = True
        self.other.greet(hello(CLIENT))
        self.welcomes: List[int] = []
        self.told: Set[int] = set()  # in its present session

    def _connect(self, name: bytes) -> Peer:
        peer = self.harness.peers[name] = Peer(self.harness, name)
        return peer

    def hello(self, **fields: Any) -> m.Hello:
        return hello(self.role, slots=1 if self.role == WORKER else 0, features=[DRAIN_REQUESTS], **fields)

    def order(self, is_draining: bool) -> None:
        """The other client asks that the peer leave."""
        session = self.welcomes[-1] if self.welcomes else 4711
        self.other.send(m.WorkerShutdown(session=session, is_draining=is_draining))
        self.other.take(m.WorkerShutdownResponse)

    def shut_down(self) -> None:
        self.harness.core.shut_down(self.harness.now, "the test is over")
        self.harness.tick()

    def be_silent(self) -> None:
        settings = self.harness.state.settings
        self.harness.wait(1 + max(settings.client_timeout_seconds, settings.worker_timeout_seconds))

    def send_bytes(self) -> None:
        error = PeerError(m.RefusalReason.MALFORMED, "no message")
        self.harness.core.on_peer_error(self.harness.now, self.peer.name, error)
        self.harness.tick()

    def send_unknown(self) -> None:
        self.harness.core.on_message(self.harness.now, self.peer.name, m.UnknownMessage(999))
        self.harness.tick()

    def vanish(self) -> None:
        self.is_connected = False
        self.peer.vanish()

    def take_all(self) -> List[m.Message]:
        """What the peer was sent since the last time."""
        sent: List[m.Message] = [message for message, _ in self.peer.inbox]
        self.peer.inbox.clear()
        for message in sent:
            if isinstance(message, m.Welcome):
                assert message.session not in self.welcomes
                self.welcomes.append(message.session)
                self.told.clear()
            elif isinstance(message, m.DisconnectRequest):
                self.told.add(message.reason)
        return sent

    @property
    def state(self) -> str:
        """As the core has it."""
        session = self.harness.state.sessions.get(self.peer.name)
        if session is None:
            return "unregistered" if self.is_connected else "gone"
        if not session.leaving:
            return "open"
        return "leaving" if m.DisconnectReason.SHUTDOWN in self.told else "draining"

    def bring_to(self, state: str) -> None:
        if state in ("open", "draining", "leaving"):
            self.peer.send(self.hello())
        if state in ("draining", "leaving"):
            self.take_all()
            self.order(is_draining=state == "draining")
        if state == "gone":
            self.vanish()
        self.take_all()
        assert self.state == state


class Form(NamedTuple):
    """One way in which an event happens."""

    event: str
    name: str
    happen: Callable[[Connection], None]
    roles: Any = BOTH


def _sends(message: m.Member) -> Callable[[Connection], None]:
    return lambda connection: connection.peer.send(message)


def _refused_while_stopping(connection: Connection) -> None:
    """The scheduler stops; of what that brings the peer, only the answer to Hello is looked at."""
    connection.shut_down()
    connection.take_all()
    connection.peer.send(connection.hello())


NO_IDS = array("Q")
OUTCOMES = m.TaskCancelConfirm(ids=NO_IDS)
TO_DRAIN = m.DisconnectRequest(reason=m.DisconnectReason.DRAINING)
FORMS = [
    Form("hello", "Hello", lambda connection: connection.peer.send(connection.hello())),
    Form("bad_hello", "of another major", lambda connection: connection.peer.send(connection.hello(major=99))),
    Form("bad_hello", "while the scheduler stops", _refused_while_stopping),
    Form("request", "DisconnectRequest", _sends(m.DisconnectRequest())),
    Form("request", "of a client, draining", _sends(TO_DRAIN), (CLIENT,)),
    Form("ask", "DisconnectRequest", _sends(TO_DRAIN), (WORKER,)),
    Form("response", "DisconnectResponse", _sends(m.DisconnectResponse())),
    Form("heartbeat", "Heartbeat", _sends(m.Heartbeat(sequence=7))),
    Form("answer", "HeartbeatEcho", _sends(m.HeartbeatEcho())),
    Form("answer", "ObjectResponse", _sends(m.ObjectResponse(id=1))),
    Form("answer", "BalanceResponse", _sends(m.BalanceResponse()), (WORKER,)),
    Form("answer", "TaskCancelConfirm", _sends(OUTCOMES), (WORKER,)),
    Form("message", "ObjectInstruction", _sends(m.ObjectInstruction(action=m.ObjectAction.CLEAR))),
    Form("message", "TaskResult", _sends(m.TaskResult()), (WORKER,)),
    Form("message", "Task", _sends(m.Task()), (CLIENT,)),
    Form("message", "of a newer minor version", Connection.send_unknown),
    Form("violation", "bytes", Connection.send_bytes),
    Form("violation", "Welcome", _sends(m.Welcome())),
    Form("violation", "a client's message", _sends(m.Task()), (WORKER,)),
    Form("violation", "a worker's message", _sends(m.TaskResult()), (CLIENT,)),
    Form("silence", "silence", Connection.be_silent),
    Form("gone", "the connection ends", Connection.vanish),
    Form("drain", "by a client", lambda connection: connection.order(is_draining=True), (WORKER,)),
    Form("stop", "by a client", lambda connection: connection.order(is_draining=False), (WORKER,)),
    Form("stop", "by the scheduler", Connection.shut_down, (WORKER,)),
    Form("dismiss", "by the scheduler", Connection.shut_down, (CLIENT,)),
]


def cells() -> List[Any]:
    """Each pair of state and event that can happen, in each of the event's forms and for each role."""
    found = []
    for state, row in MACHINE["transitions"].items():
        for form in FORMS:
            for role in form.roles:
                # Only workers drain or are given time to leave.
                is_possible = role == WORKER or state not in ("draining", "leaving")
                if is_possible and not row[form.event].startswith("fault"):
                    name = f"{state}-{form.event}-{form.name}-{role.name.lower()}"
                    found.append(pytest.param(state, form, role, id=name))
    return found


def is_as_said(sent: m.Message, reply: str) -> bool:
    """Whether a message is "Refusal, malformed or notGreeted", for instance."""
    name, _, reasons = reply.partition(", ")
    if type(sent).__name__ != name:
        return False
    reason = getattr(sent, "reason", None)
    if reason is None or not reasons:
        return True
    return _camel_case(reason.name) in reasons.split(" or ")


def _camel_case(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(map(str.capitalize, rest))


@pytest.mark.parametrize(("state", "form", "role"), cells())
def test_the_core_does_what_the_table_says(state: str, form: Form, role: m.Role) -> None:
    connection = Connection(role)
    connection.bring_to(state)
    form.happen(connection)
    sent = connection.take_all()
    target = MACHINE["transitions"][state][form.event]
    reply = MACHINE["replies"].get(f"{state}.{form.event}")

    assert connection.state == (state if target.startswith("ignore") else target)
    assert len(sent) == (reply is not None), sent
    assert all(is_as_said(message, reply) for message in sent), f"{sent} instead of {reply}"


def test_every_event_of_the_table_is_tried() -> None:
    assert {form.event for form in FORMS} == set(MACHINE["events"])


def test_what_the_core_sends_is_told_apart_by_its_reason() -> None:
    refusal = m.Refusal(reason=m.RefusalReason.NOT_GREETED)

    assert is_as_said(refusal, "Refusal") and is_as_said(refusal, "Refusal, malformed or notGreeted")
    assert not is_as_said(refusal, "Refusal, malformed") and not is_as_said(m.Welcome(), "Refusal")
