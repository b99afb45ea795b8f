"""Workers on other hosts that need what the scheduler has, as tests of its core play them."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from keeper import SIZE, Keeper
from scheduler_harness import Client, Harness

from scaler_appliance.core.effects import SendChunk
from scaler_protocol import messages as m

TASK_MICROSECONDS = 1e6
OF_THE_SCHEDULER = 0  # in place of a holder


def spreading_harness() -> Harness:
    """A scheduler that spreads even small objects."""
    return Harness(chunk_bytes=SIZE, spread_bytes=SIZE, protected=False)


def peer(harness: Harness, number: int, slots: int = 1, is_apart: bool = True, **capabilities: Any) -> Keeper:
    """A worker, of which it is known whether it sees the scheduler's files."""
    worker = Keeper(harness, slots, f"tcp://host{number}:1", b"key of %d" % number, **capabilities)
    worker.peer.send(m.Heartbeat(shares_object_directory=not is_apart))
    worker.peer.take(m.HeartbeatEcho)
    return worker


def use(client: Client, object_ids: Sequence[int], *numbers: int) -> None:
    """Submit tasks that need objects, and are known to take a second."""
    function = client.create(1000 + numbers[0], b"f")
    client.harness.state.durations.set(function, TASK_MICROSECONDS)
    client.submit(
        numbers,
        [b"%d" % number for number in numbers],
        function=function,
        dependency_counts=[len(object_ids)] * len(numbers),
        dependencies=list(object_ids) * len(numbers),
    )


def asking(harness: Harness, client: Client, count: int) -> Tuple[int, List[Keeper]]:
    """An object that the scheduler has, and so many workers that need it for a task each, and ask where to fetch it."""
    workers = [peer(harness, number) for number in range(count)]
    made = client.announce(1, SIZE, m.ObjectStorage.SHARED)
    use(client, [made], *range(1, 1 + count))
    for worker in workers:
        worker.read()
        worker.ask_ticket(made)
    return made, workers


def ask_scheduler(worker: Keeper, object_id: int, size: int = SIZE) -> None:
    worker.peer.send(m.ObjectRequest(id=object_id, offset=0, length=size))


def parts_sent(harness: Harness) -> List[bytes]:
    """The peers that were sent parts of objects since this was last asked."""
    sent = [effect.peer for effect in harness.effects if isinstance(effect, SendChunk)]
    harness.effects[:] = [effect for effect in harness.effects if not isinstance(effect, SendChunk)]
    return sent


def another(client: Client, *numbers: int) -> None:
    """Tasks that need nothing."""
    function = client.create(2000 + numbers[0], b"g")
    client.harness.state.durations.set(function, TASK_MICROSECONDS)
    client.submit(numbers, [b"%d" % number for number in numbers], function=function)
