"""Named functions, neutral codecs, and the conformance functions themselves."""

from __future__ import annotations

from typing import Any, List

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.judging.verdicts import NotApplicable
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.worker_session import PREFIX, WorkerSession


@case(covers=["SCL-COD-002"], smoke=True)
def lists_what_it_serves(bench: RoleBench) -> None:
    """A worker that serves a named function lists it in its Hello, together with the codecs that it supports."""
    worker = bench.welcomed()
    outcome = worker.expect_outcome(worker.submit("echo", 1))
    if outcome.status != "success":
        raise NotApplicable(f"the worker does not serve {PREFIX}echo")
    listed = any(each in (f"{PREFIX}echo", "*") or each.endswith("*") for each in worker.hello.functions)
    check(listed, f"{PREFIX}echo in Hello.functions", worker.hello.functions)
    check("json" in worker.hello.codecs, "json in Hello.codecs", worker.hello.codecs)


@case(covers=["SCL-COD-004"])
def unknown_function_fails(bench: RoleBench) -> None:
    """A task with a function name that the worker does not serve ends as failed with functionNotLoaded."""
    worker = bench.welcomed()
    for name in ("unknown.example/function", PREFIX + "echo2", PREFIX.rstrip("/"), "echo"):
        task = worker.submit_payloads("echo", [b"[1]"], functionName=name)[0]
        worker.expect_failure(task, "functionNotLoaded")
    worker.expect_nothing_more()


@case(covers=["SCL-COD-004"], latitude="lost or failed")
def unknown_codec_is_not_run(bench: RoleBench) -> None:
    """A task in a codec that the worker or its function does not support ends with codecUnknown."""
    worker = bench.welcomed()
    for codec in ("codec.example/none", "JSON"):
        task = worker.submit_payloads("echo", [b"[1]"], codec=codec)[0]
        worker.expect_failure(task, "codecUnknown", "failed or lost")
    task = worker.submit_payloads("sum", [b"[1]"], codec="raw")[0]
    worker.expect_failure(task, "codecUnknown", "failed or lost")
    worker.expect_nothing_more()


@case(covers=["SCL-COD-005"])
def result_is_in_the_codec_of_the_task(bench: RoleBench) -> None:
    """A TaskResult has the codec of its tasks, also when tasks in several codecs are in flight."""
    worker = bench.welcomed()
    tasks = []
    for number in range(5):
        tasks.append((worker.submit("echo", number), "json", str(number).encode()))
        content = bytes([0, 255, number])
        tasks.append((worker.submit_payloads("echo", [content], codec="raw")[0], "raw", content))
    for task, codec, content in tasks:
        outcome = worker.expect_outcome(task)
        check(outcome.status == "success", "the task to succeed", outcome)
        check(outcome.message.codec == codec, f"codec {codec} in the TaskResult", outcome.message.codec)
        check(outcome.payload.strip() == content, f"the result {content!r}", outcome)
    worker.expect_nothing_more()


@case(covers=["SCL-COD-005"])
def raw_is_bytes_to_bytes(bench: RoleBench) -> None:
    """In the codec raw, the payload is the argument and the result is bytes; both may be empty."""
    worker = bench.welcomed()
    contents = [b"", b"\x00\xff[]", bytes(range(256)) * 40]
    for content, task in zip(contents, worker.submit_payloads("echo", contents, codec="raw")):
        outcome = worker.expect_outcome(task)
        check(outcome.status == "success", "the task to succeed", outcome)
        check(outcome.payload == content, f"the bytes {content[:20]!r}", outcome)
    outcome = worker.expect_outcome(worker.submit_payloads("size", [b"1000"], codec="raw")[0])
    check(outcome.payload == b"x" * 1000, "1000 bytes x", outcome)
    worker.expect_nothing_more()


@case(covers=["SCL-COD-006"])
def arguments_are_the_first_dependency(bench: RoleBench) -> None:
    """A task with an empty payload takes its arguments from its first dependency."""
    worker = bench.welcomed()
    first, second = worker.create_object(b"[1, 2]"), worker.create_object(b"[100]")
    tasks = worker.submit_payloads(
        "sum", [b"", b"", b"", b""], dependencyCounts=[1, 0, 2, 1], dependencies=[first, second, first, second]
    )
    for task, value in zip(tasks, [3, 0, 100, 100]):
        worker.expect_value(task, value)
    worker.expect_nothing_more()


@case(covers=["SCL-COD-006"])
def payload_takes_precedence_over_dependencies(bench: RoleBench) -> None:
    """A payload that is not empty holds the arguments, even if the task has dependencies."""
    worker = bench.welcomed()
    other = worker.create_object(b"[100]")
    task = worker.submit_payloads("sum", [b"[1]"], dependencyCounts=[1], dependencies=[other])[0]
    worker.expect_value(task, 1)
    raw = worker.submit_payloads("echo", [b""], codec="raw", dependencyCounts=[1], dependencies=[other])[0]
    outcome = worker.expect_outcome(raw)
    check(outcome.payload == b"[100]", "the content of the dependency", outcome)
    worker.expect_nothing_more()


@case(covers=["SCL-COD-007"])
def results_are_json(bench: RoleBench) -> None:
    """Each result in the codec json is one JSON text in UTF-8, for all kinds of values including null."""
    worker = bench.welcomed()
    values: List[Any] = [None, True, "", 'ä€😀\u0000\n"\\', 0, -1, 2**53 - 1, 0.1, 1e300, [], {}, [[{"": [None]}]]]
    tasks = worker.submit_many("echo", [[value] for value in values])
    for task, value in zip(tasks, values):
        worker.expect_value(task, value)
    worker.expect_nothing_more()


@case(covers=["SCL-COD-008"])
def unreadable_arguments_fail_the_task(bench: RoleBench) -> None:
    """Arguments that are not JSON, not an array, too few or of a wrong type fail their task with argumentNotLoaded."""
    worker = bench.welcomed()
    wrong = [
        ("echo", b"[1"),
        ("echo", b"\xff\xfe"),
        ("echo", b'{"value": 1}'),
        ("echo", b"[]"),
        ("sum", b"7"),
        ("sum", b'["one", "two"]'),
        ("size", b'["many"]'),
        ("fail", b"[]"),
    ]
    for function, payload in wrong:
        task = worker.submit_payloads(function, [payload])[0]
        worker.expect_failure(task, "argumentNotLoaded")
    worker.expect_value(worker.submit("echo", "next"), "next")
    worker.expect_nothing_more()


def expect_values(worker: WorkerSession, function: str, pairs: List[Any]) -> None:
    tasks = worker.submit_many(function, [arguments for arguments, _ in pairs])
    for task, (_, value) in zip(tasks, pairs):
        worker.expect_value(task, value)


@case(covers=["SCL-COD-009"])
def functions_that_compute(bench: RoleBench) -> None:
    """echo, sum, size, sleep and busy return what the specification says."""
    worker = bench.welcomed()
    expect_values(worker, "echo", [([{"b": [1, None]}], {"b": [1, None]}), (["x"], "x")])
    expect_values(worker, "sum", [([1, 2, 39], 42), ([], 0), ([0.5, 1], 1.5), ([-(2**40), 2**40, 1], 1)])
    expect_values(worker, "size", [([3], "xxx"), ([0], "")])
    expect_values(worker, "sleep", [([0], None), ([1], None)])
    expect_values(worker, "busy", [([1], None)])
    worker.expect_nothing_more()


@case(covers=["SCL-COD-009"])
def sum_of_integers_is_an_integer(bench: RoleBench) -> None:
    """The sum of integers is written as an integer: 3, not 3.0."""
    worker = bench.welcomed()
    outcome = worker.expect_value(worker.submit("sum", 1, 2), 3)
    check(isinstance(outcome.value, int), "an integer, 3", outcome)


@case(covers=["SCL-COD-009"])
def fail_reports_its_message(bench: RoleBench) -> None:
    """The Failure of `fail` has its argument as the message, and the type name of the specification."""
    worker = bench.welcomed()
    failure = worker.expect_failure(worker.submit("fail", "ä: no such luck"), "taskRaised")
    check(failure.message == "ä: no such luck", "the argument as the message", failure)
    check(failure.typeName == f"{PREFIX}".rstrip("/") + ".Failure", "the typeName scaler.conformance.Failure", failure)
    check(not failure.exception, "no exception, which only one language could read", failure)


@case(covers=["SCL-COD-009"])
def wait_returns_the_line_it_receives(bench: RoleBench) -> None:
    """`wait` sends its tag and returns the line that it receives; it fails when its connection ends."""
    worker = bench.welcomed()
    hold, cut = bench.hold(), bench.hold()
    (task,) = worker.occupy([hold])
    hold.release("a line with blanks ")
    worker.expect_value(task, "a line with blanks ")
    (task,) = worker.occupy([cut])
    cut.cut()
    failure = worker.expect_failure(task, "taskRaised")
    check(failure.message == "the connection ended", "the message 'the connection ended'", failure)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-014"], latitude="lost with kind objectMissing, or the result")
def missing_second_dependency_has_an_outcome(bench: RoleBench) -> None:
    """A json task whose second dependency is missing either runs, since it does not need it, or is lost."""
    worker = bench.welcomed()
    first, second = worker.create_object(b"[1, 2]"), worker.announce(b"[100]", is_served=False)
    task = worker.submit_payloads("sum", [b""], dependencyCounts=[2], dependencies=[first, second])[0]
    worker.wait_until(lambda: worker.waiting("ObjectRequest") or worker.outcomes, "an ObjectRequest or a TaskResult")
    for request in worker.waiting("ObjectRequest"):
        worker.send("ObjectResponse", id=second, offset=request.offset, status="missing")
    outcome = worker.expect_outcome(task)
    check(outcome.status in ("success", "lost"), "the task to succeed or be lost", outcome)
    if outcome.status == "success":
        check(outcome.value == 3, "the result 3", outcome)
    else:
        check(outcome.failure.kind == "objectMissing", "a Failure of kind objectMissing", outcome.failure)
    worker.expect_nothing_more(but=["ObjectRequest"])


@case(covers=["SCL-COD-006"])
def empty_object_means_no_arguments(bench: RoleBench) -> None:
    """An empty first dependency means no arguments, as an empty payload does."""
    worker = bench.welcomed()
    empty = worker.create_object(b"")
    task = worker.submit_payloads("sum", [b""], dependencyCounts=[1], dependencies=[empty])[0]
    worker.expect_value(task, 0)
    worker.expect_nothing_more()
