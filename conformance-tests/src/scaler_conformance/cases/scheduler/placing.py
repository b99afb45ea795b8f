"""Placement: which worker gets which task, and when."""

from __future__ import annotations

from typing import Any, Dict, List

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


def needing(*capabilities: Any) -> Dict[str, Any]:
    """Fields of a Task whose tasks need capabilities."""
    return {"options": {"capabilities": [{"name": name, "amount": amount} for name, amount in capabilities]}}


def offering(*capabilities: Any) -> Dict[str, Any]:
    """Fields of the Hello of a worker that has capabilities."""
    return {"capabilities": [{"name": name, "amount": amount} for name, amount in capabilities]}


@case(covers=["SCL-SCH-005"])
def instances_are_never_used_twice(bench: RoleBench) -> None:
    """Each dispatch of a task has a unique instance id, across tasks, clients, workers and attempts."""
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
    check(len(set(seen)) == len(seen), "unique instance ids", seen)


@case(covers=["SCL-SCH-009"])
def capabilities_decide_placement(bench: RoleBench) -> None:
    """A task is sent only to a worker that has what it needs, in the amount it needs; until then, it waits."""
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
    """Capabilities in use are not available to other tasks, and amounts listed twice in a task add up."""
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


@case(covers=["SCL-SCH-048"])
def tasks_go_where_they_can_end(bench: RoleBench) -> None:
    """A task that may run longer than a worker stays is not sent there, and others are; time that has passed counts."""
    client, short = bench.client(), bench.worker(slots=9, remainingMilliseconds=60_000)
    client.submit(payload=b"long", options={"timeRequestMilliseconds": 3_600_000})
    client.submit(payload=b"passed", options={"timeRequestMilliseconds": 60_000})
    client.submit(payload=b"brief", options={"timeRequestMilliseconds": 1000})
    client.submit(payload=b"any")
    short.expect_task(b"brief")
    short.expect_task(b"any")
    bench.quiet(client, short)
    short.expect_nothing_more(expected="no task that could not end before its worker")
    endless = bench.worker(slots=9)
    endless.expect_task(b"long")
    endless.expect_task(b"passed")


@case(covers=["SCL-SCH-010"])
def workers_are_not_sent_more_than_they_take(bench: RoleBench) -> None:
    """A worker never has more unfinished tasks than slots × queueSize."""
    client, worker = bench.client(), bench.worker(slots=2, queueSize=3)
    plain = bench.worker(slots=1, queueSize=0)
    client.submit(30)
    worker.expect_task()
    bench.quiet(client, worker, plain)
    for _ in range(3):
        held = [*worker.given]
        check(len(held) <= 5, "at most 6 tasks at a worker with 2 slots and queueSize 3", len(held) + 1)
        check(len(plain.given) <= 1, "at most 1 task at a worker with 1 slot and queueSize 0", len(plain.given))
        if held:
            worker.succeed(worker.expect_task())
        bench.quiet(worker, client, plain)


@case(covers=["SCL-SCH-010"], latitude="a scheduler may send fewer tasks than suspended processors allow")
def suspended_processors_allow_more_tasks(bench: RoleBench) -> None:
    """For each processor that a worker reports as suspended, it may be sent queueSize more tasks, but not more."""
    client, worker = bench.client(), bench.worker(slots=1, queueSize=1)
    client.submit(5)
    worker.expect_task()
    worker.send("Heartbeat", sequence=1, processors=[{"suspended": True}, {"suspended": False}])
    worker.expect_echo(1)
    bench.quiet(worker, client, worker)
    check(len(worker.given) <= 1, "at most one more task for one suspended processor", f"{len(worker.given)} more")


@case(covers=["SCL-SCH-011"])
def objects_are_announced_before_their_tasks(bench: RoleBench) -> None:
    """Function and dependencies are announced to a worker once, before the first task that needs them."""
    client, worker = bench.client(), bench.worker(queueSize=2)
    function, value = client.create(b"the function", 1), client.create(b"the value")
    for count in range(3):
        client.submit_payloads([b"x"], function=function, dependencyCounts=[1], dependencies=[value])
        task = worker.expect_task()
        for object_id, content in ((function, b"the function"), (value, b"the value")):
            check(object_id in worker.announced, f"object {object_id:x} to be announced", worker.announcements)
            position, _message, inline = worker.announced[object_id]
            check(position < task.position, f"object {object_id:x} to be announced before its task", "the task first")
            check(not inline or inline == content, f"the content {content!r} in the announcement", inline)
        if count:
            worker.succeed(task)
    told = sorted(worker.announcements)
    check(told == sorted([function, value]), "each object to be announced once", told)


@case(covers=["SCL-SCH-011"])
def objects_have_their_kind_and_codec_at_the_worker(bench: RoleBench) -> None:
    """A worker gets kind, codec, size and content of an object as its owner sent them."""
    client, worker = bench.client(), bench.worker()
    function = client.create(b"the function", 1, codec="example.org/own", names=["f"])
    client.submit(function=function)
    worker.expect_task()
    _, message, inline = worker.announced[function]
    row = message.ids.index(function)
    check(message.codec == "example.org/own", "codec example.org/own", message)
    check(message.sizes[row] == 12, "size = 12", message)
    check(message.kinds and message.kinds[row] == 1, "kind function", message)
    check((inline or worker.fetch(function)) == b"the function", "the object's content", inline)


@case(covers=["SCL-SCH-012"])
def higher_priority_goes_first(bench: RoleBench) -> None:
    """Of the queued tasks, those of higher priority are sent to a free worker first."""
    client, worker = bench.client(), bench.worker()
    client.submit(payload=b"first")
    running = worker.expect_task()
    for priority in (0, -(1 << 31), 7, (1 << 31) - 1):
        client.submit(payload=b"%d" % priority, options={"priority": priority})
        bench.quiet(client)  # so that each is queued before the next is sent
    order = []
    for _ in range(4):
        worker.succeed(running)
        running = worker.expect_task()
        order.append(int(running.payload))
    check(order == sorted(order, reverse=True), "tasks of higher priority first", order)


@case(covers=["SCL-COD-003"])
def codecs_decide_placement(bench: RoleBench) -> None:
    """A worker that lists codecs gets only tasks in these or without a codec; a worker that lists none gets any."""
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
def function_names_decide_placement(bench: RoleBench) -> None:
    """A worker that lists functions gets only named tasks that match one of them, exactly or by a prefix before *."""
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
