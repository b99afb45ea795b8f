"""Workers on one host: the bytes of an object reach their host once, and go on from one to another there."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from keeper import Keeper, submit
from scheduler_harness import Client, Harness

from scaler_appliance.core.objects.object_transfers import COPIES_PER_HOLDER, PATIENCE, PATIENCE_SECONDS

SETTINGS = {"chunk_bytes": 10, "protected": False}


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def on_host(harness: Harness, host: str, port: int) -> Keeper:
    return Keeper(harness, 1, data_address=f"tcp://{host}:{port}", data_key=b"key")


def broadcast(harness: Harness, client: Client, *hosts: str) -> Tuple[Keeper, int, List[Keeper]]:
    """A worker on a host of its own that has made a result, the result, and a worker on each of some hosts that needs
    it."""
    numbers = list(range(2, 2 + len(hosts) + 1))
    maker = on_host(harness, "source", 1)
    submit(client, {1: [], **{number: [1] for number in numbers}}, numbers)
    maker.read()
    others = [on_host(harness, host, port) for port, host in enumerate(hosts, 1)]
    result = maker.keep(1)
    for each in (maker, *others):
        each.read()
    return maker, result, others


def sources(others: List[Keeper]) -> List[int]:
    """From whom each was told to fetch; 0: it waits."""
    found = []
    for each in others:
        each.read()
        told = [ticket.holder for ticket in each.tickets if ticket.holder != each.peer.session]
        found.append(told[-1] if told else 0)
    return found


def test_who_needs_what_another_one_on_its_host_fetches_waits_and_fetches_it_there(
    harness: Harness, client: Client
) -> None:
    maker, result, (first, second, third) = broadcast(harness, client, "a", "a", "a")
    for each in (first, second, third):
        each.ask_ticket(result)
    assert sources([first, second, third]) == [maker.peer.session, 0, 0]
    first.hold(result)
    assert sources([second, third]) == [first.peer.session] * 2


def test_who_waits_for_its_host_keeps_none_of_another_waiting(harness: Harness, client: Client) -> None:
    maker, result, (first, second, distant) = broadcast(harness, client, "a", "a", "b")
    for each in (first, second, distant):
        each.ask_ticket(result)
    assert sources([first, second, distant]) == [maker.peer.session, 0, maker.peer.session]


def test_a_copy_on_the_same_host_is_preferred_however_often_it_was_fetched(harness: Harness, client: Client) -> None:
    maker, result, others = broadcast(harness, client, *"aaaa", "b")
    near, distant = others[:4], others[4]
    for each in near[:1]:
        each.ask_ticket(result)
        each.hold(result)
    harness.state.objects.find(result).copies.holders[near[0].peer.session].copies = 10
    distant.ask_ticket(result)
    distant.hold(result)
    assert sources([distant]) == [maker.peer.session]
    near[1].ask_ticket(result)
    assert sources([near[1]]) == [near[0].peer.session]
    near[2].ask_ticket(result)
    assert sources([near[2]]) == [0], "another copy is on its way there, which has been fetched less often"


def test_what_stays_on_a_host_does_not_say_how_fast_its_holder_sends(harness: Harness, client: Client) -> None:
    maker, result, (near, distant) = broadcast(harness, client, "source", "b")
    rates = harness.state.transfers.rates
    before = rates.of(maker.peer.session)
    near.ask_ticket(result)
    harness.now += 0.001  # the other one's file is there
    near.hold(result)
    assert sources([near]) == [maker.peer.session] and rates.of(maker.peer.session) == before
    distant.ask_ticket(result)
    harness.now += 2.0
    distant.hold(result)
    size = harness.state.objects.find(result).size
    assert rates.of(sources([distant])[0]) == size / 2.0, "what leaves the host does"


@pytest.mark.parametrize("end", ["vanish", "drop", "fail"])
def test_who_waits_for_its_host_goes_on_when_the_fetch_there_does_not(
    harness: Harness, client: Client, end: str
) -> None:
    maker, result, (first, second) = broadcast(harness, client, "a", "a")
    for each in (first, second):
        each.ask_ticket(result)
    if end == "vanish":
        first.peer.vanish()
    elif end == "drop":
        first.drop(result)
    else:
        first.ask_ticket(result, failed=maker.peer.session)
    assert sources([second]) == [maker.peer.session]
    if end == "fail":
        second.hold(result)
        assert sources([first]) == [second.peer.session]


@pytest.mark.parametrize("hosts", ["aa", "abc"])
def test_who_fetches_and_does_not_go_on_is_not_waited_for_for_ever(
    harness: Harness, client: Client, hosts: str
) -> None:
    maker, result, others = broadcast(harness, client, *hosts)
    *fetching, waiting = others
    for each in others:
        each.ask_ticket(result)
    assert sources(others) == [maker.peer.session] * len(fetching) + [0]
    harness.wait(PATIENCE_SECONDS - 1.5)
    assert sources([waiting]) == [0]
    harness.wait(3.0)
    assert sources([waiting]) == [maker.peer.session]
    fetching[0].hold(result)
    waiting.hold(result)


def test_a_large_object_is_waited_for_as_long_as_it_should_take(harness: Harness, client: Client) -> None:
    maker, result, (first, second) = broadcast(harness, client, "a", "a")
    harness.state.objects.find(result).copies.size = 10 * int(harness.state.transfers.rates.of(maker.peer.session))
    for each in (first, second):
        each.ask_ticket(result)
    harness.wait(PATIENCE * COPIES_PER_HOLDER * 10 + PATIENCE_SECONDS - 1.5)
    assert sources([second]) == [0]
    harness.wait(3.0)
    assert sources([second]) == [maker.peer.session]


def test_who_cannot_fetch_on_its_host_fetches_elsewhere(harness: Harness, client: Client) -> None:
    maker, result, (first, second) = broadcast(harness, client, "a", "a")
    first.ask_ticket(result)
    first.hold(result)
    second.ask_ticket(result)
    assert sources([second]) == [first.peer.session]
    second.ask_ticket(result, failed=first.peer.session)
    assert sources([second]) == [maker.peer.session]


@pytest.mark.parametrize("places", [("10.0.0.1", "10.0.0.2"), ("[fd00::1]", "[fd00::2]")])
def test_hosts_of_one_name_are_told_apart_by_their_addresses(
    harness: Harness, client: Client, places: Tuple[str, str]
) -> None:
    maker, result, others = broadcast(harness, client, *places)
    for each in others:
        each.ask_ticket(result)
    assert sources(others) == [maker.peer.session] * 2


def test_a_broadcast_reaches_each_host_once(harness: Harness, client: Client) -> None:
    hosts = 2
    names = [f"host{number % hosts}" for number in range(7)]
    maker, result, others = broadcast(harness, client, *names)
    host_of: Dict[int, str] = {maker.peer.session: "source"}
    host_of.update((each.peer.session, name) for each, name in zip(others, names))
    users = [each for each in others if result in each.announced]
    assert len(users) >= len(others) - 1, "one of the tasks runs where the result is"
    for each in users:
        each.ask_ticket(result)
    pending = list(users)
    while pending:
        ready = [each for each, source in zip(pending, sources(pending)) if source]
        assert ready, "some wait, and no copy is on its way"
        ready[0].hold(result)
        pending.remove(ready[0])
    found = sources(users)
    from_elsewhere = [each for each, source in zip(users, found) if host_of[source] != host_of[each.peer.session]]
    assert len(from_elsewhere) == hosts
    assert max(map(found.count, found)) <= COPIES_PER_HOLDER
