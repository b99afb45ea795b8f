"""The reference scheduler's graphs: nodes that wait for nodes, results that pass on, failures that spread."""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Optional, Set, Tuple

from mutants.scheduler.scheduler_state import Client, Task
from mutants.scheduler.scheduler_tasks import SUCCESS, agree
from scaler_conformance.codec.schema_codec import Message

NODE_MARK = 4
IS_OBJECT = 0xFFFFFFFF


class GraphKeeper:
    """Mixin of ReferenceScheduler."""

    check_task_columns: Any
    check_order: Any
    check_amounts: Any
    tasks_of: Any
    is_named: Any
    need_objects: Any
    on_object_missing: Any
    queue: List[Task]
    tell_outcome: Any
    confirm: Any
    dependant_payload: Callable[[Task], Tuple[bytes, List[int]]]
    end_task: Any

    def on_graph_task(self, client: Client, message: Message) -> None:
        self.check_graph_columns(message)
        self.check_order(client, message.ids)
        self.check_amounts(message.options)
        nodes: List[Task] = self.tasks_of(client, message, message.functions)
        offsets = message.predecessorOffsets or [0] * (len(nodes) + 1)
        for index, node in enumerate(nodes):
            node.is_node, node.is_target = True, self.tells(index in message.targets)
            node.predecessors = [nodes[each] for each in message.predecessors[offsets[index] : offsets[index + 1]]]
            for each in node.predecessors:
                each.successors.append(node)
            client.tasks[node.id] = node
            node.state = "waiting" if self.must_wait(node) else "queued"
        needed = self.needed(nodes)
        for node in nodes:
            if node.state == "ended":
                continue
            if id(node) not in needed:
                self.drop(node)
            elif not all(map(self.is_named, node.needs)):
                self.on_object_missing(node)
            else:
                self.need_objects(node)
                if node.state == "queued":
                    self.queue.append(node)

    def check_graph_columns(self, message: Message) -> None:
        count = len(message.ids)
        self.check_task_columns(message)
        agree(len(message.functions) == count and all(message.functions), "functions")
        offsets = message.predecessorOffsets
        if offsets or message.predecessors:
            agree(len(offsets) == count + 1 and offsets[0] == 0, "predecessorOffsets")
            agree(all(a <= b for a, b in zip(offsets, offsets[1:])), "predecessorOffsets")
            agree(offsets[-1] == len(message.predecessors), "predecessors")
            for index in range(count):
                agree(all(each < index for each in message.predecessors[offsets[index] : offsets[index + 1]]), "order")
        agree(all(each < count for each in message.targets), "targets")
        agree(len(set(message.targets)) == len(message.targets), "targets")

    def tells(self, is_target: bool) -> bool:
        return is_target

    def must_wait(self, node: Task) -> bool:
        return bool(node.predecessors)

    def needed(self, nodes: List[Task]) -> Set[int]:
        """The nodes that an unfinished target needs, by id()."""
        found: Set[int] = set()
        for node in reversed(nodes):
            unfinished = node.state != "ended"
            if unfinished and (node.is_target or any(id(each) in found for each in node.successors)):
                found.add(id(node))
        return found

    def drop(self, node: Task) -> None:
        """A node that no target needs."""
        node.dependencies, node.function = [], 0
        self.end_task(node)

    def node_payload(self, task: Task) -> Tuple[bytes, List[int]]:
        """Payload and dependencies as a worker gets them."""
        if task.needed:
            return self.dependant_payload(task)
        if not task.predecessors:
            return task.payload, task.dependencies
        results = [each.result for each in task.predecessors]
        own = task.dependencies[: len(task.dependencies) - sum(isinstance(each, int) for each in results)]
        objects = [each for each in results if isinstance(each, int)]
        return self.front(results) + task.payload, own + objects

    def front(self, results: List[Any]) -> bytes:
        """Results of predecessors, as messages.md lays them out."""
        sizes = [IS_OBJECT if isinstance(each, int) else len(each) for each in results]
        head = struct.pack(f"<II{len(sizes)}I", NODE_MARK, len(sizes), *sizes)
        return head + b"".join(each for each in results if not isinstance(each, int))

    def on_node_ended(self, node: Task, status: Optional[int], payload: bytes, codec: str) -> None:
        """Status None: it was cancelled."""
        if status == SUCCESS:
            for each in node.successors:
                if each.state == "waiting" and all(self.is_done(before) for before in each.predecessors):
                    each.state = "queued"
                    self.queue.append(each)
            return
        self.spread(node, node, status, payload, codec)
        self.drop_unneeded(node)

    def is_done(self, node: Task) -> bool:
        return node.result is not None

    def spread(self, node: Task, cause: Task, status: Optional[int], payload: bytes, codec: str) -> None:
        for each in node.successors:
            if each.state != "waiting":
                continue
            each.state = "ended"
            if status is None:
                self.tell_cancelled(each)
            elif each.is_target:
                self.tell_outcome(each, status, payload, codec, causes=self.causes(cause))
            self.end_task(each)
            self.spread(each, cause, status, payload, codec)

    def tell_cancelled(self, node: Task) -> None:
        if node.is_target:
            self.confirm(node, 0)

    def causes(self, cause: Task) -> List[int]:
        return [cause.id + 1]

    def drop_unneeded(self, node: Task) -> None:
        """What only a node that will not run needed is not run either."""
        waiting = [node]
        graph: List[Task] = []
        while waiting:
            each = waiting.pop()
            if each not in graph:
                graph.append(each)
                waiting += each.predecessors + each.successors
        needed = self.needed(sorted(graph, key=lambda each: each.id))
        for each in graph:
            if each.state in ("waiting", "queued") and id(each) not in needed:
                self.end_task(each)
