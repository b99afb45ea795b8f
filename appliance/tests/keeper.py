"""A worker that keeps large results, as tests of the scheduler's core play it."""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from scheduler_harness import Client, Harness, Worker

from scaler_appliance.core.effects import StoreChunk
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_RESULTS, PEER_FETCH

KEPT, REMOTE = m.ObjectStorage.KEPT, m.ObjectStorage.REMOTE
SIZE = 30


class Keeper:
    """A worker that keeps large results.

    Parameters:
        slots: how many tasks it runs at once.
        data_address: where it serves others, and then it fetches from them, too; empty: it does neither.
    """

    def __init__(
        self, harness: Harness, slots: int = 4, data_address: str = "", data_key: bytes = b"", **fields: Any
    ) -> None:
        features = [KEPT_RESULTS, PEER_FETCH] if data_address else [KEPT_RESULTS]
        places = {"data_address": data_address, "data_key": data_key}
        self.peer: Worker = harness.worker(slots=slots, features=features, places=places, **fields)
        self.tickets: List[m.Ticket] = []
        self.needless: Set[int] = set()
        self.tasks: Dict[int, Tuple[int, List[int]]] = {}  # instance and dependencies, by number of the node
        self.announced: Dict[int, int] = {}  # storage by object
        self.deleted: Set[int] = set()
        self.asked: List[m.ObjectRequest] = []
        self.missing: List[int] = []
        self.ended: List[int] = []  # instances that it was told to end, by force
        self.made = 0

    def read(self) -> List[int]:
        """Read what has come; returns the numbers of the nodes among it."""
        came: List[int] = []
        while self.peer.inbox:
            message, payload = self.peer.inbox.popleft()
            if isinstance(message, m.ObjectInstruction):
                if message.action == m.ObjectAction.DELETE:
                    self.deleted.update(message.ids)
                elif message.action == m.ObjectAction.DROP:
                    self.needless.update(message.ids)
                else:
                    self.announced.update(zip(message.ids, message.storages))
            elif isinstance(message, m.ObjectRequest):
                self.asked.append(message)
            elif isinstance(message, m.TaskCancel):
                self.ended += message.ids if message.force else []
            elif isinstance(message, m.Ticket):
                self.tickets.append(message)
            elif isinstance(message, m.ObjectResponse):
                assert message.status == m.ObjectResponseStatus.MISSING
                self.missing.append(message.id)
            elif isinstance(message, m.Task):
                start = place = 0
                counts = message.dependency_counts or [0] * len(message.ids)
                for instance, size, count in zip(message.ids, message.payload_sizes, counts):
                    number = int(payload[start + size - 1 : start + size])
                    start += size
                    self.tasks[number] = instance, list(message.dependencies[place : place + count])
                    place += count
                    came.append(number)
        return came

    def make(self) -> int:
        """Make an object that it keeps."""
        self.made += 1
        return self.peer.announce(self.made, SIZE, KEPT)

    def keep(self, number: int, busy_microseconds: int = 0) -> int:
        """Finish a node with a large result; returns the object."""
        object_id = self.make()
        self.peer.finish([self.tasks.pop(number)[0]], [b""], (), busy_microseconds, objects=[object_id])
        return object_id

    def finish(self, number: int, content: bytes = b"small") -> None:
        self.peer.finish([self.tasks.pop(number)[0]], [content])

    def serve(self) -> None:
        """Answer all requests."""
        self.read()
        while self.asked:
            asked = self.asked.pop(0)
            response = m.ObjectResponse(id=asked.id, offset=asked.offset, size=SIZE)
            self.peer.send(response, b"x" * min(asked.length, SIZE - asked.offset))
            self.read()

    def ask_ticket(self, object_id: int, failed: int = 0) -> None:
        self.peer.send(m.TicketRequest(id=object_id, failed_holder=failed))
        self.read()

    def take_ticket(self) -> m.Ticket:
        """The only ticket that has come."""
        self.read()
        (ticket,) = self.tickets
        self.tickets.clear()
        return ticket

    def hold(self, object_id: int) -> None:
        """It has fetched all bytes of an object."""
        self.peer.send(m.ObjectInstruction(action=m.ObjectAction.HOLD, ids=array("Q", [object_id])))

    def drop(self, object_id: int) -> None:
        """It has lost an object, or does not go on to fetch it."""
        self.peer.send(m.ObjectInstruction(action=m.ObjectAction.DROP, ids=array("Q", [object_id])))

    def ask(self, object_id: int) -> None:
        self.peer.send(m.ObjectRequest(id=object_id, offset=0, length=10))


def submit(client: Client, nodes: Mapping[int, Sequence[int]], targets: Sequence[int], **fields: Any) -> int:
    """Submit a graph of nodes by their predecessors, with numbers as payloads; returns its function's object."""
    function = client.create(1000, b"f")
    numbers = list(nodes)
    predecessors = [numbers.index(each) for number in numbers for each in nodes[number]]
    offsets = [0]
    for number in numbers:
        offsets.append(offsets[-1] + len(nodes[number]))
    message = m.GraphTask(
        ids=array("Q", numbers),
        payload_sizes=array("I", [1] * len(numbers)),
        functions=array("Q", [function] * len(numbers)),
        predecessor_offsets=array("I", offsets),
        predecessors=array("I", predecessors),
        targets=array("I", [numbers.index(target) for target in targets]),
        **fields,
    )
    client.send(message, b"".join(b"%d" % number for number in numbers))
    return function


def stored(harness: Harness) -> int:
    """How many bytes the scheduler has stored since it was last asked."""
    effects, harness.effects[:] = list(harness.effects), []
    return sum(len(each.chunk) for each in effects if isinstance(each, StoreChunk))


def nothing_is_kept(harness: Harness) -> None:
    """No object but functions that the client holds, and nothing that waits."""
    state = harness.state
    assert all(record.held and not record.references for record in state.objects.records())
    assert not state.objects.has_kept and not len(state.held_results) and not state.dispatches and not len(state.ready)
