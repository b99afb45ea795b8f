"""Workers that do not go on to fetch what the scheduler has, or do not say that they have it: no one waits for them."""

from __future__ import annotations

import pytest
from keeper import SIZE
from scheduler_harness import Client, Harness
from spread_peers import OF_THE_SCHEDULER, another, ask_scheduler, asking, peer, spreading_harness, use

from scaler_appliance.core.objects.object_records import HERE
from scaler_appliance.core.objects.object_transfers import COPIES_PER_HOLDER, PATIENCE_SECONDS
from scaler_protocol import messages as m

SHARED, REMOTE = m.ObjectStorage.SHARED, m.ObjectStorage.REMOTE


@pytest.fixture
def harness() -> Harness:
    return spreading_harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def test_who_does_not_say_that_it_holds_is_waited_for_only_shortly(harness: Harness, client: Client) -> None:
    made, workers = asking(harness, client, 9)
    told = [worker for worker in workers if worker.tickets]
    assert len(told) == COPIES_PER_HOLDER
    for worker in told:
        ask_scheduler(worker, made)
    harness.wait(PATIENCE_SECONDS / 2)
    assert sum(bool(worker.read() or worker.tickets) for worker in workers) == COPIES_PER_HOLDER
    harness.wait(PATIENCE_SECONDS)
    for worker in workers:
        worker.read()
        assert [ticket.holder for ticket in worker.tickets] == [OF_THE_SCHEDULER]


def test_a_copy_that_is_reported_in_time_is_waited_for(harness: Harness, client: Client) -> None:
    made, workers = asking(harness, client, 6)
    first, second, *others = workers
    for worker in (first, second):
        ask_scheduler(worker, made)
    first.hold(made)
    for worker in others:
        worker.read()
    assert [ticket.holder for worker in others for ticket in worker.tickets] == [first.peer.session] * 2
    second.hold(made)
    for worker in others:
        worker.read()
    assert [ticket.holder for ticket in others[2].tickets + others[3].tickets] == [second.peer.session] * 2


def test_the_rest_of_the_way_is_waited_for_as_long_as_it_takes(harness: Harness, client: Client) -> None:
    """The scheduler has sent the last part when its own buffers have it."""
    harness.state.transfers.rates.of = lambda holder: SIZE / 60.0
    made, workers = asking(harness, client, 4)
    first, second, *others = workers
    for minute in range(5):
        if minute == 3:
            for worker in (first, second):
                ask_scheduler(worker, made)
        for each in (client, *(worker.peer for worker in workers)):
            each.post(m.Heartbeat())
        harness.wait(60.0)
    first.hold(made)
    for worker in others:
        worker.read()
        assert [ticket.holder for ticket in worker.tickets] == [first.peer.session]


def test_what_takes_long_to_arrive_counts_as_long(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    worker.read()
    worker.ask_ticket(made)
    ask_scheduler(worker, made)
    harness.now += 3
    worker.hold(made)
    assert harness.state.transfers.rates.of(HERE) == SIZE / 3


def test_who_gives_up_without_a_word_stops_no_one_and_spoils_no_rate(harness: Harness, client: Client) -> None:
    workers = [peer(harness, number) for number in range(4)]
    made, other = (client.announce(number, SIZE, SHARED) for number in (1, 2))
    use(client, [made, other], 1, 2, 3, 4)
    for worker in workers:
        worker.read()
    silent, quick, *later = workers
    silent.ask_ticket(made)
    for _ in range(60):
        for each in (client, *(worker.peer for worker in workers)):
            each.post(m.Heartbeat())
        harness.wait(60)
    assert not harness.state.objects.find(made).copies.transfers
    quick.ask_ticket(other)
    harness.now += 0.5
    quick.hold(other)
    assert harness.state.transfers.rates.of(HERE) == SIZE / 0.5
    for worker in later:
        worker.ask_ticket(made)
        assert [ticket.holder for ticket in worker.tickets] == [OF_THE_SCHEDULER]


def test_how_fast_bytes_come_to_the_scheduler_does_not_count(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, REMOTE)
    use(client, [made], 1)
    worker.read()
    before = harness.state.transfers.rates.of(HERE)
    worker.ask_ticket(made)
    harness.now += 3
    client.send(m.ObjectResponse(id=made, offset=0, size=SIZE), b"x" * SIZE)
    worker.hold(made)
    assert harness.state.transfers.rates.of(HERE) == before


def test_a_copy_that_is_lost_is_fetched_again_like_the_first(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    worker.read()
    worker.hold(made)
    worker.drop(made)
    worker.finish(1)
    use(client, [made], 2)
    another(client, 3, 4)
    assert worker.read() == [2, 3], "it waits for bytes"
