"""What the client sends when its user submits."""

from __future__ import annotations

import json
from typing import Any, Dict

from scaler_conformance.benches.client import ECHO, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import tag_of
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-COD-001"], smoke=True)
def one_task_is_sent_and_its_result_told(bench: RoleBench) -> None:
    """A task is sent with the function's name, its codec and its arguments; the user gets what the worker returned."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    about = (sent.message.function, sent.message.functionName, sent.message.codec)
    check(about == (0, ECHO, "json"), f"function 0, functionName {ECHO}, codec json", sent.message)
    check(json.loads(sent.payload) == [str(task)], f"the arguments {[str(task)]}", repr(sent.payload))
    session.succeed(sent, values=[{"a": [1, None, "é"]}])
    bench.expect_result(task, {"a": [1, None, "é"]})


@case(covers=["SCL-COD-001"])
def raw_arguments_are_sent_as_they_are(bench: RoleBench) -> None:
    """In codec raw the payload is the bytes of the argument, and the result those of the result."""
    session = bench.welcomed()
    task = bench.submit_one(codec="raw")
    sent = session.expect_task(task)
    check(sent.payload == str(task).encode(), f"the payload {str(task)!r}", repr(sent.payload))
    session.tell([sent.id], [b"bytes"], codec="raw")
    bench.expect_result(task, "bytes")


@case(covers=["SCL-CLT-001"])
def ids_ascend(bench: RoleBench) -> None:
    """Task ids ascend strictly, within a message and from one to the next."""
    session = bench.welcomed()
    tasks = bench.submit(5) + bench.submit(3, codec="raw") + bench.submit(41) + bench.submit(1)
    session.expect_tasks(tasks)


@case(covers=["SCL-CLT-001"])
def ids_ascend_over_tasks_and_graphs(bench: RoleBench) -> None:
    """A graph's nodes have ids of the same series."""
    bench.need("graph")
    session = bench.welcomed()
    before = bench.submit(2)
    session.expect_tasks(before)
    graph = bench.submit_graph(4)
    session.wait_until(lambda: session.graphs, "GraphTask")
    session.expect_tasks(bench.submit(2))
    session.tell([session.graphs[0].ids[session.graphs[0].targets[0]]], [b"3"], codec=session.graphs[0].codec)
    bench.anybody.wait_until(lambda: bench.outcome(graph), "an outcome of the graph's target")


@case(covers=["SCL-CLT-011"])
def columns_of_tasks_agree(bench: RoleBench) -> None:
    """Whatever is in a batch, large, small or empty, its columns fit each other and the payload frame."""
    session = bench.welcomed()
    tasks = bench.submit(3) + bench.submit(2, size=100_000) + bench.submit(4, size=1000) + bench.submit(1, codec="raw")
    sent = session.expect_tasks(tasks)
    check(len({each.id for each in sent}) == len(tasks), "an id for each task", sorted(each.id for each in sent))


@case(covers=["SCL-CLT-011"])
def columns_of_graphs_agree(bench: RoleBench) -> None:
    """A graph's columns fit each other, its predecessors are at positions below, and its targets are nodes."""
    bench.need("graph")
    session = bench.welcomed()
    bench.submit_graph(5)
    session.wait_until(lambda: session.graphs, "GraphTask")
    check(len(session.graphs[0].ids) == 5, "five nodes", session.graphs[0])
    check(len(session.graphs[0].predecessors) == 4, "four edges", session.graphs[0])


@case(covers=["SCL-CLT-010"])
def tasks_in_a_row_travel_in_batches(bench: RoleBench) -> None:
    """Tasks that share function and options, submitted in a row, are not sent one by one."""
    session = bench.welcomed()
    sent = session.expect_tasks(bench.submit(500))
    messages = len({each.message.position for each in sent})
    check(messages <= 250, "500 tasks in at most 250 Task messages", f"{messages} came")


@case(covers=["SCL-CLT-013"])
def options_are_those_of_the_task(bench: RoleBench) -> None:
    """Options reach the scheduler, and tasks of different options, functions or codecs share no batch."""
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
def every_option_can_be_asked_for(bench: RoleBench) -> None:
    """Each option that the client offers is in the Task message as its user gave it."""
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
    """Each message is a header and at most a payload, whatever the client has to say."""
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
def messages_keep_to_the_limit(bench: RoleBench) -> None:
    """No message is longer than Limits.maximumMessageBytes, however much was submitted."""
    session = bench.welcomed(limits=bench.limits(maximumMessageBytes=1 << 20))
    sent = session.expect_tasks(bench.submit(40, size=50_000))
    longest = max(len(each.message.payload) for each in sent)
    check(longest <= 1 << 20, "messages of 1 MiB at most", f"one with a payload of {longest} bytes")
