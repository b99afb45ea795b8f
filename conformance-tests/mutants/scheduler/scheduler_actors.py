"""The reference scheduler's actors: where they are, the order of their calls, and how these end."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from mutants.scheduler.scheduler_state import Client, Object, Task, Worker
from mutants.scheduler.scheduler_tasks import TaskKeeper, amounts

FEATURE = "actors"


class KnownActor:
    """An actor that has begun, or is about to."""

    def __init__(self, options: Any) -> None:
        self.options = options  # of its first call
        self.worker: Optional[Worker] = None
        self.is_lost = False
        self.ended = [0, 0]  # calls: in all, those that failed


class ActorKeeper(TaskKeeper):
    """Mixin of ReferenceScheduler."""

    objects: Dict[int, Object]

    def __init__(self) -> None:
        super().__init__()
        self.actors: Dict[int, KnownActor] = {}  # by function, while its object exists

    # Accepting ------------------------------------------------------------------------------------------------------

    def accept_task(self, task: Task) -> None:
        if task.options.actor and not self.admits(task):
            task.client.tasks[task.id] = task
            task.client.tasks_sent += 1
            task.client.bytes_sent += len(task.payload)
            self.lose(task, "actorLost", "the actor has ended, or never began")
        else:
            super().accept_task(task)

    def admits(self, call: Task) -> bool:
        for each in [each for each in self.actors if each not in self.objects]:
            del self.actors[each]
        if not self.is_named(call.function):
            return False
        actor = self.actors.get(call.function)
        if actor is None and self.may_begin(call.client, self.objects[call.function]):
            actor = self.actors[call.function] = KnownActor(call.options)
        return actor is not None and not actor.is_lost

    def may_begin(self, client: Client, function: Object) -> bool:
        return function.owner is client

    # Describing -----------------------------------------------------------------------------------------------------

    def note_end(self, task: Task, status: int) -> None:
        actor = self.actors.get(task.function) if task.options.actor else None
        if actor is not None:
            actor.ended = [actor.ended[0] + 1, actor.ended[1] + (status != 0)]
        super().note_end(task, status)

    def living(self) -> List[int]:
        """The actors whose function object exists."""
        return [each for each in self.actors if each in self.objects]

    def describe_actor(self, function: int) -> Dict[str, Any]:
        """As in ActorInfo."""
        actor, kept = self.actors[function], self.objects[function]
        worker = actor.worker if actor.worker in self.workers else None
        held = [] if worker is None else self.calls_at(worker, function)
        waiting = [each for each in self.queue if each.options.actor and each.function == function]
        return {
            "id": function,
            "name": kept.name,
            "client": 0 if kept.owner is None else kept.owner.number,
            "worker": 0 if worker is None else worker.number,
            "workerName": "" if worker is None else worker.hello.name,
            "callsWaiting": len(waiting),
            "callsRunning": len(held),
            "callsFinished": actor.ended[0],
            "callsFailed": actor.ended[1],
            "state": self.state_of(actor),
            "whyLost": "the actor was lost with its worker" if actor.is_lost else "",
        }

    def state_of(self, actor: KnownActor) -> int:
        return 2 if actor.is_lost else 0 if actor.worker is None else 1

    # Placing --------------------------------------------------------------------------------------------------------

    def fits(self, worker: Worker, task: Task) -> bool:
        if not task.options.actor:
            return super().fits(worker, task)
        actor = self.actors[task.function]
        if actor.worker is None:
            return self.runs_actors(worker) and super().fits(worker, task)
        return self.is_home(actor, worker) and len(self.calls_at(worker, task.function)) < worker.queue_size

    def runs_actors(self, worker: Worker) -> bool:
        return FEATURE in worker.hello.features

    def is_home(self, actor: KnownActor, worker: Worker) -> bool:
        return actor.worker is worker

    def calls_at(self, worker: Worker, function: int) -> List[Task]:
        return [each for each in worker.held.values() if each.options.actor and each.function == function]

    def has_room(self, worker: Worker) -> bool:
        tasks = [each for each in worker.held.values() if not each.options.actor]
        actors = {each.function for each in worker.held.values() if each.options.actor}
        return len(tasks) + len(actors) < (worker.slots + worker.suspended) * worker.queue_size

    def has_capabilities(self, worker: Worker, task: Task) -> bool:
        offered = amounts(worker.hello.capabilities)
        used = [amounts(each.options.capabilities) for each in worker.held.values() if not each.options.actor]
        for each in self.users_at(worker):
            for name, amount in amounts(each.options.capabilities).items():
                offered[name] -= amount
        needed = amounts(task.options.capabilities)
        return all(name in offered and needed[name] <= offered[name] - self.in_use(used, name) for name in needed)

    def users_at(self, worker: Worker) -> List[Any]:
        """What uses capabilities of a worker besides its tasks: its actors."""
        return [each for function, each in self.actors.items() if each.worker is worker and function in self.objects]

    def place(self, task: Task, worker: Worker) -> None:
        if task.options.actor and self.actors[task.function].worker is None:
            self.actors[task.function].worker = worker
        super().place(task, worker)

    # Ending ---------------------------------------------------------------------------------------------------------

    def on_worker_gone(self, worker: Worker, left: bool) -> None:
        lost = [function for function, each in self.actors.items() if each.worker is worker]
        for function in lost:
            self.lose_actor(self.actors[function])
        for task in [each for each in worker.held.values() if each.options.actor]:
            self.on_call_lost(task)
        super().on_worker_gone(worker, left)
        for task in [each for each in self.queue if each.options.actor and self.actors[each.function].is_lost]:
            self.lose(task, "actorLost", "the actor was lost with its worker")

    def lose_actor(self, actor: KnownActor) -> None:
        actor.is_lost = True

    def on_call_lost(self, call: Task) -> None:
        if call.client.is_gone or call.answer_is_owed:
            return
        self.leave_worker(call)
        self.lose(call, "actorLost", "the actor was lost with its worker")

    def cancel_orphan(self, task: Task) -> None:
        self.cancel_at_worker(task, not task.options.actor)
