"""The reference scheduler's tasks: accepting, placing, results, cancels, workers that go.

Rule: a task's state changes here and in scheduler_graphs, nowhere else.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Sequence

from mutants.scheduler.scheduler_frames import plain
from mutants.scheduler.scheduler_state import Client, Object, Refused, Task, Worker
from scaler_conformance.codec.schema_codec import SCHEMA, Message

SUCCESS, FAILED, LOST = 0, 1, 3
CANCELLED, RUNNING, NOT_FOUND = 0, 1, 2
MOST_LOST_WORKERS = 4
MOST_UNREAD_BYTES = 1 << 20


class TaskKeeper:
    """Mixin of ReferenceScheduler."""

    send: Any
    objects: Dict[int, Object]
    node_payload: Any
    on_node_ended: Any
    check_predecessors: Any
    predecessors_of: Any
    accept_dependant: Any
    on_predecessor_ended: Any
    announce: Any
    let_go: Any
    end_need: Any
    note_sent: Any
    note_runs: Any
    note_end: Any
    is_held_back: Any
    on_named_by: Any

    def __init__(self) -> None:
        super().__init__()
        self.workers: List[Worker] = []
        self.queue: List[Task] = []
        self.given: Dict[int, Worker] = {}  # every instance, and whom it was given to
        self.instances: Dict[int, Task] = {}  # those that have not ended
        self.last_instance = 1 << 32
        self.tasks_limit = self.bytes_limit = 0
        self.last_balance_request = 0

    # Accepting ------------------------------------------------------------------------------------------------------

    def on_task(self, client: Client, message: Message) -> None:
        self.check_task_columns(message)
        self.check_predecessors(message)
        self.check_order(client, message.ids)
        self.check_amounts(message.options)
        tasks = self.tasks_of(client, message, [message.function] * len(message.ids))
        for task, needed in zip(tasks, self.predecessors_of(message)):
            self.accept_dependant(client, task, needed)

    def check_amounts(self, options: Any) -> None:
        raise NotImplementedError

    def check_task_columns(self, message: Message) -> None:
        count = len(message.ids)
        self.check_sizes(message, count)
        self.check_dependencies(message, count)

    def check_sizes(self, message: Message, count: int) -> None:
        agree(len(message.payloadSizes) == count, "payloadSizes")
        self.check_payload(message, sum(message.payloadSizes))

    def check_payload(self, message: Message, size: int) -> None:
        agree(size == len(message.payload), "the payload frame")

    def check_dependencies(self, message: Message, count: int) -> None:
        agree(len(message.dependencyCounts) in (0, count), "dependencyCounts")
        agree(sum(message.dependencyCounts) == len(message.dependencies), "dependencies")

    def check_order(self, client: Client, ids: Sequence[int]) -> None:
        if any(after <= before for before, after in zip([client.last_id, *ids], ids)):
            raise Refused("protocolViolation", "task ids that do not ascend")
        client.last_id = ids[-1] if ids else client.last_id

    def tasks_of(self, client: Client, message: Message, functions: Sequence[int]) -> List[Task]:
        tasks, start, first = [], 0, 0
        counts = message.dependencyCounts or [0] * len(message.ids)
        for id_, size, function, count in zip(message.ids, message.payloadSizes, functions, counts):
            task = Task(client, message, id_, function, message.payload[start : start + size])
            task.dependencies = message.dependencies[first : first + count]
            start, first = start + size, first + count
            tasks.append(task)
        return tasks

    def accept_task(self, task: Task) -> None:
        client = task.client
        client.tasks[task.id] = task
        goes_beyond = self.goes_beyond(client)
        client.tasks_sent += 1
        client.bytes_sent += len(task.payload)
        if goes_beyond or not (task.function or task.name):
            self.lose(task, "rejected", "the scheduler does not take it")
        elif not all(map(self.is_named, task.needs)):
            self.on_object_missing(task)
        else:
            self.need_objects(task)
            self.queue.append(task)

    def goes_beyond(self, client: Client) -> bool:
        tasks, size = client.tasks_sent - client.tasks_released, client.bytes_sent - client.bytes_released
        return bool(0 < self.tasks_limit <= tasks or 0 < self.bytes_limit <= size)

    def is_named(self, object_id: int) -> bool:
        """Whether new tasks may name it."""
        return object_id in self.objects and self.objects[object_id].owner is not None

    def need_objects(self, task: Task) -> None:
        task.holds = task.needs
        for each in task.holds:
            self.objects[each].needs += 1
            self.on_named_by(task.client, self.objects[each])

    def on_object_missing(self, task: Task) -> None:
        self.lose(task, "objectMissing", "it needs an object that does not exist")

    # Placing --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Place what can be placed."""
        for task in self.in_order():
            if self.may_make_work(task.client):
                fitting = [each for each in self.workers if self.fits(each, task)]
                if fitting:
                    self.place(task, min(fitting, key=lambda each: len(each.held) / each.slots))
        self.balance()

    def in_order(self) -> List[Task]:
        return sorted(self.queue, key=lambda task: -task.options.priority)

    def may_make_work(self, client: Client) -> bool:
        held = sum(client.large_results.values())
        return len(client.connection.unsent) < MOST_UNREAD_BYTES and not (0 < self.bytes_limit < held)

    def fits(self, worker: Worker, task: Task) -> bool:
        return (
            not worker.is_leaving
            and len(worker.connection.unsent) < MOST_UNREAD_BYTES
            and self.has_room(worker)
            and self.has_capabilities(worker, task)
            and self.stays_long_enough(worker, task)
            and self.reads(worker, task.codec)
            and self.serves(worker, task.name)
        )

    def has_room(self, worker: Worker) -> bool:
        return len(worker.held) < (worker.slots + worker.suspended) * worker.queue_size

    def stays_long_enough(self, worker: Worker, task: Task) -> bool:
        needed = 0 if task.options.actor else task.options.timeRequestMilliseconds
        return not needed or time.monotonic() + needed / 1000 <= worker.ends_at

    def has_capabilities(self, worker: Worker, task: Task) -> bool:
        offered = amounts(worker.hello.capabilities)
        used = [amounts(each.options.capabilities) for each in worker.held.values()]
        for name, needed in amounts(task.options.capabilities).items():
            if name not in offered or needed > offered[name] - self.in_use(used, name):
                return False
        return True

    def in_use(self, used: List[Dict[str, float]], name: str) -> float:
        return sum(each.get(name, 0.0) for each in used)

    def reads(self, worker: Worker, codec: str) -> bool:
        return not worker.hello.codecs or not codec or codec in worker.hello.codecs

    def serves(self, worker: Worker, name: str) -> bool:
        names = worker.hello.functions
        return not names or not name or any(
            each == name or (each[-1:] == "*" and name.startswith(each[:-1])) for each in names
        )  # fmt: skip

    def place(self, task: Task, worker: Worker) -> None:
        self.queue.remove(task)
        task.state, task.worker = "assigned", worker
        instance = task.instance = self.new_instance(task)
        worker.held[instance] = self.instances[instance] = task
        self.given[instance] = worker
        self.note_sent(worker)
        self.send_task(task, worker)

    def new_instance(self, task: Task) -> int:
        self.last_instance += 1
        return self.last_instance

    def send_task(self, task: Task, worker: Worker) -> None:
        payload, dependencies = self.node_payload(task)
        for each in [each for each in (task.function, *dependencies) if each]:
            self.announce(worker, each)
        fields = self.task_fields(task, payload, dependencies)
        self.send(worker, "Task", payload, **fields)

    def task_fields(self, task: Task, payload: bytes, dependencies: List[int]) -> Dict[str, Any]:
        return {
            "ids": [task.instance],
            "payloadSizes": [len(payload)],
            "function": task.function,
            "functionName": task.name,
            "codec": task.codec,
            "options": plain(task.options),
            "dependencyCounts": [len(dependencies)] if dependencies else [],
            "dependencies": dependencies,
            "attempt": self.attempt(task),
            "client": task.client.number,
        }

    def attempt(self, task: Task) -> int:
        return task.lost_workers + 1

    def balance(self) -> None:
        """Ask a worker that has more than it runs for some, when another has nothing to do."""
        if self.queue or not any(not each.held and not each.is_leaving for each in self.workers):
            return
        for worker in self.workers:
            spare = len(worker.held) - worker.slots
            if spare > 0 and not worker.balance_request:
                self.last_balance_request += 1
                worker.balance_request = self.last_balance_request
                self.send(worker, "BalanceRequest", requestId=worker.balance_request, count=(spare + 1) // 2)

    def on_balance_response(self, worker: Worker, message: Message) -> None:
        if message.requestId not in (0, worker.balance_request):
            return
        if message.requestId:
            worker.balance_request = 0 if message.ids else -1  # it has none to give
        for instance in message.ids:
            task = self.current(worker, instance)
            if task is not None:
                self.return_task(task)

    # Reports --------------------------------------------------------------------------------------------------------

    def current(self, worker: Worker, instance: int) -> Optional[Task]:
        """The task of an instance that has not ended."""
        owner = self.given.get(instance)
        if owner is None:
            return self.on_unknown_instance(instance)
        if owner is not worker and instance in self.instances:
            return self.on_foreign_instance(instance)
        return self.instances.get(instance)

    def on_unknown_instance(self, instance: int) -> Optional[Task]:
        raise Refused("protocolViolation", f"there is no instance {instance}")

    def on_foreign_instance(self, instance: int) -> Optional[Task]:
        raise Refused("protocolViolation", f"instance {instance} is another worker's")

    def on_task_result(self, worker: Worker, message: Message) -> None:
        self.check_result_columns(message)
        self.check_result_objects(worker, message)
        tasks = [self.current(worker, each) for each in message.ids]
        self.note_runs(worker, tasks, message)
        start = 0
        for index, task in enumerate(tasks):
            size = message.payloadSizes[index]
            payload, start = message.payload[start : start + size], start + size
            object_id = message.objects[index] if message.objects else 0
            if task is not None:
                self.on_outcome(task, message, index, payload, object_id)
            else:
                self.on_late_outcome(worker, object_id)

    def check_result_columns(self, message: Message) -> None:
        count = len(message.ids)
        self.check_sizes(message, count)
        for column in ("statuses", "objects", "durationsMicroseconds", "cpuMicroseconds", "peakMemoryBytes"):
            agree(len(getattr(message, column)) in (0, count), column)
        agree(all(each in (SUCCESS, FAILED, LOST) for each in message.statuses), "a status")

    def check_result_objects(self, worker: Worker, message: Message) -> None:
        named = [each for each in message.objects if each]
        self.check_named_once(named)
        for each in named:
            self.check_own(worker, each)

    def check_named_once(self, named: List[int]) -> None:
        if len(set(named)) < len(named):
            raise Refused("protocolViolation", "an object that is named twice")

    def check_own(self, worker: Worker, object_id: int) -> None:
        if object_id not in self.objects or self.objects[object_id].owner is not worker:
            raise Refused("protocolViolation", f"object {object_id:x} is not the worker's")

    def on_late_outcome(self, worker: Worker, object_id: int) -> None:
        """It is ignored, and its object has no owner."""
        if object_id:
            self.let_go(self.objects[object_id])

    def on_outcome(self, task: Task, message: Message, index: int, payload: bytes, object_id: int) -> None:
        if self.is_held_back(task, message, index, payload, object_id):
            return
        status = message.statuses[index] if message.statuses else SUCCESS
        self.note_end(task, status)
        self.leave_worker(task)
        profile = {
            name: [getattr(message, name)[index]]
            for name in ("durationsMicroseconds", "cpuMicroseconds", "peakMemoryBytes")
            if getattr(message, name)
        }
        self.finish(task, status, payload, message.codec, object_id, **profile)

    def leave_worker(self, task: Task) -> None:
        if task.worker is not None:
            task.worker.held.pop(task.instance, None)
            self.instances.pop(task.instance, None)
            task.worker, task.owes_another = None, False

    def finish(self, task: Task, status: int, payload: bytes, codec: str, object_id: int = 0, **more: Any) -> None:
        """A task has its outcome, of another kind than cancelled."""
        self.keep_result(task, payload, object_id)
        if task.is_target:
            if object_id:
                more["objects"] = [object_id]
            self.tell_outcome(task, status, payload, codec, **more)
        if task.answer_is_owed:
            self.confirm(task, NOT_FOUND)
        self.end_task(task)
        if task.is_node:
            self.on_node_ended(task, status, payload, codec)
        self.on_predecessor_ended(task, status, payload, codec, task.id)
        self.renew(task.client)

    def keep_result(self, task: Task, payload: bytes, object_id: int) -> None:
        """A result is the client's, or that of the nodes that wait for it."""
        task.result = object_id or payload
        if not object_id:
            return
        kept = self.objects[object_id]
        waiting = [each for each in (*task.successors, *task.followers) if each.state == "waiting"]
        kept.needs += len(waiting)
        for each in waiting:
            each.dependencies.append(object_id)
            each.holds.append(object_id)
        if task.is_target and not task.client.is_gone:
            self.give_to_client(kept, task.client)
        else:
            self.let_go(kept)

    def give_to_client(self, kept: Object, client: Client) -> None:
        kept.owner = client
        client.large_results[kept.id] = kept.size

    def tell_outcome(self, task: Task, status: int, payload: bytes, codec: str, **more: Any) -> None:
        fields = {"ids": [task.id], "statuses": [status], "payloadSizes": [len(payload)], "codec": codec}
        self.send(task.client, "TaskResult", payload, **fields, **more)

    def lose(self, task: Task, kind: str, text: str) -> None:
        failure = SCHEMA.encode_failure(kind=kind, message=text, attempts=task.lost_workers)
        self.finish(task, LOST, failure, task.codec)

    def end_task(self, task: Task) -> None:
        """Only nodes that need the task still use it."""
        task.state = "ended"
        task.client.tasks.pop(task.id, None)
        if task in self.queue:
            self.queue.remove(task)
        held, task.holds = task.holds, []
        for each in held:
            if each in self.objects:
                self.end_need(self.objects[each])
        if not task.is_node:
            task.client.tasks_released += 1
            task.client.bytes_released += len(task.payload)

    def renew(self, client: Client) -> None:
        """Tell a client of releases before it would stop for want of them."""
        tasks, size = client.tasks_released - client.tasks_told, client.bytes_released - client.bytes_told
        if 0 < self.tasks_limit <= 8 * tasks or 0 < self.bytes_limit <= 8 * size:
            client.tasks_told, client.bytes_told = client.tasks_released, client.bytes_released
            self.send(
                client,
                "TaskEcho",
                acceptedUpTo=max(0, client.last_id),
                tasksInFlight=self.tasks_limit,
                bytesInFlight=self.bytes_limit,
                tasksReleased=client.tasks_released,
                bytesReleased=client.bytes_released,
            )

    def on_task_log(self, worker: Worker, message: Message) -> None:
        task = self.current(worker, message.id)
        if task is not None:
            self.send(task.client, "TaskLog", id=task.id, stream=message.stream, text=message.text)

    # Cancels --------------------------------------------------------------------------------------------------------

    def on_task_cancel(self, client: Client, message: Message) -> None:
        for id_ in message.ids:
            task = client.tasks.get(id_)
            if task is None:
                self.cancel_unknown(client, id_)
            elif task.worker is None:
                self.cancel_here(task)
            elif not task.answer_is_owed:
                task.answer_is_owed = True
                self.cancel_at_worker(task, message.force)
            elif message.force and not task.is_forced:
                self.cancel_again(task)

    def cancel_unknown(self, client: Client, id_: int) -> None:
        self.send(client, "TaskCancelConfirm", ids=[id_], outcomes=[NOT_FOUND])

    def cancel_here(self, task: Task) -> None:
        self.end_cancelled(task)

    def cancel_again(self, task: Task) -> None:
        """With force, before the worker has answered a cancel without."""
        task.owes_another = True
        self.cancel_at_worker(task, True)

    def cancel_at_worker(self, task: Task, force: bool) -> None:
        task.state, task.is_forced = "cancelling", force
        self.send(task.worker, "TaskCancel", ids=[task.instance], force=force)

    def confirm(self, task: Task, outcome: int) -> None:
        task.answer_is_owed = False
        self.send(task.client, "TaskCancelConfirm", ids=[task.id], outcomes=[outcome])

    def end_cancelled(self, task: Task) -> None:
        """The outcome cancelled, which its client asked for."""
        self.confirm(task, CANCELLED)
        self.end_task(task)
        if task.is_node:
            self.on_node_ended(task, None, b"", "")
        self.on_predecessor_ended(task, None, b"", "", task.id)
        self.renew(task.client)

    def on_task_cancel_confirm(self, worker: Worker, message: Message) -> None:
        agree(len(message.outcomes) == len(message.ids), "outcomes")
        tasks = [self.current(worker, each) for each in message.ids]
        for task, outcome in zip(tasks, message.outcomes):
            if task is None:
                continue
            if outcome == NOT_FOUND:
                self.on_not_found(task)
            elif outcome == CANCELLED:
                self.leave_worker(task)
                self.end_cancelled(task)
            elif task.owes_another:
                self.on_first_answer(task)
            elif task.answer_is_owed:
                task.state = "assigned"
                self.confirm(task, RUNNING)

    def on_first_answer(self, task: Task) -> None:
        """It runs, and a cancel with force is under way."""
        self.confirm(task, RUNNING)
        task.owes_another, task.answer_is_owed = False, True

    def on_not_found(self, task: Task) -> None:
        raise Refused("protocolViolation", f"the worker holds instance {task.instance}")

    # Peers that go --------------------------------------------------------------------------------------------------

    def on_client_gone(self, client: Client) -> None:
        for task in list(client.tasks.values()):
            if task.worker is None:
                self.end_task(task)
            else:
                self.cancel_orphan(task)

    def cancel_orphan(self, task: Task) -> None:
        self.cancel_at_worker(task, True)

    def on_worker_gone(self, worker: Worker, left: bool) -> None:
        for task in list(worker.held.values()):
            self.leave_worker(task)
            task.lost_workers += self.losses(left)
            if task.client.is_gone:
                self.end_task(task)
            elif task.answer_is_owed:
                self.end_cancelled(task)
            elif self.has_no_attempt(task):
                self.lose(task, "workerLost", "its workers were lost")
            else:
                self.requeue(task)

    def losses(self, left: bool) -> int:
        return 0 if left else 1

    def has_no_attempt(self, task: Task) -> bool:
        return self.runs_once(task) or task.lost_workers >= MOST_LOST_WORKERS

    def runs_once(self, task: Task) -> bool:
        return bool(task.options.atMostOnce)

    def return_task(self, task: Task) -> None:
        """Its worker has given it back."""
        self.leave_worker(task)
        if task.client.is_gone:
            self.end_task(task)
        elif task.answer_is_owed:
            self.end_cancelled(task)
        else:
            self.requeue(task)

    def requeue(self, task: Task) -> None:
        task.state = "queued"
        self.queue.insert(0, task)


def agree(condition: bool, what: str) -> None:
    """Raises Refused unless it does."""
    if not condition:
        raise Refused("malformed", f"{what} disagrees")


def amounts(capabilities: Any) -> Dict[str, float]:
    """Of each name; those listed twice add up."""
    found: Dict[str, float] = {}
    for each in capabilities:
        found[each.name] = found.get(each.name, 0.0) + each.amount
    return found
