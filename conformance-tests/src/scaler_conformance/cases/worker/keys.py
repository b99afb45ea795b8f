"""Workers with a key, of a scheduler that proves its own, and of others."""

from __future__ import annotations

from scaler_conformance.benches.worker import RoleBench
from scaler_conformance.cases import case
from scaler_conformance.playing.conversation import check


@case(covers=["SCL-SEC-017"])
def key_is_proved(bench: RoleBench) -> None:
    """A worker with a key proves that key to a scheduler that requires keys, and runs tasks for it."""
    bench.play_with_keys()
    worker = bench.welcomed()
    worker.expect_value(worker.submit("echo", "x" * 70_000), "x" * 70_000)
    seen, security = bench.router.security.seen if bench.router.security else [], bench.peer_keys
    check(security is not None and security.public in seen, f"a proof of the key {security}", seen)
    check(len(set(seen)) == 1, "no other key of the worker", seen)


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_without_a_mechanism(bench: RoleBench) -> None:
    """A worker with a key sends nothing to a scheduler that offers the mechanism NULL."""
    scheduler = bench.play_false_scheduler("NULL")
    bench.start_once()
    scheduler.expect_no_message()


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_with_plain(bench: RoleBench) -> None:
    """A worker with a key sends nothing to a scheduler that offers the mechanism PLAIN."""
    scheduler = bench.play_false_scheduler("PLAIN")
    bench.start_once()
    scheduler.expect_no_message()


@case(covers=["SCL-SEC-018"])
def nothing_is_sent_to_a_scheduler_with_another_key(bench: RoleBench) -> None:
    """A worker with a key sends only CURVE's HELLO to a scheduler that cannot prove the key that the worker expects."""
    scheduler = bench.play_false_scheduler("CURVE")
    bench.start_once()
    scheduler.expect_no_message()
