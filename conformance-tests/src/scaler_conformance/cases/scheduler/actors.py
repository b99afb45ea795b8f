"""Actors: their calls stay at one worker and in order, and end with the actor."""

from __future__ import annotations

from typing import Any, Dict, List

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import Message
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import Given, PlayedClient, PlayedWorker

FEATURE = "actors"
GPU: List[Dict[str, Any]] = [{"name": "gpu", "amount": 1.0}]


def client_of(bench: RoleBench) -> PlayedClient:
    """A client of a scheduler whose Welcome lists the feature."""
    client: PlayedClient = bench.client(features=[FEATURE])
    check(FEATURE in client.welcome.features, f"the feature {FEATURE} in the Welcome", client.welcome.features)
    return client


def worker_of(bench: RoleBench, **hello: Any) -> PlayedWorker:
    worker: PlayedWorker = bench.worker(features=[FEATURE], **{"slots": 2, "queueSize": 9, **hello})
    return worker


def call(client: PlayedClient, function: int, *payloads: bytes, **options: Any) -> List[int]:
    """Submit calls of an actor, and return their ids."""
    ids: List[int] = client.submit_payloads(payloads, function=function, options={"actor": True, **options})
    return ids


def expect_home(first: PlayedWorker, second: PlayedWorker, payload: bytes) -> PlayedWorker:
    """The one of two workers that is sent a call."""

    def home() -> Any:
        return next((each for each in (first, second) if any(given.payload == payload for given in each.given)), None)

    found: PlayedWorker = first.wait_until(home, f"a Task with the payload {payload!r} at a worker")
    return found


@case(covers=["SCL-SCH-042"], features=[FEATURE])
def all_calls_go_to_one_worker_in_order(bench: RoleBench) -> None:
    """All calls of an actor go to the worker that got the first one, each client's in the order of their ids."""
    client, other = client_of(bench), client_of(bench)
    workers = worker_of(bench), worker_of(bench)
    function = client.create(b"actor", kind=1)
    call(client, function, b"first")
    home = expect_home(*workers, b"first")
    (idle,) = [each for each in workers if each is not home]
    home.succeed(home.expect_task(b"first"))
    payloads = [b"%d" % number for number in range(40)]
    for start in range(0, 40, 10):
        call(client, function, *payloads[start : start + 10])
        call(other, function, *[b"other " + each for each in payloads[start : start + 10]])
    came: List[bytes] = []
    while len(came) < 80:
        task: Given = home.expect_task()
        came.append(task.payload)
        home.succeed(task)
    check([each for each in came if each.isdigit()] == payloads, "the calls of a client in their order", came)
    check([each[6:] for each in came if not each.isdigit()] == payloads, "those of the other one as well", came)
    bench.quiet(client, other, idle)
    idle.expect_nothing_more(expected="no call at another worker")


@case(covers=["SCL-SCH-043"], features=[FEATURE])
def actors_begin_at_workers_with_the_feature(bench: RoleBench) -> None:
    """An actor waits until there is a worker whose Hello lists the feature."""
    client, older = client_of(bench), bench.worker(slots=9)
    call(client, client.create(b"actor", kind=1), b"first")
    bench.quiet(client, older)
    older.expect_nothing_more(expected="no call at a worker without the feature")
    worker = worker_of(bench)
    worker.succeed(worker.expect_task(b"first"))


@case(covers=["SCL-SCH-044"], features=[FEATURE])
def calls_are_lost_with_the_worker(bench: RoleBench) -> None:
    """When the worker of an actor goes, calls that it has, calls that wait and later ones end as actorLost."""
    client, worker = client_of(bench), worker_of(bench, queueSize=1)
    function = client.create(b"actor", kind=1)
    ids = call(client, function, b"0", b"1", b"2")
    worker.expect_task(b"0")
    spare = worker_of(bench)
    worker.cut()
    for id_ in ids:
        client.expect_loss(id_, "actorLost")
    for id_ in call(client, function, b"3"):
        client.expect_loss(id_, "actorLost")
    bench.quiet(client, spare)
    spare.expect_nothing_more(expected="no call of a lost actor")
    function = client.create(b"actor", kind=1)
    call(client, function, b"4")
    spare.succeed(spare.expect_task(b"4"))
    spare.leave()
    (id_,) = call(client, function, b"5")
    client.expect_loss(id_, "actorLost")


@case(covers=["SCL-SCH-045"], features=[FEATURE])
def calls_without_an_actor_are_lost(bench: RoleBench) -> None:
    """A first call of another client, and calls of an actor that was closed or never was, end as actorLost."""
    client, other, worker = client_of(bench), client_of(bench), worker_of(bench)
    function = client.create(b"actor", kind=1)
    bench.quiet(client)
    (id_,) = call(other, function, b"0")
    other.expect_loss(id_, "actorLost")
    call(client, function, b"1")
    task = worker.expect_task(b"1")
    client.delete(function)
    for wanted in (function, function + 100):
        (id_,) = call(client, wanted, b"2")
        client.expect_loss(id_, "actorLost")
    worker.succeed(task)
    bench.quiet(client, other, worker)
    worker.expect_nothing_more(but=["ObjectInstruction"], expected="no call of a closed actor")


@case(covers=["SCL-SCH-046"], features=[FEATURE])
def actors_use_capabilities_while_they_exist(bench: RoleBench) -> None:
    """The capabilities of an actor are in use between its calls and until it ends, and its calls need no others."""
    client, worker = client_of(bench), worker_of(bench, slots=4, capabilities=GPU)
    function = client.create(b"actor", kind=1)
    call(client, function, b"0", capabilities=GPU)
    worker.succeed(worker.expect_task(b"0"))
    call(client, function, b"1", capabilities=GPU)
    worker.succeed(worker.expect_task(b"1"), payload=b"11")
    (waiting,) = client.submit_payloads([b"2"], options={"capabilities": GPU})
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no task that needs what the actor uses")
    client.delete(function)
    worker.succeed(worker.expect_task(b"2"))
    client.expect_outcome(waiting, "success")


def listed(client: PlayedClient, most: int = 9) -> Message:
    """The scheduler's Info."""
    client.send("InfoRequest", requestId=7, maximumActors=most)
    return client.expect("Info", requestId=7)


def check_listed(client: PlayedClient, function: int, **expected: Any) -> None:
    """One actor, as it is listed now."""
    (actor,) = [each for each in listed(client).actors if each.id == function]
    for name, value in expected.items():
        check(getattr(actor, name) == value, f"{name} = {value} of the actor", getattr(actor, name))


@case(covers=["SCL-SCH-056"], features=[FEATURE])
def info_lists_actors(bench: RoleBench) -> None:
    """An Info lists as many actors as it may, and counts all: waiting, alive, lost, and not when they have ended."""
    client = client_of(bench)
    before = listed(client).actorCount
    function = client.create(b"actor", kind=1, names=["an actor with a name"])
    call(client, function, b"0")
    check_listed(client, function, name="an actor with a name", worker=0, callsWaiting=1, state="waiting")
    worker = worker_of(bench)
    task = worker.expect_task(b"0")
    check_listed(client, function, worker=worker.welcome.session, callsWaiting=0, callsRunning=1, state="alive")
    worker.succeed(task)
    bench.quiet(worker, client)
    check_listed(client, function, callsRunning=0, callsFinished=1, callsFailed=0)
    another = client.create(b"actor", kind=1)
    call(client, another, b"1")
    for most in (0, 1):
        answer = listed(client, most)
        check(len(answer.actors) <= most, f"at most {most} actors", len(answer.actors))
        check(answer.actorCount == before + 2, f"actorCount = {before + 2}", answer.actorCount)
    worker.cut()
    client.wait_until(lambda: listed(client).workerCount == 0, "the worker to be gone")
    check_listed(client, function, worker=0, state="lost")
    client.delete(function, another)
    check(listed(client).actorCount == before, f"actorCount = {before}", "another count")
