"""Functions by name and neutral codecs: which worker gets them, and what is said when there is none."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from scheduler_harness import Harness, Worker, hello, options

from scaler_protocol import messages as m


def worker_that(harness: Harness, codecs: Sequence[str] = (), functions: Sequence[str] = (), slots: int = 10) -> Worker:
    worker = Worker(harness, f"peer {len(harness.peers)}".encode())
    harness.peers[worker.name] = worker
    words = {"codecs": list(codecs), "functions": list(functions)}
    worker.greet(hello(m.Role.WORKER, slots=slots, queue_size=10, **words))
    return worker


def names_taken(worker: Worker) -> List[str]:
    names = []
    while worker.inbox:
        worker.take_tasks()
        names.append(worker.task.function_name)
    return sorted(names)


def test_a_named_function_goes_to_a_worker_that_serves_it(harness: Harness) -> None:
    client = harness.client()
    thumbnails = worker_that(harness, functions=["example.org/thumbnail"])
    family = worker_that(harness, functions=["example.org/text/*"])
    client.submit([0], function_name="example.org/thumbnail", codec="raw")
    client.submit([1], function_name="example.org/text/sort", codec="json")
    client.submit([2], function_name="example.org/text/", codec="json")
    assert names_taken(thumbnails) == ["example.org/thumbnail"]
    assert names_taken(family) == ["example.org/text/", "example.org/text/sort"]
    harness.nothing_else_was_sent()


def test_a_codec_goes_to_a_worker_that_understands_it(harness: Harness) -> None:
    client = harness.client()
    python = worker_that(harness, codecs=["cloudpickle"])
    foreign = worker_that(harness, codecs=["json", "raw"])
    function = client.create(1, b"the function")
    for first_id, codec in enumerate(["cloudpickle", "json", "cloudpickle", "raw"]):
        fields: Dict[str, Any] = {"function": function} if codec == "cloudpickle" else {}
        client.submit([first_id], codec=codec, **fields)
    python.take(m.ObjectInstruction)
    assert names_taken(python) == ["", ""]
    assert names_taken(foreign) == ["f", "f"]
    harness.nothing_else_was_sent()


def test_workers_that_list_nothing_take_anything(harness: Harness) -> None:
    client, worker = harness.client(), worker_that(harness)
    client.submit([0], function_name="example.org/anything", codec="of their own")
    assert names_taken(worker) == ["example.org/anything"]
    harness.nothing_else_was_sent()


def test_a_function_that_no_worker_serves_waits_without_blocking_others(harness: Harness) -> None:
    client, python = harness.client(), worker_that(harness, codecs=["cloudpickle"], functions=["python:*"])
    client.submit([0, 1], function_name="example.org/thumbnail", codec="json", options=options(priority=9))
    client.submit([2], function_name="python:math:sqrt", codec="cloudpickle")
    assert names_taken(python) == ["python:math:sqrt"]
    harness.wait(1)
    said = client.take(m.Explanation).text
    assert said == (
        "2 tasks wait because no connected worker serves the function 'example.org/thumbnail' in codec 'json':"
        " start one that does"
    )
    foreign = worker_that(harness, codecs=["json"], functions=["example.org/*"])
    foreign.take_all_tasks()
    harness.nothing_else_was_sent()


def test_what_a_worker_took_along_goes_to_another_that_serves_it(harness: Harness) -> None:
    client = harness.client()
    first = worker_that(harness, functions=["a"])
    other = worker_that(harness, functions=["b"])
    client.submit([0, 1], function_name="a")
    first.take_all_tasks()
    first.vanish()
    second = worker_that(harness, functions=["a"])
    second.take_all_tasks()
    assert not other.inbox
    harness.nothing_else_was_sent()


def test_capabilities_and_names_are_asked_for_together(harness: Harness) -> None:
    client = harness.client()
    worker_that(harness, functions=["a"])
    harness.worker(gpu=1)  # lists nothing, so it serves all
    client.submit([0], function_name="a", options=options(gpu=2))
    client.send(m.ExplanationRequest(request_id=1, task_id=0))
    assert client.take(m.Explanation).text == (
        "the task waits because no connected worker offers gpu=2 (gpu=1 is the most): start one that does"
    )
    client.submit([1], function_name="b", options=options(gpu=2))
    client.send(m.ExplanationRequest(request_id=1, task_id=1))
    assert client.take(m.Explanation).text == (
        "the task waits because no worker that is connected and takes the function 'b' offers gpu=2"
        " (gpu=1 is the most): start one that does"
    )
