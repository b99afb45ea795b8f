"""A scheduler core in virtual time, with workers that do what the agent does.

Tasks are numbers; what each takes is given in advance. A clock jumps from event to event.
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import partial
from itertools import repeat
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from scheduler_harness import Client, Harness, Worker

from scaler_protocol import messages as m

HOP_SECONDS = 0.0005
"""From one process to the other."""

PATIENCE_SECONDS = 1000.0


class Machine:
    """A worker in virtual time: clients take turns; asked for tasks, it gives back those that came last.

    Parameters:
        hop_seconds: from the scheduler to it, and from it to the scheduler.
        slowness: so many times as long as was given in advance tasks take there.

    Attributes:
        slow_at: the same for tasks of some functions, by the number of their object.
        busy_seconds: that its slots have worked, together.
    """

    def __init__(
        self,
        cluster: VirtualCluster,
        slots: int,
        queue_size: int,
        hop_seconds: float,
        slowness: float,
        **capabilities: Any,
    ) -> None:
        self._cluster = cluster
        self.slots = slots
        self.hop_seconds = hop_seconds
        self.slowness = slowness
        self.slow_at: Dict[int, float] = {}
        self.busy_seconds = 0.0
        self.peer: Worker = cluster.harness.worker(slots, queue_size, **capabilities)
        self.running = 0
        self.most_queued = 0
        self._queues: Dict[int, Deque[Tuple[int, int, int]]] = {}  # by client: instances, tasks, functions

    def beat(self, sequence: int = 1) -> None:
        """Send a heartbeat, which says how far away it is, if that is far."""
        microseconds = int(self.hop_seconds * 1e6) if self.hop_seconds > HOP_SECONDS else 0
        heartbeat = m.Heartbeat(sequence=sequence, latency_microseconds=microseconds)
        self._cluster.send(partial(self.peer.send, heartbeat), self.hop_seconds)

    def deliver(self) -> None:
        """The scheduler has sent something."""
        sent, self.peer.inbox = self.peer.inbox, deque()
        self._cluster.after(self.hop_seconds, partial(self._read, sent))

    def _read(self, sent: Deque[Any]) -> None:
        """Messages arrive."""
        self.peer.inbox, later = sent, self.peer.inbox
        while self.peer.inbox:
            if isinstance(self.peer.inbox[0][0], m.Task):
                instances = self.peer.take_tasks()
                queue = self._queues.setdefault(self.peer.task.client, deque())
                queue.extend(zip(instances, map(int, self.peer.payloads), repeat(self.peer.task.function)))
                continue
            request, _ = self.peer.inbox.popleft()
            if isinstance(request, (m.ObjectInstruction, m.HeartbeatEcho)):  # the first, of a graph's function
                continue
            assert isinstance(request, m.BalanceRequest), f"tasks are moved by asking, not by {request}"
            self._cluster.requests += 1
            queued = [queue for queue in self._queues.values() for _ in queue]
            given = [queue.pop()[0] for queue in queued[::-1][: request.count]]
            self._cluster.send(partial(self.peer.give_back, given, request.request_id), self.hop_seconds)
        self.peer.inbox = later
        self.most_queued = max(self.most_queued, sum(map(len, self._queues.values())))
        self._start_some()

    def _start_some(self) -> None:
        while self.running < self.slots and any(self._queues.values()):
            client = next(client for client, queue in self._queues.items() if queue)
            self._queues[client] = queue = self._queues.pop(client)  # others have the next turn
            instance, task, function = queue.popleft()
            self.running += 1
            self._cluster.starts.append(task)
            seconds = self._cluster.durations[task] * self.slow_at.get(function, self.slowness)
            self._cluster.after(seconds, partial(self._end, instance, seconds))

    def _end(self, instance: int, seconds: float) -> None:
        self.running -= 1
        self.busy_seconds += seconds
        finish = partial(self.peer.finish, [instance], busy_microseconds=int(seconds * 1e6))
        self._cluster.send(finish, self.hop_seconds)
        self._start_some()


class VirtualCluster:
    """A scheduler core, clients, machines; and a clock that jumps from event to event.

    Parameters:
        durations: by task, in seconds.
    """

    def __init__(self, durations: List[float]) -> None:
        self.harness = Harness()
        self.client: Client = self.harness.client()
        self.clients = [self.client]
        self.durations = durations
        self.machines: List[Machine] = []
        self.starts: List[int] = []
        self.requests = 0
        self.finished: Dict[int, float] = {}
        self._events: List[Tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0
        self.after(1.0, self._tick)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.harness.now + seconds, self._sequence, action))

    def send(self, message: Callable[[], object], hop_seconds: float = HOP_SECONDS) -> None:
        """To the scheduler; its answers arrive a moment later."""

        def arrive() -> None:
            message()
            self._deliver()

        self.after(hop_seconds, arrive)

    def _tick(self) -> None:
        self.harness.tick()
        self._deliver()
        self.after(1.0, self._tick)

    def _deliver(self) -> None:
        for client in self.clients:
            while client.inbox:
                message, _ = client.inbox.popleft()
                if isinstance(message, m.TaskResult):
                    self.finished.update(dict.fromkeys(message.ids, self.harness.now))
        for machine in self.machines:
            if machine.peer.inbox:
                machine.deliver()

    def join(
        self,
        slots: int = 1,
        queue_size: int = 1000,
        hop_seconds: float = HOP_SECONDS,
        slowness: float = 1.0,
        **capabilities: float,
    ) -> Machine:
        """One more worker; it has measured how far away it is."""
        machine = Machine(self, slots, queue_size, hop_seconds, slowness, **capabilities)
        self.machines.append(machine)
        if hop_seconds > HOP_SECONDS:
            machine.beat()
            self.advance(hop_seconds)
        self.harness.tick()
        self._deliver()
        return machine

    def add_client(self) -> Client:
        """One more client."""
        self.clients.append(self.harness.client())
        return self.clients[-1]

    def submit(self, numbers: range, client: Optional[Client] = None, batch: int = 100, **fields: Any) -> None:
        """Submit tasks as clients do: in batches."""
        for first in numbers[::batch]:
            (client or self.client).submit(range(first, min(first + batch, numbers.stop)), **fields)
        self._deliver()

    def advance(self, seconds: float) -> None:
        """Let so much time go by."""
        end = self.harness.now + seconds
        while self._events and self._events[0][0] <= end:
            self._step()
        self.harness.now = end

    def _step(self) -> None:
        self.harness.now, _, action = heapq.heappop(self._events)
        assert self.harness.now < PATIENCE_SECONDS, f"{len(self.finished)} of {len(self.durations)} are done"
        for peer in self.harness.peers.values():
            self.harness.state.sessions[peer.name].last_heard = self.harness.now
        action()

    def run(self) -> float:
        """Until all tasks have their result; returns the time."""
        return self.run_until(range(len(self.durations)))

    def run_until(self, numbers: Sequence[int]) -> float:
        """Until these tasks have their result, whatever others do; returns the time."""
        for number in numbers:
            while number not in self.finished:
                self._step()
        wanted = set(numbers)
        started = [number for number in self.starts if number in wanted]
        assert sorted(started) == sorted(wanted), "each task was started once"
        return max(self.finished[number] for number in numbers)
