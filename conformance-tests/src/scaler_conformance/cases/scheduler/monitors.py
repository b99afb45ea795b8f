"""What monitors are told, and that other peers do not notice monitors."""

from __future__ import annotations

import time

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.monitor_peers import PlayedMonitor
from scaler_conformance.playing.scheduler_peers import PlayedPeer, PlayedWorker

MANY_PUBLICATIONS = 4
SECONDS_BETWEEN_QUESTIONS = 0.05
PROCESSOR = 4321


def monitor_of(bench: RoleBench, peer: PlayedPeer, topic: bytes = b"") -> PlayedMonitor:
    """A monitor that has subscribed; not applicable where there are none."""
    if not peer.welcome.monitorAddress:
        raise NotApplicable("the scheduler has no address for monitors")
    monitor = bench.monitor(peer.welcome.monitorAddress)
    monitor.subscribe(topic)
    return monitor


def is_watched(worker: PlayedWorker) -> bool:
    """What the answer to a heartbeat says."""
    worker.send("Heartbeat", sequence=5)
    worker.expect_echo(5)
    return bool(worker.echoes[-1].isWatched)


def expect_watched(worker: PlayedWorker, wanted: bool) -> None:
    """Ask by heartbeats, until an echo says so."""
    asked_at = 0.0

    def is_so() -> bool:
        nonlocal asked_at
        if worker.echoes and worker.echoes[-1].isWatched == wanted:
            return True
        if time.monotonic() > asked_at + SECONDS_BETWEEN_QUESTIONS:
            asked_at = time.monotonic()
            worker.send("Heartbeat", sequence=6)
        return False

    worker.wait_until(is_so, f"isWatched to become {wanted}", "SCL-MON-008")


@case(covers=["SCL-MON-003"])
def who_comes_late_gets_a_snapshot(bench: RoleBench) -> None:
    """A monitor that comes when much has happened is told all there is: a worker, a client, and a task that runs."""
    client = bench.client(name="a client with a name")
    worker = bench.worker(slots=3, name="a worker with a name")
    client.submit()
    worker.expect_task()
    monitor = monitor_of(bench, client, b"status")
    status = monitor.expect_snapshot()
    picture = monitor.picture
    check(picture.names["newWorkers"].get(worker.number) == "a worker with a name", "the worker", status)
    check(picture.names["newClients"].get(client.number) == "a client with a name", "the client", status)
    check(status.newWorkers[0].slots == 3, "the worker's slots", status)
    check(picture.tables["workers"].get(worker.number) == [1, 1, 0, 0], "one task sent to the worker", status)
    check(picture.tables["clients"].get(client.number) == [1, 0, 0, 0], "one task of the client", status)
    check(picture.tasks.get("running") == 1, "one task that runs", status.tasks)


@case(covers=["SCL-MON-003"])
def who_comes_second_gets_a_snapshot_too(bench: RoleBench) -> None:
    """A second monitor gets a snapshot, although publications go on, and the first one sees it in its place."""
    client = bench.client()
    first = monitor_of(bench, client, b"status")
    first.expect_snapshot()
    second = monitor_of(bench, client, b"status")
    snapshot = second.expect_snapshot()
    first.expect("SchedulerStatus", sequence=snapshot.sequence, isSnapshot=True)


@case(covers=["SCL-MON-002"])
def messages_have_a_topic(bench: RoleBench) -> None:
    """Each message is a topic and a header, and who wants one topic gets no other."""
    client, worker = bench.client(), bench.worker()
    everything, status, runs = (monitor_of(bench, client, topic) for topic in (b"", b"status", b"tasks"))
    everything.expect_snapshot()
    client.submit()
    worker.succeed(worker.expect_task())
    for monitor in (everything, runs):
        monitor.expect("TaskRuns")
    for _ in range(MANY_PUBLICATIONS):
        status.expect_status()
    check(not status.sequences["TaskRuns"], "no TaskRuns without having asked for it", "one came")
    check(not runs.sequences["SchedulerStatus"], "no SchedulerStatus without having asked for it", "one came")


@case(covers=["SCL-MON-004", "SCL-MON-001"])
def publications_are_numbered(bench: RoleBench) -> None:
    """The sequence of each publication is one more than that of the one before."""
    client = bench.client()
    monitor = monitor_of(bench, client, b"status")
    for _ in range(MANY_PUBLICATIONS):
        monitor.expect("SchedulerStatus")
    numbers = monitor.sequences["SchedulerStatus"]
    check(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "sequences without a gap", numbers)


@case(covers=["SCL-MON-005"])
def increments_come_to_a_snapshot(bench: RoleBench) -> None:
    """What a monitor has been told bit by bit is what another is told at once."""
    client, leaver, worker = bench.client(), bench.worker(name="leaver"), bench.worker(name="stayer")
    old = monitor_of(bench, client, b"status")
    old.expect_snapshot()
    client.submit(2)
    leaver.succeed(leaver.expect_task())
    worker.fail(worker.expect_task())
    old.expect_count("failed", 1)
    leaver.leave()
    newcomer = bench.client(name="newcomer")
    newcomer.submit(1)
    worker.expect_task()
    old.expect_picture(lambda picture: newcomer.number in picture.tables["clients"], "the new client to be told")
    old.expect_picture(lambda picture: leaver.number not in picture.tables["workers"], "the worker to be gone")
    old.expect_count("running", 1)
    old.expect_status()
    new = monitor_of(bench, client, b"status")
    new.expect_snapshot()
    for table, rows in new.picture.tables.items():
        check(old.picture.tables[table] == rows, f"{table} as in the snapshot: {rows}", old.picture.tables[table])
    for names, told in new.picture.names.items():
        check(old.picture.names[names] == told, f"names as in the snapshot: {told}", old.picture.names[names])


@case(covers=["SCL-MON-006"])
def what_a_monitor_sends_changes_nothing(bench: RoleBench) -> None:
    """Messages, junk and subscriptions to anything disturb neither tasks nor other monitors."""
    client, worker = bench.client(), bench.worker()
    calm = monitor_of(bench, client, b"status")
    calm.expect_snapshot()
    rude = monitor_of(bench, client, b"something else")
    for frames in (
        (b"",),
        (b"\0",),
        (b"\2status",),
        (b"\xff" * 900,),
        (b"\1" + bytes(500),),
        (b"\1else", b"more", b"frames"),
    ):
        rude.send_frames(*frames)
    rude.send("Hello", major=1, role="client")
    rude.send("ClientShutdown")
    rude.send("TaskCancel", ids=[1], force=True)
    for _ in range(MANY_PUBLICATIONS):
        calm.expect_status()
    client.submit()
    worker.succeed(worker.expect_task())
    client.expect_outcome(1, "success")
    calm.expect_count("success", 1)


@case(covers=["SCL-MON-007"])
def runs_are_told(bench: RoleBench) -> None:
    """A monitor learns which tasks ended on which processor, and how long they took, as their worker told it."""
    client, worker = bench.client(), bench.worker(slots=2)
    monitor = monitor_of(bench, client, b"tasks")
    expect_watched(worker, True)
    client.submit(2)
    tasks = worker.expect_tasks(2)
    worker.succeed(*tasks, runs=[2, PROCESSOR, 777])
    runs = monitor.expect("TaskRuns", where=lambda each: len(each.workers) > 0)
    check(list(runs.workers) == [worker.number] * len(runs.workers), "runs of the worker", runs)
    check(set(runs.processors) == {PROCESSOR}, f"the processor {PROCESSOR}", runs)
    check(sum(runs.counts) == 2 and set(runs.clients) == {client.number}, "two tasks of the client", runs)
    check(sum(runs.busyMicroseconds) == 777, "777 microseconds", runs)


@case(covers=["SCL-MON-008"])
def workers_learn_whether_anybody_watches(bench: RoleBench) -> None:
    """isWatched of echoes is false, becomes true when a monitor has come, and false when it has gone."""
    worker = bench.worker()
    check(not is_watched(worker), "isWatched to be false while there is no monitor", "true")
    monitor = monitor_of(bench, worker)
    expect_watched(worker, True)
    monitor.cut()
    expect_watched(worker, False)
