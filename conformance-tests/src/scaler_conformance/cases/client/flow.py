"""How much a client has in flight."""

from __future__ import annotations

from typing import List, Sequence

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check


def expect_just(bench: RoleBench, session: ClientSession, tasks: Sequence[int], count: int) -> None:
    """The first `count` of the tasks are sent, and no others."""
    session.expect_tasks(tasks[:count])
    bench.ping()
    session.fence()
    came = [task for task in tasks if session.find_task(task)]
    check(len(came) == count, f"exactly {count} tasks to be sent", f"{len(came)} tasks")


def echo(session: ClientSession, tasks: int, released: int, size: int = 0, bytes_released: int = 0) -> None:
    last = max(each.id for each in session.tasks)
    session.send(
        "TaskEcho",
        acceptedUpTo=last,
        tasksInFlight=tasks,
        bytesInFlight=size,
        tasksReleased=released,
        bytesReleased=bytes_released,
    )


@case(covers=["SCL-CLT-002"])
def stops_at_the_task_limit(bench: RoleBench) -> None:
    """With Limits.tasksInFlight tasks in flight, a client sends no more; each release lets it send as many again."""
    session = bench.welcomed(limits=bench.limits(tasksInFlight=3))
    tasks = bench.submit(10)
    expect_just(bench, session, tasks, 3)
    session.succeed(*session.expect_tasks(tasks[:2]))
    echo(session, tasks=3, released=2)
    expect_just(bench, session, tasks, 5)


@case(covers=["SCL-CLT-002"])
def stops_at_the_byte_limit(bench: RoleBench) -> None:
    """A task of any size may be sent while the bytes in flight are below the limit; then no more may."""
    session = bench.welcomed(limits=bench.limits(bytesInFlight=10_000))
    tasks = bench.submit(6, size=8000)
    expect_just(bench, session, tasks, 2)
    sent = session.expect_tasks(tasks[:2])
    echo(session, tasks=0, released=1, size=10_000, bytes_released=len(sent[0].payload))
    expect_just(bench, session, tasks, 3)


@case(covers=["SCL-CLT-002"])
def sends_everything_as_tasks_are_released(bench: RoleBench) -> None:
    """A client at its limit eventually sends all tasks, each once."""
    session = bench.welcomed(limits=bench.limits(tasksInFlight=7))
    tasks = bench.submit(60)
    done: List[int] = []
    while len(done) < len(tasks):
        task = tasks[len(done)]
        sent = session.expect_task(task)
        in_flight = len(session.tasks) - len(done)
        check(in_flight <= 7, "at most 7 tasks in flight", in_flight)
        session.succeed(sent)
        done.append(task)
        echo(session, tasks=7, released=len(done))
    for task in tasks:
        bench.expect_result(task)
    check(
        len(session.tasks) == len(tasks), f"each of {len(tasks)} tasks to be sent once", f"{len(session.tasks)} tasks"
    )


@case(covers=["SCL-CLT-002"])
def a_limit_can_change(bench: RoleBench) -> None:
    """A TaskEcho may raise or lower the limit."""
    session = bench.welcomed(limits=bench.limits(tasksInFlight=2))
    tasks = bench.submit(12)
    expect_just(bench, session, tasks, 2)
    echo(session, tasks=5, released=0)
    expect_just(bench, session, tasks, 5)
    echo(session, tasks=1, released=4)
    expect_just(bench, session, tasks, 5)
    echo(session, tasks=1, released=5)
    expect_just(bench, session, tasks, 6)


@case(covers=["SCL-CLT-002"])
def large_arguments_count_in_flight(bench: RoleBench) -> None:
    """The bytes of arguments that are sent as objects count as in flight."""
    session = bench.welcomed(limits=bench.limits(bytesInFlight=150_000))
    tasks = bench.submit(4, size=100_000)
    expect_just(bench, session, tasks, 2)


@case(covers=["SCL-CLT-002"])
def a_new_session_starts_counting_again(bench: RoleBench) -> None:
    """In a new session, tasks that are sent again count as in flight, and earlier releases do not count."""
    session = bench.welcomed(limits=bench.limits(tasksInFlight=4))
    tasks = bench.submit(9)
    expect_just(bench, session, tasks, 4)
    session.succeed(*session.expect_tasks(tasks[:2]))
    echo(session, tasks=4, released=2)
    expect_just(bench, session, tasks, 6)
    for task in tasks[:2]:
        bench.expect_result(task)
    bench.restart_scheduler()
    renewed = bench.rejoined(unless=lambda: bench.outcome(tasks[2]), limits=bench.limits(tasksInFlight=4))
    if renewed is None:
        return  # the client failed its tasks instead of sending them again, which is allowed
    waiting = tasks[2:]
    bench.any_session.wait_until(lambda: renewed.tasks, "a Task message")
    bench.ping()
    renewed.fence()
    came = [task for task in waiting if renewed.find_task(task)]
    check(len(came) <= 4, "at most 4 tasks to be sent", f"{len(came)} tasks")
