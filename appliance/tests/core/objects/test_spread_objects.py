"""Large objects that the scheduler has: workers on other hosts fetch them from it and from one another, and tasks that
wait for them take no slots."""

from __future__ import annotations

from typing import Any, List

import pytest
from keeper import SIZE, Keeper
from scheduler_harness import Client, Harness
from spread_peers import OF_THE_SCHEDULER, another, ask_scheduler, asking, parts_sent, peer, spreading_harness, use

from scaler_appliance.core.objects.object_transfers import COPIES_PER_HOLDER
from scaler_appliance.core.placement.kept_bytes import FEW_HOLDERS
from scaler_appliance.core.tasks.pace import WorkerPace
from scaler_protocol import messages as m

HELD, SHARED, REMOTE = m.ObjectStorage.HELD, m.ObjectStorage.SHARED, m.ObjectStorage.REMOTE
ARGUMENTS = m.ObjectKind.ARGUMENTS


@pytest.fixture
def harness() -> Harness:
    return spreading_harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


# Where they are fetched -----------------------------------------------------------------------------------------------


def test_what_many_workers_need_leaves_the_scheduler_twice(harness: Harness, client: Client) -> None:
    workers = [peer(harness, number) for number in range(8)]
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], *range(1, 9))
    assert sorted(number for worker in workers for number in worker.read()) == list(range(1, 9))
    assert {worker.announced[made] for worker in workers} == {HELD}
    for worker in workers:
        worker.ask_ticket(made)
    sources: List[int] = []
    while len(sources) < len(workers):
        for worker in workers:
            worker.read()
            for ticket in worker.tickets:
                sources.append(ticket.holder)
                worker.hold(made)
            worker.tickets.clear()
    assert sources.count(OF_THE_SCHEDULER) == COPIES_PER_HOLDER
    assert max(map(sources.count, sources)) <= COPIES_PER_HOLDER


def test_workers_that_have_it_come_before_the_scheduler(harness: Harness, client: Client) -> None:
    first, *others = (peer(harness, number) for number in range(4))
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    (reader,) = [worker for worker in (first, *others) if worker.read()]
    reader.hold(made)
    use(client, [made], 2, 3, 4)
    for worker in (first, *others):
        if worker is not reader:
            worker.read()
            worker.ask_ticket(made)
    sources = [ticket.holder for worker in (first, *others) for ticket in worker.tickets]
    assert sources == [reader.peer.session] * COPIES_PER_HOLDER + [OF_THE_SCHEDULER]


@pytest.mark.parametrize("is_known", [True, False], ids=["sees them", "has not said"])
def test_a_worker_that_may_see_the_files_is_told_to_read_them(harness: Harness, client: Client, is_known: bool) -> None:
    worker = Keeper(harness, 1, data_address="tcp://here:1", data_key=b"key")
    if is_known:
        worker = peer(harness, 1, is_apart=False)
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    use(client, [made], 2)
    worker.read()
    assert worker.announced[made] == SHARED
    assert not harness.state.apart


def test_a_worker_that_does_not_know_tickets_requests_the_bytes(harness: Harness, client: Client) -> None:
    worker = Keeper(harness, 1)
    worker.peer.send(m.Heartbeat())
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    worker.peer.take(m.HeartbeatEcho)
    worker.read()
    assert worker.announced[made] == SHARED


@pytest.mark.parametrize(
    ("kind", "users", "storage"),
    [(m.ObjectKind.VALUE, 1, HELD), (ARGUMENTS, 1, SHARED), (ARGUMENTS, 2, HELD)],
    ids=["object", "arguments of a task", "arguments of two"],
)
def test_what_no_other_task_needs_is_requested_without_a_ticket(
    harness: Harness, client: Client, kind: m.ObjectKind, users: int, storage: m.ObjectStorage
) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, SHARED, kind)
    use(client, [made], *range(1, 1 + users))
    worker.read()
    assert worker.announced[made] == storage


def test_small_objects_are_requested_without_a_ticket(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE - 1, SHARED)
    use(client, [made], 1)
    assert worker.read() == [1]
    assert worker.announced[made] == SHARED
    worker.ask_ticket(made)
    assert worker.take_ticket().holder == OF_THE_SCHEDULER
    assert not harness.state.objects.find(made).copies, "nothing is kept of the question"


def test_who_waits_for_a_file_that_is_lost_is_told_so(harness: Harness, client: Client) -> None:
    made, workers = asking(harness, client, 4)
    waiting = [worker for worker in workers if not worker.tickets]
    assert len(waiting) == len(workers) - COPIES_PER_HOLDER
    harness.core.on_object_unreadable(harness.now, made, "gone")
    harness.tick()
    for worker in waiting:
        assert worker.take_ticket().holder == OF_THE_SCHEDULER
        ask_scheduler(worker, made)
        worker.read()
        assert worker.missing == [made]


def test_a_copy_outlives_the_file(harness: Harness, client: Client) -> None:
    first, second = peer(harness, 1), peer(harness, 2)
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1, 2)
    for worker in (first, second):
        worker.read()
    first.ask_ticket(made)
    first.hold(made)
    harness.core.on_object_unreadable(harness.now, made, "gone")
    harness.tick()
    second.ask_ticket(made)
    assert second.take_ticket().holder == first.peer.session
    first.peer.vanish()
    second.ask_ticket(made, failed=first.peer.session)
    assert second.tickets[-1].holder == OF_THE_SCHEDULER


def test_nothing_is_left_of_an_object_that_ends_while_workers_fetch_it(harness: Harness, client: Client) -> None:
    made, workers = asking(harness, client, 4)
    client.delete(made)
    for worker in workers:
        worker.finish(next(iter(worker.tasks)))
    for worker in workers:
        worker.read()
        assert worker.deleted == {made}
    assert harness.state.objects.find(made) is None and not harness.state.objects.spread
    assert not any(harness.state.workers[worker.peer.session].to_fetch for worker in workers)


def test_a_worker_that_is_gone_makes_room_for_the_next_one(harness: Harness, client: Client) -> None:
    _, workers = asking(harness, client, 3)
    assert [len(worker.tickets) for worker in workers] == [1, 1, 0]
    workers[0].peer.vanish()
    assert workers[2].take_ticket().holder == OF_THE_SCHEDULER
    assert workers[0].peer.session not in harness.state.apart


class Firewall:
    """Three workers that need five objects: the second one cannot fetch from the first, which has them all."""

    def __init__(self, harness: Harness, client: Client) -> None:
        self.first, self.second, self.third = self.workers = [peer(harness, number) for number in range(3)]
        self.objects = [client.announce(number, SIZE, SHARED) for number in range(1, 6)]
        use(client, self.objects, 1, 2, 3)
        assert all(len(worker.read()) == 1 for worker in self.workers)
        for each in self.objects:
            self.first.hold(each)

    def holder_for(self, fetcher: Keeper, object_id: int, failed: int = 0) -> int:
        """The holder that a worker is told; it gets the object there."""
        fetcher.ask_ticket(object_id, failed)
        return fetcher.take_ticket().holder

    def fail(self, object_id: int) -> int:
        """The holder that the second worker is told after it has tried the first."""
        assert self.holder_for(self.second, object_id) == self.first.peer.session
        return self.holder_for(self.second, object_id, failed=self.first.peer.session)


def test_a_worker_that_does_not_reach_others_costs_one_time_out(harness: Harness, client: Client) -> None:
    scene = Firewall(harness, client)
    assert scene.fail(scene.objects[0]) == OF_THE_SCHEDULER
    for each in scene.objects[1:]:
        assert scene.holder_for(scene.second, each) == OF_THE_SCHEDULER
        assert scene.holder_for(scene.third, each) == scene.first.peer.session, "which the third one reaches"


def test_it_does_not_wait_for_copies_that_come_to_others(harness: Harness, client: Client) -> None:
    scene = Firewall(harness, client)
    one, two, *_ = scene.objects
    scene.fail(one)
    harness.state.objects.find(two).copies.from_here = COPIES_PER_HOLDER
    assert scene.holder_for(scene.third, two) == scene.first.peer.session
    assert scene.holder_for(scene.second, two) == OF_THE_SCHEDULER


def test_a_worker_that_has_failed_once_goes_on_with_those_that_it_has_reached(harness: Harness, client: Client) -> None:
    scene = Firewall(harness, client)
    one, two, three, four, _ = scene.objects
    for each in (one, three, four):
        scene.third.hold(each)
    harness.state.objects.find(one).copies.holders[scene.first.peer.session].copies = COPIES_PER_HOLDER
    assert scene.holder_for(scene.second, one) == scene.third.peer.session
    scene.second.hold(one)
    assert scene.fail(two) == OF_THE_SCHEDULER
    assert scene.holder_for(scene.second, three) == scene.third.peer.session
    assert scene.holder_for(scene.second, three, failed=scene.third.peer.session) == OF_THE_SCHEDULER
    assert scene.holder_for(scene.second, four) == OF_THE_SCHEDULER, "it has failed with both"


def test_what_only_workers_have_is_tried_at_each_of_them(harness: Harness, client: Client) -> None:
    scene = Firewall(harness, client)
    one, two, *_ = scene.objects
    scene.fail(one)
    harness.core.on_object_unreadable(harness.now, two, "gone")
    harness.tick()
    assert scene.holder_for(scene.second, two) == scene.first.peer.session


def test_nothing_is_known_of_workers_that_are_gone(harness: Harness, client: Client) -> None:
    scene = Firewall(harness, client)
    one, two, *_ = scene.objects
    assert scene.holder_for(scene.third, one) == scene.first.peer.session
    scene.third.hold(one)
    scene.fail(two)
    for worker in scene.workers:
        worker.peer.vanish()
    harness.state.transfers.between.check_workers(set())


# Slots and places -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [m.ObjectKind.VALUE, ARGUMENTS], ids=["object", "arguments of a task"])
def test_a_task_leaves_its_slot_to_others_until_the_last_bytes_were_sent(
    harness: Harness, client: Client, kind: m.ObjectKind
) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, SHARED, kind)
    use(client, [made], 1)
    another(client, 2, 3)
    assert worker.read() == [1, 2], "it waits for bytes"
    worker.finish(2)
    ask_scheduler(worker, made, SIZE - 1)
    assert worker.read() == [3], "it waits for the rest"
    worker.finish(3)
    another(client, 4, 5)
    assert worker.read() == [4]
    worker.peer.send(m.ObjectRequest(id=made, offset=SIZE - 1, length=SIZE))
    assert parts_sent(harness) == [worker.peer.name] * 2
    worker.finish(4)
    assert worker.read() == [], "it runs"
    worker.finish(1)
    assert worker.read() == [5]


def test_bytes_that_are_on_their_way_to_the_scheduler_are_waited_for(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, REMOTE, ARGUMENTS)
    client.take(m.ObjectRequest)
    use(client, [made], 1)
    another(client, 2, 3)
    assert worker.read() == [1, 2]
    ask_scheduler(worker, made)
    assert not parts_sent(harness)
    client.send(m.ObjectResponse(id=made, offset=0, size=SIZE), b"x" * SIZE)
    assert parts_sent(harness) == [worker.peer.name]
    worker.finish(2)
    assert worker.read() == []


def test_the_next_arguments_come_while_a_task_runs(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    arguments = {number: client.announce(number, SIZE, SHARED, ARGUMENTS) for number in range(1, 5)}
    for number, made in arguments.items():
        use(client, [made], number)
    assert worker.read() == [1, 2]
    for number in (1, 2):
        ask_scheduler(worker, arguments[number])
    worker.finish(1)
    assert worker.read() == [3]


def test_a_task_whose_worker_has_the_object_takes_its_slot_at_once(harness: Harness, client: Client) -> None:
    worker = peer(harness, 1)
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    worker.read()
    worker.hold(made)
    use(client, [made], 2)
    another(client, 3)
    worker.finish(1)
    assert len(worker.read()) == 1, "and no other runs beside it"


def test_tasks_go_where_a_copy_is(harness: Harness, client: Client) -> None:
    workers = [peer(harness, number) for number in range(4)]
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], 1)
    (reader,) = [worker for worker in workers if worker.read()]
    reader.hold(made)
    for number in range(2, 6):
        reader.finish(number - 1)
        use(client, [made], number)
        assert [worker for worker in workers if worker.read()] == [reader]


def test_tasks_go_to_a_worker_that_sees_the_file_if_no_other_has_the_bytes(harness: Harness, client: Client) -> None:
    peers: List[Any] = [peer(harness, number, is_apart=number != 2) for number in range(4)]
    for number in range(1, 5):
        made = client.announce(number, SIZE, SHARED)
        use(client, [made], number)
        assert [worker for worker in peers if worker.read()] == [peers[2]]
        peers[2].finish(number)


def test_a_worker_counts_as_what_its_last_heartbeat_says(harness: Harness) -> None:
    worker = peer(harness, 1)
    session = worker.peer.session
    assert (session in harness.state.apart, session in harness.state.sharing) == (True, False)
    worker.peer.send(m.Heartbeat(shares_object_directory=True))
    assert (session in harness.state.apart, session in harness.state.sharing) == (False, True)
    worker.peer.vanish()
    assert not harness.state.apart and not harness.state.sharing


@pytest.mark.parametrize("is_first", [True, False], ids=["the first", "the last"])
def test_of_very_many_workers_with_a_copy_the_one_with_a_free_slot_is_found(
    harness: Harness, client: Client, is_first: bool
) -> None:
    workers = [peer(harness, number) for number in range(FEW_HOLDERS + 8)]
    made = client.announce(1, SIZE, SHARED)
    use(client, [made], *range(1, 1 + len(workers)))
    for worker in workers:
        assert len(worker.read()) == 1
        worker.hold(made)
    without_copy = peer(harness, 100)
    free = workers[0 if is_first else -1]
    free.finish(next(iter(free.tasks)))
    use(client, [made], 1001)
    assert (len(free.read()), without_copy.read()) == (1, [])


class FixedPace(WorkerPace):
    def __init__(self, pace: float) -> None:
        super().__init__()
        self._fixed = pace

    def of(self, function: object) -> float:
        return self._fixed


def test_a_quick_worker_comes_before_one_that_sees_the_file_if_moving_takes_less(
    harness: Harness, client: Client
) -> None:
    quick, slow = peer(harness, 1), peer(harness, 2, is_apart=False)
    made = client.announce(1, SIZE, SHARED)
    for worker, pace in ((slow, 3.0), (quick, 0.6)):
        harness.state.workers[worker.peer.session].pace = FixedPace(pace)
    use(client, [made], 1)
    assert (slow.read(), quick.read()) == ([], [1])
    quick.finish(1)
    harness.state.transfers.rates.of = lambda holder: SIZE / 10.0
    large = client.announce(2, SIZE, SHARED)
    use(client, [large], 2)
    assert (slow.read(), quick.read()) == ([2], [])


def test_what_others_need_more_is_spared_if_all_have_a_copy(harness: Harness, client: Client) -> None:
    made = client.announce(1, SIZE, SHARED)
    workers = [peer(harness, 1, gpu=1.0), peer(harness, 2)]
    use(client, [made], 1, 2)
    for worker in workers:
        (number,) = worker.read()
        worker.hold(made)
        worker.finish(number)
    use(client, [made], 3)
    assert (workers[0].read(), workers[1].read()) == ([], [3])
