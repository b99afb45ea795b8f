"""Workers alone on hosts with so much memory, and what their heartbeats say."""

from __future__ import annotations

from typing import Any, List, Sequence

from scheduler_harness import Client, Harness, Worker, given

from scaler_protocol import messages as m

GIB = 1 << 30
SECONDS = 10.0
"""That a large task takes."""
LARGE, SMALL = 101, 102
"""The numbers of the functions of each client: their tasks need the same of a worker, and are of one class."""


def host(harness: Harness, name: str, free_gib: float, slots: int = 4) -> Worker:
    """A worker alone on a host with so much memory left."""
    worker = harness.worker(slots, places={"data_address": f"tcp://{name}:1"})
    beat(worker, free_gib)
    return worker


def beat(
    worker: Worker, free_gib: float, running: Sequence[int] = (), each_gib: float = 0.0, suspended: int = 0
) -> None:
    """A heartbeat: so much is left, and the process of each running task has so much.

    Parameters:
        running: 0: a process that runs nothing.
        suspended: so many of the processes wait for nested tasks.
    """
    size = int(each_gib * GIB)
    processors = [
        m.ProcessorStatus(process_id=1 + place, instance=each, has_task=each > 0, resident_bytes=size)
        for place, each in enumerate(running)
    ]
    for processor in processors[:suspended]:
        processor.suspended = True
    worker.send(m.Heartbeat(free_bytes=int(free_gib * GIB), processors=processors))
    echo = next(each for each in worker.inbox if isinstance(each[0], m.HeartbeatEcho))
    worker.inbox.remove(echo)  # it may have got tasks before that


def counts(*workers: Worker) -> List[int]:
    """How many tasks each has got since last asked."""
    return [len(given(worker)) for worker in workers]


def see(
    client: Client,
    worker: Worker,
    free_gib: float,
    each_gib: float,
    seconds: float = 1.0,
    task: int = 0,
    function: int = 0,
) -> None:
    """A task has run for so long, and had so much."""
    client.submit([task], function=function, function_name="" if function else "f")
    running = given(worker)
    beat(worker, free_gib - each_gib, running, each_gib)
    worker.finish(running, busy_microseconds=int(seconds * 1e6))
    client.take_results()
    beat(worker, free_gib)


def newcomer(harness: Harness) -> Client:
    """A client whose large tasks need 3 GiB: such as one has run somewhere."""
    client = harness.client()
    function = client.create(LARGE, b"large")
    client.create(SMALL, b"small")
    first = host(harness, "first", 64)
    see(client, first, 64, 3, SECONDS, function=function)
    first.vanish()
    return client


def large(client: Client, ids: Sequence[int], **fields: Any) -> None:
    client.submit(ids, function=client.object_id(LARGE), function_name="", **fields)


def small(client: Client, ids: Sequence[int], **fields: Any) -> None:
    client.submit(ids, function=client.object_id(SMALL), function_name="", **fields)
