"""What a holder says that lies does not get into an object: the worker that fetches it goes on elsewhere."""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from security.attackers.another_user import AnotherUser
from security.data_addresses.lying_holder import LIES, LyingHolder, other_content
from security.data_addresses.scene import TENANT, distant_scheduler
from security.keyed_peer import tenant_key

TIMEOUT_SECONDS = 60.0
CONTENT = bytes(range(256)) * 6000
EXHAUSTIVE = {"nothing", "no greeting"}  # which take ten seconds
UNTOLD = {"with another key", "without a key", "no greeting"}
UNDETECTED = {"other bytes"}
USES = 3


def make() -> bytes:
    raise AssertionError("it is made by a played worker")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Liars:
    """Lying holders, each with a result that a real worker needs."""

    def __init__(self, folder: Path, another_user: AnotherUser, kinds: List[str]) -> None:
        self.results: Dict[str, List[Any]] = {}
        self._log = folder / "worker.log"
        with ExitStack() as stack:
            scheduler = distant_scheduler(folder)
            stack.callback(scheduler.stop)
            client = scheduler.client(scheduler.admitted_key("client", "user", tenant=TENANT))
            stack.enter_context(client)
            content = pickle.dumps(CONTENT, 5)
            names = {kind: kind.replace(" ", "-") for kind in kinds}
            self.holders: Dict[str, Any] = {}
            for kind, name in names.items():
                key = tenant_key(scheduler, "worker", TENANT)
                starts = another_user.starts(LyingHolder, scheduler.address, key, kind, name, content)
                self.holders[kind] = stack.enter_context(starts)
                graph: Any = {"made": (make,)}
                graph.update({f"use{number}": (digest_of, "made") for number in range(USES)})
                futures = client.get(graph, list(graph)[1:], block=False, capabilities={name: 1})
                self.results[kind] = list(futures.values())
            for holder in self.holders.values():
                holder.wait_until_kept()
            offer = ",".join(f"{name}=10" for name in names.values())
            key_file = scheduler.admitted_key("worker", "fetcher", tenant=TENANT)
            worker = scheduler.worker("-lp", str(self._log), "--per-worker-capabilities", offer, key_file=key_file)
            stack.callback(worker.wait)
            stack.callback(worker.terminate)
            self._stack = stack.pop_all()

    def result(self, kind: str) -> Any:
        """What the real worker returns."""
        done, _ = wait(self.results[kind], TIMEOUT_SECONDS, FIRST_COMPLETED)
        return done.pop().result()

    def why_not_fetched(self, kind: str) -> str:
        """Why the real worker did not go on at this holder; empty: it had no reason."""
        address = self.holders[kind].data_address
        found = [line for line in self._log.read_text().splitlines() if f"at {address}: " in line]
        assert len(found) <= 1 or kind == "half of it"
        return found[0].partition(f"at {address}: ")[2] if found else ""

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def liars(
    tmp_path_factory: pytest.TempPathFactory, another_user: AnotherUser, request: pytest.FixtureRequest
) -> Iterator[Liars]:
    """Those of the tests that are run."""
    wanted = {item.callspec.params.get("kind") for item in request.session.items if hasattr(item, "callspec")}
    made = Liars(tmp_path_factory.mktemp("liars"), another_user, [each for each in LIES if each in wanted])
    yield made
    made.close()


def cases(kinds: List[str]) -> List[Any]:
    return [pytest.param(kind, marks=[pytest.mark.exhaustive] if kind in EXHAUSTIVE else []) for kind in kinds]


@pytest.mark.parametrize("kind", cases([kind for kind in LIES if kind not in UNDETECTED]))
def test_a_lie_does_not_get_into_an_object(liars: Liars, kind: str) -> None:
    assert liars.result(kind) == digest_of(CONTENT)
    assert liars.why_not_fetched(kind).endswith("; going on")
    assert bool(liars.holders[kind].told) is (kind not in UNTOLD)


@pytest.mark.parametrize("kind", sorted(UNDETECTED))
def test_a_holder_is_believed_what_it_holds_as_it_is_believed_its_results(liars: Liars, kind: str) -> None:
    """Who runs a tenant's tasks can say what it likes about them; but nothing else, and to no other tenant."""
    changed = pickle.loads(other_content(pickle.dumps(CONTENT, 5)))
    assert changed != CONTENT
    assert liars.result(kind) == digest_of(changed)
    assert not liars.why_not_fetched(kind)
