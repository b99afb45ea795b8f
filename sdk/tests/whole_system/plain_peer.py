"""A client of another language: it has no core of ours, and says Hello again on its connection whenever it likes.

Rules:
- After a Hello nothing of the session before may arrive behind the Welcome: ids begin again, and the payload of a
  result tells which task it is of.
- Its tasks may need objects of other clients, whose ids these have told it. Those of other tenants do not exist for it.
- When all is calm it waits for its tasks, and is gone.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Dict, Optional, Set, Tuple

from whole_system.network import Peer
from whole_system.user_tasks import Task

from scaler.values.codecs import PYTHON_CODEC
from scaler_protocol.session.ids import object_id_of
from scaler_protocol.versions import PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX, PROTOCOL_MINOR_MIN
from scaler_protocol.wire import messages as m

if TYPE_CHECKING:
    from whole_system.system import System

STEP_SECONDS = (0.05, 0.3)
MOST_TASKS = 4
SILENCE_SECONDS = 20.0


class PlainPeer(Peer):
    def __init__(self, system: System, name: str) -> None:
        super().__init__(system.world)
        self.name, self.key = name, system.tenants.of_client()
        self._system = system
        self._session = 0
        self._next_id = self._requests = 0
        self._heard_at = self.now
        self._tasks: Dict[int, Task] = {}  # of the session, by id
        self._requested: Set[int] = set()  # objects, in all sessions
        self._spying: Set[int] = set()  # keys of tasks that need what is another tenant's
        self.connect(system.network)

    def on_connected(self) -> None:
        self._greet()
        self._step()

    def on_connect_failed(self, reason: str) -> None:
        self.is_alive = False

    def on_disconnected(self, reason: str) -> None:
        self.is_alive = False

    def _greet(self) -> None:
        self._session = 0
        hello = m.Hello(role=m.Role.CLIENT, codecs=[PYTHON_CODEC], name=self.name, process_id=7)
        hello.major, hello.minor_min, hello.minor_max = PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MINOR_MAX
        self.send(hello)

    def _step(self) -> None:
        random = self.world.random
        if self.connection is None:
            return
        if self.now > self._heard_at + SILENCE_SECONDS:
            self.is_alive = False
            self.drop()
            return
        if self.world.is_calm:
            if self.is_done:
                self.send(m.DisconnectRequest())
        elif self._session and random.random() < 0.4:
            self._greet()
        elif self._session:
            self._submit(random.randint(1, MOST_TASKS))
            if self._system.tenants.is_spying():
                self._spy()
        self.after(random.choice(STEP_SECONDS), self._step)

    def _submit(self, count: int) -> None:
        function, content = object_id_of(self._session, 1), b"function of %d" % self._session
        if not self._next_id:
            column = m.ObjectInstruction(ids=array("Q", [function]), sizes=array("Q", [len(content)]), storages=b"\0")
            column.kinds = bytes([m.ObjectKind.FUNCTION])
            self.send(column, content)
        foreign = self._foreign_object() if self._system.world.random.random() < 0.5 else None
        contents = [] if foreign is None else [foreign[1]]
        tasks = [self._system.new_task(self.key.tenant, content, contents, [], []) for _ in range(count)]
        if foreign is not None and foreign[2] != self.key.tenant:
            self._spying.update(task.key for task in tasks)
        for task in tasks:
            task.seconds = self.world.random.choice((0.0, 0.03, 0.5))
        message = m.Task(ids=array("Q", range(self._next_id, self._next_id + count)), codec=PYTHON_CODEC)
        message.function, message.payload_sizes = function, array("I", [len(task.payload) for task in tasks])
        if foreign is not None:
            message.dependency_counts = array("H", [1] * count)
            message.dependencies = array("Q", [foreign[0]] * count)
        self._tasks.update(zip(message.ids, tasks))
        self._next_id += count
        self.send(message, b"".join(task.payload for task in tasks))

    def _spy(self) -> None:
        """It reads an object of another client, and asks a worker to leave."""
        found = self._foreign_object()
        if found is not None and found[0] not in self._requested:
            self._requested.add(found[0])
            self.send(m.ObjectRequest(id=found[0], offset=0, length=100))
        workers = [each.name for each in self._system.workers if each.is_alive]
        if workers:
            self._requests += 1
            self._system.scheduler.worker_losses += 1
            self.send(m.WorkerShutdown(request_id=self._requests, name=self._system.tenants.choose(workers)))

    def _foreign_object(self) -> Optional[Tuple[int, bytes, str]]:
        """The newest object of another client, its content, and its tenant."""
        users = [user for user in self._system.users if user.objects and user.host.core is not None]
        if not users:
            return None
        others = [user for user in users if user.host.key.tenant != self.key.tenant]
        user = self._system.tenants.choose(others or users)
        core, kept = user.host.core, user.objects[-1]
        assert core is not None
        return core.objects.wire_id(kept.object_id), user.content_of(kept), user.host.key.tenant

    @property
    def is_done(self) -> bool:
        return not self.is_alive or not self._tasks

    def on_message(self, message: Any, payload: bytes) -> None:
        self._heard_at = self.now
        if isinstance(message, m.Welcome):
            assert message.session > self._session, "a session's number is granted again"
            self._session, self._next_id = message.session, 0
            self._tasks.clear()
        elif isinstance(message, (m.Refusal, m.DisconnectRequest, m.DisconnectResponse)):
            self.is_alive = False
            self.drop()
        elif isinstance(message, m.Heartbeat):
            self.send(m.HeartbeatEcho(sequence=message.sequence))
        elif isinstance(message, m.TaskResult) and self._session:
            self._on_results(message, payload)

    def _on_results(self, message: m.TaskResult, payload: bytes) -> None:
        offset = 0
        statuses = message.statuses or bytes(len(message.ids))
        for task_id, size, status in zip(message.ids, message.payload_sizes, statuses):
            task = self._tasks.pop(task_id)
            part = payload[offset : offset + size]
            offset += size
            assert status != m.TaskStatus.SUCCESS or part == task.expected, f"{task.key} has the result {part!r}"
            is_foreign = task.key in self._spying
            assert not (is_foreign and status == m.TaskStatus.SUCCESS), f"{task.key} used an object of another tenant"
