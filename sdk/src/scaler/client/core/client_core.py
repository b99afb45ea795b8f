"""The core of a client: commands of its user and messages of its scheduler in, effects out.

    user threads ─▶ commands ─▶ apply ──┐                         ┌─▶ futures, in batches
                                        ├─▶ ClientCore ─▶ effects ┼─▶ messages
    scheduler ───▶ messages ─▶ on_… ────┘                         └─▶ files, askers, logs

Rules:
- Only one thread calls it. It has no clock, lock, socket or file: it returns what has to be done as effects, in order.
- Futures are opaque except for the fields of a TaskHandle. Payloads are not interpreted here.
- Every future ends: with its outcome, or with an error when the scheduler is lost for good or the client closes.
- Nothing is sent between two sessions; `recovery` tells the next session what it needs to know.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, MutableMapping, Optional, Sequence, Union

from scaler.client.core import commands as c
from scaler.client.core.client_objects import ClientObjects
from scaler.client.core.cluster_queries import Queries
from scaler.client.core.credit import Credit
from scaler.client.core.deferring import PREDECESSORS, DeferredTask
from scaler.client.core.effects import Cancelled, Effect, Failed, FailedAfter, NoteStack, PlaceObject, Send, Tell, Warn
from scaler.client.core.handles import NOT_NUMBERED, REFUSED, TaskHandle
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import MAXIMUM_BATCH_TASKS, FunctionKey, Outbox, OutgoingObject, TaskNeeds
from scaler.client.core.pending_futures import PendingFutures
from scaler.client.core.recovery import Recovery, actor_lost, announce
from scaler.values.sizes import DIRECT_BYTES
from scaler_protocol.wire import messages as m

Waiting = Union[c.SubmitTask, c.AwaitRoom, c.SubmitDeferred]


class ClientCore:
    """Parameters:
    welcome: of the first session.
    numbers: yields a new number for each new object.
    references, direct_bytes: see ClientObjects.
    """

    def __init__(
        self,
        welcome: m.Welcome,
        numbers: Iterator[int],
        references: Optional[MutableMapping[int, KeptObject]] = None,
        direct_bytes: int = DIRECT_BYTES,
    ) -> None:
        self._effects: List[Effect] = []
        emit = self._effects.append
        self.features: Sequence[str] = welcome.features
        self.slots = 0  # of the whole cluster, as last heard
        self.is_connected = True
        self.is_closed = False
        self.next_task_id = 0
        self.objects = ClientObjects(welcome, numbers, emit, references, direct_bytes)
        self.outbox = Outbox(self.objects.find)
        self.outbox.set_limits(welcome.limits)
        self.credit = Credit(welcome.limits, self.outbox)
        self.pending = PendingFutures(self.objects, emit)
        self.futures = self.pending.futures
        self._queries = Queries()
        self._recovery = Recovery(self.objects, self.outbox, self.pending)
        self._waiting: Deque[Waiting] = deque()  # for credit, first come first served
        self._appliers: Dict[type, Callable[..., None]] = {
            c.SubmitTask: self._wait_for_credit,
            c.AwaitRoom: self._wait_for_credit,
            c.SubmitDeferred: self._wait_for_credit,
            c.SubmitGraph: self._submit_graph,
            c.EndDeferred: self._end_deferred,
            c.NumberFuture: self._number,
            c.HoldObject: self._hold,
            c.LetGo: lambda command: self._let_go(command.object_ids),
            c.Cancel: self._cancel,
            c.GiveUp: lambda command: self.pending.cancel(command.futures),
            c.CancelAll: self._cancel_all,
            c.Clear: self._clear,
            c.Ask: self._ask,
            c.Explain: self._explain,
            c.ForgetQuery: self._forget_query,
            c.Barrier: lambda command: self._tell(command.asker, True),
        }
        self._reactions: Dict[type, Callable[..., None]] = {
            m.TaskResult: self.pending.on_task_result,
            m.TaskEcho: lambda message, payload: self._on_task_echo(message),
            m.TaskCancelConfirm: lambda message, payload: self.pending.on_cancel_confirm(message),
            m.TaskLog: lambda message, payload: self._on_stack(message),
            m.HeartbeatEcho: lambda message, payload: self._on_heartbeat_echo(message),
            m.Explanation: lambda message, payload: self._on_explanation(message),
            m.Info: lambda message, payload: self._on_answer(message),
            m.WorkerShutdownResponse: lambda message, payload: self._on_answer(message),
            m.ClientShutdownResponse: lambda message, payload: self._on_answer(message),
            m.ObjectInstruction: lambda message, payload: self.objects.on_instruction(message),
            m.ObjectRequest: lambda message, payload: self.objects.on_request(message),
            m.ObjectResponse: self.pending.on_object_response,
        }

    @property
    def room(self) -> int:
        """How many plain tasks may be submitted without asking for each; 0 while a submission waits for credit."""
        return 0 if self._waiting or self._recovery.unsent_ids else self.credit.room

    @property
    def is_idle(self) -> bool:
        """Whether there is no unfinished task and nothing to send."""
        return self.is_connected and not self.is_closed and not self.futures and not self.outbox.items

    # Events ---------------------------------------------------------------------------------------------------------

    def apply(self, commands: Iterable[Any]) -> None:
        """Process the users' `Command`s, in order."""
        if self.is_closed:
            self._refuse(commands)
            return
        if self._recovery.unsent_ids:
            self._apply_while_recovering(commands)
            return
        futures, outbox = self.futures, self.outbox
        for command in commands:
            if type(command) is not tuple:
                self._appliers[type(command)](command)
                continue
            future, function, payload, options = command
            run = outbox.open_run
            if (
                run is None
                # SCL-CLT-013
                or run.function != function
                or run.options is not options  # equal options are one object
                or run.payload_bytes > outbox.batch_bytes
                or len(run.payloads) >= MAXIMUM_BATCH_TASKS
            ):
                if not self._is_here(function, options):
                    future._task_id = REFUSED
                    continue
                if options is not None and options.actor and self._is_kept_back(future, function, payload, options):
                    continue
                run = outbox.open(function, self.next_task_id, options)
            # SCL-CLT-001
            future._task_id = task_id = self.next_task_id
            self.next_task_id = task_id + 1
            future._source = run
            futures[task_id] = future
            run.payloads.append(payload)
            run.payload_bytes += len(payload)
            if run.dependency_counts is not None:
                run.dependency_counts.append(0)

    def _apply_while_recovering(self, commands: Iterable[Any]) -> None:
        """Not all tasks of the previous session have been sent again: new ones have higher ids, and come after them."""
        for command in commands:
            if type(command) is not tuple:
                self._appliers[type(command)](command)
                continue
            future, function, payload, options = command
            if not self._is_here(function, options):
                future._task_id = REFUSED
                continue
            if options is not None and options.actor and self._is_kept_back(future, function, payload, options):
                continue
            task_id = future._task_id = self._next_id()
            run = future._source = self.outbox.detached(function, task_id, payload, options)
            self.futures[task_id] = future
            self._recovery.append(run, [task_id], [function] if isinstance(function, int) else [])
        self._let_in()

    def on_sent(self, task: c.PlainTask) -> None:
        """A plain task has already been sent by its own thread, as the next task."""
        future, function, payload, options = task
        task_id = future._task_id = self.next_task_id
        self.next_task_id = task_id + 1
        future._source = self.outbox.add_sent(function, task_id, payload, options)
        self.futures[task_id] = future

    def on_message(self, message: m.Member, payload: bytes) -> None:
        """The scheduler has sent a message. Raises MalformedMessageError if its content contradicts itself."""
        reaction = self._reactions.get(type(message))
        # SCL-VER-001
        if reaction is not None:
            reaction(message, payload)

    def on_result_opened(self, effect_id: int, outcome: Any, content: Any) -> None:
        """As `PendingFutures.on_result_opened`."""
        self.pending.on_result_opened(effect_id, outcome, content)

    def on_lost(self) -> None:
        """The session has ended. Tasks whose cancellation was requested are cancelled, because they are not sent
        again."""
        self.is_connected = False
        self.pending.cancel([future for future in list(self.futures.values()) if future._is_cancel_asked])

    def on_welcome(self, welcome: m.Welcome) -> int:
        """A new session has begun; returns how many tasks are sent again."""
        self.features = welcome.features
        self.outbox.set_limits(welcome.limits)
        self.credit.restart(welcome.limits)
        count = self._recovery.start_session(welcome)
        self.is_connected = True
        self._let_in()
        return count

    def on_leaving(self) -> None:
        """The client leaves: it accepts no more tasks, and still sends what is in its outbox."""
        self.is_closed = True
        self._refuse_waiting()

    def on_end(self, error: Optional[Exception] = None) -> None:
        """The client ends: its futures are cancelled, or fail with the reason, and nothing more is sent."""
        self.is_closed = True
        self.is_connected = False
        self._refuse_waiting()
        taken = [self.futures.pop(task_id) for task_id in list(self.futures)]
        if taken:
            self._effects.append(Cancelled(taken) if error is None else Failed(taken, error))
        self.pending.needs.clear()
        self.pending.forced.clear()
        self.pending.deferring.waiting.clear()

    def take_effects(self) -> List[Effect]:
        """The effects to perform now, in order: first what was decided, then the messages in the outbox."""
        if self.outbox.items and self.is_connected:
            for item in self.outbox.take():
                if isinstance(item, OutgoingObject):
                    self._effects.append(PlaceObject(item.instruction, item.kept))
                else:
                    self._effects.append(Send(*item.message(self.objects.wire_id)))
        if not self._effects:
            return []
        effects = self._effects[:]
        self._effects.clear()
        return effects

    # Submitting -----------------------------------------------------------------------------------------------------

    def _wait_for_credit(self, command: Waiting) -> None:
        self._waiting.append(command)
        self._let_in()
        if self._waiting:
            self.outbox.close_run()  # no call of an actor may join it, and overtake

    def _let_in(self) -> None:
        """Accept waiting submissions while there is credit."""
        if self.is_connected:
            self._recovery.send_more(self.credit)
        while self._waiting and self.credit.is_left and not self._recovery.unsent_ids:
            command = self._waiting.popleft()
            if type(command) is c.SubmitTask:
                if command.future._is_cancel_asked:
                    self._drop(command)
                else:
                    self._submit(command)
            elif type(command) is c.SubmitDeferred:
                self._submit_deferred(command)
            else:
                self._tell(command.asker, True)  # type: ignore[union-attr]

    def _drop(self, task: c.SubmitTask) -> None:
        """A task was cancelled before there was credit for it."""
        self._effects.append(Cancelled([task.future]))
        self._post(task.dependencies, task.arguments_bytes)
        self._tell(task.asker, True)

    def _submit(self, task: c.SubmitTask) -> None:
        future = task.future
        if not self._is_here(task.function, task.options):
            future._task_id = REFUSED
        elif task.options is not None and task.options.actor and self._is_lost(task.function):
            self._fail_call(future)
            self._post(task.dependencies, task.arguments_bytes)
        elif task.predecessors and (
            PREDECESSORS not in self.features or any(type(each._source) is DeferredTask for each in task.predecessors)
        ):
            self._defer(task)
        else:
            needs = TaskNeeds(task.dependencies, task.predecessors) if task.predecessors else task.dependencies
            self._add(future, task.function, task.payload, needs, task.options)
            self._post(task.dependencies, task.arguments_bytes)
        self._tell(task.asker, True)

    def _add(
        self,
        future: TaskHandle,
        function: FunctionKey,
        payload: bytes,
        dependencies: Sequence[int],
        options: Optional[m.TaskOptions],
    ) -> None:
        task_id = future._task_id = self._next_id()
        self.futures[task_id] = future
        if dependencies:
            self.pending.needs[task_id] = self.objects.need(dependencies)
        future._source = self.outbox.add_task(function, task_id, payload, dependencies, options)

    def _next_id(self) -> int:
        # SCL-CLT-001
        task_id, self.next_task_id = self.next_task_id, self.next_task_id + 1
        return task_id

    def _post(self, dependencies: Sequence[int], arguments_bytes: int) -> None:
        """The first dependency contains the arguments of its task, which alone holds it from now on."""
        if arguments_bytes:
            self._let_go(dependencies[:1])

    def _is_here(self, function: FunctionKey, options: Optional[m.TaskOptions]) -> bool:
        """Whether the scheduler still has the function."""
        if not isinstance(function, int):
            return True  # it is called by name
        if options is not None and options.actor and not self.objects.is_own(function):
            return True  # an actor of another client: the scheduler knows
        kept = self.objects.find(function)
        return kept is not None and kept.is_held

    def _is_kept_back(
        self, call: TaskHandle, actor: FunctionKey, payload: bytes, options: Optional[m.TaskOptions]
    ) -> bool:
        """Whether a call of an actor cannot be sent now: it keeps its place behind others, or its actor is lost."""
        if self._is_lost(actor):
            self._fail_call(call)
            return True
        if self._waiting:
            self._waiting.append(c.SubmitTask(call, actor, payload, options))
        return bool(self._waiting)

    # SCL-CLT-016
    def _is_lost(self, actor: FunctionKey) -> bool:
        """Whether an actor of this client was lost with an earlier session."""
        objects = self.objects
        return isinstance(actor, int) and objects.is_own(actor) and not objects.is_of_this_session(actor)

    def _fail_call(self, call: TaskHandle) -> None:
        call._task_id = self._next_id()
        self.outbox.close_run()
        self._effects.append(Failed([call], actor_lost()))

    def _submit_graph(self, command: c.SubmitGraph) -> None:
        run, targets = command.run, command.targets
        first = run.first_id = self.next_task_id
        self.next_task_id += len(run)
        needs = self.objects.need(command.dependencies, len(targets))
        for position in sorted(targets):
            future = targets[position]
            task_id = future._task_id = first + position
            future._source = run
            self.futures[task_id] = future
            if needs:
                self.pending.needs[task_id] = needs
        if self._recovery.unsent_ids:
            needed = [*command.dependencies, *(kept.object_id for kept in run.function_objects)]
            self._recovery.append(run, [first + position for position in sorted(targets)], needed)
        else:
            self.outbox.add_graph(run)

    def _number(self, command: c.NumberFuture) -> None:
        command.future._task_id = self._next_id()
        self.outbox.close_run()

    # Deferred tasks -------------------------------------------------------------------------------------------------

    def _defer(self, task: c.SubmitTask) -> None:
        future = task.future
        self._number(c.NumberFuture(future))
        self.futures[future._task_id] = future
        if task.dependencies:
            self.pending.needs[future._task_id] = self.objects.need(task.dependencies)
        found = self.outbox.function_object(task.function)
        self.pending.defer(
            DeferredTask(
                future,
                task.function,
                found,
                task.options,
                task.payload,
                task.dependencies,
                task.predecessors,
                task.arguments_bytes,
            )
        )

    def _submit_deferred(self, command: c.SubmitDeferred) -> None:
        """Submit a deferred task: its payload or objects now contain all results that it needs."""
        task, future = command.task, command.task.future
        number = future._task_id
        if self.pending.take([future]):  # else it has been cancelled
            before = self.pending.needs.pop(number, ())
            function, made = task.function, list(command.made)
            if isinstance(function, int) and not self._is_here(function, task.options):
                function = self._copy(task.function_object, made)
            for position, each in enumerate(task.dependencies):
                kept = self.objects.find(each)
                if kept is not None and not kept.is_held:
                    task.dependencies[position] = self._copy(kept, made)
            self._add(future, function, bytes(command.payload), [*task.dependencies, *command.results], task.options)
            self.pending.deferring.renumber(number, future._task_id)
            self.objects.release(before)
            self._post(task.dependencies, task.arguments_bytes)
            self._let_go(made)
        else:
            self._let_go(command.made)

    def _copy(self, kept: Optional[KeptObject], made: List[int]) -> int:
        """The id of a new object with the same content, in place of one that the scheduler may have deleted."""
        assert kept is not None
        copy = self.objects.copy(kept)
        self._hold(c.HoldObject(copy))
        made.append(copy.object_id)
        return copy.object_id

    def _end_deferred(self, command: c.EndDeferred) -> None:
        future = command.task.future
        if command.error is not None:
            self.pending.fail([future], command.error)
        elif command.failed is None:
            self.pending.cancel([future])
        elif self.pending.take([future]):
            self._effects.append(FailedAfter(future, command.failed))
            self.pending.on_ended([future._task_id])

    # Objects --------------------------------------------------------------------------------------------------------

    def _hold(self, command: c.HoldObject) -> None:
        self.objects.hold(command.kept)
        if self.is_connected:  # else the next session starts with it
            # SCL-CLT-006
            announce(command.kept, self.objects, self.outbox)

    def _let_go(self, object_ids: Sequence[int]) -> None:
        """Release objects; they live on while unfinished tasks need them."""
        if object_ids:
            deleted = [each for each in object_ids if not self._recovery.needs(each)]
            charged_bytes = sum(map(self.objects.charged_bytes, deleted))
            for object_id in object_ids:
                self.objects.let_go(object_id)
            if deleted:
                self.outbox.delete_objects(deleted, self.objects.wire_id, charged_bytes)

    # Cancelling -----------------------------------------------------------------------------------------------------

    def _cancel(self, command: c.Cancel) -> None:
        """Cancel tasks: at once if there is no scheduler, or if they still wait here; else by asking the scheduler."""
        asked: List[TaskHandle] = []
        for future in command.futures:
            if future._task_id == NOT_NUMBERED:
                future._is_cancel_asked = True  # it waits for credit, and is dropped when there is some
            if self.futures.get(future._task_id) is not future:
                continue
            future._is_cancel_asked = True
            if not self.is_connected or type(future._source) is DeferredTask:
                self.pending.cancel([future])
            else:
                asked.append(future)
        if command.force:
            self.pending.forced.update(future._task_id for future in asked)
        self._ask_to_cancel(asked, command.force)

    def _ask_to_cancel(self, futures: Sequence[TaskHandle], force: bool) -> None:
        unsent = self._recovery.unsent_ids
        if unsent:  # the scheduler does not know these yet
            self.pending.cancel([future for future in futures if future._task_id in unsent])
            futures = [future for future in futures if future._task_id not in unsent]
        if futures:
            self._send(m.TaskCancel(ids=array("Q", [future._task_id for future in futures]), force=force))

    def _cancel_all(self, command: c.CancelAll) -> None:
        futures = list(self.futures.values())
        self._tell(command.asker, futures)
        if self.is_connected:
            self._ask_to_cancel(futures, True)

    def _clear(self, command: c.Clear) -> None:
        futures = list(self.futures.values())
        self._ask_to_cancel(futures, True)
        self._let_go(command.object_ids)
        # First those that wait here for others: the end of a chain before the tasks it waits for.
        waiting = [future for future in reversed(futures) if type(future._source) is DeferredTask]
        self.pending.cancel([*waiting, *(future for future in futures if type(future._source) is not DeferredTask)])

    # Queries --------------------------------------------------------------------------------------------------------

    def _ask(self, command: c.Ask) -> None:
        self._queries.add(command.query, command.asker)
        self._send(command.query)

    def _forget_query(self, command: c.ForgetQuery) -> None:
        self._queries.forget(command.asker)
        if self._waiting:
            kept = [each for each in self._waiting if getattr(each, "asker", None) is not command.asker]
            self._waiting = deque(kept)

    def _explain(self, command: c.Explain) -> None:
        future = command.future
        if self.futures.get(future._task_id) is not future:
            self._tell(command.asker, None)
        elif type(future._source) is DeferredTask:
            self._tell(command.asker, future._source)
        elif not self.is_connected:
            self._tell(command.asker, c.NOT_CONNECTED)
        else:
            self._ask(c.Ask(m.ExplanationRequest(task_id=future._task_id), command.asker))

    def _on_explanation(self, message: m.Explanation) -> None:
        # SCL-CLT-012
        if message.request_id:
            self._on_answer(message)
        else:
            self._effects.append(Warn(message.text))

    def _on_answer(self, message: Any) -> None:
        self._tell(self._queries.take(message), message)

    def _tell(self, asker: Optional[Any], answer: Any) -> None:
        if asker is not None:
            self._effects.append(Tell(asker, answer))

    # The rest -------------------------------------------------------------------------------------------------------

    def _send(self, message: m.Member) -> None:
        self.outbox.add(message)

    def _on_task_echo(self, message: m.TaskEcho) -> None:
        self.credit.on_task_echo(message)
        self._let_in()

    def _on_stack(self, message: m.TaskLog) -> None:
        """Where a task was when it was cancelled."""
        future = self.futures.get(message.id)
        if future is not None:
            self._effects.append(NoteStack(future, message.text))

    def _on_heartbeat_echo(self, message: m.HeartbeatEcho) -> None:
        self.slots = message.slots

    def _refuse_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        self._refuse(waiting)

    def _refuse(self, commands: Iterable[c.Command]) -> None:
        """The client is closed: waiting threads get an answer, and futures that were never submitted are cancelled."""
        commands = list(commands)
        futures, askers = c.refused(commands)
        if futures:
            self._effects.append(Cancelled(futures))
        for asker in askers:
            self._tell(asker, None)
        for command in commands:
            if isinstance(command, c.GiveUp):
                self.pending.cancel(command.futures)
