"""Tasks that are accepted, and their outcomes."""

from __future__ import annotations

import json

from scaler_conformance.benches.scheduler import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.judging.register import SPECIFICATION
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.scheduler_peers import ECHO

MOST_TASKS = 10_000


@case(covers=["SCL-SCH-001"], smoke=True)
def one_task_is_run(bench: RoleBench) -> None:
    """A task is sent to the worker, and its result to the client, once."""
    client, worker = bench.client(), bench.worker()
    client.submit(payload=b"[1]")
    worker.succeed(worker.expect_task(b"[1]"), payload=b"7")
    outcome = client.expect_outcome(1, "success")
    check(outcome.payload == b"7", "the result 7", outcome.payload)
    bench.quiet(worker, client)
    client.expect_nothing_more()
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-001"])
def each_task_has_one_outcome(bench: RoleBench) -> None:
    """Of many tasks at two workers that succeed, fail, are lost or cancelled, each has exactly one outcome."""
    client = bench.client()
    workers = [bench.worker(slots=4, queueSize=5) for _ in range(2)]
    ids = client.submit(60)
    client.cancel(ids[59])
    told = []
    for count in range(60):
        worker = workers[0].wait_until(
            lambda: next((each for each in workers if each.given), None) or (len(client.confirmations) and client),
            "a task at a worker",
        )
        if worker is client:
            client.expect_confirmation(ids[59], "cancelled")
            continue
        task = worker.expect_task()
        worker.succeed(task) if count % 3 == 0 else worker.fail(task, *((1,), (3, "processorDied"))[count % 3 - 1])
    client.wait_until(lambda: len(client.outcomes) >= 59, "59 outcomes")
    bench.quiet(*workers, client)
    told = sorted(each.id for each in client.outcomes)
    check(told == ids[:59], "one outcome for each of 59 tasks", told)


@case(covers=["SCL-SCH-002"])
def inconsistent_columns_are_malformed(bench: RoleBench) -> None:
    """Messages whose columns are inconsistent with each other or the payload are refused as a whole."""
    worker = bench.worker(slots=9)
    for path in sorted((SPECIFICATION / "invalid").glob("*.json")):
        vector = json.loads(path.read_text(encoding="utf-8"))
        if vector["level"] != "message":
            continue
        payload = path.with_suffix(".payload.bin")
        sender = bench.worker(capabilities=[]) if vector["sender"] == "worker" else bench.client()
        header = path.with_suffix(".bin").read_bytes()
        sender.send_frames(header, *([payload.read_bytes()] if payload.exists() else []))
        sender.expect_refusal("malformed", f"{path.stem}: {vector['fault']}")
        sender.cut()
    bench.quiet(worker)
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-002"])
def nothing_of_a_malformed_batch_is_kept(bench: RoleBench) -> None:
    """No task of a batch with one wrong size runs, even if it is the last size of many."""
    worker, client = bench.worker(slots=9), bench.client()
    for count, sizes, payload in (
        (2, [1, 1], b"abc"),
        (2, [1, 1, 1], b"abc"),
        (2, [2], b"ab"),
        (2, [1, 2], b"ab"),
        (9, [1, 1, 1, 1, 1, 1, 1, 1, 2], b"123456789"),
    ):
        ids = list(range(1, count + 1))
        client.send("Task", payload, ids=ids, payloadSizes=sizes, functionName=ECHO, codec="raw")
        client.expect_refusal("malformed", f"payloadSizes {sizes} for {len(payload)} bytes")
        bench.quiet(worker)
        worker.expect_nothing_more()
        client.greet()


@case(covers=["SCL-SCH-003"])
def ids_must_ascend(bench: RoleBench) -> None:
    """Task ids that do not ascend within a batch, from batch to batch, or from batch to graph, are refused."""
    client = bench.client()
    for batches in ([[1, 1]], [[3, 2]], [[1, 5], [5]], [[7], [6, 9]]):
        for ids in batches:
            sizes = [0] * len(ids)
            client.send("Task", ids=ids, payloadSizes=sizes, functionName=ECHO, codec="raw")
        client.expect_refusal("protocolViolation", f"task ids {batches}")
        client.greet()
    client.submit(3)
    client.next_id = 2
    client.graph([[]], [0])
    client.expect_refusal("protocolViolation", "a node with the id of a task")


@case(covers=["SCL-SCH-003"], latitude="the first task may or may not run")
def ids_may_have_gaps_and_begin_anywhere(bench: RoleBench) -> None:
    """Ascending ids from 0 to the largest possible one are accepted, and a new session may start again from 0."""
    client, worker = bench.client(), bench.worker(queueSize=10)
    for _ in range(2):
        ids = [0, 7, (1 << 64) - 1]
        client.send("Task", ids=ids, payloadSizes=[0, 0, 0], functionName=ECHO, codec="raw")
        for _ in ids:
            worker.succeed(worker.expect_task())
        for id_ in ids:
            client.expect_outcome(id_, "success")
        client.leave()
        client.greet()


@case(covers=["SCL-SCH-004"])
def tasks_are_passed_on_unchanged(bench: RoleBench) -> None:
    """A worker gets payload, function, name, codec, options and dependencies of a task as the client sent them."""
    client, worker = bench.client(), bench.worker(slots=9, capabilities=[{"name": "gpu", "amount": 9.0}])
    function, first, second = client.create(b"f", 1), client.create(b"1"), client.create(b"2")
    options = {
        "priority": -5,
        "capabilities": [{"name": "gpu", "amount": 0.5}],
        "retries": 3,
        "timeLimitMilliseconds": 1 << 40,
        "memoryLimitBytes": 1 << 41,
        "profiling": True,
        "atMostOnce": True,
        "streamOutput": True,
    }
    client.submit_payloads(
        [b"\x00\xff", b"", b"3"], options=options, codec="example.org/own", function=function,
        dependencyCounts=[2, 0, 1], dependencies=[second, first, first],
    )  # fmt: skip
    client.submit_payloads([b"named"], functionName="example.org/f", codec="raw")
    for payload, dependencies in ((b"\x00\xff", [second, first]), (b"", []), (b"3", [first])):
        task = worker.expect_task(payload)
        message = task.message
        said = SCHEMA.decode([SCHEMA.encode("Task", {"options": options})])[1]["options"]
        check(message.options == said, f"the options {options}", message)
        check(
            message.function == function and not message.functionName,
            f"function = {function} and no functionName",
            message,
        )
        check(message.codec == "example.org/own", "codec example.org/own", message)
        check(task.dependencies == dependencies, f"the dependencies {dependencies}", task)
        check(message.client == client.number, f"client = {client.number}, the client's session", message)
    message = worker.expect_task(b"named").message
    check((message.function, message.functionName) == (0, "example.org/f"), "functionName example.org/f", message)


@case(covers=["SCL-SCH-004"])
def results_are_passed_on_unchanged(bench: RoleBench) -> None:
    """A client gets payload and codec of a result, and a Failure, as the worker sent them."""
    client, worker = bench.client(), bench.worker(slots=3)
    client.submit(3, codec="json")
    first, second, third = worker.expect_tasks(3)
    worker.succeed(first, payload=b"\x00\xfe\xff", codec="raw")
    outcome = client.expect_outcome(1, "success")
    check(outcome.payload == b"\x00\xfe\xff", r"the payload b'\x00\xfe\xff'", outcome.payload)
    check(outcome.message.codec == "raw", "the codec raw", outcome.message)
    worker.succeed(second, payload=b"")
    empty = client.expect_outcome(2, "success").payload
    check(empty == b"", "an empty result", empty)
    worker.fail(third, message="a text \u2713")
    failure = client.expect_outcome(3, "failed").failure
    check(
        (failure.kind, failure.message) == ("taskRaised", "a text \u2713"),
        "a Failure of kind taskRaised with the worker's message",
        failure,
    )


@case(covers=["SCL-SCH-007"])
def only_tasks_with_missing_objects_are_lost(bench: RoleBench) -> None:
    """A task that names a missing object is lost with objectMissing, and the rest of its batch runs."""
    client, worker = bench.client(), bench.worker(slots=5)
    there = client.create(b"there")
    nowhere = client.new_object()
    counts = {"dependencyCounts": [1, 1, 0], "dependencies": [there, nowhere]}
    client.submit_payloads([b"1", b"2", b"3"], **counts)
    client.expect_loss(2, "objectMissing")
    client.submit(function=nowhere)
    client.expect_loss(4, "objectMissing")
    for payload in (b"1", b"3"):
        worker.succeed(worker.expect_task(payload))
    client.expect_outcome(1, "success")
    client.expect_outcome(3, "success")
    bench.quiet(client, worker)
    worker.expect_nothing_more()


@case(covers=["SCL-SCH-008"])
def tasks_beyond_the_limit_are_rejected(bench: RoleBench) -> None:
    """Tasks that exceed Limits.tasksInFlight are lost with rejected, and the tasks before them run."""
    bench.variant("small-limits")
    client = bench.client()
    limit = client.welcome.limits.tasksInFlight
    bench.need(0 < limit <= MOST_TASKS, "a small limit of tasks in flight")
    client.submit(limit)
    client.submit(3)
    for id_ in range(limit + 1, limit + 4):
        client.expect_loss(id_, "rejected")
    worker = bench.worker(slots=limit)
    for task in worker.expect_tasks(limit):
        worker.succeed(task)
    for id_ in range(1, limit + 1):
        client.expect_outcome(id_, "success")
    client.submit()
    worker.expect_task()


@case(covers=["SCL-SCH-008"])
def bytes_beyond_the_limit_are_rejected(bench: RoleBench) -> None:
    """A task of any size is accepted while less than Limits.bytesInFlight are in flight, and rejected otherwise."""
    bench.variant("small-limits")
    client = bench.client()
    limit = client.welcome.limits.bytesInFlight
    bench.need(0 < limit <= 16 << 20, "a small limit of bytes in flight")
    large = b"x" * (limit + 10)
    client.submit_payloads([large])
    client.submit_payloads([b"y"])
    client.expect_loss(2, "rejected")
    worker = bench.worker()
    worker.succeed(worker.expect_task(large))
    client.expect_outcome(1, "success")
    client.submit_payloads([b"z"])
    worker.expect_task(b"z")


@case(covers=["SCL-TRN-011"])
def all_bits_of_ids_are_kept(bench: RoleBench) -> None:
    """Task ids that need all 64 bits are returned unchanged in results and in answers to cancels."""
    client, worker = bench.client(), bench.worker()
    ids = [2**63 + 1, 2**63 + 2, 2**64 - 2]
    for id_ in ids:
        client.submit_payloads([b"%d" % id_], ids=[id_])
    worker.succeed(worker.expect_task(b"%d" % ids[0]))
    client.expect_outcome(ids[0], "success")
    client.cancel(ids[2])
    client.expect_confirmation(ids[2], "cancelled")
    worker.succeed(worker.expect_task(b"%d" % ids[1]))
    client.expect_outcome(ids[1], "success")
    client.expect_nothing_more()
