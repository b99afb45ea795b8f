"""A client that does all that the specification asks of clients, and its adapter, on one thread.

Rules:
- One method, one duty: so that a mutant can break just that.
- `python -m mutants.client.reference_client` runs it as a process; the suite's own tests run it on a thread.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Optional, Tuple, Type

from mutants.client.client_loop import ClientLoop
from mutants.client.client_tasks import Fetch, Task, wire_options
from scaler_conformance.codec.schema_codec import SCHEMA, Message, UnreadableMessageError

SUCCESS, FAILED, LOST = 0, 1, 3
CANCELLED, RUNNING, NOT_FOUND = 0, 1, 2


class ReferenceClient(ClientLoop):
    """One adapter and its client; see ClientLoop."""

    batch_tasks = 100

    # Submitting -----------------------------------------------------------------------------------------------------

    def send_waiting(self) -> None:
        """Send what the limits let out, in batches of what is alike."""
        while self.session and self.waiting:
            first = self.waiting[0]
            if first.nodes:
                self.waiting.pop(0)
                self.send_graph(first)
                continue
            batch: List[Task] = []
            size = 0
            while self.waiting and self.fits(batch, size, self.waiting[0]) and self.is_below_limits():
                task = self.waiting.pop(0)
                batch.append(task)
                self.tasks_sent += 1
                self.bytes_sent += len(task.payload)
                size += len(task.payload)
            if not batch:
                return
            self.send_batch(batch)

    def fits(self, batch: List[Task], size: int, task: Task) -> bool:
        """Whether a task may be in a batch that has these already."""
        if not batch:
            return True
        is_alike = task.batch_key == batch[0].batch_key and not task.nodes
        return is_alike and len(batch) < self.batch_tasks and size + len(task.payload) <= self.most_bytes()

    def most_bytes(self) -> int:
        return int(min(self.welcome.limits.maximumMessageBytes or 1 << 30, 8 << 20)) // 2

    def reset_flow(self) -> None:
        self.tasks_sent = self.bytes_sent = self.tasks_released = self.bytes_released = 0

    def set_limits(self, tasks: int, size: int) -> None:
        self.tasks_limit, self.bytes_limit = tasks, size

    def is_below_limits(self) -> bool:
        return self.has_room_for_tasks() and self.has_room_for_bytes()

    def has_room_for_tasks(self) -> bool:
        return not self.tasks_limit or self.tasks_sent - self.tasks_released < self.tasks_limit

    def has_room_for_bytes(self) -> bool:
        return not self.bytes_limit or self.bytes_sent - self.bytes_released < self.bytes_limit

    def on_task_echo(self, message: Message) -> None:
        self.set_limits(message.tasksInFlight, message.bytesInFlight)
        self.tasks_released, self.bytes_released = message.tasksReleased, message.bytesReleased

    def new_ids(self, count: int) -> List[int]:
        first = self.next_id
        self.next_id += count
        return list(range(first, first + count))

    def send_batch(self, batch: List[Task]) -> None:
        ids = self.new_ids(len(batch))
        arguments = [self.arguments_object(task) for task in batch]
        payloads = [b"" if objects else task.payload for task, objects in zip(batch, arguments)]
        dependencies = [[*objects, *self.needed_objects(task)] for task, objects in zip(batch, arguments)]
        for task, id_ in zip(batch, ids):
            task.id, task.was_sent = id_, True
            self.by_id[id_] = task
        self.send_task_message(ids, payloads, dependencies, batch[0])
        if any(arguments):
            self.send("ObjectInstruction", action="delete", ids=[each for objects in arguments for each in objects])

    def needed_objects(self, task: Task) -> List[int]:
        """Objects of the user that a task needs."""
        return [self.objects.user_object(each, self.sizes[each]) for each in task.needs if each in self.sizes]

    def arguments_object(self, task: Task) -> List[int]:
        """Large arguments become an object."""
        limit = self.welcome.limits.inlineBytes
        if not limit or len(task.payload) < limit:
            return []
        return [self.objects.create(task.payload, task.codec)]

    def send_task_message(
        self, ids: List[int], payloads: List[bytes], dependencies: List[List[int]], like: Task
    ) -> None:
        self.send("Task", b"".join(payloads), **self.task_fields(ids, payloads, dependencies, like))

    def task_fields(
        self, ids: List[int], payloads: List[bytes], dependencies: List[List[int]], like: Task
    ) -> Dict[str, Any]:
        return {
            "ids": ids,
            "payloadSizes": list(map(len, payloads)),
            "functionName": like.function,
            **(self.actors.fields(like) if like.actor else {}),
            "codec": like.codec,
            "options": {**wire_options(like.options), **self.actors.options(like)},
            "dependencyCounts": list(map(len, dependencies)) if any(dependencies) else [],
            "dependencies": [each for objects in dependencies for each in objects],
        }

    def send_graph(self, task: Task) -> None:
        ids = self.new_ids(task.nodes)
        function = self.objects.create(b"a function", "json", kind=1)
        task.id, task.was_sent = ids[-1], True
        self.by_id[ids[-1]] = task
        count = task.nodes
        self.send(
            "GraphTask",
            ids=ids,
            payloadSizes=[0] * count,
            functions=[function] * count,
            predecessorOffsets=[0, *range(count)],
            predecessors=list(range(count - 1)),
            targets=[count - 1],
            codec="json",
        )

    # Outcomes -------------------------------------------------------------------------------------------------------

    def on_task_result(self, message: Message) -> None:
        if not self.agrees(message):
            self.on_unreadable()
            return
        start = 0
        for index, id_ in enumerate(message.ids):
            size = message.payloadSizes[index]
            payload = message.payload[start : start + size]
            start += size
            status = message.statuses[index] if message.statuses else SUCCESS
            object_id = message.objects[index] if message.objects else 0
            task = self.task_of(id_)
            if task is None:
                self.on_unknown_result(object_id)
            elif object_id:
                self.objects.fetch(task, object_id)
            else:
                self.take_result(task, status, payload, message.codec)

    def agrees(self, message: Message) -> bool:
        count = len(message.ids)
        optional = (len(message.statuses), len(message.objects))
        right = len(message.payloadSizes) == count and all(each in (0, count) for each in optional)
        return right and sum(message.payloadSizes) == len(message.payload)

    def task_of(self, id_: int) -> Optional[Task]:
        return self.by_id.get(id_)

    def on_unknown_result(self, object_id: int) -> None:
        if object_id:
            self.delete_result(object_id)

    def take_result(self, task: Task, status: int, payload: bytes, codec: str) -> None:
        if status == SUCCESS:
            is_, members = self.value_of(payload, task)
            self.end_task(task, is_, **members)
        else:
            self.end_task(task, "error", message=self.failure_text(payload, codec))

    def value_of(self, payload: bytes, task: Task) -> Tuple[str, Dict[str, Any]]:
        try:
            return "result", {"value": payload.decode() if task.codec == "raw" else json.loads(payload)}
        except ValueError as error:
            return "error", {"message": f"the result cannot be read: {error}"}

    def failure_text(self, payload: bytes, codec: str) -> str:
        try:
            failure = SCHEMA.decode_failure(payload)
        except UnreadableMessageError as error:
            return f"a failure that cannot be read: {error}"
        return f"{failure.kind}: {failure.message}"

    def on_object_response(self, message: Message) -> None:
        fetch = self.objects.fetches.get(message.id)
        if fetch is None:
            return
        if message.status != "ok":
            self.end_fetch(fetch)
            self.end_task(fetch.task, "error", message="the large result is missing")
        elif self.objects.take_chunk(fetch, message):
            self.end_fetch(fetch)
            self.take_result(fetch.task, SUCCESS, fetch.content, "")

    def end_fetch(self, fetch: Fetch) -> None:
        self.objects.fetches.pop(fetch.object_id, None)
        self.delete_result(fetch.object_id)

    def delete_result(self, object_id: int) -> None:
        self.send("ObjectInstruction", action="delete", ids=[object_id])

    def on_object_request(self, message: Message) -> None:
        self.objects.on_request(message)

    def on_task_cancel_confirm(self, message: Message) -> None:
        for id_, outcome in zip(message.ids, message.outcomes):
            task = self.task_of(id_)
            if task is not None:
                self.on_confirmation(task, outcome)

    def on_confirmation(self, task: Task, outcome: int) -> None:
        if outcome == CANCELLED:
            self.end_task(task, "cancelled")
        else:
            task.is_cancelling = False


def main(peer: Type[ReferenceClient] = ReferenceClient) -> int:
    return peer(sys.stdin.buffer, sys.stdout.buffer).run()


if __name__ == "__main__":
    sys.exit(main())
