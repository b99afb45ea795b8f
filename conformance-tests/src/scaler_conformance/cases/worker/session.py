"""How a worker greets: the first message, and what it says."""

from __future__ import annotations

from scaler_conformance.benches.worker import MAJOR, RoleBench
from scaler_conformance.cases import case
from scaler_conformance.conversation import check


@case(covers=["SCL-SES-001"], smoke=True)
def says_hello_first(bench: RoleBench) -> None:
    """The first message of a worker on a new connection is Hello, with its role and the version that it speaks."""
    hello = bench.greeted().hello
    check(hello.role == "worker", "the role worker in Hello", hello.role)
    check(hello.major == MAJOR, f"major version {MAJOR} in Hello", hello.major)
    check(hello.minorMin <= hello.minorMax, "a range of minor versions", hello)
