"""Frames and their encoding: a worker must understand whatever a correct encoder may write."""

from __future__ import annotations

import itertools

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.codec.other_schemas import tomorrow, yesterday
from scaler_conformance.playing.connection_attempts import check_growing_pauses
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import PREFIX


@case(covers=["SCL-TRN-003"])
def messages_are_well_formed(bench: RoleBench) -> None:
    """Each message of a worker (results, failures, answers) is a well-formed header and at most one payload frame."""
    worker = bench.welcomed()
    tasks = worker.submit_many("echo", [["tour"], [None], [[1, 2, 3]]])
    for task in tasks:
        worker.expect_outcome(task)
    worker.expect_outcome(worker.submit("fail", "tour"))
    worker.expect_outcome(worker.submit("size", 200_000))
    worker.send("TaskCancel", ids=tasks)
    for task in tasks:
        worker.expect_confirmation(task)
    worker.send("BalanceRequest", requestId=1, count=1)
    worker.expect("BalanceResponse")
    worker.expect_nothing_more()


@case(covers=["SCL-TRN-004"])
def empty_payload_frame_equals_no_frame(bench: RoleBench) -> None:
    """An empty payload frame and no payload frame mean the same."""
    worker = bench.welcomed()
    worker.need_function("sum")
    for payload in (None, b""):
        (task,) = worker.new_instances()
        worker.send("Task", payload, ids=[task], payloadSizes=[0], functionName=PREFIX + "sum", codec="json", attempt=1)
        worker.expect_value(task, 0)
    worker.send("Heartbeat", b"", sequence=5)
    worker.wait_until(lambda: any(echo.sequence == 5 for echo in worker.echoes), "HeartbeatEcho(sequence=5)")
    worker.expect_nothing_more()


@case(covers=["SCL-TRN-005"])
def segmented_headers_are_read(bench: RoleBench) -> None:
    """A header may have many segments, linked by single and double far pointers."""
    worker = bench.welcomed()
    one = worker.submit("echo", "in segments", segmented=True)
    worker.expect_value(one, "in segments")
    many = worker.submit_many("sum", [[index, 1] for index in range(20)], segmented=True, options={"priority": 3})
    for index, task in enumerate(many):
        worker.expect_value(task, index + 1)
    worker.send("TaskCancel", segmented=True, ids=many)
    for task in many:
        worker.expect_confirmation(task, "notFound")
    worker.expect_nothing_more()


@case(covers=["SCL-TRN-005"])
def segmented_welcome_is_read(bench: RoleBench) -> None:
    """The Welcome, too, may have many segments."""
    worker = bench.greeted()
    bench.welcome(worker, segmented=True)
    worker.expect_value(worker.submit("echo", 1), 1)
    worker.expect_nothing_more()


@case(covers=["SCL-TRN-006"])
def newer_fields_are_ignored(bench: RoleBench) -> None:
    """A worker serves a newer scheduler, and ignores the fields that it does not know."""
    worker = bench.greeted()
    bench.welcome(worker, schema=tomorrow(), addedText="news", addedNumber=7)
    options = {"priority": 1, "addedText": "news", "addedNumber": 9}
    task = worker.submit("echo", "x", schema=tomorrow(), options=options, addedText="news", addedNumber=8)
    worker.expect_value(task, "x")
    worker.send("TaskCancel", schema=tomorrow(), ids=[task], addedNumber=2**63)
    worker.expect_confirmation(task, "notFound")
    worker.expect_nothing_more()


@case(covers=["SCL-TRN-006"])
def missing_fields_have_their_defaults(bench: RoleBench) -> None:
    """A worker serves an older scheduler with shorter structs: missing fields have their defaults."""
    worker = bench.greeted()
    limits = {"maximumMessageBytes": 1 << 30, "maximumObjectBytes": 1 << 40, "chunkBytes": 65536}
    bench.welcome_as(worker, yesterday(), major=1, minor=0, schedulerId=bytes(16), limits=limits)
    (task,) = worker.new_instances()
    worker.need_function("echo")
    worker.send(
        "Task",
        b"[1]",
        schema=yesterday(),
        ids=[task],
        payloadSizes=[3],
        functionName=PREFIX + "echo",
        codec="json",
        options={"priority": 1},
    )
    worker.expect_value(task, 1)
    worker.send("Heartbeat", schema=yesterday(), sequence=5)
    worker.wait_until(lambda: any(echo.sequence == 5 for echo in worker.echoes), "HeartbeatEcho(sequence=5)")
    worker.expect_nothing_more()


@case(covers=["SCL-VER-001"])
def unknown_messages_are_ignored(bench: RoleBench) -> None:
    """A message of an unknown type is ignored, and the session continues."""
    worker = bench.welcomed()
    for payload in (None, b"with a payload"):
        worker.send("UnheardOf", payload, schema=tomorrow(), text="of tomorrow")
    worker.expect_value(worker.submit("echo", 1), 1)
    worker.expect_nothing_more()


@case(covers=["SCL-OBJ-016"])
def unknown_actions_are_ignored(bench: RoleBench) -> None:
    """An ObjectInstruction with an unknown action is ignored."""
    worker = bench.welcomed()
    wanted = worker.create_object(b"[1]")
    worker.send("ObjectInstruction", schema=tomorrow(), action="unheardOf", ids=[wanted])
    task = worker.submit_payloads("echo", [b""], dependencyCounts=[1], dependencies=[wanted])[0]
    worker.expect_value(task, 1)
    worker.expect_nothing_more()


@case(covers=["SCL-SES-001"])
def says_hello_again_to_each_scheduler(bench: RoleBench) -> None:
    """Each new connection begins with a complete Hello, including the third."""
    worker = bench.welcomed()
    before = worker.hello
    for _ in range(2):
        bench.restart_scheduler()
        worker = bench.rejoined()
        for field in ("role", "slots", "functions", "codecs", "major"):
            same = getattr(worker.hello, field) == getattr(before, field)
            check(same, f"the same {field} as in the first Hello", worker.hello)
    worker.fence()


@case(covers=["SCL-TRN-009"])
def waits_longer_between_attempts(bench: RoleBench) -> None:
    """While no scheduler listens at the address, the pauses between attempts to connect grow; then it reconnects."""
    bench.welcomed()
    check_growing_pauses(bench.router, bench.settings.deadline_seconds)
    bench.rejoined().fence()


@case(covers=["SCL-TRN-011"])
def all_bits_of_ids_are_kept(bench: RoleBench) -> None:
    """Ids that need all 64 bits are returned unchanged."""
    worker = bench.welcomed()
    worker.instances = itertools.count(2**63 + 1)
    holds = [bench.hold() for _ in range(worker.hello.slots)]
    running = worker.occupy(holds)
    tasks = worker.submit_many("sum", [[1], [2], [3]])
    worker.send("TaskCancel", ids=[tasks[1]])
    worker.expect_confirmation(tasks[1], "cancelled")
    for hold, task in zip(holds, running):
        hold.release()
        worker.expect_value(task, "go")
    worker.expect_value(tasks[0], 1)
    worker.expect_value(tasks[2], 3)
    worker.expect_nothing_more()
