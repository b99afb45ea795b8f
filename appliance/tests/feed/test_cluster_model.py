"""Snapshots and increments, and what they add up to."""

from __future__ import annotations

from array import array

import pytest
from feed.played_status import FUNCTIONS, PlayedScheduler

from scaler_appliance.feed.cluster_model import KEPT_WHEN_GONE, ClusterModel
from scaler_appliance.feed.durations import bound_microseconds, quantile_microseconds
from scaler_protocol import MalformedMessageError
from scaler_protocol import messages as m


def after(played: PlayedScheduler, steps: int = 2) -> ClusterModel:
    cluster = ClusterModel()
    for _ in range(steps):
        cluster.apply(played.step()[0])
    return cluster


def test_a_snapshot_tells_everything() -> None:
    played = PlayedScheduler(workers=3, slots=2)
    cluster = after(played, steps=1)
    assert cluster.generation == 1
    assert sorted(cluster.workers) == played.sessions
    worker = cluster.workers[played.sessions[0]]
    assert (worker.name, worker.slots, worker.capabilities) == ("worker-1000", 2, {"gpu": 2.0})
    assert [processor.process_id for processor in worker.processors] == [100000, 100001]
    assert worker.processors[0].has_task and not worker.processors[0].is_suspended
    assert [function.name for function in cluster.functions.values()] == list(FUNCTIONS)
    assert cluster.clients[1].name == "notebook"
    assert cluster.graphs[1].nodes == 1000
    assert cluster.objects[2].is_on_disk and cluster.objects[3].is_arriving
    assert cluster.scheduler is not None and cluster.scheduler.address == "tcp://127.0.0.1:2345"


def test_what_runs_grows_older_until_another_task_runs() -> None:
    """A worker says for how long a task has run each two seconds, the scheduler publishes each second."""
    played = PlayedScheduler(workers=1, slots=1, interval_seconds=1.0)
    cluster = ClusterModel()
    ages = []
    for task_id, microseconds in ((7, 0), (7, 0), (7, 2_000_000), (7, 1_999_000), (8, 0)):
        status = played.step()[0]
        status.processors.task_ids, status.processors.task_microseconds = (
            array("Q", [task_id]),
            array("Q", [microseconds]),
        )
        cluster.apply(status)
        (processor,) = cluster.workers[played.sessions[0]].processors
        ages.append(round(processor.task_microseconds(status.unix_microseconds) / 1e6, 3))
    assert ages == [0, 1, 2, 3, 0]


def test_a_processor_without_a_task_runs_it_for_no_time() -> None:
    played = PlayedScheduler(workers=1, slots=1)
    cluster = ClusterModel()
    status = played.step()[0]
    status.processors.task_clients = array("Q", [0])
    cluster.apply(status)
    assert cluster.workers[played.sessions[0]].processors[0].task_microseconds(status.unix_microseconds) == 0


def test_rates_come_from_two_publications_and_the_time_between_them() -> None:
    played = PlayedScheduler(workers=4, rate=5000.0, interval_seconds=0.5)
    cluster = after(played, steps=1)
    assert cluster.rates == {}
    cluster.apply(played.step()[0])
    finished = cluster.rates["task.success"] + cluster.rates["task.failed"]
    assert finished == pytest.approx(5000, rel=0.05)
    assert sum(worker.finished_per_second for worker in cluster.workers.values()) == pytest.approx(finished)


def test_who_is_not_spoken_of_any_more_has_rate_0() -> None:
    played = PlayedScheduler(workers=2, rate=1000.0)
    cluster = after(played, steps=2)
    assert all(worker.finished_per_second > 0 for worker in cluster.workers.values())
    cluster.apply(
        m.SchedulerStatus(scheduler_id=played.scheduler_id, unix_microseconds=int(played.now * 1e6) + 1_000_000)
    )
    assert all(worker.finished_per_second == 0 for worker in cluster.workers.values())
    assert all(function.finished_per_second == 0 for function in cluster.functions.values())


def test_workers_come_and_go() -> None:
    played = PlayedScheduler(workers=2)
    cluster = after(played)
    gone, new = played.lose_worker(), played.add_worker()
    cluster.apply(played.step()[0])
    assert gone not in cluster.workers and cluster.workers[new].name == f"worker-{new}"


def test_a_worker_that_reported_no_processors_has_none() -> None:
    played = PlayedScheduler(workers=1, slots=2)
    cluster = after(played)
    assert len(cluster.workers[played.sessions[0]].processors) == 2
    status = played.step()[0]
    status.workers.processors = array("I", [0])
    status.processors = m.ProcessorColumns()
    cluster.apply(status)
    assert cluster.workers[played.sessions[0]].processors == []


def test_a_snapshot_forgets_what_it_does_not_speak_of() -> None:
    played = PlayedScheduler(workers=3)
    cluster = after(played)
    played.lose_worker()
    cluster.apply(played.step(snapshot=True)[0])
    assert sorted(cluster.workers) == played.sessions
    assert cluster.generation == 1


def test_another_scheduler_is_another_cluster() -> None:
    cluster = after(PlayedScheduler(workers=3, seed=1))
    cluster.apply(PlayedScheduler(workers=1, seed=2).step()[0])
    assert cluster.generation == 2
    assert len(cluster.workers) == 1 and cluster.rates == {}


def test_functions_that_are_gone_stay_listed() -> None:
    played = PlayedScheduler()
    cluster = after(played)
    cluster.apply(m.SchedulerStatus(scheduler_id=played.scheduler_id, functions_gone=[1]))
    assert cluster.functions[1].has_gone and not cluster.functions[2].has_gone


def test_functions_that_are_gone_do_not_gather_for_ever() -> None:
    cluster = ClusterModel()
    for number in range(1, KEPT_WHEN_GONE + 500):
        identity = m.FunctionIdentity(number=number, name="f", client=1)
        cluster.apply(m.SchedulerStatus(new_functions=[identity], functions_gone=[number]))
    assert len(cluster.functions) == KEPT_WHEN_GONE
    assert 1 not in cluster.functions and KEPT_WHEN_GONE + 499 in cluster.functions


@pytest.mark.parametrize(
    "status",
    [
        m.SchedulerStatus(workers=m.WorkerColumns(sessions=[1])),
        m.SchedulerStatus(graphs=m.GraphColumns(numbers=[1, 2], clients=[1])),
        m.SchedulerStatus(large_objects=m.ObjectColumns(ids=[9], owners=[1], sizes=[1], states=b"\0")),  # never named
        m.SchedulerStatus(functions=m.FunctionColumns(duration_counts=[5])),
        m.SchedulerStatus(actors=m.ActorColumns(ids=[1, 2], workers=[1])),
        m.SchedulerStatus(lost_actors=[m.LostActor(id=1, reason="never named")]),
    ],
)
def test_a_publication_that_contradicts_itself_is_malformed(status: m.SchedulerStatus) -> None:
    with pytest.raises(MalformedMessageError, match=r"SchedulerStatus|Columns: "):
        ClusterModel().apply(status)


def test_quantiles_of_a_histogram() -> None:
    assert quantile_microseconds({}, 0.5) == 0
    assert quantile_microseconds({40: 10}, 0.5) == pytest.approx(bound_microseconds(40.5))
    counts = {4: 50, 40: 50}  # half some 2 µs, half some 1 ms
    assert quantile_microseconds(counts, 0.25) == pytest.approx(2.0, rel=0.2)
    assert quantile_microseconds(counts, 0.95) == pytest.approx(1024, rel=0.2)
    assert quantile_microseconds(counts, 1.0) == pytest.approx(bound_microseconds(41))


def test_actors_are_forgotten_when_they_end_and_by_a_snapshot_without_them() -> None:
    played = PlayedScheduler()
    cluster = after(played)
    assert [each.state for each in cluster.actors.values()] == ["alive", "waiting", "lost"]
    assert cluster.actors[3].why_lost.startswith("the actor <i>Pool</i>")
    newer = m.ActorColumns(ids=[2], workers=[9], waiting=[0], running=[1], finished=[0], failed=[0], states=b"\x09")
    cluster.apply(m.SchedulerStatus(scheduler_id=played.scheduler_id, actors=newer, actors_gone=[3]))
    assert list(cluster.actors) == [1 << 40, 2] and cluster.actors[2].state == "state 9"
    cluster.apply(m.SchedulerStatus(scheduler_id=played.scheduler_id, is_snapshot=True))
    assert not cluster.actors
