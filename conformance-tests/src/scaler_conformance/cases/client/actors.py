"""Actors: their calls name the function's object of their own session, and wait in the client for what they need."""

from __future__ import annotations

from typing import Tuple

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.client_session import ClientSession
from scaler_conformance.playing.conversation import check

FEATURES = ["actors", "predecessors"]


def with_actor(bench: RoleBench, session_number: int = 41) -> Tuple[ClientSession, int]:
    """A client at a scheduler that knows actors, and the number of an actor that its user has made."""
    bench.need("actors")
    session = bench.welcomed(session=session_number, features=FEATURES)
    return session, bench.make_actor()


@case(covers=["SCL-CLT-015"])
def calls_have_no_predecessors(bench: RoleBench) -> None:
    """A call of an actor that needs the result of another task is refused, or not sent before there is one."""
    bench.need("object")
    session, actor = with_actor(bench)
    first = bench.call()
    sent = session.wait_until(lambda: [each for each in session.tasks if not each.options.actor], "a Task message")[0]
    own_calls = len(session.calls())  # such as one that makes the instance: task ids ascend
    call, later = bench.call_actor(actor, first), bench.submit_one()
    session.expect_task(later)
    check(len(session.calls()) == own_calls, "no call before the result that it needs", session.calls())
    session.fail(sent, "there is no result")
    bench.expect_error(first, "there is no result")
    bench.expect_error(call)
    session.fence()
    check(len(session.calls()) == own_calls, "no call without the result that it needs", session.calls())


@case(covers=["SCL-CLT-015"])
def calls_are_no_nodes(bench: RoleBench) -> None:
    """The option actor is set in the Task messages of calls, and neither in other ones nor in a graph."""
    bench.need("graph")
    session, actor = with_actor(bench)
    bench.call_actor(actor)
    session.wait_until(session.calls, "a Task message with the option actor")
    check(session.objects[session.calls()[0].message.function].kind == "function", "a function", session.calls())
    graph, task = bench.submit_graph(3), bench.submit_one()
    session.wait_until(lambda: session.graphs, "a GraphTask")
    check(not session.expect_task(task).options.actor, "no option actor in the Task of another function", session.tasks)
    session.fence()
    check(not session.graphs[0].options.actor, "no option actor in a GraphTask", session.graphs[0])
    check(bench.outcome(graph) is None, "no outcome of the graph yet", bench.outcome(graph))


@case(covers=["SCL-CLT-016"])
def calls_stay_in_their_session(bench: RoleBench) -> None:
    """When the session ends, unfinished calls of an actor and later ones fail, and none is sent in the next session."""
    session, actor = with_actor(bench)
    unfinished = bench.call_actor(actor)
    session.wait_until(session.calls, "a Task message with the option actor")
    bench.restart_scheduler()
    renewed = bench.rejoined(session=42, features=FEATURES)
    assert renewed is not None
    bench.expect_error(unfinished)
    bench.expect_error(bench.call_actor(actor))
    task = bench.submit_one()
    renewed.succeed(renewed.expect_task(task))
    bench.expect_result(task)
    renewed.fence()
    check(not renewed.calls(), "no call of an actor of the previous session", renewed.calls())
