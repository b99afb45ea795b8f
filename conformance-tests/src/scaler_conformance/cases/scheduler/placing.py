"""Which worker gets which task, and when."""

from __future__ import annotations

from typing import Any, Dict, List

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


def needing(*capabilities: Any) -> Dict[str, Any]:
    """Options of a task."""
    return {"options": {"capabilities": [{"name": name, "amount": amount} for name, amount in capabilities]}}


def offering(*capabilities: Any) -> Dict[str, Any]:
    """Fields of a worker's Hello."""
    return {"capabilities": [{"name": name, "amount": amount} for name, amount in capabilities]}


@case(covers=["SCL-SCH-005"])
def instances_are_never_used_twice(bench: RoleBench) -> None:
    """Each handing over of a task has an instance id of its own: of other tasks, clients, workers, and attempts."""
    seen: List[int] = []
    for _ in range(3):
        client, worker = bench.client(), bench.worker(slots=5)
        client.submit(5)
        tasks = worker.expect_tasks(5)
        seen += [each.id for each in tasks]
        worker.succeed(*tasks[1:])
        worker.cut()
        after = bench.worker(slots=5)
        seen.append(after.expect_task().id)
        client.leave()
        after.cut()
    check(len(set(seen)) == len(seen), "instance ids that are all different", seen)


@case(covers=["SCL-SCH-009"])
def capabilities_decide_who_gets_a_task(bench: RoleBench) -> None:
    """A task goes only to a worker that offers what it needs, in the amount; until one comes, it waits."""
    client = bench.client()
    plain, small = bench.worker(slots=9), bench.worker(slots=9, **offering(("gpu", 1.0)))
    client.submit(payload=b"two", **needing(("gpu", 2.0)))
    client.submit(payload=b"fpga", **needing(("fpga", 0.0)))
    client.submit(payload=b"name", **needing(("gpu", 0.0)))
    small.expect_task(b"name")
    bench.quiet(client, plain, small)
    plain.expect_nothing_more()
    small.expect_nothing_more()
    large = bench.worker(slots=9, **offering(("gpu", 2.0), ("fpga", 0.0)))
    large.expect_task(b"two")
    large.expect_task(b"fpga")


@case(covers=["SCL-SCH-009"])
def capabilities_are_counted(bench: RoleBench) -> None:
    """What a worker's tasks use of a capability is not there for others; those listed twice in a task add up."""
    client, worker = bench.client(), bench.worker(slots=9, **offering(("gpu", 3.0)))
    client.submit(payload=b"a", **needing(("gpu", 1.0), ("gpu", 1.0)))
    first = worker.expect_task(b"a")
    client.submit(2, payload=b"b", **needing(("gpu", 1.0)))
    second = worker.expect_task(b"b")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no third task while 3 of 3 gpu are in use")
    worker.succeed(second)
    third = worker.expect_task(b"b")
    client.submit(payload=b"c", **needing(("gpu", 2.0)))
    worker.succeed(third)
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no task for 2 gpu while 2 of 3 are in use")
    worker.succeed(first)
    worker.expect_task(b"c")


@case(covers=["SCL-SCH-010"])
def worker_holds_no_more_than_it_takes(bench: RoleBench) -> None:
    """A worker is never sent more tasks than slots times queueSize before it has ended some."""
    client, worker = bench.client(), bench.worker(slots=2, queueSize=3)
    plain = bench.worker(slots=1, queueSize=0)
    client.submit(30)
    worker.expect_task()
    bench.quiet(client, worker, plain)
    for _ in range(3):
        held = [*worker.given]
        check(len(held) <= 5, "at most 6 tasks at a worker of 2 slots and queueSize 3", f"{len(held) + 1}")
        check(len(plain.given) <= 1, "at most 1 task at a worker of 1 slot and queueSize 0", f"{len(plain.given)}")
        if held:
            worker.succeed(worker.expect_task())
        bench.quiet(worker, client, plain)


@case(covers=["SCL-SCH-010"], latitude="a scheduler may send fewer tasks than a suspended processor allows")
def suspended_processors_take_more(bench: RoleBench) -> None:
    """For each processor that is reported as suspended a worker may get queueSize tasks more, and no more than that."""
    client, worker = bench.client(), bench.worker(slots=1, queueSize=1)
    client.submit(5)
    worker.expect_task()
    worker.send("Heartbeat", sequence=1, processors=[{"suspended": True}, {"suspended": False}])
    worker.expect_echo(1)
    bench.quiet(worker, client, worker)
    check(len(worker.given) <= 1, "at most one task more for one suspended processor", f"{len(worker.given)} more")


@case(covers=["SCL-SCH-011"])
def objects_are_announced_before_their_tasks(bench: RoleBench) -> None:
    """Function and dependencies are announced to a worker before the task that needs them, and once."""
    client, worker = bench.client(), bench.worker(queueSize=2)
    function, value = client.create(b"the function", 1), client.create(b"the value")
    for count in range(3):
        client.submit_payloads([b"x"], function=function, dependencyCounts=[1], dependencies=[value])
        task = worker.expect_task()
        for object_id, content in ((function, b"the function"), (value, b"the value")):
            check(object_id in worker.announced, f"object {object_id:x} to be announced", worker.announcements)
            position, _message, inline = worker.announced[object_id]
            check(position < task.position, f"object {object_id:x} announced before its task", "it was later")
            check(not inline or inline == content, "its content", inline)
        if count:
            worker.succeed(task)
    told = sorted(worker.announcements)
    check(told == sorted([function, value]), "each object to be announced once", told)


@case(covers=["SCL-SCH-011"])
def objects_have_their_kind_and_codec_at_the_worker(bench: RoleBench) -> None:
    """A worker is told kind, codec and size of an object as its maker said them, and gets its content."""
    client, worker = bench.client(), bench.worker()
    function = client.create(b"the function", 1, codec="example.org/own", names=["f"])
    client.submit(function=function)
    worker.expect_task()
    _, message, inline = worker.announced[function]
    row = message.ids.index(function)
    check(message.codec == "example.org/own", "its codec", message)
    check(message.sizes[row] == 12, "its size", message)
    check(message.kinds and message.kinds[row] == 1, "the kind function", message)
    check((inline or worker.fetch(function)) == b"the function", "its content", inline)


@case(covers=["SCL-SCH-012"])
def higher_priority_goes_first(bench: RoleBench) -> None:
    """Of tasks that wait, a worker that has room is sent those of higher priority first."""
    client, worker = bench.client(), bench.worker()
    client.submit(payload=b"first")
    running = worker.expect_task()
    for priority in (0, -(1 << 31), 7, (1 << 31) - 1):
        client.submit(payload=b"%d" % priority, options={"priority": priority})
        bench.quiet(client)  # so that each waits when the next one comes
    order = []
    for _ in range(4):
        worker.succeed(running)
        running = worker.expect_task()
        order.append(int(running.payload))
    check(order == sorted(order, reverse=True), "tasks of higher priority first", order)


@case(covers=["SCL-COD-003"])
def codecs_decide_who_gets_a_task(bench: RoleBench) -> None:
    """A worker that lists codecs gets only tasks in these, or without one; who lists none gets any."""
    client, worker = bench.client(), bench.worker(slots=9, codecs=["json", "raw"])
    client.submit(payload=b"other", codec="example.org/own")
    client.submit(payload=b"none", codec="")
    client.submit(payload=b"raw", codec="raw")
    worker.expect_task(b"none")
    worker.expect_task(b"raw")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no task in a codec that the worker does not list")
    bench.worker().expect_task(b"other")


@case(covers=["SCL-COD-003"])
def names_decide_who_gets_a_task(bench: RoleBench) -> None:
    """A worker that lists functions gets only tasks that name one of these, or fit an entry ending in *."""
    client = bench.client()
    worker = bench.worker(slots=9, functions=["example.org/a", "example.net/*"])
    function = client.create(b"f", 1)
    for name in ("example.org/b", "example.org/", "example.ne", "example.org/a/b"):
        client.submit(payload=name.encode(), functionName=name)
    client.submit(payload=b"object", function=function)
    for name in ("example.org/a", "example.net/", "example.net/x/y"):
        client.submit(payload=name.encode(), functionName=name)
        worker.expect_task(name.encode())
    worker.expect_task(b"object")
    bench.quiet(client, worker)
    worker.expect_nothing_more(expected="no task of a function that the worker does not list")
    every = bench.worker(slots=9, functions=["*"])
    for name in ("example.org/b", "example.org/", "example.ne", "example.org/a/b"):
        every.expect_task(name.encode())
