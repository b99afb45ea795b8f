"""The published state: increments add up to a snapshot, and their cost follows the changes."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import pytest
from scheduler_harness import Client, Harness, Worker
from status_model import StatusModel, StatusMonitor, publication, through_codec

from scaler_appliance.core.monitoring import status_columns
from scaler_appliance.core.monitoring.counters import bucket_of
from scaler_appliance.core.monitoring.status_changes import MAXIMUM_IDLE_FUNCTIONS
from scaler_protocol import messages as m


class Monitor(StatusMonitor):
    def tasks(self) -> dict[str, int]:
        tasks: dict[str, int] = self.model.figures["tasks"]
        return {name: count for name, count in tasks.items() if count}


def peers(harness: Harness) -> Tuple[Client, Worker]:
    return harness.client(), harness.worker()


def test_a_snapshot_tells_all_and_an_increment_what_changed(harness: Harness) -> None:
    client, worker = peers(harness)
    other_worker = harness.worker()
    monitor = Monitor(harness)
    client.submit([1, 2])
    status = monitor.look()
    assert not status.is_snapshot
    assert list(status.clients.sessions) == [client.session] and not status.new_clients
    assert sorted(status.workers.sessions) == [worker.session, other_worker.session]
    worker.finish(worker.take_all_tasks(), busy_microseconds=1000)
    status = monitor.look()
    assert list(status.workers.sessions) == [worker.session]
    assert monitor.model.tables["workers"][worker.session][1:6] == (0, 0, 1, 1, 0)
    assert monitor.tasks() == {"running": 1, "success": 1}
    other_worker.finish(other_worker.take_all_tasks())
    monitor.look()
    assert monitor.tasks() == {"success": 2}
    assert not monitor.look().workers.sessions, "nothing happened"


def test_publications_are_numbered(harness: Harness) -> None:
    monitor = Monitor(harness)
    first = monitor.look().sequence
    assert [monitor.look().sequence, monitor.look(is_snapshot=True).sequence] == [first + 1, first + 2]


def test_functions_have_one_row_for_each_name_of_a_client(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    for number in (1, 2):
        harness.deliver(client.name, *_function(client, number, "double"))
        client.submit([number], function=client.object_id(number))
    client.submit([3], function_name="serve")
    monitor.look()
    names = monitor.model.tables["function_names"]
    assert [(each.name, each.client) for each in names.values()] == [("double", client.session), ("serve", 0)]
    worker.take(m.ObjectInstruction)
    worker.finish(worker.take_tasks(), busy_microseconds=100)
    monitor.look()
    finished, failed, busy, running, waiting = monitor.model.tables["functions"][1]
    assert (finished, failed, busy, running + waiting) == (1, 0, 100, 1)
    assert monitor.model.tables["durations"][1] == {bucket_of(100): 1}


def _function(client: Client, number: int, name: str) -> Tuple[m.ObjectInstruction, bytes]:
    instruction = m.ObjectInstruction(
        ids=[client.object_id(number)],
        sizes=[1],
        storages=bytes([m.ObjectStorage.INLINE]),
        kinds=bytes([m.ObjectKind.FUNCTION]),
        names=[name],
    )
    return instruction, b"f"


def test_a_limited_number_of_unused_functions_is_published(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    for number in range(MAXIMUM_IDLE_FUNCTIONS + 3):
        client.submit([number], function_name=f"f{number}")
        worker.finish(worker.take_all_tasks())
        client.take_results()
    status = monitor.look()
    assert list(status.functions_gone) == [1, 2, 3]
    assert len(monitor.model.tables["functions"]) == MAXIMUM_IDLE_FUNCTIONS
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(
    ("microseconds", "bucket"), [(0.0, 0), (1.0, 0), (2.0, 4), (1000.0, 39), (1024.0, 40), (1e30, 255)]
)
def test_durations_are_counted_by_quarter_octaves(microseconds: float, bucket: int) -> None:
    assert bucket_of(microseconds) == bucket


def test_what_came_and_went_between_two_publications_is_published_once(harness: Harness) -> None:
    monitor = Monitor(harness)
    client, worker = peers(harness)
    client.submit([1])
    worker.finish(worker.take_tasks())
    client.vanish()
    worker.vanish()
    status = monitor.look()
    assert [each.session for each in status.new_clients] == list(status.clients_gone) == [client.session]
    assert list(status.clients.finished) == [1], "and its last figures with it"
    assert not monitor.model.tables["clients"] and not monitor.model.tables["workers"]
    assert not monitor.look().clients_gone, "once"


def test_without_subscribers_ended_entries_are_not_kept(harness: Harness) -> None:
    monitor = Monitor(harness)
    harness.core.watch(False, False)
    for _ in range(3):
        client, worker = peers(harness)
        client.submit([1])
        client.create(1, bytes(100_000))
        client.vanish()
        worker.vanish()
    changes = harness.state.changes
    assert not changes.clients.dirty and not changes.workers.dirty and not changes.objects.dirty
    assert not changes.clients.gone and not changes.workers.gone and not changes.objects.gone
    assert not harness.state.runs
    harness.core.watch(True, True)
    monitor.look(is_snapshot=True)
    assert not monitor.model.tables["clients"]


def test_heartbeats_report_processors_and_what_they_run(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    client.submit([7])
    (instance,) = worker.take_tasks()
    runs = m.ProcessorStatus(process_id=1, has_task=True, instance=instance, task_microseconds=5)
    worker.send(m.Heartbeat(cpu_permille=3, processors=[runs, m.ProcessorStatus(process_id=2, instance=99 << 20)]))
    monitor.look()
    first, second = monitor.model.tables["processors"][worker.session]
    assert first[1:3] == (1, 2) and first[6:] == (client.session, 7, 1, 5)
    assert second[6:] == (0, 0, 0, 0), "an instance that it was never sent is ignored"
    worker.send(m.Heartbeat())
    monitor.look()
    assert worker.session not in monitor.model.tables["processors"]


def processors(monitor: Monitor, worker: Worker) -> list[Tuple[bool, int]]:
    """Whether each processor of a worker has a task, and which one is named."""
    return [(bool(row[2] & 2), row[7]) for row in monitor.model.tables["processors"][worker.session]]


def test_a_task_that_has_ended_runs_nowhere_whatever_the_last_heartbeat_said(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=2)
    monitor = Monitor(harness)
    client.submit([7, 8])
    first, second = worker.take_tasks()
    worker.send(
        m.Heartbeat(
            processors=[
                m.ProcessorStatus(process_id=1, initialized=True, has_task=True, instance=first, queued=3),
                m.ProcessorStatus(process_id=2, initialized=True, has_task=True, instance=second),
            ]
        )
    )
    monitor.look()
    assert processors(monitor, worker) == [(True, 7), (True, 8)]
    worker.finish([first])
    monitor.look()
    assert processors(monitor, worker) == [(False, 0), (True, 8)]
    worker.finish([second])
    monitor.look()
    assert processors(monitor, worker) == [(False, 0), (False, 0)]
    assert [row[5] for row in monitor.model.tables["processors"][worker.session]] == [0, 0]
    assert not monitor.tasks().get("running")


def test_a_task_that_ended_before_the_heartbeat_came_is_not_told_as_running(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    client.submit([7])
    (instance,) = worker.take_tasks()
    worker.finish([instance])
    worker.send(m.Heartbeat(processors=[m.ProcessorStatus(process_id=1, has_task=True, instance=instance)]))
    monitor.look()
    assert processors(monitor, worker) == [(False, 0)]


def test_as_many_processors_have_a_task_as_the_worker_has_tasks_for(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=3)
    idle = [m.ProcessorStatus(process_id=number, initialized=True) for number in (1, 2, 3)]
    worker.send(m.Heartbeat(processors=idle))
    worker.take(m.HeartbeatEcho)
    monitor = Monitor(harness)
    client.submit([1, 2])
    monitor.look()
    assert sum(has_task for has_task, _ in processors(monitor, worker)) == monitor.tasks()["running"] == 2
    client.submit(range(3, 20))
    monitor.look()
    assert [has_task for has_task, _ in processors(monitor, worker)] == [True] * 3
    while monitor.tasks().get("running"):
        worker.finish(worker.take_all_tasks())
        monitor.look()
    assert [has_task for has_task, _ in processors(monitor, worker)] == [False] * 3


def test_a_task_that_waits_for_others_has_a_processor_beside_the_one_in_its_slot(harness: Harness) -> None:
    client, worker = harness.client(), harness.worker(slots=1)
    monitor = Monitor(harness)
    client.submit([1])
    (parent,) = worker.take_tasks()
    waits = m.ProcessorStatus(process_id=1, initialized=True, has_task=True, suspended=True, instance=parent)
    worker.send(m.Heartbeat(processors=[waits, m.ProcessorStatus(process_id=2, initialized=True)]))
    monitor.look()
    assert processors(monitor, worker) == [(True, 1), (False, 0)]
    client.submit([2])
    monitor.look()
    assert processors(monitor, worker) == [(True, 1), (True, 0)]


def test_a_worker_learns_whether_there_are_monitors(harness: Harness) -> None:
    client, worker = peers(harness)
    for is_watched in (False, True, False):
        harness.core.watch(is_watched, is_watched)
        worker.send(m.Heartbeat())
        assert worker.take(m.HeartbeatEcho).is_watched is is_watched
        client.send(m.Heartbeat())
        assert not client.take(m.HeartbeatEcho).is_watched
    harness.core.watch(False, True)
    worker.send(m.Heartbeat())
    assert worker.take(m.HeartbeatEcho).is_watched


def test_large_objects_are_published_individually(harness: Harness) -> None:
    monitor = Monitor(harness)
    client = harness.client()
    client.create(1, b"small")
    client.announce(2, 1_000_000, m.ObjectStorage.SHARED)
    monitor.look()
    large = client.object_id(2)
    assert monitor.model.tables["large_objects"] == {large: (large, client.session, 1_000_000, 0)}
    assert monitor.model.tables["clients"][client.session][6:] == (2, 1_000_005)
    client.delete(large)
    assert list(monitor.look().objects_gone) == [large]
    assert monitor.model.tables["clients"][client.session][6:] == (1, 5)


def test_graphs_are_told_by_states_until_they_end(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    function = client.create(1, b"f")
    graph = m.GraphTask(
        ids=[1, 2],
        payload_sizes=[0, 0],
        functions=[function, function],
        predecessor_offsets=[0, 0, 1],
        predecessors=[0],
        targets=[1],
    )
    client.send(graph)
    monitor.look()
    assert monitor.model.tables["graphs"][1][:10] == (1, client.session, 1, 2, 1, 0, 1, 0, 0, 0)
    assert monitor.tasks() == {"waiting": 1, "running": 1}
    worker.take(m.ObjectInstruction)
    worker.finish(worker.take_tasks(), statuses=[m.TaskStatus.FAILED])
    status = monitor.look()
    assert list(status.graphs.failed) == [2] and list(status.graphs_gone) == [1]
    assert monitor.tasks() == {"failed": 2}


def test_why_tasks_wait_is_told_as_long_as_they_do(harness: Harness) -> None:
    client = harness.client()
    monitor = Monitor(harness)
    client.submit([1, 2])
    harness.wait(1.0)
    for _ in range(3):
        harness.wait(6.0)
        (reason,) = monitor.look().waiting_reasons
        assert "2 tasks wait because no worker is connected" in reason
    harness.worker()
    harness.wait(6.0)
    assert not monitor.look().waiting_reasons


def test_figures_beyond_all_reason_are_told_as_the_largest_there_are(harness: Harness) -> None:
    client, worker = peers(harness)
    monitor = Monitor(harness)
    for number in range(3):
        client.submit([number])
        worker.finish(worker.take_tasks(), busy_microseconds=(1 << 64) - 1)
    monitor.look()
    assert monitor.model.tables["functions"][1][2] == (1 << 64) - 1


def test_names_are_told_in_part_if_they_are_long(harness: Harness) -> None:
    client = harness.client()
    monitor = Monitor(harness)
    client.submit([1], function_name="n" * 100_000)
    (function,) = monitor.look().new_functions
    assert function.name == "n" * 256


def test_very_many_workers_are_published_in_turn(harness: Harness) -> None:
    workers = [harness.worker() for _ in range(5)]
    monitor = Monitor(harness)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scaler_appliance.core.monitoring.status_columns.WORKERS_AT_ONCE", 2)
        told: List[int] = []
        for _ in range(4):
            for worker in workers:
                worker.send(m.Heartbeat(cpu_permille=len(told) + 1, processors=[m.ProcessorStatus()]))
            status = publication(harness.core, is_snapshot=False)
            assert list(status.workers.sessions) == list(status.processors.workers)
            monitor.model.apply(status)
            told += status.workers.sessions
        sessions = [worker.session for worker in workers]
        assert told == (sessions * 2)[:8], "each in turn"
        workers[4].vanish()
        workers[0].vanish()
        for _ in range(2):
            monitor.model.apply(publication(harness.core, is_snapshot=False))
        assert not harness.state.changes.workers.dirty
        monitor.model.assert_is_true(harness.core)


# In parts ------------------------------------------------------------------------------------------------------------

PART = 10
"""Units of work of a part of a publication in these tests."""


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> List[int]:
    """How many rows were made at a time."""
    made: List[int] = []
    for name in ("_worker_columns", "_client_columns", "_function_columns", "_object_columns"):
        columns_of = getattr(status_columns, name)

        def counting(entries: List[Any], columns_of: Callable[[List[Any]], Any] = columns_of) -> Any:
            made.append(len(entries))
            return columns_of(entries)

        monkeypatch.setattr(status_columns, name, counting)
    return made


def large(harness: Harness) -> Tuple[List[Client], List[Worker]]:
    """Many peers, functions and large objects."""
    clients, workers = [harness.client() for _ in range(20)], [harness.worker() for _ in range(20)]
    for client in clients:
        client.create(1, bytes(100_000))
        client.submit([1], function_name=f"function of {client.session}")
        client.submit([2], function_name=f"another of {client.session}")
    return clients, workers


@pytest.mark.parametrize("is_snapshot", [True, False], ids=["a snapshot", "an increment"])
def test_a_publication_is_made_in_parts_and_adds_up_with_the_next(rows: List[int], is_snapshot: bool) -> None:
    harness = Harness(work_per_call=4 * PART)
    model = StatusModel()
    harness.core.watch(True, True)
    if not is_snapshot:
        model.apply(publication(harness.core, is_snapshot=True))
    clients, workers = large(harness)
    rows.clear()
    status, parts = None, 0
    while status is None:
        status = harness.core.take_status(harness.now, is_snapshot)
        if parts < 20:
            clients[parts].vanish() if parts % 3 else clients[parts].submit([3], function_name="a new one")
            clients[parts].delete(clients[parts].object_id(1)) if not parts % 3 else None
            workers[-parts].vanish() if parts % 4 else workers[-parts].finish(workers[-parts].take_all_tasks())
            harness.client().submit([1])
            harness.worker()
        parts += 1
    assert parts > 20 and sum(rows) >= 100 and max(rows) <= PART
    model.apply(through_codec(status))
    model.apply(publication(harness.core, is_snapshot=False))
    model.assert_is_true(harness.core)


def test_what_an_unfinished_publication_left_out_is_published_later() -> None:
    harness = Harness(work_per_call=4 * PART)
    clients, _ = large(harness)
    monitor = Monitor(harness)
    for client in clients:
        client.submit([3])
    assert harness.core.take_status(harness.now, is_snapshot=False) is None
    harness.core.watch(False, False)
    for client in clients:
        client.submit([4])
    harness.core.watch(True, True)
    monitor.model.apply(publication(harness.core, is_snapshot=True))
    for client in clients:
        client.submit([5])
    monitor.look()


def test_a_worker_with_many_processors_is_a_part_of_its_own(rows: List[int]) -> None:
    harness = Harness(work_per_call=4 * PART)
    workers = [harness.worker() for _ in range(5)]
    for worker in workers:
        worker.send(m.Heartbeat(processors=[m.ProcessorStatus(process_id=number) for number in range(1, 30)]))
    monitor = Monitor(harness)
    assert rows[:5] == [1] * 5
    assert all(len(monitor.model.tables["processors"][worker.session]) == 29 for worker in workers)
