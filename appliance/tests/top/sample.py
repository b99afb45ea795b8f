"""A small cluster whose figures are known, for tests of what is shown of it."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from scaler_appliance.feed.cluster_model import ClusterModel
from scaler_protocol import messages as m

FIRST_SECOND = 1_700_000_000

HOST = "sd-1e7d-dfba"
PROCESS_IDS = (2732890, 2732885, 2732888)
CPU_PERMILLE = (5, 0, 7)
RESIDENT_MIB = (113.3, 111.2, 111.0)


def mib(number: float) -> int:
    return int(number * 1024 * 1024)


def counts(**values: int) -> List[m.Count]:
    return [m.Count(name=name, value=value) for name, value in values.items()]


def status(sequence: int = 1, **changes: Any) -> m.SchedulerStatus:
    """A snapshot of three workers with a processor each; the second publication comes after a second."""
    fields: Dict[str, Any] = {
        "scheduler_id": b"one",
        "sequence": sequence,
        "is_snapshot": True,
        "unix_microseconds": (FIRST_SECOND + 3600 + sequence) * 1_000_000,
        "started_unix_microseconds": FIRST_SECOND * 1_000_000,
        "cpu_permille": 0,
        "resident_bytes": mib(130.1),
        "slots": 3,
        "objects": 215,
        "object_bytes": mib(3.5),
        "tasks": counts(unassigned=0, running=2, success=53_704, failed=14, canceled=48, lost=0),
        "sent": counts(Task=54_660, TaskResult=53_766, HeartbeatEcho=283_701),
        "received": counts(Heartbeat=283_701, Task=53_764),
    }
    fields.update(workers(["d26", "56b", "108"], **changes.pop("of_workers", {})))
    fields.update(changes)
    return m.SchedulerStatus(**fields)


def workers(names: Sequence[str], **columns: Any) -> Dict[str, Any]:
    """Fields of a status with workers of these names, each with one processor."""
    count = len(names)
    sessions = list(range(1, count + 1))
    worker_columns: Dict[str, Any] = {
        "sessions": sessions,
        "tasks": [1, 1, 0][:count] if count == 3 else [0] * count,
        "queued": [0] * count,
        "sent": [100] * count,
        "finished": [99] * count,
        "failed": [0] * count,
        "cpu_permille": [5] + [0] * (count - 1),
        "resident_bytes": [mib(111.8)] * count,
        "free_bytes": [mib(2000)] * count,
        "latency_microseconds": [700] * count,
        "states": bytes(count),
        "processors": [1] * count,
    }
    worker_columns.update(columns)
    return {
        "new_workers": [
            m.WorkerIdentity(session=session, name=name, host=HOST, process_id=session, slots=1)
            for session, name in zip(sessions, names)
        ],
        "workers": m.WorkerColumns(**worker_columns),
        "processors": m.ProcessorColumns(
            workers=sessions,
            process_ids=[*PROCESS_IDS, *range(10, 10 + count)][:count],
            states=bytes([3, 3, 1, *[1] * count][:count]),
            cpu_permille=[*CPU_PERMILLE, *[0] * count][:count],
            resident_bytes=[*map(mib, RESIDENT_MIB), *[0] * count][:count],
            queued=[0] * count,
            task_clients=[0] * count,
            task_ids=[0] * count,
            task_functions=[0] * count,
            task_microseconds=[0] * count,
        ),
    }


def clients(*names: str) -> Dict[str, Any]:
    sessions = list(range(1, len(names) + 1))
    return {
        "new_clients": [
            m.ClientIdentity(session=session, name=name, host="laptop", process_id=70 + session)
            for session, name in zip(sessions, names)
        ],
        "clients": m.ClientColumns(
            sessions=sessions,
            tasks=[10 * session for session in sessions],
            finished=[50_000] * len(names),
            failed=[0] * len(names),
            canceled=[0] * len(names),
            bytes_in_flight=[0] * len(names),
            objects=[0] * len(names),
            object_bytes=[0] * len(names),
        ),
    }


def functions(*names: str, finished: int = 100) -> Dict[str, Any]:
    """The first of these has the most tasks."""
    numbers = list(range(1, len(names) + 1))
    return {
        "new_functions": [
            m.FunctionIdentity(number=number, name=name, client=1) for number, name in zip(numbers, names)
        ],
        "functions": m.FunctionColumns(
            numbers=numbers,
            finished=[finished] * len(names),
            failed=[0] * len(names),
            busy_microseconds=[finished * 1000] * len(names),
            running=[2] * len(names),
            waiting=[10 * (len(names) - number) for number in numbers],
            duration_counts=[1] * len(names),
            duration_buckets=bytes([40] * len(names)),
            duration_tasks=[finished] * len(names),
        ),
    }


def cluster(*publications: m.SchedulerStatus) -> ClusterModel:
    result = ClusterModel()
    for publication in publications or (status(),):
        result.apply(publication)
    return result


def actors() -> Dict[str, Any]:
    """Fields of a status with three actors: one alive, one waiting, one lost."""
    names = ("Counter 'visits'", "Model", "Pool")
    return {
        "new_actors": [m.ActorIdentity(id=number, name=name, client=1) for number, name in enumerate(names, 1)],
        "actors": m.ActorColumns(
            ids=[1, 2, 3],
            workers=[2, 0, 0],
            waiting=[100, 2, 0],
            running=[20, 0, 0],
            finished=[5000, 0, 7],
            failed=[0, 0, 1],
            states=bytes([m.ActorState.ALIVE, m.ActorState.WAITING, m.ActorState.LOST]),
        ),
        "lost_actors": [m.LostActor(id=3, reason="the actor Pool was lost with its worker, w on h: it is silent")],
    }
