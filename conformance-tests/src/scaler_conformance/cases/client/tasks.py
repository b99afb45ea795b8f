"""What the client sends when its user submits."""

from __future__ import annotations

import json
from typing import Any, Dict

from scaler_conformance.benches.client import ECHO, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import tag_of
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-COD-001"], smoke=True)
def one_task_is_sent_and_its_result_reported(bench: RoleBench) -> None:
    """A task is sent with its function name, codec and arguments, and the user gets the worker's result."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    about = (sent.message.function, sent.message.functionName, sent.message.codec)
    check(about == (0, ECHO, "json"), f"a Task with function 0, functionName {ECHO} and codec json", sent.message)
    check(json.loads(sent.payload) == [str(task)], f"the arguments {[str(task)]}", repr(sent.payload))
    session.succeed(sent, values=[{"a": [1, None, "é"]}])
    bench.expect_result(task, {"a": [1, None, "é"]})


@case(covers=["SCL-COD-001"])
def raw_arguments_are_sent_unchanged(bench: RoleBench) -> None:
    """In the codec raw, the payload is the bytes of the argument, and the result is the bytes of the payload."""
    session = bench.welcomed()
    task = bench.submit_one(codec="raw")
    sent = session.expect_task(task)
    check(sent.payload == str(task).encode(), f"the payload {str(task)!r}", repr(sent.payload))
    session.tell([sent.id], [b"bytes"], codec="raw")
    bench.expect_result(task, "bytes")


@case(covers=["SCL-CLT-001"])
def ids_ascend(bench: RoleBench) -> None:
    """Task ids are strictly ascending, within a message and from one message to the next."""
    session = bench.welcomed()
    tasks = bench.submit(5) + bench.submit(3, codec="raw") + bench.submit(41) + bench.submit(1)
    session.expect_tasks(tasks)


@case(covers=["SCL-CLT-001"])
def ids_ascend_over_tasks_and_graphs(bench: RoleBench) -> None:
    """The nodes of graphs take their ids from the same ascending sequence as tasks."""
    bench.need("graph")
    session = bench.welcomed()
    before = bench.submit(2)
    session.expect_tasks(before)
    graph = bench.submit_graph(4)
    session.wait_until(lambda: session.graphs, "GraphTask")
    session.expect_tasks(bench.submit(2))
    session.tell([session.graphs[0].ids[session.graphs[0].targets[0]]], [b"3"], codec=session.graphs[0].codec)
    bench.any_session.wait_until(lambda: bench.outcome(graph), "the outcome of the graph's target")


@case(covers=["SCL-CLT-011"])
def columns_of_tasks_agree(bench: RoleBench) -> None:
    """The columns of a batch agree with each other and with the payload frame, whatever the sizes of its tasks are."""
    session = bench.welcomed()
    tasks = bench.submit(3) + bench.submit(2, size=100_000) + bench.submit(4, size=1000) + bench.submit(1, codec="raw")
    sent = session.expect_tasks(tasks)
    check(len({each.id for each in sent}) == len(tasks), "a unique id for each task", sorted(each.id for each in sent))


@case(covers=["SCL-CLT-011"])
def columns_of_graphs_agree(bench: RoleBench) -> None:
    """A graph's columns agree with each other, its predecessors precede their nodes, and its targets are nodes."""
    bench.need("graph")
    session = bench.welcomed()
    bench.submit_graph(5)
    session.wait_until(lambda: session.graphs, "GraphTask")
    check(len(session.graphs[0].ids) == 5, "5 nodes", session.graphs[0])
    check(len(session.graphs[0].predecessors) == 4, "4 edges", session.graphs[0])


@case(covers=["SCL-CLT-010"])
def consecutive_tasks_are_batched(bench: RoleBench) -> None:
    """Consecutive tasks with the same function and options are not sent one by one."""
    session = bench.welcomed()
    sent = session.expect_tasks(bench.submit(500))
    messages = len({each.message.position for each in sent})
    check(messages <= 250, "500 tasks in at most 250 Task messages", messages)


@case(covers=["SCL-CLT-013"])
def options_are_those_of_the_task(bench: RoleBench) -> None:
    """Options reach the scheduler, and tasks with different options, functions or codecs are in different batches."""
    bench.need("priority", "timeLimitMilliseconds")
    session = bench.welcomed()
    plain = bench.submit(2)
    urgent = bench.submit(2, priority=5)
    limited = bench.submit(2, priority=-3, timeLimitMilliseconds=2500)
    for task, priority, limit in [(plain[1], 0, 0), (urgent[0], 5, 0), (urgent[1], 5, 0), (limited[0], -3, 2500)]:
        options = session.expect_task(task).options
        came = (options.priority, options.timeLimitMilliseconds)
        check(came == (priority, limit), f"priority {priority} and time limit {limit} of task {task}", came)


@case(covers=["SCL-CLT-013"])
def every_option_is_sent(bench: RoleBench) -> None:
    """Each option that the client supports is in the Task message as its user gave it."""
    offered: Dict[str, Any] = {"retries": 2, "memoryLimitBytes": 1 << 30, "profiling": True, "streamOutput": True}
    bench.need("priority")
    chosen = {name: value for name, value in offered.items() if name in bench.can}
    session = bench.welcomed()
    options = session.expect_task(bench.submit_one(**chosen)).options
    for name, value in chosen.items():
        check(getattr(options, name) == value, f"the option {name}={value}", options)
    if "capabilities" in bench.can:
        options = session.expect_task(bench.submit_one(capabilities={"gpu": 2, "ssd": 0})).options
        came = sorted((each.name, each.amount) for each in options.capabilities)
        check(came == [("gpu", 2.0), ("ssd", 0.0)], "the capabilities gpu=2 and ssd=0", came)


@case(covers=["SCL-TRN-003"])
def messages_are_well_formed(bench: RoleBench) -> None:
    """Everything that a client sends is a well-formed header and at most one payload frame."""
    session = bench.welcomed()
    sent = session.expect_tasks(bench.submit(3) + bench.submit(1, size=100_000))
    if "cancel" in bench.can:
        bench.cancel(tag_of(sent[0]) or 0)
        session.expect_cancel(sent[0])
        session.confirm(sent[0], "cancelled")
    session.succeed(*sent[1:])
    session.fence()
    bench.adapter.tell("disconnect")
    session.expect("DisconnectRequest")


@case(covers=["SCL-SEC-007"])
def messages_stay_within_the_limit(bench: RoleBench) -> None:
    """No message is larger than Limits.maximumMessageBytes, however much is submitted."""
    session = bench.welcomed(limits=bench.limits(maximumMessageBytes=1 << 20))
    sent = session.expect_tasks(bench.submit(40, size=50_000))
    longest = max(len(each.message.payload) for each in sent)
    check(longest <= 1 << 20, "messages of at most 1 MiB", f"one with a payload of {longest} bytes")
