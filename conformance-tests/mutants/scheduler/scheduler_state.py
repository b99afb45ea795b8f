"""What the reference scheduler keeps: peers, tasks, objects."""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from mutants.servers.zmtp_server import Connection
from scaler_conformance.codec.schema_codec import Message


class Refused(Exception):
    """A peer did wrong: the text says what, `reason` is that of the Refusal."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Peer:
    """A session."""

    role = ""

    def __init__(self, connection: Connection, hello: Message, number: int) -> None:
        self.connection = connection
        self.hello = hello
        self.number = number
        self.last_heard = time.monotonic()
        self.is_gone = False
        self.token = b""  # with which it can resume its session
        self.kept: List[List[bytes]] = []  # messages that it has not acknowledged
        self.received = self.acknowledged = self.attempt = 0


class Worker(Peer):
    role = "worker"

    def __init__(self, connection: Connection, hello: Message, number: int) -> None:
        super().__init__(connection, hello, number)
        self.slots: int = hello.slots
        self.queue_size: int = max(1, hello.queueSize)
        self.suspended = 0
        self.held: Dict[int, Task] = {}  # by instance
        self.announced: Set[int] = set()
        self.is_leaving = False
        self.ends_at = time.monotonic() + (hello.remainingMilliseconds / 1000 or math.inf)
        self.balance_request = 0  # the open one


class Client(Peer):
    role = "client"

    def __init__(self, connection: Connection, hello: Message, number: int) -> None:
        super().__init__(connection, hello, number)
        self.tasks: Dict[int, Task] = {}  # unfinished
        self.last_id = -1
        self.tasks_sent = self.bytes_sent = 0
        self.tasks_released = self.bytes_released = 0
        self.tasks_told = self.bytes_told = 0
        self.large_results: Dict[int, int] = {}  # sizes by object id


class Object:
    """One object."""

    def __init__(self, id_: int, size: int, kind: int, name: str, codec: str, owner: Peer) -> None:
        self.id, self.size, self.kind, self.name, self.codec = id_, size, kind, name, codec
        self.owner: Optional[Peer] = owner
        self.source = owner  # who has its bytes
        self.content = bytearray()
        self.asked = 0  # bytes of it that were asked for
        self.open_requests = 0
        self.needs = 0  # unfinished tasks that need it
        self.readers: List[Tuple[Peer, int, int]] = []
        self.lacks_room = False
        self.is_kept = False  # by the worker that made it, until it ends

    @property
    def is_complete(self) -> bool:
        return len(self.content) == self.size


class Task:
    """One task of a client, or node of a graph."""

    def __init__(self, client: Client, message: Message, id_: int, function: int, payload: bytes) -> None:
        self.client = client
        self.id = id_
        self.function = function
        self.name: str = getattr(message, "functionName", "") if message.type == "Task" else ""
        self.codec: str = message.codec
        self.options: Any = message.options
        self.payload = payload
        self.dependencies: List[int] = []
        self.state = "queued"  # or waiting, assigned, cancelling, ended
        self.worker: Optional[Worker] = None
        self.instance = 0
        self.lost_workers = 0
        self.answer_is_owed = False  # to a cancel
        self.is_forced = False  # the last cancel that the worker was sent
        self.owes_another = False  # answer to a cancel before it
        self.holds: List[int] = []  # objects that live for its sake
        self.is_node = False
        self.is_target = True
        self.predecessors: List[Task] = []
        self.successors: List[Task] = []
        self.needed: List[Task] = []  # tasks whose results it needs, outside of graphs
        self.followers: List[Task] = []  # that need its result
        self.result: Any = None  # of a node that succeeded: bytes, or the id of an object

    @property
    def needs(self) -> List[int]:
        return [each for each in (self.function, *self.dependencies) if each]
