"""The reference scheduler's tasks that need others: they wait, results pass on, failures and cancels spread."""

from __future__ import annotations

import struct
from typing import Any, List, Optional, Sequence, Tuple

from mutants.scheduler.scheduler_graphs import IS_OBJECT, NODE_MARK
from mutants.scheduler.scheduler_state import Client, Task
from mutants.scheduler.scheduler_tasks import CANCELLED, SUCCESS, agree
from scaler_conformance.codec.schema_codec import Message


class DependantKeeper:
    """Mixin of ReferenceScheduler."""

    queue: List[Task]
    accept_task: Any
    need_objects: Any
    tell_outcome: Any
    lose: Any
    confirm: Any
    end_task: Any

    def check_predecessors(self, message: Message) -> None:
        agree(len(message.predecessorCounts) in (0, len(message.ids)), "predecessorCounts")
        agree(sum(message.predecessorCounts) == len(message.predecessors), "predecessors")
        for id_, needed in zip(message.ids, self.predecessors_of(message)):
            agree(all(each < id_ for each in needed) and len(set(needed)) == len(needed), "predecessors")

    def predecessors_of(self, message: Message) -> List[List[int]]:
        rows, first = [], 0
        for count in message.predecessorCounts or [0] * len(message.ids):
            rows.append(message.predecessors[first : first + count])
            first += count
        return rows

    def accept_dependant(self, client: Client, task: Task, needed: Sequence[int]) -> None:
        known = [client.tasks.get(each) for each in needed]
        self.accept_task(task)
        if task.state == "ended" or not self.must_wait_for(known):
            return
        self.queue.remove(task)
        if None in known:
            self.on_predecessor_gone(task)
            return
        task.state, task.needed = "waiting", [each for each in known if each is not None]
        for each in task.needed:
            each.followers.append(task)

    def must_wait_for(self, known: List[Optional[Task]]) -> bool:
        return bool(known)

    def on_predecessor_gone(self, task: Task) -> None:
        self.lose(task, "predecessorGone", "the outcome of a task that it needs has been told before")

    def dependant_payload(self, task: Task) -> Tuple[bytes, List[int]]:
        """Payload and dependencies as a worker gets them."""
        results = self.results_in_order([each.result for each in task.needed])
        objects = [each for each in results if isinstance(each, int)]
        own = task.dependencies[: len(task.dependencies) - len(objects)]
        sizes = [IS_OBJECT if isinstance(each, int) else len(each) for each in results]
        head = struct.pack(f"<II{len(sizes)}I", NODE_MARK, len(sizes), *sizes)
        return head + b"".join(each for each in results if isinstance(each, bytes)) + task.payload, own + objects

    def results_in_order(self, results: List[Any]) -> List[Any]:
        return results

    def on_predecessor_ended(self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int) -> None:
        """Status None: it was cancelled."""
        for each in task.followers:
            if each.state != "waiting":
                continue
            if status == SUCCESS:
                if self.has_all(each):
                    each.state = "queued"
                    self.queue.append(each)
                continue
            each.state = "ended"
            self.report_failed_predecessor(each, status, payload, codec, origin)
            self.end_task(each)
            self.on_predecessor_ended(each, status, payload, codec, origin)

    def has_all(self, task: Task) -> bool:
        return all(each.state == "ended" for each in task.needed)

    def report_failed_predecessor(
        self, task: Task, status: Optional[int], payload: bytes, codec: str, origin: int
    ) -> None:
        if status is None:
            self.confirm(task, CANCELLED)
        else:
            self.tell_outcome(task, status, payload, codec, causes=[origin + 1])
