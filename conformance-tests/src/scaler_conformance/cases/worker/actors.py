"""Actors: their calls run in one process, one at a time and in order, and end with it.

The actor of these cases is the conformance actor: the worker says in what form it takes it and its calls.
"""

from __future__ import annotations

import base64
from typing import Any, List, Sequence

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check
from scaler_conformance.playing.hold import Hold
from scaler_conformance.playing.worker_session import WorkerSession

FEATURE = "actors"
LOST = "actorLost"


class Actor:
    """A new conformance actor of a worker."""

    def __init__(self, worker: WorkerSession) -> None:
        worker.need_function("call")
        form = worker.expect_outcome(worker.submit("actor")).value
        check(FEATURE in worker.hello.features, f"the feature {FEATURE} in Hello", worker.hello.features)
        self._worker = worker
        self._codec = form["codec"]
        self.function = worker.create_object(base64.b64decode(form["object"]), kind=1, codec=self._codec)

    def payloads(self, calls: Sequence[Sequence[Any]]) -> List[bytes]:
        """Of calls, each a conformance function and its arguments; the worker needs a free slot to say so."""
        tasks = self._worker.submit_many("call", calls)
        return [base64.b64decode(self._worker.expect_outcome(each).value) for each in tasks]

    def submit(self, payloads: Sequence[bytes], **options: Any) -> List[int]:
        """Send the worker calls in one batch, and return their instance ids."""
        fields = {"function": self.function, "functionName": "", "codec": self._codec}
        return self._worker.submit_payloads("call", payloads, options={"actor": True, **options}, **fields)

    def submit_waits(self, holds: Sequence[Hold], **options: Any) -> List[int]:
        """Calls that wait until they are released."""
        return self.submit(self.payloads([("wait", *hold.arguments) for hold in holds]), **options)

    def expect_done(self, *calls: int) -> None:
        for each in calls:
            outcome = self._worker.expect_outcome(each)
            check(outcome.status == "success", f"instance {each} to have the outcome success", outcome)

    def delete(self) -> None:
        """Delete the function's object, which ends the actor."""
        self._worker.send("ObjectInstruction", action="delete", ids=[self.function])


def numbered(bench: RoleBench, first: int, last: int) -> List[Hold]:
    """Holds for the calls of an actor with these numbers, which each call adds to its tag."""
    return [bench.hold(f" {number}") for number in range(first, last + 1)]


@case(covers=["SCL-WRK-034"], features=[FEATURE])
def calls_run_one_at_a_time_in_one_process(bench: RoleBench) -> None:
    """An actor's calls run one at a time, in the order in which they came, and each finds the state of the former."""
    worker = bench.welcomed()
    actor, holds = Actor(worker), numbered(bench, 1, 6)
    calls = actor.submit_waits(holds[:4], priority=0)
    holds[0].expect_started()
    payloads = actor.payloads([("wait", *hold.arguments) for hold in holds[4:]]) if worker.hello.slots > 1 else []
    calls += actor.submit(payloads, priority=1) if payloads else []
    for index, call in enumerate(calls):
        holds[index].expect_started()
        worker.fence()
        early = [hold.tag for hold in holds[index + 1 :] if hold.starts]
        check(not early, "no start of a call before the end of the former", f"starts of {', '.join(early)}")
        holds[index].release()
        actor.expect_done(call)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-034"], features=[FEATURE])
def calls_are_not_given_back(bench: RoleBench) -> None:
    """A worker that is asked for tasks gives back none of an actor's calls."""
    worker = bench.welcomed()
    actor, holds = Actor(worker), numbered(bench, 1, 3)
    calls = actor.submit_waits(holds)
    holds[0].expect_started()
    worker.send("BalanceRequest", requestId=1, count=10)
    given = worker.expect("BalanceResponse", requestId=1).ids
    check(not given, "no ids of calls in the BalanceResponse", given)
    for hold, call in zip(holds, calls):
        hold.expect_started()
        hold.release()
        actor.expect_done(call)
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-035"], features=[FEATURE, "processes"])
def calls_are_lost_with_the_process(bench: RoleBench) -> None:
    """When the process of an actor ends, the call that ran, those that wait and later ones end as actorLost."""
    worker = bench.welcomed()
    actor = Actor(worker)
    echo, crash = actor.payloads([("echo", 1), ("crash",)])
    first, *lost = actor.submit([echo, crash, echo, echo], retries=2)
    actor.expect_done(first)
    for each in lost:
        worker.expect_failure(each, LOST, "lost")
    for each in actor.submit([echo]):
        worker.expect_failure(each, LOST, "lost")
    another = Actor(worker)
    another.expect_done(*another.submit([echo]))
    worker.expect_nothing_more()


@case(covers=["SCL-WRK-035"], features=[FEATURE, "force-cancel"])
def stopped_call_ends_its_actor(bench: RoleBench) -> None:
    """A running call that is cancelled with force takes its actor with it; one that waits only itself."""
    worker = bench.welcomed()
    actor, holds = Actor(worker), [*numbered(bench, 1, 1), bench.hold(), *numbered(bench, 2, 2), bench.hold()]
    running, waiting, stopped, last = actor.submit_waits(holds)
    holds[0].expect_started()
    worker.send("TaskCancel", ids=[waiting])
    worker.expect_confirmation(waiting, "cancelled")
    holds[0].release()
    actor.expect_done(running)
    holds[2].expect_started()
    worker.send("TaskCancel", ids=[stopped], force=True)
    worker.expect_confirmation(stopped, "cancelled")
    holds[2].expect_stopped()
    worker.expect_failure(last, LOST, "lost")
    worker.expect_nothing_more(but=["TaskLog"])


@case(covers=["SCL-WRK-035"], features=[FEATURE, "time-limit"])
def call_that_takes_too_long_ends_its_actor(bench: RoleBench) -> None:
    """A call that exceeds its time limit takes its actor with it: calls behind it end as actorLost."""
    worker = bench.welcomed()
    actor, (hold,) = Actor(worker), numbered(bench, 2, 2)
    actor.expect_done(*actor.submit(actor.payloads([("echo", 1)]), timeLimitMilliseconds=600_000))
    limited, last = actor.submit_waits([hold, bench.hold()], timeLimitMilliseconds=150)
    outcome = worker.expect_outcome(limited)
    check(outcome.status == "lost", f"instance {limited} to have the outcome lost", outcome)
    kind = outcome.failure.kind
    check(kind in ("timeLimit", LOST), "a Failure of kind timeLimit or actorLost", kind)
    if hold.starts:  # on a busy machine, it may be stopped before it has connected
        hold.expect_stopped()
    worker.expect_failure(last, LOST, "lost")
    worker.expect_nothing_more(but=["TaskLog"])


@case(covers=["SCL-WRK-036"], features=[FEATURE])
def draining_worker_stays_for_its_actors(bench: RoleBench) -> None:
    """A draining worker runs further calls of its actors, and leaves when their function objects are deleted."""
    worker = bench.welcomed()
    actor, other = Actor(worker), Actor(worker)
    (second,) = numbered(bench, 2, 2)
    echo, wait = actor.payloads([("echo", 1), ("wait", *second.arguments)])
    actor.expect_done(*actor.submit([echo]))
    other.expect_done(*other.submit([echo]))
    worker.send("DisconnectRequest", reason="draining")
    worker.fence()
    worker.expect_nothing_more(expected="no end of a worker that has actors")
    actor.expect_done(*actor.submit([echo]))
    actor.delete()
    worker.fence()
    worker.expect_nothing_more(expected="no end of a worker that has another actor")
    last = other.submit([wait])
    second.expect_started()  # with the number of the other actor's second call: it is the same one
    second.release()
    other.expect_done(*last)
    other.delete()
    worker.expect("DisconnectResponse")
    bench.expect_exit("the worker to exit")
