"""What the reference scheduler tells monitors: all of the state compared with what was told before.

Rules:
- It publishes far more often than a scheduler for people does, so that the suite's own tests do not wait.
- Nothing here is used elsewhere but `note_run` and `is_watched`; nothing that a monitor sends leads anywhere else.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import zmq

from mutants.scheduler.scheduler_state import Client, Task, Worker
from scaler_conformance.codec.schema_codec import SCHEMA, Message

INTERVAL_SECONDS = 0.05
STATUS, RUNS = b"status", b"tasks"
SUCCESS = 0
Row = Tuple[int, ...]
COLUMNS = {
    "workers": ("sessions", "tasks", "sent", "finished", "failed"),
    "clients": ("sessions", "tasks", "finished", "failed"),
}
ACTOR_COLUMNS = {
    "ids": "id",
    "workers": "worker",
    "waiting": "callsWaiting",
    "running": "callsRunning",
    "finished": "callsFinished",
    "failed": "callsFailed",
    "states": "state",
}
NAMES = {"workers": "newWorkers", "clients": "newClients"}


class MonitorKeeper:
    """Mixin of ReferenceScheduler."""

    workers: List[Worker]
    sessions: Dict[Any, Any]
    queue: List[Task]
    unit_notes: Any
    pool_demands: Any
    living: Any
    describe_actor: Any

    def __init__(self) -> None:
        super().__init__()
        self.totals: Dict[int, List[int]] = {}  # by session: sent, finished, failed
        self.ended = [0, 0]  # tasks: success, failed
        self.runs: List[Dict[str, Any]] = []
        self.told: Dict[str, Dict[int, Row]] = {name: {} for name in COLUMNS}
        self.told_actors: Dict[int, Dict[str, Any]] = {}
        self.topics: Set[bytes] = set()
        self.next_publication = 0.0
        self.sequences = {STATUS: 0, RUNS: 0}
        self.snapshot_is_due = False
        self.publisher: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.XPUB)
        self.publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.publisher.setsockopt(zmq.LINGER, 0)
        self.monitor_address = f"tcp://127.0.0.1:{self.publisher.bind_to_random_port('tcp://127.0.0.1')}"

    def publish_at(self, address: str) -> None:
        """Publish at an address that only this user can connect to."""
        self.publisher.unbind(self.monitor_address)
        self.publisher.bind(address)
        self.monitor_address = address

    def close_monitors(self) -> None:
        self.publisher.close()

    def is_watched(self, worker: Worker) -> bool:
        """What its echoes say."""
        return bool(self.topics)

    # What is noted --------------------------------------------------------------------------------------------------

    def count(self, session: int, place: int) -> None:
        self.totals.setdefault(session, [0, 0, 0])[place] += 1

    def note_sent(self, worker: Worker) -> None:
        self.count(worker.number, 0)

    def note_end(self, task: Task, status: int) -> None:
        """A task ended as success, failed or lost."""
        self.ended[status != SUCCESS] += 1
        for session in {task.client.number, *([task.worker.number] if task.worker else [])}:
            self.count(session, 1)
            if status != SUCCESS:
                self.count(session, 2)

    def note_runs(self, worker: Worker, tasks: Sequence[Optional[Task]], message: Message) -> None:
        """A worker reported outcomes."""
        numbers = message.runs or [len(tasks), 0, message.busyMicroseconds]
        known = [task for task in tasks if task is not None]
        for place in range(0, len(numbers) if known else 0, 3):
            count, processor, microseconds = numbers[place : place + 3]
            run = {"workers": worker.number, "processors": processor, "clients": known[0].client.number}
            more = {"firstTasks": known[0].id, "counts": count, "busyMicroseconds": microseconds, "statuses": 0}
            self.runs.append({**run, **more})

    # What is told ---------------------------------------------------------------------------------------------------

    def look_after_monitors(self, now: float) -> None:
        """Publish, if it is time to."""
        while self.publisher.poll(0):
            for frame in self.publisher.recv_multipart()[:1]:
                self.on_monitor_frame(frame)
        if now >= self.next_publication:
            self.next_publication = now + INTERVAL_SECONDS
            self.publish()

    def on_monitor_frame(self, frame: bytes) -> None:
        topic = frame[1:]
        if frame[:1] == b"\1":
            self.topics.add(topic)
            self.snapshot_is_due = True
        elif frame[:1] == b"\0":
            self.topics.discard(topic)

    def publish(self) -> None:
        self.publish_status()
        runs, self.runs = self.runs, []
        if runs:
            columns = {name: [run[name] for run in runs] for name in runs[0]}
            zeros = [0] * len(runs)
            more = dict.fromkeys(("endMicroseconds", "functions", "peakMemoryBytes", "attempts"), zeros)
            self.publish_runs({"oneWorkerOf": 1, **columns, **more})

    def publish_runs(self, fields: Dict[str, Any]) -> None:
        self.send_to_monitors(RUNS, "TaskRuns", {"sequence": self.next_sequence(RUNS), **fields})

    def says_insecure(self, is_snapshot: bool) -> bool:
        return not self.requires_keys()

    def requires_keys(self) -> bool:
        raise NotImplementedError

    def publish_status(self) -> None:
        is_snapshot = self.takes_snapshot()
        now = self.rows()
        before = {name: {} for name in COLUMNS} if is_snapshot else self.told
        fields: Dict[str, Any] = {"sequence": self.next_sequence(STATUS), "isSnapshot": is_snapshot}
        for name, columns in COLUMNS.items():
            changed = [row for number, row in now[name].items() if self.is_changed(name, before[name].get(number), row)]
            fields[name] = {column: [row[place] for row in changed] for place, column in enumerate(columns)}
            fields[NAMES[name]] = [self.name_of(name, number) for number in now[name] if number not in before[name]]
            fields[f"{name}Gone"] = [number for number in before[name] if number not in now[name]]
        fields["clients"]["canceled"] = [0] * len(fields["clients"]["sessions"])
        fields["tasks"] = [{"name": name, "value": value} for name, value in self.counts().items()]
        fields["demands"] = self.demands()
        fields["unitNotes"] = self.unit_notes()
        fields["pools"] = self.pool_demands()
        fields.update(self.actor_fields(is_snapshot))
        fields["isInsecure"] = self.says_insecure(is_snapshot)
        self.told = now
        self.send_to_monitors(STATUS, "SchedulerStatus", {"schedulerId": b"0123456789abcdef", **fields})

    def actor_fields(self, is_snapshot: bool) -> Dict[str, Any]:
        """What has changed of actors, or all there is."""
        before = {} if is_snapshot else self.told_actors
        now = self.told_actors = {each: self.describe_actor(each) for each in self.living()}
        changed = [told for each, told in now.items() if before.get(each) != told]
        return {
            "actors": {column: [told[name] for told in changed] for column, name in ACTOR_COLUMNS.items()},
            "newActors": [
                {name: now[each][name] for name in ("id", "name", "client")} for each in now if each not in before
            ],
            "actorsGone": [each for each in before if each not in now],
            "lostActors": [{"id": told["id"], "reason": told["whyLost"]} for told in changed if told["whyLost"]],
        }

    def demands(self) -> List[Dict[str, Any]]:
        """What all tasks that run or could run want: as many slots."""
        tasks = self.runnable()
        missing = max(0, tasks - sum(each.slots for each in self.workers))
        return [{"tasks": tasks, "tasksUnmeasured": tasks, "slotsWanted": tasks, "slotsMissing": missing}]

    def runnable(self) -> int:
        return len(self.queue) + sum(len(worker.held) for worker in self.workers)

    def takes_snapshot(self) -> bool:
        is_due, self.snapshot_is_due = self.snapshot_is_due, False
        return is_due

    def is_changed(self, name: str, before: Optional[Row], row: Row) -> bool:
        return before != row

    def rows(self) -> Dict[str, Dict[int, Row]]:
        """The rows of all workers and clients, by session."""
        nothing = [0, 0, 0]
        clients = [each for each in self.sessions.values() if isinstance(each, Client)]
        return {
            "workers": {
                each.number: (each.number, len(each.held), *self.totals.get(each.number, nothing))
                for each in self.workers
            },
            "clients": {
                each.number: (each.number, len(each.tasks), *self.totals.get(each.number, nothing)[1:])
                for each in clients
            },
        }

    def name_of(self, table: str, number: int) -> Dict[str, Any]:
        peer = next(each for each in self.sessions.values() if each.number == number)
        more = {"slots": peer.slots} if table == "workers" else {}
        return {"session": number, "name": peer.hello.name, **more}

    def counts(self) -> Dict[str, int]:
        running = sum(len(worker.held) for worker in self.workers)
        return {
            "unassigned": len(self.queue),
            "running": running,
            "success": self.ended[0],
            "failed": self.ended[1],
        }

    def next_sequence(self, topic: bytes) -> int:
        self.sequences[topic] += 1
        return self.sequences[topic]

    def send_to_monitors(self, topic: bytes, type_: str, fields: Dict[str, Any]) -> None:
        self.publisher.send_multipart(self.monitor_frames(topic, SCHEMA.encode(type_, fields)))

    def monitor_frames(self, topic: bytes, header: bytes) -> List[bytes]:
        return [topic, header]
