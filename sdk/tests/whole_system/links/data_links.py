"""Data connections of workers, with others and with clients: made, broken, silent, and ended, apart from sessions.

    fetcher ── requests with tickets ──▶ holder        each direction keeps its order
    fetcher ◀─ parts of objects ──────── holder

Rules:
- A link ends for each side at a time of its own, or without a word. Ends of it may hang while the other goes on.
- Messages travel as bytes: no two programs share an object.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

from whole_system.links.worker_disk import WorkerDisk
from whole_system.simulated_world import Pipe, World

from scaler_protocol.wire import messages as m
from scaler_protocol.wire.codec import decode, encode

if TYPE_CHECKING:
    from whole_system.client_host import ClientHost
    from whole_system.worker_host import WorkerHost

    Host = Union[ClientHost, WorkerHost]

SLOW_CONNECT_SECONDS = 45.0  # longer than a ticket lives
SHARED_HOSTS_SHARE = 0.5  # of the programs that serve: they are on one of two hosts, each with others

Item = Optional[Tuple[bytes, bytes]]  # a message; None: the end of the link


class DataLink:
    """Parameters:
    number: the fetcher's; the holder's is another one.
    """

    def __init__(self, links: DataLinks, fetcher: WorkerHost, number: int, address: str, key: bytes) -> None:
        self.links, self.fetcher, self.number = links, fetcher, number
        self.address, self._key = address, key
        self.holder: Optional[Host] = None
        self.number_at_holder = 0
        self._up: Optional[Pipe] = None
        self._down: Optional[Pipe] = None

    def establish(self) -> None:
        world, fetcher = self.links.world, self.fetcher
        holder = self.links.serving.get(self.address)
        if fetcher.data_links.get(self.number) is not self or world.fault("data_silence"):
            return
        if holder is None or not holder.is_alive or world.fault("data_refused"):
            fetcher.on_data_closed(self, "connection refused")
            return
        assert holder.data_key == self._key, "a ticket with the key of another worker"
        self.holder, self.number_at_holder = holder, self.links.next_number()
        self._up = Pipe(holder, self._arrive_up, world.delay)
        self._down = Pipe(fetcher, self._arrive_down, world.delay)
        holder.data_links[self.number_at_holder] = self
        holder.data_owner.on_data_accepted(self.number_at_holder, fetcher.data_key, holder.now)
        holder.round_of_data()
        fetcher.core.on_data_connected(self.number, fetcher.now)
        fetcher.round_of_data()

    def send(self, sender: Host, message: m.Member, payload: Any) -> None:
        pipe = self._up if sender is self.fetcher else self._down
        if pipe is not None:
            pipe.send((encode(message), bytes(payload)))
            if self.links.world.fault("data_break"):
                self.snap()
            if sender is self.holder and self.links.world.fault("holder_crash"):
                sender.after(0.0, sender.crash)

    def _arrive_up(self, item: Item) -> None:
        assert self.holder is not None
        self._arrive(self.holder, self.number_at_holder, item)

    def _arrive_down(self, item: Item) -> None:
        self._arrive(self.fetcher, self.number, item)

    def _arrive(self, host: Host, number: int, item: Item) -> None:
        if host.data_links.get(number) is not self:
            return
        if item is None:
            host.on_data_closed(self, "the other end has closed it")
        else:
            message = decode(item[0])
            if isinstance(message, m.ObjectResponse) and item[1]:
                self.links.bytes_moved += len(item[1])
            host.data_owner.on_data_message(number, message, memoryview(item[1]), host.now)
            host.round_of_data()

    def close(self, host: Host) -> None:
        """One end closes it: the other one learns, after what was sent."""
        pipe = self._up if host is self.fetcher else self._down
        if pipe is not None:
            pipe.send(None)

    def snap(self) -> None:
        """It breaks: what is under way is lost, and each end learns of it, or does not."""
        for pipe in (self._up, self._down):
            if pipe is not None:
                pipe.queue.clear()
                if not self.links.world.fault("data_silence"):
                    pipe.send(None)
                else:
                    pipe.cut()


class DataLinks:
    """All of one system."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.serving: Dict[str, Host] = {}  # by address
        self.bytes_moved = 0
        self._ports = itertools.count(1)
        self._last_number = 0
        self._rate = Random(f"data addresses: {world.plan.seed}").choice((0.0, 0.7, 1.0, 1.0))
        if "data_addresses" in world.plan.off:
            self._rate = 0.0  # of workers that serve

    @property
    def are_frequent(self) -> bool:
        """Whether users make results large that many need, and there are more workers."""
        return self._rate > 0.0 and self.world.rates["large_nodes"] > 0.0

    def new_address(self, host: Host) -> str:
        """Where a worker or a client serves workers; empty: it does not."""
        chance = Random(f"data addresses: {self.world.plan.seed} {host.name}")  # other draws stay what they were
        if host.is_shared or chance.random() >= self._rate:
            return ""
        place = chance.choice(("a", "b")) if chance.random() < SHARED_HOSTS_SHARE else host.name
        address = f"tcp://{place}:{next(self._ports)}"
        self.serving[address] = host
        return address

    def file_nearby(self, worker: WorkerDisk, path: str) -> Optional[bytes]:
        """The file that another worker on the same host has at this path of its own."""
        place = worker.data_address.rpartition(":")[0]
        for address, host in self.serving.items():
            is_near = address.rpartition(":")[0] == place and host is not worker and host.is_alive
            if is_near and isinstance(host, WorkerDisk) and path in host.files:
                return host.files[path]
        return None

    def next_number(self) -> int:
        self._last_number -= 1
        return self._last_number

    def connect(self, host: WorkerHost, number: int, address: str, key: bytes) -> None:
        link = host.data_links[number] = DataLink(self, host, number, address, key)
        is_slow = self.world.fault("data_slow_connect")
        delay = SLOW_CONNECT_SECONDS if is_slow else self.world.delay()
        self.world.after(delay, link.establish)
