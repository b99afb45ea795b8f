"""Schedulers of other minor versions, and encodings that another library chooses."""

from __future__ import annotations

from typing import Any, Dict

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.cases.client.session import expect_no_hello
from scaler_conformance.codec.other_schemas import UNHEARD_OF, tomorrow, yesterday
from scaler_conformance.codec.schema_codec import SCHEMA
from scaler_conformance.playing.conversation import check


def works_with(bench: RoleBench, **how: Any) -> None:
    """A task is submitted and its result is reported, with the scheduler's messages encoded in another way."""
    session = bench.greeted()
    bench.welcome(session, **how)
    bench.expect_event("started")
    task, failed = bench.submit(2)
    sent = session.expect_task(task)
    session.send("Heartbeat", sequence=3, **how)
    session.succeed(sent, **how)
    bench.expect_result(task)
    failure = SCHEMA.encode_failure(kind="taskRaised", message="as it is", attempts=1)
    session.tell([session.expect_task(failed).id], [failure], statuses=[1], **how)
    bench.expect_error(failed, "as it is")


@case(covers=["SCL-TRN-006"])
def a_newer_scheduler_is_understood(bench: RoleBench) -> None:
    """Structs may be longer than in the client's schema: the rest is ignored."""
    works_with(bench, schema=tomorrow())


@case(covers=["SCL-TRN-006"])
def an_older_scheduler_is_understood(bench: RoleBench) -> None:
    """Structs may be shorter than in the client's schema: missing fields have their defaults."""
    session = bench.greeted()
    session.number, session.is_open = 7, True
    welcome = bench.usual_welcome(7, 0)
    limits = {"maximumMessageBytes": 1 << 30, "maximumObjectBytes": 1 << 40, "chunkBytes": 65_536}
    session.send("Welcome", schema=yesterday(), **{**welcome, "limits": limits})
    bench.expect_event("started")
    task = bench.submit_one()
    session.send("Heartbeat", schema=yesterday(), sequence=8)
    session.succeed(session.expect_task(task))
    bench.expect_result(task)
    session.fence()


@case(covers=["SCL-TRN-005"])
def messages_of_many_segments_are_read(bench: RoleBench) -> None:
    """A header may have any number of segments, linked by far pointers."""
    works_with(bench, segmented=True)


@case(covers=["SCL-TRN-004"])
def an_empty_payload_frame_equals_no_frame(bench: RoleBench) -> None:
    """An empty payload frame and no payload frame mean the same."""
    session = bench.greeted()
    bench.welcome(session, frames=[b""])
    bench.expect_event("started")
    without, with_ = bench.submit(2, codec="raw")
    first, second = session.expect_tasks([without, with_])
    header: Dict[str, Any] = {"payloadSizes": [0], "codec": "raw"}
    session.send("TaskResult", ids=[first.id], **header)
    session.send("TaskResult", b"", ids=[second.id], **header)
    for task in (without, with_):
        outcome = bench.expect_outcome(task, "result")
        check(outcome.get("value") == "", "an empty result", outcome)
    session.send("Heartbeat", b"", sequence=12)
    session.wait_until(lambda: any(each.sequence == 12 for each in session.echoes), "HeartbeatEcho(sequence=12)")


@case(covers=["SCL-VER-001"])
def unknown_messages_are_ignored(bench: RoleBench) -> None:
    """A message of an unknown type, from a later version, is ignored."""
    session = bench.welcomed()
    task = bench.submit_one()
    sent = session.expect_task(task)
    session.send(UNHEARD_OF, schema=tomorrow(), text="news")
    session.send(UNHEARD_OF, b"with a payload", schema=tomorrow(), text="news")
    bench.expect_unknown(task)
    session.succeed(sent)
    bench.expect_result(task)


@case(covers=["SCL-VER-004"])
def an_unknown_refusal_ends_the_session(bench: RoleBench) -> None:
    """A Refusal with an unknown reason is treated like notAllowed: the client does not say Hello again."""
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("Refusal", schema=tomorrow(), reason="unheardOf", message="for a new reason")
    expect_no_hello(bench, session, task)


@case(covers=["SCL-VER-004"])
def an_unknown_request_to_leave_is_a_shutdown(bench: RoleBench) -> None:
    """A DisconnectRequest with an unknown reason is answered, and the client leaves."""
    session = bench.welcomed()
    task = bench.submit_one()
    session.expect_task(task)
    session.send("DisconnectRequest", schema=tomorrow(), reason="unheardOf", message="leave, please")
    session.expect("DisconnectResponse")
    expect_no_hello(bench, session, task)
