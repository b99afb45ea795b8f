"""A synthetic cluster that publishes its status, for tests and measurements of monitors.

Rules: all figures follow from the seed and the steps taken; a step is one publication of both topics.
"""

from __future__ import annotations

import argparse
import random
import time
from array import array
from typing import Dict, List, Optional, Tuple

import zmq

from scaler_protocol import encode, encode_struct
from scaler_protocol import messages as m

FUNCTIONS = ("numpy.linalg.svd", "prepare", "score_model", "<lambda>", "données.réduire", "<script>alert(1)</script>")
FIRST_SESSION = 1000
TASKS_A_RUN = 25


class PlayedScheduler:
    """A scheduler with `workers` workers of `slots` processors each, whose workers end `rate` tasks a second.

    Parameters:
        runs: the maximum number of runs in a publication.
        interval_seconds: between publications.
    """

    def __init__(
        self,
        workers: int = 4,
        slots: int = 2,
        rate: float = 1000.0,
        runs: int = 2000,
        seed: int = 0,
        interval_seconds: float = 1.0,
        started: Optional[float] = None,
    ) -> None:
        self._random = random.Random(seed)
        self.scheduler_id = self._random.randbytes(16)
        self.sequence = 0
        self._tasks_sequence = 0
        self.slots = slots
        self._rate, self._runs, self._interval = rate, runs, interval_seconds
        self.now = self.started = time.time() if started is None else started
        self.sessions = list(range(FIRST_SESSION, FIRST_SESSION + workers))
        self.finished: Dict[int, int] = dict.fromkeys(self.sessions, 0)
        self.failed: Dict[int, int] = dict.fromkeys(self.sessions, 0)
        self._function_tasks = [0] * len(FUNCTIONS)
        self._function_failed = [0] * len(FUNCTIONS)
        self._buckets: List[Dict[int, int]] = [{} for _ in FUNCTIONS]
        self._next_task = 1
        self._gone: List[int] = []
        self._new: List[int] = []
        self.client = 1
        self.is_insecure = False  # from now on
        self.demands: List[m.SlotDemand] = []
        self.pools: List[m.PoolDemand] = []

    # What happens ---------------------------------------------------------------------------------------------------

    def lose_worker(self) -> int:
        """A worker leaves; returns its session."""
        session = self.sessions.pop()
        self._gone.append(session)
        return session

    def add_worker(self) -> int:
        session = max(self.finished) + 1
        self.sessions.append(session)
        self._new.append(session)
        self.finished[session] = self.failed[session] = 0
        return session

    def step(self, snapshot: bool = False) -> Tuple[m.SchedulerStatus, m.TaskRuns]:
        """One interval passes; returns what is published at its end."""
        self.now += self._interval
        runs = self._run_tasks()
        self.sequence += 1
        status = self._status(snapshot or self.sequence == 1)
        self._gone, self._new = [], []
        return status, runs

    def _run_tasks(self) -> m.TaskRuns:
        tasks = int(self._rate * self._interval)
        count = min(self._runs, max(1, tasks // TASKS_A_RUN)) if tasks and self.sessions else 0
        rows: List[Tuple[int, ...]] = []
        failures: List[m.FailedRun] = []
        for _ in range(count):
            session = self._random.choice(self.sessions)
            function = min(int(self._random.expovariate(1.0)), len(FUNCTIONS) - 1)
            is_failed = self._random.random() < 0.01
            size = 1 if is_failed else max(1, tasks // count)
            busy = int(self._random.lognormvariate(9, 1.0)) * size // TASKS_A_RUN + 1
            status = m.TaskStatus.FAILED if is_failed else m.TaskStatus.SUCCESS
            if is_failed:
                failures.append(m.FailedRun(entry=len(rows), failure=self._failure(FUNCTIONS[function])))
            self.finished[session] += size
            self.failed[session] += is_failed
            self._function_tasks[function] += size
            self._function_failed[function] += is_failed
            bucket = (busy // size or 1).bit_length() * 4
            self._buckets[function][bucket] = self._buckets[function].get(bucket, 0) + size
            before_end = self._random.randrange(max(1, int(self._interval * 1e6)))
            processor = session * 100 + self._random.randrange(self.slots)
            rows.append(
                (before_end, session, processor, self.client, function + 1, self._next_task, size, status, busy)
            )
            self._next_task += size
        columns = list(zip(*rows)) or [()] * 9
        self._tasks_sequence += 1
        return m.TaskRuns(
            scheduler_id=self.scheduler_id,
            sequence=self._tasks_sequence,
            unix_microseconds=int(self.now * 1e6),
            end_microseconds=columns[0],
            workers=columns[1],
            processors=columns[2],
            clients=columns[3],
            functions=columns[4],
            first_tasks=columns[5],
            counts=columns[6],
            statuses=bytes(columns[7]),
            busy_microseconds=columns[8],
            peak_memory_bytes=array("Q", bytes(8 * len(rows))),
            attempts=array("H", [1] * len(rows)),
            failures=failures,
            one_worker_of=1,
        )

    def _failure(self, function: str) -> bytes:
        failure = m.Failure(
            kind=m.FailureKind.TASK_RAISED,
            type_name="builtins.ValueError",
            message=f"no luck in {function}",
            traceback=f'Traceback (most recent call last):\n  File "task.py", line 7, in {function}\nValueError',
            worker="played",
            attempts=1,
        )
        return encode_struct(failure)

    # What is published ----------------------------------------------------------------------------------------------

    def _status(self, snapshot: bool) -> m.SchedulerStatus:
        sessions = self.sessions
        count = len(sessions)
        total = sum(self.finished.values())
        failed = sum(self.failed.values())
        processors = [(session, session * 100 + slot) for session in sessions for slot in range(self.slots)]
        cells = len(processors)
        figures = self._random
        return m.SchedulerStatus(
            scheduler_id=self.scheduler_id,
            sequence=self.sequence,
            is_snapshot=snapshot,
            unix_microseconds=int(self.now * 1e6),
            started_unix_microseconds=int(self.started * 1e6),
            implementation=m.Implementation(name="played", version="1.0", language="Python"),
            address="tcp://127.0.0.1:2345",
            host="played",
            process_id=1,
            is_protected=False,
            is_insecure=self.is_insecure,
            demands=self.demands,
            pools=self.pools,
            cpu_permille=figures.randrange(1000),
            resident_bytes=64 * 1024 * 1024,
            status_microseconds=self.sequence * 5000,
            objects=3,
            object_bytes=300_000_000,
            slots=count * self.slots,
            tasks=[
                m.Count(name="unassigned", value=figures.randrange(10_000)),
                m.Count(name="running", value=2 * cells),
                m.Count(name="success", value=total - failed),
                m.Count(name="failed", value=failed),
                m.Count(name="canceled", value=self.sequence),
            ],
            sent=[m.Count(name="Task", value=total // 10), m.Count(name="HeartbeatEcho", value=self.sequence * count)],
            received=[m.Count(name="TaskResult", value=total // 8), m.Count(name="Heartbeat", value=self.sequence)],
            workers=m.WorkerColumns(
                sessions=sessions,
                tasks=[self.slots * 2] * count,
                queued=[self.slots] * count,
                sent=[self.finished[session] + 10 for session in sessions],
                finished=[self.finished[session] for session in sessions],
                failed=[self.failed[session] for session in sessions],
                cpu_permille=[figures.randrange(200) for _ in sessions],
                resident_bytes=[figures.randrange(30_000_000, 60_000_000) for _ in sessions],
                free_bytes=[8_000_000_000] * count,
                latency_microseconds=[figures.randrange(200, 2000) for _ in sessions],
                states=bytes(count),
                processors=[self.slots] * count,
            ),
            processors=m.ProcessorColumns(
                workers=[worker for worker, _ in processors],
                process_ids=[process_id for _, process_id in processors],
                states=bytes([3]) * cells,
                cpu_permille=[figures.randrange(1000) for _ in processors],
                resident_bytes=[figures.randrange(40_000_000, 400_000_000) for _ in processors],
                queued=[1] * cells,
                task_clients=[self.client] * cells,
                task_ids=list(range(self._next_task, self._next_task + cells)),
                task_functions=[1 + each % len(FUNCTIONS) for each in range(cells)],
                task_microseconds=[figures.randrange(5_000_000) for _ in processors],
            ),
            clients=m.ClientColumns(
                sessions=[self.client],
                tasks=[1000],
                finished=[total],
                failed=[failed],
                canceled=[self.sequence],
                bytes_in_flight=[1 << 20],
                objects=[3],
                object_bytes=[300_000_000],
            ),
            functions=self._functions(),
            graphs=m.GraphColumns(
                numbers=[1],
                clients=[self.client],
                first_tasks=[1],
                nodes=[1000],
                waiting=[max(0, 500 - self.sequence)],
                queued=[100],
                running=[50],
                succeeded=[350 + min(500, self.sequence)],
                failed=[0],
                canceled=[0],
                started_unix_microseconds=[int(self.started * 1e6)],
            ),
            large_objects=m.ObjectColumns(
                ids=[1, 2, 3], owners=[self.client] * 3, sizes=[100_000_000] * 3, states=bytes([0, 1, 2])
            ),
            new_workers=[self._identity(session) for session in (sessions if snapshot else self._new)],
            new_clients=[m.ClientIdentity(session=self.client, name="notebook", host="laptop", process_id=77)]
            if snapshot
            else [],
            new_functions=[
                m.FunctionIdentity(number=number, name=name, client=self.client)
                for number, name in enumerate(FUNCTIONS, 1)
            ]
            if snapshot
            else [],
            new_objects=[
                m.ObjectIdentity(id=number, name=name, kind=m.ObjectKind.VALUE)
                for number, name in enumerate(("matrix", "", "<b>table</b>"), 1)
            ]
            if snapshot
            else [],
            workers_gone=self._gone,
            actors=m.ActorColumns(
                ids=[1 << 40, 2, 3],
                workers=[sessions[0], 0, 0],
                waiting=[self.sequence, 1, 0],
                running=[8, 0, 0],
                finished=[total, 0, 5],
                failed=[1, 0, 2],
                states=bytes([m.ActorState.ALIVE, m.ActorState.WAITING, m.ActorState.LOST]),
            ),
            lost_actors=[m.LostActor(id=3, reason="the actor <i>Pool</i> was lost with its worker")],
            new_actors=[
                m.ActorIdentity(id=number, name=name, client=self.client)
                for number, name in ((1 << 40, "Counter 'visits'"), (2, ""), (3, "<i>Pool</i>"))
            ]
            if snapshot
            else [],
        )

    def _functions(self) -> m.FunctionColumns:
        buckets = [sorted(each.items()) for each in self._buckets]
        flat = [pair for each in buckets for pair in each]
        return m.FunctionColumns(
            numbers=range(1, len(FUNCTIONS) + 1),
            finished=self._function_tasks,
            failed=self._function_failed,
            busy_microseconds=[tasks * 300 for tasks in self._function_tasks],
            running=[1] * len(FUNCTIONS),
            waiting=[10] * len(FUNCTIONS),
            duration_counts=[len(each) for each in buckets],
            duration_buckets=bytes(bucket for bucket, _ in flat),
            duration_tasks=[tasks for _, tasks in flat],
        )

    def _identity(self, session: int) -> m.WorkerIdentity:
        return m.WorkerIdentity(
            session=session,
            name=f"worker-{session}",
            host=f"host-{session % 50:02}",
            process_id=session * 100,
            slots=self.slots,
            implementation=m.Implementation(name="scaler-sdk", version="0.1.0", language="Python 3.11.7 (CPython)"),
            capabilities=[m.Capability(name="gpu", amount=2.0)] if session % 10 == 0 else [],
        )


class Publisher:
    """An XPUB socket that publishes a played scheduler's status, with a snapshot for each new subscriber."""

    def __init__(self, address: str, scheduler: PlayedScheduler) -> None:
        self.scheduler = scheduler
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def wait_for_subscriber(self, timeout_seconds: float = 30.0) -> None:
        assert self._socket.poll(int(timeout_seconds * 1000)), "no monitor subscribed"

    def has_subscriber(self) -> bool:
        return bool(self._socket.poll(0))

    def publish(self) -> None:
        """One step, published."""
        is_new = False
        while self._socket.poll(0):
            is_new |= self._socket.recv()[:1] == b"\1"
        status, runs = self.scheduler.step(snapshot=is_new)
        self.send(status)
        self._socket.send_multipart((b"tasks", encode(runs)))

    def send(self, status: m.SchedulerStatus) -> None:
        self._socket.send_multipart((b"status", encode(status)))

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def main() -> None:
    """Publish until interrupted: python -m tests.feed.played_status ipc:///tmp/played --workers 1000"""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("address")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50_000.0)
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    publisher = Publisher(options.address, PlayedScheduler(options.workers, options.slots, options.rate, options.runs))
    print(publisher.address, flush=True)
    due = time.monotonic()
    while True:
        publisher.publish()
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
