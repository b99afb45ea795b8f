"""What a worker has not used for `--object-retention-seconds` it forgets, and asks for again when a task needs it."""

from __future__ import annotations

import os
from typing import Iterator, Set

import pytest
from fake_scheduler import FakeScheduler, StartWorker
from task_flow_bench import FUNCTION
from task_flow_bench import Bench as CoreBench
from worker_gates import Gate, send_task_with_object, wait_at, wait_for_heartbeat
from worker_objects_bench import CHUNK, INLINE, REMOTE, SHARED, Bench

from scaler.values import payload as payloads
from scaler.worker.frames import FrameKind
from scaler_protocol import messages as m
from scaler_protocol.host.segments import ObjectDirectory

RETENTION_SECONDS = 100.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def forget_unused(bench: Bench, now: float, *needed: int) -> None:
    bench.objects.forget_unused(now, RETENTION_SECONDS, lambda: set(needed))
    bench.perform()


# The object store -----------------------------------------------------------------------------------------------------


def test_content_is_forgotten_after_so_long_and_fetched_again(bench: Bench) -> None:
    bench.create(9, INLINE, b"content")
    forget_unused(bench, 0)
    forget_unused(bench, RETENTION_SECONDS)
    assert bench.objects.is_available(9)
    forget_unused(bench, RETENTION_SECONDS + 1)

    assert not bench.objects.is_available(9)
    bench.objects.fetch(9)
    [request] = bench.sent()
    bench.respond(request, b"content")
    assert bench.events == [("available", 9)]
    assert bench.definition(9)[0] == m.ObjectKind.FUNCTION, "what it is, is known still"


def test_what_is_used_or_needed_is_kept(bench: Bench) -> None:
    for object_id in (8, 9):
        bench.create(object_id, INLINE, b"content")
    forget_unused(bench, 0)
    bench.objects.definition(8)
    forget_unused(bench, RETENTION_SECONDS + 1, 9)

    assert bench.objects.is_available(8) and bench.objects.is_available(9)
    forget_unused(bench, RETENTION_SECONDS + 2)
    assert bench.objects.is_available(8) and not bench.objects.is_available(9)


def test_a_fetched_file_goes_and_comes_again(bench: Bench) -> None:
    content = os.urandom(CHUNK // 2)
    bench.create(9, REMOTE, size=len(content))
    for _ in range(2):
        bench.objects.fetch(9)
        [request] = bench.sent()
        bench.respond(request, content)
        path = os.fsdecode(bench.definition(9)[2])
        assert os.path.getsize(path) == len(content)
        forget_unused(bench, 0)
        forget_unused(bench, RETENTION_SECONDS + 1)
        assert not os.path.exists(path) and not bench.objects.is_available(9)


def test_a_file_of_the_schedulers_is_only_forgotten() -> None:
    directory = ObjectDirectory()
    bench = Bench(object_directory=directory.path, object_directory_token=directory.token)
    with open(directory.object_path(9), "wb"):
        pass
    bench.create(9, SHARED, size=5)
    forget_unused(bench, 0)
    forget_unused(bench, RETENTION_SECONDS + 1)
    assert bench.objects.definition(9) is None
    bench.objects.fetch(9)
    assert bench.events == [("available", 9)] and bench.objects.definition(9) is not None
    bench.close()
    directory.remove()


def test_a_function_that_has_a_name_is_nowhere_else(bench: Bench) -> None:
    object_id = bench.objects.named_functions.id_of(b"math:sqrt")
    forget_unused(bench, 0)
    forget_unused(bench, RETENTION_SECONDS + 1)
    assert bench.objects.is_available(object_id)


# What the agent needs -------------------------------------------------------------------------------------------------


def needed_at(bench: CoreBench, seconds: float) -> Set[int]:
    bench.flow.collect_garbage(bench.now + seconds, RETENTION_SECONDS, 1 << 30)
    bench.turn()
    needed: Set[int] = bench.objects.needed
    return needed - {0}


def test_what_queued_waiting_and_running_tasks_need_is_needed() -> None:
    bench = CoreBench(slots=1)
    bench.objects.available |= {21, 22, 23}
    bench.send_tasks([1, 2], dependencies=[[21], [22]])
    bench.send_tasks([3], dependencies=[[23, 24]])
    assert needed_at(bench, RETENTION_SECONDS + 1) == {FUNCTION, 21, 22, 23, 24}


def test_a_busy_processor_forgets_all_but_what_its_tasks_need() -> None:
    bench = CoreBench(slots=1)
    bench.objects.available |= {21, 22}
    bench.send_tasks([1], dependencies=[[21]])
    bench.finish(*bench.dealt()[0])
    bench.send_tasks([2], dependencies=[[22]])
    bench.dealt()
    bench.kinds(0)
    assert needed_at(bench, RETENTION_SECONDS + 1) == {FUNCTION, 22}
    assert bench.kinds(0) == [FrameKind.DROP, FrameKind.COLLECT_GARBAGE]


# A whole worker -------------------------------------------------------------------------------------------------------

QUICKLY = ("--object-retention-seconds", "0.05", "--garbage-collect-interval-seconds", "0.05")


def pause(scheduler: FakeScheduler) -> None:
    """Some heartbeats' time, which is longer than the worker keeps what it does not use."""
    for _ in range(3):
        scheduler.heartbeats.clear()
        wait_for_heartbeat(scheduler, lambda heartbeat: True)


def test_a_worker_fetches_again_what_it_has_forgotten(scheduler: FakeScheduler, start_worker: StartWorker) -> None:
    start_worker(*QUICKLY)
    scheduler.welcome()
    contents = {}
    for kind, content in (
        (m.ObjectKind.FUNCTION, payloads.join(payloads.dump_function(len, None))),
        (m.ObjectKind.VALUE, payloads.join(payloads.dump("text"))),
    ):
        contents[scheduler.create_inline(content, kind)] = content
    function, value = contents
    send_task_with_object(scheduler, 1, function, value)
    assert scheduler.result(1).value == 4
    for instance in range(2, 100):
        pause(scheduler)
        send_task_with_object(scheduler, instance, function, value)
        received = scheduler.receive(m.ObjectRequest, m.TaskResult).message
        if isinstance(received, m.ObjectRequest):
            break
    asked = [received, scheduler.receive(m.ObjectRequest).message]
    assert {request.id for request in asked} == set(contents)
    for request in asked:
        content = contents[request.id]
        scheduler.send(m.ObjectResponse(id=request.id, size=len(content)), content)
    assert scheduler.result(instance).value == 4
    scheduler.assert_nothing_more()


@pytest.mark.parametrize("shared", [False, True])
def test_what_running_and_queued_tasks_need_is_kept(
    scheduler: FakeScheduler, start_worker: StartWorker, gate: Gate, shared: bool
) -> None:
    directory = ObjectDirectory()
    start_worker(*QUICKLY)
    token = directory.token if shared else b"another host"
    scheduler.welcome(object_directory=directory.path, object_directory_token=token)
    gated = scheduler.create_function(wait_at)
    function = scheduler.create_function(len)
    value = scheduler.create_inline(payloads.join(payloads.dump("text")))
    scheduler.send_calls(gated, {1: (gate.path,)})
    send_task_with_object(scheduler, 2, function, value)
    pause(scheduler)
    gate.open()
    assert scheduler.result(1).value == "went through"
    assert scheduler.result(2).value == 4
    scheduler.assert_nothing_more()
    directory.remove()
