"""What the I/O thread is to other clients: here, commands are carried out in the thread that posts them.

    user thread ──command──▶ SynchronousIo.post ──▶ run_here ──▶ future

Rules:
- A task runs when it is submitted: every future that a user sees is done.
- Several threads may submit at once; each runs its own tasks. What they share changes in single steps.
- All synchronous clients of a process share their objects, as the clients of one cluster do. The objects of a client
  are gone when it disconnects.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import deque
from typing import Any, Callable, ContextManager, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from scaler import nesting
from scaler.client.core import commands as c
from scaler.client.core.deferring import ACTORS
from scaler.client.core.effects import Outcome
from scaler.client.core.handles import REFUSED
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import FunctionKey
from scaler.client.shell.future_internals import AnyFuture
from scaler.client.shell.mailbox import CLOSED
from scaler.client.shell.output import OutputCallback, TaskOutput, logger, print_output
from scaler.client.shell.settling import Settling
from scaler.client.shell.transport import described
from scaler.client.shell.waiting import Gate, Waiter
from scaler.exceptions import DisconnectedError
from scaler.synchronous.local_tasks import LocalObjects, LocalOutcome, LocalTask, run_here
from scaler.values.payload import RESULT_IS_OBJECT, Buffer, Parts, results_header
from scaler.worker.served_functions import ServedFunctions
from scaler_protocol.session.ids import object_id_of, session_of
from scaler_protocol.wire import messages as m

_OBJECTS = LocalObjects()
_sessions = itertools.count(1)
_served = ServedFunctions()
_HERE = "this process"  # the name of the worker

_turns: Dict[int, threading.RLock] = {}  # of the actors, by their function


def _turn_of(function: int, options: Optional[m.TaskOptions]) -> ContextManager[Any]:
    """Lets one thread at a time call an actor."""
    if options is None or not options.actor:
        return contextlib.nullcontext()
    return _turns.setdefault(function, threading.RLock())


class _Mailbox:
    """Takes commands one by one, without a queue."""

    def __init__(self, post: Callable[[Any], None]) -> None:
        self.commands: Deque[Any] = deque()  # always empty
        self.sleeping: Deque[bytes] = deque()
        self.room = 0  # so that each task is a command of its own
        self.post = post

    def wake(self) -> None:
        """There is no thread to wake."""


class _Memory:
    """The content of objects, copied once."""

    def store(self, parts: Parts, number: int) -> bytes:
        return b"".join(parts)


class _Output:
    """Shows output at once, in the thread of the task."""

    def __init__(self) -> None:
        self.callback: OutputCallback = print_output

    def emit(self, number: int, stream: int, text: str) -> None:
        try:
            self.callback(TaskOutput(number, "stderr" if stream == 2 else "stdout", text))
        except Exception:
            logger.exception("the output of task %d could not be shown", number)


class _State:
    """What is known of the cluster, which is this process."""

    slots = 1
    is_connected = True
    features = (ACTORS,)

    def __init__(self, session: int) -> None:
        self.futures: Dict[int, AnyFuture] = {}  # the unfinished ones, of which nothing is ever seen
        self.objects = self
        self._session = session

    def is_own(self, object_id: int) -> bool:
        return session_of(object_id) == self._session


class SynchronousIo:
    """Parameters:
    numbers: yields a new number for each object.
    folders_of_modules: where the modules are that the client ships.
    before_task: called before each task, for periodic checks.
    """

    def __init__(
        self,
        numbers: Iterator[int],
        folders_of_modules: Callable[[], Sequence[str]],
        before_task: Callable[[], None],
    ) -> None:
        self._session = next(_sessions)
        self.address = nesting.SYNCHRONOUS
        self.closed_because: Optional[Exception] = None
        self.slot = None
        self.is_leaving = False
        self.turn_lock = threading.Lock()
        self.waiting: Set[Waiter] = set()
        self.first_echo = Gate()
        self.first_echo.open()
        self.settling = Settling()
        self.output = _Output()
        self.mailbox = _Mailbox(self.post)
        self.files = _Memory()
        self.core = _State(self._session)
        described_here = described(m.Hello())
        self.welcome = m.Welcome(session=self._session, implementation=described_here.implementation)
        self._host = described_here.host
        self._began = time.monotonic()
        self._numbers = numbers
        self._folders_of_modules = folders_of_modules
        self._before_task = before_task
        self._next_task_id = 0
        self._lock = threading.Lock()
        self.held: Dict[int, Optional[KeptObject]] = {}  # objects of this client; None: made for a task here
        self._actors: Dict[int, m.ActorInfo] = {}  # those made here, by function
        self._named: Dict[Tuple[str, str], int] = {}  # objects that define functions called by name
        self._running = 0
        self._appliers: Dict[type, Callable[..., None]] = {
            c.SubmitTask: self._submit,
            c.SubmitGraph: self._submit_graph,
            c.NumberFuture: self._number,
            c.HoldObject: lambda command: self._hold(command.kept),
            c.LetGo: lambda command: self._let_go(command.object_ids),
            c.Clear: lambda command: self._let_go(command.object_ids),
            c.AwaitRoom: lambda command: command.asker.put(True),
            c.Barrier: lambda command: command.asker.put(True),
            c.CancelAll: lambda command: command.asker.put([]),
            c.Explain: lambda command: command.asker.put(None),
            c.Ask: lambda command: command.asker.put(self._answer(command.query)),
        }

    def post(self, command: c.Command) -> None:
        """Carry out a command. Any thread.

        Raises KeyboardInterrupt, and what a debugger raises when its user quits.
        """
        if self.closed_because is not None:
            self._refuse(command)
            return
        apply = self._appliers.get(type(command))  # others are about unfinished tasks, of which there are none
        if apply is not None:
            apply(command)

    def _refuse(self, command: c.Command) -> None:
        """A command came after the client was closed."""
        futures, askers = c.refused([command])
        self.settling.cancelled(futures)
        for asker in askers:
            asker.put(None)

    # Tasks ----------------------------------------------------------------------------------------------------------

    def _submit(self, task: c.SubmitTask) -> None:
        function = self._function(task.function)
        future: Any = task.future
        if not _OBJECTS.has(function):
            future._task_id = REFUSED
        else:
            number = future._task_id = self._next_ids(1)
            try:
                with _turn_of(function, task.options):
                    outcome = self._run(number, function, task.payload, task.dependencies, task.options)
                    if task.options is not None and task.options.actor:
                        self._count_call(function, outcome)
            finally:
                if task.arguments_bytes:
                    self._let_go(task.dependencies[:1])
            self._settle(future, outcome)
        if task.asker is not None:
            task.asker.put(True)

    def _count_call(self, function: int, outcome: LocalOutcome) -> None:
        """A call of an actor has ended; if the first one fails, the actor could not be made."""
        actor = self._actors.get(function)
        kept = self.held.get(function)
        if actor is None and kept is not None:
            actor = m.ActorInfo(id=function, name=kept.name, client=self._session)
            actor.worker, actor.worker_name = self._session, _HERE
            actor.state = m.ActorState.LOST if outcome.has_failed else m.ActorState.ALIVE
            actor.why_lost = "it could not be made" if outcome.has_failed else ""
            self._actors[function] = actor
        if actor is not None:
            actor.calls_finished += 1
            actor.calls_failed += outcome.has_failed

    def _submit_graph(self, command: c.SubmitGraph) -> None:
        columns, payload = command.run.content
        first = self._next_ids(len(command.run))
        graph = _GraphInTurn(self, first, columns, memoryview(payload), command.targets)
        for position in sorted(command.targets):
            future: Any = command.targets[position]
            future._task_id = first + position
        graph.run()
        for position, future in command.targets.items():
            outcome, origin = graph.outcome(position)
            self._settle(future, outcome, 0 if origin == position else 1 + first + origin)

    def _number(self, command: c.NumberFuture) -> None:
        command.future._task_id = self._next_ids(1)

    def _next_ids(self, count: int) -> int:
        """The first of consecutive numbers of tasks."""
        with self._lock:
            first = self._next_task_id
            self._next_task_id += count
        return first

    def _function(self, key: FunctionKey) -> int:
        """The object of a function."""
        if isinstance(key, int):
            return key
        name = (key.name, key.codec)
        if name not in self._named:
            object_id = self.next_object_id()
            self.add_object(object_id, _served.definition(*name))
            self._named[name] = object_id
        return self._named[name]

    def _run(
        self,
        number: int,
        function: int,
        payload: Buffer,
        dependencies: Sequence[int],
        options: Optional[m.TaskOptions],
    ) -> LocalOutcome:
        self._before_task()
        task = LocalTask(number, function, payload, dependencies, options, self._folders_of_modules())
        with self._lock:
            self._running += 1
        try:
            return run_here(_OBJECTS, task, self.output.emit)
        finally:
            with self._lock:
                self._running -= 1

    run_node = _run

    def _settle(self, future: Any, outcome: LocalOutcome, cause: int = 0) -> None:
        """Give a future its outcome.

        An exception is loaded at once, and gets the frames of its task, so that a debugger can enter them afterwards.
        """
        payload: Any = outcome.payload
        self.settling.outcomes([Outcome(future, payload, outcome.has_failed, cause, (), outcome.profile)])
        if outcome.has_failed and outcome.traceback is not None:
            error = future.exception()
            BaseException.with_traceback(error, outcome.traceback)

    # Objects --------------------------------------------------------------------------------------------------------

    def next_object_id(self) -> int:
        """An id for an object of this client."""
        return object_id_of(self._session, next(self._numbers))

    def add_object(self, object_id: int, content: Buffer) -> None:
        """Keep an object until it is let go, or this client disconnects."""
        self.held[object_id] = None
        _OBJECTS.add(object_id, content)

    def _hold(self, kept: KeptObject) -> None:
        self.add_object(kept.object_id, kept.content)
        self.held[kept.object_id] = kept
        kept.is_held = True

    def _let_go(self, object_ids: Sequence[int]) -> None:
        _OBJECTS.drop(object_ids)
        for object_id in object_ids:
            self.held.pop(object_id, None)
            self._actors.pop(object_id, None)
            _turns.pop(object_id, None)

    let_go = _let_go

    # Queries --------------------------------------------------------------------------------------------------------

    def _answer(self, query: Any) -> Any:
        if isinstance(query, m.InfoRequest):
            worker = m.WorkerInfo(
                session=self._session,
                name=_HERE,
                host=self._host,
                process_id=os.getpid(),
                slots=1,
                tasks=self._running,
            )
            return m.Info(
                implementation=self.welcome.implementation,
                uptime_milliseconds=int((time.monotonic() - self._began) * 1000),
                clients=1,
                worker_count=1,
                slots=1,
                slots_free=max(0, 1 - self._running),
                tasks_running=self._running,
                workers=[worker] if query.maximum_workers else [],
                actor_count=len(self._actors),
                actors=list(self._actors.values())[: query.maximum_actors],
            )
        if isinstance(query, m.ClientShutdown):
            return m.ClientShutdownResponse(accepted=True)
        return m.WorkerShutdownResponse(message="a synchronous client has no workers: its tasks run in its own process")

    # Ending ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """There is no thread to start."""

    def join(self) -> None:
        """The client is closed: drop its objects."""
        self.core.is_connected = False
        self._let_go(list(self.held))
        self.settling.close()

    def after_fork_in_child(self, error: DisconnectedError) -> None:
        """In a fork of the client's process, where this client is closed as any other."""
        self.closed_because = error
        self.mailbox.room = CLOSED
        self.turn_lock = threading.Lock()
        self._lock = threading.Lock()
        self.settling.after_fork_in_child([], error)


class _GraphInTurn:
    """Runs the tasks of a graph in their order; a result is kept while it is needed.

    Parameters:
        first: the number of the first task.
        targets: positions whose results are wanted.
    """

    def __init__(
        self, io: SynchronousIo, first: int, columns: m.GraphTask, payload: memoryview, targets: Iterable[int]
    ) -> None:
        self._io = io
        self._first = first
        self._columns = columns
        self._payload = payload
        self._uses = dict.fromkeys(targets, 1)
        for position in columns.predecessors:
            self._uses[position] = self._uses.get(position, 0) + 1
        self._outcomes: Dict[int, LocalOutcome] = {}
        self._origins: Dict[int, int] = {}  # of tasks that failed because of another one: its position
        self._objects: Dict[int, int] = {}  # ids of results, by position

    def outcome(self, position: int) -> Tuple[LocalOutcome, int]:
        """The outcome of a target, and the position of the task whose failure it is, or its own."""
        return self._outcomes[position], self._origins.get(position, position)

    def run(self) -> None:
        """Run all tasks, except those that need one that has failed."""
        columns = self._columns
        begin = dependency = 0
        try:
            for position, size in enumerate(columns.payload_sizes):
                count = columns.dependency_counts[position] if columns.dependency_counts else 0
                own = list(columns.dependencies[dependency : dependency + count])
                self._run_one(position, self._payload[begin : begin + size], own)
                begin += size
                dependency += count
        finally:
            self._io.let_go(list(self._objects.values()))

    def _run_one(self, position: int, payload: memoryview, dependencies: List[int]) -> None:
        columns = self._columns
        needed = columns.predecessors[columns.predecessor_offsets[position] : columns.predecessor_offsets[position + 1]]
        failed = next((each for each in needed if self._outcomes[each].has_failed), None)
        if failed is not None:
            self._outcomes[position] = self._outcomes[failed]
            self._origins[position] = self._origins.get(failed, failed)
        else:
            for each in needed:
                if each not in self._objects:
                    object_id = self._objects[each] = self._io.next_object_id()
                    self._io.add_object(object_id, self._outcomes[each].payload)
            content = _with_results(len(needed), payload)
            dependencies += [self._objects[each] for each in needed]
            function, options = columns.functions[position], columns.options
            number = self._first + position
            self._outcomes[position] = self._io.run_node(number, function, content, dependencies, options)
        for each in needed:
            self._let_go(each)

    def _let_go(self, position: int) -> None:
        self._uses[position] -= 1
        if not self._uses[position]:
            del self._outcomes[position]
            if position in self._objects:
                self._io.let_go([self._objects.pop(position)])


def _with_results(count: int, payload: Buffer) -> bytes:
    """The payload of a task, with results in front that are objects (see `scaler.values.payload`)."""
    if not count:
        return bytes(payload)
    return results_header([RESULT_IS_OBJECT] * count) + payload
