"""Clients with a key, of a scheduler that proves its own, and of others."""

from __future__ import annotations

from scaler_conformance.benches.client import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


def expect_nothing_sent(bench: RoleBench, mechanism: str) -> None:
    """Submit a task of a client whose scheduler cannot prove its key."""
    scheduler = bench.play_false_scheduler(mechanism)
    bench.connect()
    bench.submit_one()
    scheduler.expect_no_message()


@case(covers=["SCL-SEC-017"])
def key_is_proved(bench: RoleBench) -> None:
    """A client with a key proves that key to a scheduler that requires keys, and gets the results of its tasks."""
    bench.play_with_keys()
    session = bench.welcomed()
    task = bench.submit_one(size=70_000)
    session.succeed(session.expect_task(task))
    bench.expect_result(task)
    seen, security = bench.router.security.seen if bench.router.security else [], bench.peer_keys
    check(security is not None and security.public in seen, f"a proof of the key {security}", seen)
    check(len(set(seen)) == 1, "no other key of the client", seen)


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_without_a_mechanism(bench: RoleBench) -> None:
    """A client with a key sends nothing to a scheduler that offers the mechanism NULL."""
    expect_nothing_sent(bench, "NULL")


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_with_plain(bench: RoleBench) -> None:
    """A client with a key sends nothing to a scheduler that offers the mechanism PLAIN."""
    expect_nothing_sent(bench, "PLAIN")


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_to_a_scheduler_with_another_key(bench: RoleBench) -> None:
    """A client with a key sends only CURVE's HELLO to a scheduler that cannot prove the key that the client expects."""
    expect_nothing_sent(bench, "CURVE")
