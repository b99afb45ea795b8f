"""A cluster with keys in which a worker holds a result, and another one needs it.

client ── graph: make ─▶ use, use, use ──▶ scheduler ──▶ a real worker: makes it, and stays in the first use
                                                    └──▶ a played worker: gets another use, and tickets
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Sequence

from sdk_tasks import wait_until
from security.data_addresses.played_workers import Caller, DataDoor, Holder, PlayedWorker, request_for
from security.keyed_scheduler import KeyedScheduler

from scaler_protocol import messages as m
from scaler_protocol.keys.key_file import read_key_file

TENANT = "alice"
CONTENT = bytes(range(256)) * 1200
USES = 40
_SCRIPT = str(Path(__file__).with_name("watched_worker.py"))


def make(size: int) -> bytes:
    return (CONTENT * (size // len(CONTENT) + 1))[:size]


def use(content: bytes, running: str, until: str) -> int:
    from sdk_tasks import wait_for_file

    wait_for_file(until, running, 300.0)
    return len(content)


def distant_scheduler(folder: Path, command: Sequence[str] = ()) -> KeyedScheduler:
    """A scheduler with whose objects no one shares memory, as if its peers were on other hosts.

    Parameters:
        command: that starts it; by default that of this build.
    """
    objects = folder / "objects"
    objects.mkdir(0o700)
    scheduler = KeyedScheduler(folder, "--object-directory", str(objects), command=command)
    (token,) = objects.rglob("token")
    token.write_bytes(bytes(16))
    return scheduler


class Scene:
    """Parameters:
    folder: for the files of a new scheduler.
    """

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.scheduler = distant_scheduler(folder)
            stack.callback(self.scheduler.stop)
            self.decoded = folder / "decoded"
            self.decoded.touch()
            self._start(folder, stack)
            self._stack = stack.pop_all()

    def _start(self, folder: Path, stack: ExitStack) -> None:
        log, key_file = folder / "worker.log", self.scheduler.admitted_key("worker", "holder", tenant=TENANT)
        program = (_SCRIPT, str(self.decoded))
        process = self.scheduler.worker("-lp", str(log), key_file=key_file, program=program)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        client = self.scheduler.client(self.scheduler.admitted_key("client", "user", tenant=TENANT))
        stack.enter_context(client)
        running, until = folder / "running", folder / "until"
        stack.callback(until.touch)
        graph: Any = {"made": (make, len(CONTENT))}
        graph.update({f"use{number}": (use, "made", str(running), str(until)) for number in range(USES)})
        client.get(graph, list(graph)[1:], block=False)
        wait_until(running)
        self.fetcher = stack.enter_context(self.new_fetcher())
        self.object_id = self.fetcher.announced()
        ticket = self.ticket()
        self.holder = Holder(ticket.address, bytes(ticket.key))

    def new_fetcher(self, name: str = "fetcher") -> PlayedWorker:
        """A worker to which the object is announced.

        Parameters:
            name: of its key.
        """
        key = read_key_file(str(self.scheduler.admitted_key("worker", name, tenant=TENANT)))
        return PlayedWorker(self.scheduler.address, key)

    def ticket(self) -> m.Ticket:
        """A new one for the played worker."""
        return self.fetcher.ticket(self.object_id)

    def drop(self) -> None:
        """The played worker has no ticket any more: two workers at a time are given one."""
        drop = m.ObjectInstruction(action=m.ObjectAction.DROP, ids=array("Q", [self.object_id]))
        self.fetcher.send(drop)

    def door(self, ticket: bytes) -> DataDoor:
        """Of a caller that shows a ticket."""
        return self.door_of(self.object_id, ticket)

    def door_of(self, object_id: int, ticket: bytes) -> DataDoor:
        return request_for(object_id, ticket)

    def fetch(self) -> None:
        """The played worker gets the object."""
        door = self.door(self.ticket().secret)
        with Caller(self.holder, self.fetcher.key.keys, door) as caller:
            answer, payload = caller.ask()
        assert isinstance(answer, m.ObjectResponse) and answer.status == m.ObjectResponseStatus.OK
        assert CONTENT in payload and answer.size == len(payload)

    def close(self) -> None:
        self._stack.close()
