"""What monitors receive, and that other peers are not affected by monitors."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Dict, List, Tuple

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.monitor_peers import PlayedMonitor
from scaler_conformance.playing.scheduler_peers import PlayedPeer, PlayedWorker

MANY_PUBLICATIONS = 4
SECONDS_BETWEEN_QUESTIONS = 0.05
PROCESSOR = 4321


def monitor_of(bench: RoleBench, peer: PlayedPeer, topic: bytes = b"") -> PlayedMonitor:
    """A subscribed monitor. Not applicable if the scheduler publishes nothing."""
    if not peer.welcome.monitorAddress:
        raise NotApplicable("the scheduler's Welcome has no monitorAddress")
    monitor = bench.monitor(peer.welcome.monitorAddress)
    monitor.subscribe(topic)
    return monitor


def is_watched(worker: PlayedWorker) -> bool:
    """Whether the answer to a heartbeat says that a monitor is subscribed."""
    worker.send("Heartbeat", sequence=5)
    worker.expect_echo(5)
    return bool(worker.echoes[-1].isWatched)


def expect_watched(worker: PlayedWorker, wanted: bool) -> None:
    """Send heartbeats until an echo has isWatched as wanted."""
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
def late_subscriber_gets_a_snapshot(bench: RoleBench) -> None:
    """A monitor that subscribes late gets a snapshot of everything: a worker, a client, and a running task."""
    client = bench.client(name="a client with a name")
    worker = bench.worker(slots=3, name="a worker with a name")
    client.submit()
    worker.expect_task()
    monitor = monitor_of(bench, client, b"status")
    status = monitor.expect_snapshot()
    picture = monitor.picture
    check(picture.names["newWorkers"].get(worker.number) == "a worker with a name", "the worker's name", status)
    check(picture.names["newClients"].get(client.number) == "a client with a name", "the client's name", status)
    check(status.newWorkers[0].slots == 3, "slots = 3 for the worker", status)
    check(
        picture.tables["workers"].get(worker.number) == [1, 1, 0, 0], "one unfinished task sent to the worker", status
    )
    check(picture.tables["clients"].get(client.number) == [1, 0, 0, 0], "one unfinished task of the client", status)
    check(picture.tasks.get("running") == 1, "one running task", status.tasks)


@case(covers=["SCL-MON-003"])
def second_subscriber_gets_a_snapshot(bench: RoleBench) -> None:
    """A second monitor gets a snapshot while publications continue, and the first monitor receives it in sequence."""
    client = bench.client()
    first = monitor_of(bench, client, b"status")
    first.expect_snapshot()
    second = monitor_of(bench, client, b"status")
    snapshot = second.expect_snapshot()
    first.expect("SchedulerStatus", sequence=snapshot.sequence, isSnapshot=True)


@case(covers=["SCL-MON-002"])
def messages_have_a_topic(bench: RoleBench) -> None:
    """Each message is a topic and a header, and a subscriber to one topic gets no other."""
    client, worker = bench.client(), bench.worker()
    everything, status, runs = (monitor_of(bench, client, topic) for topic in (b"", b"status", b"tasks"))
    everything.expect_snapshot()
    client.submit()
    worker.succeed(worker.expect_task())
    for monitor in (everything, runs):
        monitor.expect("TaskRuns")
    for _ in range(MANY_PUBLICATIONS):
        status.expect_status()
    check(not status.sequences["TaskRuns"], "no TaskRuns without a subscription to it", "one")
    check(not runs.sequences["SchedulerStatus"], "no SchedulerStatus without a subscription to it", "one")


@case(covers=["SCL-MON-004", "SCL-MON-001"])
def publications_are_numbered(bench: RoleBench) -> None:
    """The sequence of each publication is one more than that of the previous one."""
    client = bench.client()
    monitor = monitor_of(bench, client, b"status")
    for _ in range(MANY_PUBLICATIONS):
        monitor.expect("SchedulerStatus")
    numbers = monitor.sequences["SchedulerStatus"]
    check(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "consecutive sequences", numbers)


@case(covers=["SCL-MON-005"])
def increments_add_up_to_a_snapshot(bench: RoleBench) -> None:
    """The increments that one monitor has received add up to the snapshot that another receives."""
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
    old.expect_picture(lambda picture: newcomer.number in picture.tables["clients"], "the new client to be published")
    old.expect_picture(
        lambda picture: leaver.number not in picture.tables["workers"], "the worker that left to be removed"
    )
    old.expect_count("running", 1)
    old.expect_status()
    new = monitor_of(bench, client, b"status")
    new.expect_snapshot()
    for table, rows in new.picture.tables.items():
        check(old.picture.tables[table] == rows, f"{table} as in the snapshot: {rows}", old.picture.tables[table])
    for names, told in new.picture.names.items():
        check(old.picture.names[names] == told, f"names as in the snapshot: {told}", old.picture.names[names])


@case(covers=["SCL-MON-006"])
def messages_from_monitors_are_ignored(bench: RoleBench) -> None:
    """Messages, junk and subscriptions to unknown topics affect neither tasks nor other monitors."""
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
def task_runs_are_published(bench: RoleBench) -> None:
    """A monitor learns which tasks ended on which processor and how long they took, as reported by their worker."""
    client, worker = bench.client(), bench.worker(slots=2)
    monitor = monitor_of(bench, client, b"tasks")
    expect_watched(worker, True)
    client.submit(2)
    tasks = worker.expect_tasks(2)
    worker.succeed(*tasks, runs=[2, PROCESSOR, 777])
    runs = monitor.expect("TaskRuns", where=lambda each: len(each.workers) > 0)
    check(list(runs.workers) == [worker.number] * len(runs.workers), "runs of the one worker", runs)
    check(set(runs.processors) == {PROCESSOR}, f"processor {PROCESSOR}", runs)
    check(sum(runs.counts) == 2 and set(runs.clients) == {client.number}, "two tasks of the client", runs)
    check(sum(runs.busyMicroseconds) == 777, "busyMicroseconds that add up to 777", runs)


@case(covers=["SCL-MON-008"])
def workers_learn_whether_a_monitor_is_subscribed(bench: RoleBench) -> None:
    """isWatched in echoes becomes true when a monitor subscribes, and false again when it disconnects."""
    worker = bench.worker()
    check(not is_watched(worker), "isWatched = false while no monitor is subscribed", "true")
    monitor = monitor_of(bench, worker)
    expect_watched(worker, True)
    monitor.cut()
    expect_watched(worker, False)


@case(covers=["SCL-MON-009"])
def scheduler_without_keys_says_so(bench: RoleBench) -> None:
    """A scheduler that serves a client without a key says isInsecure to monitors, in snapshots and increments."""
    monitor = monitor_of(bench, bench.client(), b"status")
    for status in (monitor.expect_snapshot(), monitor.expect_status()):
        check(status.isInsecure, "isInsecure = true, since a peer over TCP is served without a key", status)


@case(covers=["SCL-MON-010"], features=["demand", "predecessors"])
def tasks_that_wait_for_others_are_no_demand(bench: RoleBench) -> None:
    """The task that runs and the one that could run are demand; the one that needs both is not."""
    client = bench.client()
    worker = bench.worker()
    monitor = monitor_of(bench, client, b"status")
    client.submit()
    first = worker.expect_task()
    client.submit()
    client.submit(predecessorCounts=[2], predecessors=[1, 2])

    def tasks_and_slots(status: Message) -> Tuple[int, int, int]:
        demands = status.demands
        return (
            sum(each.tasks for each in demands),
            sum(each.slotsWanted for each in demands),
            sum(each.slotsMissing for each in demands),
        )

    status = monitor.expect("SchedulerStatus", where=lambda each: tasks_and_slots(each)[0] > 1)
    check(tasks_and_slots(status)[0] == 2, "2 tasks that run or could run", status)
    check(tasks_and_slots(status)[1] >= 1, "a slot or more that they want", status)
    worker.succeed(first)
    client.expect_outcome(1, "success")


def has_note(note: str, status: Message) -> bool:
    return note in status.unitNotes


@case(covers=["SCL-MON-011"], features=["provisioning"])
def notes_of_provisioners_are_published(bench: RoleBench) -> None:
    """A SchedulerStatus has what the last Units of a provisioner note, until the provisioner leaves."""
    monitor = monitor_of(bench, bench.client(), b"status")
    provisioner = bench.client(features=["provisioning"])
    for sequence, note in enumerate(("a pool is paused", "a pool starts slowly"), 1):
        provisioner.send("Units", sequence=sequence, notes=[note])
        status = monitor.expect("SchedulerStatus", where=partial(has_note, note))
        check(list(status.unitNotes) == [note], f"only the note {note!r}", status.unitNotes)
    provisioner.leave()
    monitor.expect("SchedulerStatus", where=lambda each: not each.unitNotes)


@case(covers=["SCL-MON-013"], features=["provisioning"])
def what_is_wanted_of_pools_is_published(bench: RoleBench) -> None:
    """A SchedulerStatus has the pools of the last Units, of which the one that could run the task is wanted, until the
    provisioner leaves."""
    client = bench.client()
    monitor = monitor_of(bench, client, b"status")
    provisioner = bench.client(features=["provisioning"])
    needs = [{"name": "gpu", "amount": 1.0}]
    pools: List[Dict[str, Any]] = [
        {"pool": name, "slots": 1, "maximumUnits": 2, "capabilities": needs if "gpu" in name else []}
        for name in ("a pool", "a pool without", "a pool with gpu")
    ]
    provisioner.send("Units", sequence=1, pools=pools[:1])
    status = monitor.expect("SchedulerStatus", where=lambda each: len(each.pools) == 1)
    check(not status.pools[0].slotsWanted, "no slot is wanted without tasks", status.pools)
    provisioner.send("Units", sequence=2, pools=pools[1:])
    client.submit(options={"capabilities": needs})

    def names(status: Message) -> List[str]:
        return [each.pool for each in status.pools]

    status = monitor.expect("SchedulerStatus", where=lambda each: any(pool.slotsWanted for pool in each.pools))
    check(names(status) == ["a pool without", "a pool with gpu"], "the pools of the last Units", status.pools)
    wanted = [each.pool for each in status.pools if each.slotsWanted]
    check(wanted == ["a pool with gpu"], "slots of the pool whose units can run the task", status.pools)
    provisioner.leave()
    monitor.expect("SchedulerStatus", where=lambda each: not each.pools)


class Described:
    """One actor, as what has come to a monitor says."""

    def __init__(self, function: int) -> None:
        self.function = function
        self.name = ""
        self.figures: Dict[str, Any] = {}

    def is_so(self, status: Message, **expected: Any) -> bool:
        """Take a SchedulerStatus; returns whether the actor is as expected now."""
        self.name = next((each.name for each in status.newActors if each.id == self.function), self.name)
        columns = status.actors
        if self.function in columns.ids:
            place = list(columns.ids).index(self.function)
            names = ("workers", "waiting", "running", "finished", "failed", "states")
            self.figures = {name: getattr(columns, name)[place] for name in names}
        return bool(self.figures) and all(self.figures[name] == value for name, value in expected.items())


@case(covers=["SCL-MON-012"], features=["actors"])
def actors_are_described_until_they_end(bench: RoleBench) -> None:
    """A monitor learns of an actor: that it waits, where it is, its calls, that it is lost, and that it has ended."""
    client = bench.client(features=["actors"])
    monitor = monitor_of(bench, client, b"status")
    function = client.create(b"actor", kind=1, names=["an actor with a name"])
    actor = Described(function)

    def expect(**expected: Any) -> Message:
        return monitor.expect("SchedulerStatus", where=lambda each: actor.is_so(each, **expected))

    calls = {"function": function, "options": {"actor": True}}
    client.submit_payloads([b"0"], **calls)
    expect(waiting=1, running=0, workers=0, states=0)
    check(actor.name == "an actor with a name", "the name of the actor's function object", actor.name)
    worker = bench.worker(features=["actors"], queueSize=1)
    task = worker.expect_task(b"0")
    expect(waiting=0, running=1, workers=worker.welcome.session, states=1)
    worker.succeed(task)
    expect(running=0, finished=1, failed=0, states=1)
    worker.cut()
    status = expect(workers=0, states=2)
    reasons = [each.reason for each in status.lostActors if each.id == function]
    check(reasons, "an entry of lostActors for the actor", status.lostActors)
    client.delete(function)
    monitor.expect("SchedulerStatus", where=lambda each: function in each.actorsGone)
