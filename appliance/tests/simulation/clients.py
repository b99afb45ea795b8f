"""Simulated clients, each of which checks what it is told.

What a client may rely on, and checks here:
- each accepted task has exactly one outcome; none comes for a task that it did not submit;
- a result is the result of its task; a task is lost only for a reason that exists;
- each cancel is answered, `cancelled` means that nothing ran to its end, `notFound` that the outcome came before;
- a task that may run once was started once at most;
- of a graph it hears of the targets, and of nodes whose cancel it asked for; a result is made of the predecessors'.
- a task that needs others gets their results, shares their failures, or is given back if it was too late for one.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence, Set

from simulation.actor_users import submit_calls, use_actors
from simulation.graphs import result_content
from simulation.peers import Peer, content_of
from simulation.world import CHUNK_BYTES, World, column

from scaler_protocol import decode_struct
from scaler_protocol import messages as m

Outcome = m.CancelOutcome
FUNCTIONS = ("fast", "slow", "mixed")
TENANTS = ("a", "b")
SPY_RATE = 0.3  # at which a client's tasks need objects of others, which may be of another tenant


class Submitted:
    """A task as its client remembers it."""

    def __init__(self, payload: bytes, options: m.TaskOptions, dependencies: List[int], must_be_lost: bool) -> None:
        self.payload = payload
        self.options = options
        self.dependencies = dependencies
        self.must_be_lost = must_be_lost  # needs what does not exist
        self.outcome = ""
        self.is_cancel_asked = False
        self.is_wanted = True  # its outcome is to be told
        self.content = payload  # of its result
        self.predecessors: List[int] = []  # that a Task names
        self.ancestors: Set[int] = set()  # ids of the tasks that it needs

    @property
    def is_lost_with_session(self) -> bool:
        """Whether its outcome is wanted still."""
        return self.is_wanted and not self.outcome and not self.is_cancel_asked


class Client(Peer):
    role = m.Role.CLIENT

    def __init__(self, world: World, tenants: Sequence[str] = TENANTS) -> None:
        self.tasks: Dict[int, Submitted] = {}
        self.unfinished = 0
        self.unanswered: Set[int] = set()
        self.next_id = 0
        self.bytes_submitted = self.tasks_released = self.bytes_released = 0
        self.objects: List[int] = []
        self.deleted: List[int] = []
        self.has_cleared = False  # results under way may be gone with it
        self.function = 0
        self.again: List[Submitted] = []
        self.own_actors: List[int] = []
        super().__init__(world, tenants)

    def on_joined(self) -> None:
        self.function = self.new_object_id()
        self.create(self.function, content_of(self.function), m.ObjectStorage.INLINE)
        again, self.again = self.again, []
        for task in again:
            name = task.payload.rsplit(b" ", 1)[0].decode()
            if self.may_submit(1):  # they may have been nodes of graphs, which count for nothing
                self.submit(1, name, task.options)

    def on_session_ended(self) -> None:
        """What has no outcome is submitted again in the next session, unless it was to be cancelled."""
        lost = [task for task in self.tasks.values() if task.is_lost_with_session]
        self.again += [task for task in lost if not task.options.actor]
        self.own_actors.clear()
        self.tasks.clear()
        self.unanswered.clear()
        self.objects.clear()
        self.deleted.clear()
        self.unfinished = self.next_id = 0
        self.bytes_submitted = self.tasks_released = self.bytes_released = 0

    # What it does ---------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One step of a user's program."""
        if not self.session or not self.is_alive:
            return
        choice = self.random.random()
        if choice < 0.35:
            self.submit_some()
        elif choice < 0.45:
            self.submit_graph()
        elif choice < 0.57:
            self.make_object()
        elif choice < 0.62 and self.objects:
            self.forget(self.random.choice(self.objects))
        elif choice < 0.64:
            self.send(m.ObjectInstruction(action=m.ObjectAction.CLEAR))
            self.has_cleared = True
            self.deleted += [*self.objects, self.function]
            self.objects.clear()
            self.own_actors.clear()
            self.on_joined()
        elif self.world.chance(self.world.rates.cancel):
            self.cancel_some()
        if self.world.needs and self.world.needs_random.random() < self.world.needs:
            self.submit_after_others()
        if self.world.transfers.large_rate and self.session:
            self.submit_graph()  # of nodes with large results
        if self.world.actors.is_used:
            use_actors(self)
        if self.world.has_tenants and self.world.all_objects:
            object_id = self.world.tenants_random.choice(self.world.all_objects)
            self.send(m.ObjectRequest(id=object_id, offset=0, length=CHUNK_BYTES))
        self.misfortune()

    def make_object(self) -> None:
        object_id = self.new_object_id()
        storage = self.random.choice(tuple(m.ObjectStorage)[: m.ObjectStorage.KEPT])
        if storage == m.ObjectStorage.SHARED and content_of(object_id):
            self.world.files[object_id] = bytearray(content_of(object_id))
        self.create(object_id, content_of(object_id), storage)
        self.objects.append(object_id)
        self.world.shared_objects.append(object_id)

    def forget(self, object_id: int) -> None:
        self.delete(object_id)
        self.objects.remove(object_id)
        self.deleted.append(object_id)

    def submit_some(self) -> None:
        options = m.TaskOptions(priority=self.random.choice((0, 0, 0, 1, -1)))
        options.at_most_once = self.random.random() < 0.1
        if self.random.random() < 0.2:
            options.capabilities = [m.Capability(name="gpu", amount=self.random.choice((0.0, 0.5, 1.0, 2.0)))]
        name = "parent" if self.world.chance(self.world.rates.nest) else self.random.choice(FUNCTIONS)
        count = self.may_submit(self.random.choice((1, 1, 3, 20)))
        if count:
            self.submit(count, name, options)
            if self.world.chance(self.world.rates.cancel / 4):
                self.cancel_some()

    def submit(self, count: int, name: str, options: m.TaskOptions, actor: int = 0) -> List[int]:
        """Submit tasks of a function, or calls of an actor; returns their ids."""
        ids, payloads, counts, dependencies = [], [], [], []
        for _ in range(count):
            task = self.new_task(name, options)
            ids.append(self.next_id)
            payloads.append(task.payload)
            counts.append(len(task.dependencies))
            dependencies += task.dependencies
        self.unfinished += count
        self.bytes_submitted += sum(map(len, payloads))
        message = m.Task(ids=column(ids), payload_sizes=column(map(len, payloads)), options=options)
        message.payload_sizes = type(message.payload_sizes)("I", map(len, payloads))
        if dependencies:
            message.dependency_counts = type(message.ids)("H", counts)
            message.dependencies = column(dependencies)
        if actor:
            message.function, message.codec = actor, "json"
        elif self.random.random() < 0.5:
            message.function = self.function
        else:
            message.function_name = name
            message.codec = "json" if name in ("fast", "mixed", "parent") else "other"
        self.send(message, b"".join(payloads))
        return ids

    def new_task(self, name: str, options: m.TaskOptions) -> Submitted:
        """A task with the next id, which needs some objects or none."""
        self.next_id += self.random.choice((1, 1, 1, 2))
        needed = [self.random.choice(self.objects)] if self.objects and self.random.random() < 0.3 else []
        if self.world.shared_objects and self.random.random() < 0.1:
            needed.append(self.random.choice(self.world.shared_objects))
        if self.world.has_tenants and self.world.tenants_random.random() < SPY_RATE:
            needed.append(self.world.tenants_random.choice(self.world.all_objects))
        is_lost = bool(self.deleted) and self.random.random() < 0.05
        if is_lost:
            needed.append(self.random.choice(self.deleted))
        task = self.tasks[self.next_id] = Submitted(f"{name} {self.next_id}".encode(), options, needed, is_lost)
        return task

    def submit_after_others(self) -> None:
        """Submit tasks that need others, mostly unfinished ones: plain tasks, targets of graphs, and other dependent
        tasks."""
        random = self.world.needs_random
        for _ in range(self.may_submit(random.choice((1, 1, 3)))):
            known = [each for each in list(self.tasks)[-30:] if self.tasks[each].is_wanted]
            if not known:
                return
            unfinished = [each for each in known if not self.tasks[each].outcome] or known
            among = known if random.random() < 0.1 else unfinished
            predecessors = random.sample(among, min(len(among), random.choice((1, 1, 2, 4))))
            task = self.new_task(random.choice(FUNCTIONS), m.TaskOptions(at_most_once=random.random() < 0.1))
            if random.random() < 0.03:
                predecessors.append(self.next_id - 1 if self.next_id - 1 not in self.tasks else predecessors.pop())
            message = m.Task(
                ids=column([self.next_id]),
                function=self.function,
                codec="json",
                options=task.options,
                dependencies=column(task.dependencies),
                predecessors=column(predecessors),
            )
            message.payload_sizes.append(len(task.payload))
            message.dependency_counts.append(len(task.dependencies))
            message.predecessor_counts.append(len(predecessors))
            task.predecessors = predecessors
            inputs = []
            for each in filter(self.tasks.__contains__, predecessors):
                task.ancestors |= {each, *self.tasks[each].ancestors}
                task.dependencies = task.dependencies + self.tasks[each].dependencies
                task.must_be_lost |= self.tasks[each].must_be_lost
                inputs.append(self.tasks[each].content)
            task.content = result_content(task.payload, inputs)
            self.unfinished += 1
            self.bytes_submitted += len(task.payload)
            self.send(message, task.payload)

    def submit_graph(self) -> None:
        """Submit a graph of any form, including nodes without use, and nodes that need another one twice."""
        options = m.TaskOptions(at_most_once=self.random.random() < 0.1)
        message = m.GraphTask(options=options)
        message.predecessor_offsets.append(0)
        nodes: List[Submitted] = []
        for position in range(self.random.choice((1, 3, 8, 15))):
            task = self.new_task(self.random.choice(FUNCTIONS), options)
            predecessors = self.random.choices(range(position), k=self.random.choice((0, 1, 2, 3))) if position else []
            message.ids.append(self.next_id)
            message.payload_sizes.append(len(task.payload))
            message.functions.append(self.function)
            message.predecessors.extend(predecessors)
            message.predecessor_offsets.append(len(message.predecessors))
            message.dependency_counts.append(len(task.dependencies))
            message.dependencies.extend(task.dependencies)
            for each in predecessors:
                task.ancestors |= {message.ids[each], *nodes[each].ancestors}
                task.dependencies = task.dependencies + nodes[each].dependencies
                task.must_be_lost |= nodes[each].must_be_lost
            task.content = result_content(task.payload, [nodes[each].content for each in predecessors])
            task.is_wanted = self.random.random() < 0.4
            if task.is_wanted:
                message.targets.append(position)
            nodes.append(task)
        self.unfinished += len(message.targets)
        self.send(message, b"".join(task.payload for task in nodes))

    def cancel_some(self) -> None:
        if not self.tasks:
            return
        newest = list(self.tasks)[-30:]
        ids = self.random.sample(newest, min(len(newest), self.random.choice((1, 2, 10))))
        if self.random.random() < 0.1:
            ids.append(10**9)
        for task_id in ids:
            self.unanswered.add(task_id)
            if task_id in self.tasks:
                self.tasks[task_id].is_cancel_asked = True
        is_forced = self.random.random() < 0.5
        self.send(m.TaskCancel(ids=column(ids), force=is_forced))
        if self.random.random() < 0.2:  # an impatient user
            self.send(m.TaskCancel(ids=column(ids), force=self.random.random() < 0.5))

    # What it is told ------------------------------------------------------------------------------------------------

    def finish(self, task_id: int, outcome: str) -> None:
        task = self.tasks.get(task_id)
        assert task is not None, f"{outcome} for task {task_id}, which was never submitted"
        assert not task.outcome, f"task {task_id} is {outcome}, after it was {task.outcome}"
        task.outcome = outcome
        if task.is_wanted:
            self.unfinished -= 1
        else:
            assert outcome == "CANCELLED" and task.is_cancel_asked, f"unexpected outcome of task {task_id}"
        starts = self.world.starts.get((self.session, task.payload), 0)
        is_once = task.options.at_most_once or task.options.actor
        assert starts <= 1 or not is_once, f"task {task_id} may run once, and ran {starts} times"

    def on_task_result(self, message: m.TaskResult, payload: bytes) -> None:
        offset = 0
        for position, task_id in enumerate(message.ids):
            size = message.payload_sizes[position]
            data, offset = payload[offset : offset + size], offset + size
            status = message.statuses[position] if message.statuses else m.TaskStatus.SUCCESS
            large = message.objects[position] if message.objects else 0
            self.finish(task_id, m.TaskStatus(status).name)
            origin = task = self.tasks[task_id]
            if message.causes and message.causes[position]:
                assert message.causes[position] - 1 in task.ancestors
                assert status != m.TaskStatus.SUCCESS
                origin = self.tasks[message.causes[position] - 1]
            self.check_outcome(origin, status, data, large)
        assert offset == len(payload)

    def check_outcome(self, task: Submitted, status: int, data: bytes, large: int) -> None:
        if status == m.TaskStatus.SUCCESS:
            assert not task.must_be_lost
            if large and not self.has_cleared and self.random.random() < 0.5:
                self.objects.append(large)  # for tasks to come
            elif large:
                self.fetch(large, len(b"large result of " + task.content))
            else:
                assert data == b"result of " + task.content
        elif status == m.TaskStatus.FAILED:
            assert data in (b"object missing", b"nested tasks failed")
            assert data == b"nested tasks failed" or not self.is_whole(task)
        else:
            failure = decode_struct(m.Failure, data)
            if failure.kind == m.FailureKind.OBJECT_MISSING:
                assert task.must_be_lost or not self.is_whole(task) or (task.predecessors and self.has_cleared)
            elif failure.kind == m.FailureKind.PREDECESSOR_GONE:
                needed = [self.tasks.get(each) for each in task.predecessors]
                told = [each is None or bool(each.outcome or each.is_cancel_asked) for each in needed]
                assert any(told), "it has no outcome that was told before"
            elif failure.kind == m.FailureKind.WORKER_LOST:
                limit = 1 if task.options.at_most_once else self.world.settings.maximum_attempts
                assert failure.attempts == limit
            elif failure.kind == m.FailureKind.ACTOR_LOST:
                assert task.options.actor
            elif failure.kind == m.FailureKind.PROCESSOR_DIED:
                assert self.world.rates.processor_death
            else:
                assert failure.kind == m.FailureKind.REJECTED, failure
                assert self.world.settings.max_number_of_tasks_waiting >= 0

    def is_whole(self, task: Submitted) -> bool:
        """Whether everything the task needs exists still: only then may it not be lost for want of it."""
        return set(task.dependencies).issubset(self.objects)

    def on_task_echo(self, message: m.TaskEcho, payload: bytes) -> None:
        assert self.tasks_released <= message.tasks_released <= len(self.tasks)
        assert self.bytes_released <= message.bytes_released <= self.bytes_submitted
        self.tasks_released, self.bytes_released = message.tasks_released, message.bytes_released

    def may_submit(self, count: int) -> int:
        """As many of so many small tasks as the scheduler grants."""
        limits = self.limits
        tasks = limits.tasks_in_flight - (len(self.tasks) - self.tasks_released) if limits.tasks_in_flight else count
        if limits.bytes_in_flight and self.bytes_submitted - self.bytes_released + 20 * count >= limits.bytes_in_flight:
            return 0
        return max(0, min(count, tasks))

    def on_explanation(self, message: m.Explanation, payload: bytes) -> None:
        assert message.text and not message.request_id

    def on_task_cancel_confirm(self, message: m.TaskCancelConfirm, payload: bytes) -> None:
        for task_id, outcome in zip(message.ids, message.outcomes):
            self.unanswered.discard(task_id)
            task = self.tasks.get(task_id)
            if outcome == Outcome.CANCELLED:
                self.finish(task_id, "CANCELLED")
                causes = [task_id, *self.tasks[task_id].ancestors]
                assert any(self.tasks[each].is_cancel_asked for each in causes)
            elif outcome == Outcome.NOT_FOUND:
                is_told = task is None or task.outcome or not task.is_wanted
                assert is_told, f"task {task_id} is not found, and has no outcome"
            else:
                assert task is not None and not task.outcome

    def on_object_request(self, message: m.ObjectRequest, payload: bytes) -> None:
        if message.id in self.objects or message.id in self.deleted:
            chunk = content_of(message.id)[message.offset : message.offset + message.length]
            self.send(m.ObjectResponse(id=message.id, offset=message.offset), chunk)
        else:
            self.send(m.ObjectResponse(id=message.id, status=m.ObjectResponseStatus.MISSING))

    def on_object_instruction(self, message: m.ObjectInstruction, payload: bytes) -> None:
        assert message.action == m.ObjectAction.SPILL, "only spilled objects are announced to clients"
        assert {object_id >> 40 for object_id in message.ids} == {self.session}

    def on_fetched(self, object_id: int, content: Optional[bytes]) -> None:
        assert content is None or content.startswith(b"large result of ")
        if content is not None:  # else a clear of ours crossed it
            self.delete(object_id)


class NestedClient(Client):
    """The client within a task: it submits a few tasks, waits for them, and tells how that went."""

    def __init__(self, world: World, depth: int, on_done: Callable[[bool], None], tenant: str) -> None:
        self.depth = depth
        self.on_done = on_done
        self.is_told = False
        super().__init__(world, [tenant])

    def on_joined(self) -> None:
        super().on_joined()
        name = "parent" if self.depth < 3 and self.random.random() < 0.4 else "fast"
        self.submit(self.random.choice((1, 2, 4)), f"{name} {self.depth}", m.TaskOptions(priority=self.depth))
        actors = self.world.actors
        if actors.made and actors.random.random() < 0.5:
            submit_calls(self, actors.random.choice(actors.made[-8:]), 2)

    def finish(self, task_id: int, outcome: str) -> None:
        super().finish(task_id, outcome)
        if not self.unfinished:
            self.tell(True)

    def on_session_ended(self) -> None:
        super().on_session_ended()
        self.tell(False)

    def on_died(self) -> None:
        self.tell(False)

    def tell(self, is_well: bool) -> None:
        if not self.is_told:
            self.is_told = True
            if self.is_alive:
                self.send(m.DisconnectRequest())
                self.die()
            self.on_done(is_well)
