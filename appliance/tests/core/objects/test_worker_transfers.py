"""Workers that fetch objects from one another: tickets, holders, trees of copies, and ends of transfers."""

from __future__ import annotations

from typing import List

import pytest
from keeper import REMOTE, SIZE, Keeper, nothing_is_kept, stored, submit
from scheduler_harness import Client, Harness

from scaler_appliance.core.objects import object_transfers
from scaler_appliance.core.objects.object_transfers import COPIES_PER_HOLDER, SECRET_BYTES
from scaler_protocol import messages as m

HELD = m.ObjectStorage.HELD

SETTINGS = {"chunk_bytes": 10, "protected": False}


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def serving(harness: Harness, number: int, slots: int = 1) -> Keeper:
    """A worker that serves others, and fetches from them."""
    return Keeper(harness, slots, data_address=f"tcp://host{number}:1", data_key=b"key of %d" % number)


def broadcast(harness: Harness, client: Client, users: int) -> tuple[Keeper, int, List[Keeper]]:
    """A worker that has made a result, the result, and workers that need it."""
    numbers = list(range(2, 2 + users))
    maker = serving(harness, 0)
    submit(client, {1: [], **{number: [1] for number in numbers}}, numbers)
    maker.read()
    others = [serving(harness, number) for number in range(1, users + 1)]
    result = maker.keep(1)
    came = [number for each in (maker, *others) for number in each.read()]
    assert sorted(came) == numbers or maker.peer.harness.state.running == users
    return maker, result, [each for each in others if result in each.announced]


def test_one_worker_fetches_a_result_from_another_one_and_no_byte_passes_the_scheduler(
    harness: Harness, client: Client
) -> None:
    maker, result, (other, *_) = broadcast(harness, client, 2)
    assert other.announced[result] == HELD
    other.ask_ticket(result)
    ticket, for_holder = other.take_ticket(), maker.take_ticket()

    assert (ticket.id, ticket.holder) == (result, maker.peer.session)
    assert (ticket.address, ticket.key) == ("tcp://host0:1", b"key of 0")
    assert len(ticket.secret) == SECRET_BYTES and ticket.lifetime_milliseconds == 30_000
    assert (for_holder.id, for_holder.holder, for_holder.address) == (result, maker.peer.session, "")
    assert for_holder.secret == ticket.secret
    assert for_holder.key == other.peer.harness.state.workers[other.peer.session].hello.data_key
    assert not maker.asked and not stored(harness)


def test_each_ticket_has_a_secret_of_its_own_and_another_scheduler_has_others(client: Client) -> None:
    secrets = set()
    for seed in (b"1" * 32, b"2" * 32):
        harness = Harness(chunk_bytes=10, ticket_seed=seed)
        _, result, others = broadcast(harness, harness.client(), 3)
        for other in others[:2]:
            other.ask_ticket(result)
            secrets.add(other.take_ticket().secret)
    assert len(secrets) == 4


def test_who_has_fetched_an_object_is_named_as_its_holder_when_the_source_has_served_enough(
    harness: Harness, client: Client
) -> None:
    maker, result, others = broadcast(harness, client, 8)
    first, second, third = others[:3]
    for other in others:
        other.ask_ticket(result)
    assert [len(each.tickets) for each in others[:3]] == [1, 1, 0], f"{COPIES_PER_HOLDER} copies, the others wait"
    first.hold(result)
    third.read()
    first.read()

    assert third.tickets[0].holder == first.peer.session
    assert [each.holder for each in first.tickets].count(first.peer.session) == COPIES_PER_HOLDER
    second.hold(result)
    for other in others[2:]:
        other.hold(result)
    for other in others:
        other.read()
    sources = [each.tickets[0].holder for each in others]
    assert sources.count(maker.peer.session) == COPIES_PER_HOLDER
    assert max(map(sources.count, sources)) <= COPIES_PER_HOLDER
    assert set(harness.state.objects.find(result).copies.holders) == {each.peer.session for each in (maker, *others)}
    assert not stored(harness)


def test_the_rate_of_a_holder_is_that_of_its_transfers_from_their_tickets_on(harness: Harness, client: Client) -> None:
    maker, result, (first, second, *_) = broadcast(harness, client, 4)
    rates, holder = harness.state.transfers.rates, maker.peer.session
    first.ask_ticket(result)
    harness.wait(0.5)
    second.ask_ticket(result)
    harness.wait(1.0)
    first.hold(result)
    assert rates.of(holder) == pytest.approx(SIZE / 1.5)
    second.drop(result)
    assert rates.of(holder) == pytest.approx(SIZE / 1.5), "what was not fetched is not counted"
    second.ask_ticket(result)
    assert second.tickets[-1].holder == first.peer.session
    first.peer.vanish()
    harness.wait(1.0)
    second.hold(result)
    assert rates.holders == {holder}, "who is gone is not measured"
    maker.peer.vanish()
    assert not rates.holders


def test_who_waits_is_told_when_a_transfer_fails_or_its_fetcher_is_gone(harness: Harness, client: Client) -> None:
    maker, result, others = broadcast(harness, client, 6)
    first, second, third, fourth = others[:4]
    for other in (first, second, third, fourth):
        other.ask_ticket(result)
    assert not third.tickets and not fourth.tickets
    first.peer.vanish()
    assert third.take_ticket().holder == maker.peer.session
    second.drop(result)
    assert fourth.take_ticket().holder == maker.peer.session


@pytest.mark.parametrize("is_used", [False, True])
def test_the_ticket_of_a_fetcher_that_is_gone_is_taken_back(harness: Harness, client: Client, is_used: bool) -> None:
    maker, result, (first, second, *_) = broadcast(harness, client, 4)
    for other in (first, second):
        other.ask_ticket(result)
    maker.read()
    tickets, maker.tickets[:] = list(maker.tickets), []
    if is_used:
        first.hold(result)
    first.peer.vanish()
    maker.read()
    if is_used:
        assert not maker.tickets, "the transfer is over, and with it the ticket's connection"
        return
    (taken,) = maker.tickets
    assert (taken.id, taken.holder, taken.secret) == (result, maker.peer.session, tickets[0].secret)
    assert taken.lifetime_milliseconds == 0 and not taken.address and not taken.key


def test_a_fetcher_whose_holder_failed_is_told_another_one_and_then_the_scheduler(
    harness: Harness, client: Client
) -> None:
    maker, result, (first, second, *_) = broadcast(harness, client, 4)
    first.ask_ticket(result)
    first.hold(result)
    first.tickets.clear()
    second.ask_ticket(result)
    assert second.take_ticket().holder == first.peer.session, "which has been fetched from less often"
    second.ask_ticket(result, failed=first.peer.session)
    assert second.take_ticket().holder == maker.peer.session
    second.ask_ticket(result, failed=maker.peer.session)
    ticket = second.take_ticket()
    assert (ticket.id, ticket.holder, ticket.secret, ticket.address) == (result, 0, b"", "")
    second.ask(result)
    maker.read()
    first.read()
    assert {each.id for each in (*maker.asked, *first.asked)} == {result}, "the scheduler relays it"


def test_the_scheduler_goes_on_with_another_holder_at_the_offset_that_it_has_reached(
    harness: Harness, client: Client
) -> None:
    maker, result, (first, *_) = broadcast(harness, client, 2)
    first.ask_ticket(result)
    first.hold(result)
    old = Keeper(harness)
    old.ask(result)
    source, other = (maker, first) if (maker.read(), maker.asked)[1] else (first, maker)
    source.read()
    asked = source.asked[0]
    source.peer.send(m.ObjectResponse(id=result, offset=0, size=SIZE), b"x" * asked.length)
    source.peer.vanish()
    other.read()
    assert [each.offset for each in other.asked] == [10, 20]
    other.serve()
    assert stored(harness) == SIZE


def test_an_object_is_lost_with_its_last_holder_only(harness: Harness, client: Client) -> None:
    maker, result, others = broadcast(harness, client, 2)
    first = others[0]
    first.ask_ticket(result)
    first.hold(result)
    maker.peer.vanish()
    record = harness.state.objects.find(result)
    assert record.is_elsewhere and not record.is_maker_lost
    first.peer.vanish()
    sent = [payload for peer in harness.peers.values() for each, payload in peer.inbox if isinstance(each, m.Task)]
    assert b"1" in sent, "its node runs again"


def test_who_waits_when_the_last_holder_is_gone_is_sent_to_the_scheduler(harness: Harness, client: Client) -> None:
    maker, result, others = broadcast(harness, client, 6)
    for other in others:
        other.ask_ticket(result)
    waiting = [other for other in others if not other.tickets]
    assert waiting
    maker.peer.vanish()
    for other in waiting:
        assert other.take_ticket().holder == 0


def test_a_copy_that_comes_after_its_object_was_lost_or_deleted_changes_nothing(
    harness: Harness, client: Client
) -> None:
    maker, result, (first, *_) = broadcast(harness, client, 2)
    first.ask_ticket(result)
    maker.peer.vanish()
    first.hold(result)
    record = harness.state.objects.find(result)
    assert record is None or record.copies is None
    first.hold(first.peer.session << 40 | 77)
    assert first.peer.session in harness.state.workers


def test_a_task_that_has_begun_with_a_copy_of_a_lost_result_is_ended_and_runs_again_when_that_is_there(
    harness: Harness, client: Client
) -> None:
    maker = serving(harness, 0)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    maker.read()
    other = serving(harness, 1)
    result = maker.keep(1)
    (number,) = other.read()
    other.ask_ticket(result)
    begun, needed = other.tasks.pop(number)
    assert needed == [result]
    maker.peer.vanish()

    other.hold(result)  # which the scheduler learns too late
    assert other.read() == [1]
    assert other.ended == [begun]
    other.peer.finish([begun], [b"stale"])
    again = other.keep(1)
    assert sorted(other.read()) == [2, 3]
    for number in (2, 3):
        assert other.tasks[number][1] == [again] != [result]
        other.finish(number)
    assert {**client.take_results(), **client.take_results()} == {2: b"small", 3: b"small"}
    nothing_is_kept(harness)


def test_a_holder_that_has_lost_the_bytes_is_one_no_longer(harness: Harness, client: Client) -> None:
    maker, result, (first, *_) = broadcast(harness, client, 2)
    first.ask_ticket(result)
    first.hold(result)
    maker.drop(result)
    assert set(harness.state.objects.find(result).copies.holders) == {first.peer.session}
    first.drop(result)
    record = harness.state.objects.find(result)
    assert record is None or record.is_broken


def test_a_worker_that_drains_need_not_keep_what_another_one_has(harness: Harness, client: Client) -> None:
    maker, result, (first, *_) = broadcast(harness, client, 2)
    first.ask_ticket(result)
    first.hold(result)
    maker.tickets.clear()
    client.send(m.WorkerShutdown(request_id=1, session=maker.peer.session, is_draining=True))
    inbox = [message for message, _ in maker.peer.inbox if not isinstance(message, m.DisconnectRequest)]
    drops = [each for each in inbox if isinstance(each, m.ObjectInstruction)]
    assert [(each.action, list(each.ids)) for each in drops] == [(m.ObjectAction.DROP, [result])]
    assert not any(isinstance(each, m.ObjectRequest) for each in inbox)
    assert set(harness.state.objects.find(result).copies.holders) == {first.peer.session}


def test_a_holder_serves_so_many_at_once_and_no_more(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_transfers, "MAXIMUM_TRANSFERS", 2)
    maker = serving(harness, 0, slots=4)
    submit(client, {1: [], 2: [], 3: [], 4: [1, 2, 3]}, [4])
    maker.read()
    results = [maker.keep(number) for number in (1, 2, 3)]
    other = serving(harness, 1)
    for result in results:
        other.ask_ticket(result)
    assert [bool(each.holder) for each in other.tickets] == [True, True, False]
    other.drop(results[0])
    other.ask_ticket(results[2])
    assert other.tickets[-1].holder == maker.peer.session


def test_old_workers_fetch_from_the_scheduler_and_serve_no_others(harness: Harness, client: Client) -> None:
    old = Keeper(harness, slots=1)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    old.read()
    new = serving(harness, 1)
    result = old.keep(1)
    old.read()
    new.read()
    assert new.announced[result] == HELD
    new.ask_ticket(result)
    assert new.take_ticket().holder == 0
    old.peer.send(m.TicketRequest(id=result))
    assert "did not list the feature peerFetch" in old.peer.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)


def test_an_old_worker_is_announced_what_it_can_fetch(harness: Harness, client: Client) -> None:
    maker = serving(harness, 0)
    submit(client, {1: [], 2: [1], 3: [1]}, [2, 3])
    maker.read()
    old = Keeper(harness, slots=1)
    result = maker.keep(1)
    old.read()
    assert old.announced[result] == REMOTE
    for action in (m.ObjectAction.HOLD, m.ObjectAction.DROP):
        peer = Keeper(harness)
        (peer.hold if action == m.ObjectAction.HOLD else peer.drop)(result)
        assert "unknown action" in peer.peer.take_refusal(m.RefusalReason.MALFORMED)


def test_no_worker_holds_what_was_not_announced_to_it(harness: Harness, client: Client) -> None:
    _, result, _ = broadcast(harness, client, 1)
    other = serving(harness, 5, slots=1)
    other.read()
    if result not in other.announced:
        other.hold(result)
        assert "was not announced" in other.peer.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)


def test_nothing_is_left_at_the_end(harness: Harness, client: Client) -> None:
    maker, result, others = broadcast(harness, client, 4)
    for other in others:
        other.ask_ticket(result)
    for worker in (maker, *others):
        worker.read()
        for number in list(worker.tasks):
            worker.finish(number)
    client.take_results() if client.inbox else None
    nothing_is_kept(harness)
    assert harness.state.objects.find(result) is None
    assert not harness.state.transfers._of_fetcher and not harness.state.transfers._serving
