"""Large arguments that workers fetch from their client, with real processes that are as if on several hosts."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
from sdk_tasks import wait_for_file
from security.data_addresses.played_workers import Caller, Holder, request_for
from security.data_addresses.scene import distant_scheduler
from security.keyed_scheduler import KeyedScheduler

from scaler import Client, aio
from scaler_protocol import messages as m
from scaler_protocol.host.segments import default_parent, object_name
from scaler_protocol.host.sodium import load_sodium

TIMEOUT_SECONDS = 60.0
HERE, ELSEWHERE = "tcp://127.0.0.1:0", "tcp://127.0.0.2:0"  # workers are at the first
CONTAINED_WORKER = """
import sys
from scaler.worker import worker_program
from scaler_protocol.host import segments
folder = sys.argv.pop(1)
segments.default_parent = lambda: folder  # its files are in a folder of its own, as in a container
sys.exit(worker_program.main())
"""
SIZE = 5_000_000


def digest(data: Any, *others: Any) -> Tuple[int, str]:
    return len(data), hashlib.blake2b(data).hexdigest()


def slow_digest(data: Any, until: str) -> Tuple[int, str]:
    wait_for_file(until)
    return digest(data)


def digest_beside(data: Any, own: str, others: str) -> Tuple[int, str]:
    """It has its result when the other one has begun, too."""
    wait_for_file(others, running=own)
    return digest(data)


class Cluster:
    """A scheduler and two workers, none of which shares files with another."""

    def __init__(self, folder: Path) -> None:
        self.scheduler: KeyedScheduler = distant_scheduler(folder)
        self.key_file = self.scheduler.admitted_key("client", "user")
        keys = [self.scheduler.admitted_key("worker", f"worker-{number}") for number in range(2)]
        self.processes = [self.scheduler.worker("-lp", str(folder / f"{key.stem}.log"), key_file=key) for key in keys]
        self.objects = folder / "objects"

    def stored(self) -> List[str]:
        """The objects whose bytes the scheduler has."""
        return [each.name for each in self.objects.rglob("*") if re.fullmatch("[0-9a-f]{16}", each.name)]

    def client(self, **options: Any) -> Client:
        return self.scheduler.client(self.key_file, **options)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(TIMEOUT_SECONDS)
        self.scheduler.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def data() -> bytes:
    return os.urandom(SIZE)


def served(client: Client) -> int:
    """How many objects a client keeps for workers."""
    return len(client._shell.core.objects._served)


def wait_until_served(client: Client, count: int) -> None:
    """The scheduler tells the client of the end of objects, at some time."""
    reached = threading.Event()
    core: Any = client._shell.core
    on_message = core.on_message

    def after_message(message: Any, payload: bytes) -> None:
        on_message(message, payload)
        if served(client) == count:
            reached.set()

    core.on_message = after_message
    if served(client) != count:
        assert reached.wait(TIMEOUT_SECONDS), f"{served(client)} objects are kept"
    core.on_message = on_message


def test_an_argument_does_not_pass_the_scheduler_and_is_let_go_of_afterwards(cluster: Cluster, data: bytes) -> None:
    with cluster.client(data_address=HERE) as client:
        sent = client.send_object(data)
        futures = [client.submit(digest, sent, number) for number in range(20)]
        assert {each.result(TIMEOUT_SECONDS) for each in futures} == {digest(data)}
        assert client.submit(digest, data).result(TIMEOUT_SECONDS) == digest(data)
        assert not cluster.stored()
        assert served(client) >= 1
        client.clear()
        wait_until_served(client, 0)
        assert not [each for each in client._shell.core.objects.kept() if each.size >= SIZE]


def record_tickets(client: Client) -> List[m.Ticket]:
    """Those that a client is told from now on."""
    tickets: List[m.Ticket] = []
    core: Any = client._shell.core
    on_message = core.on_message

    def record(message: Any, payload: bytes) -> None:
        if isinstance(message, m.Ticket):
            tickets.append(message)
        on_message(message, payload)

    core.on_message = record
    return tickets


def test_two_workers_on_one_host_fetch_an_argument_from_their_client_once_and_have_one_file_of_it(
    cluster: Cluster, data: bytes, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    with cluster.client(data_address=ELSEWHERE) as client:
        assert client.submit(digest, data).result(TIMEOUT_SECONDS) == digest(data)  # the client can be reached
        tickets = record_tickets(client)
        large = data * 10  # so that the second one needs it while the first one fetches it
        sent = client.send_object(large)
        futures = [client.submit(digest_beside, sent, *each) for each in ((first, second), (second, first))]
        assert {each.result(TIMEOUT_SECONDS) for each in futures} == {digest(large)}
        assert len(tickets) == 1
        assert not cluster.stored()
        files = list(Path(default_parent()).glob(f"scaler-*/{object_name(tickets[0].id)}-*"))
        assert len(files) == 2 and files[0].samefile(files[1])


def test_a_worker_that_sees_no_files_of_others_on_its_host_fetches_from_them(
    cluster: Cluster, data: bytes, tmp_path: Path
) -> None:
    key_file = cluster.scheduler.admitted_key("worker", "contained")
    options = ("-lp", str(tmp_path / "log"), "--capabilities", "contained")
    process = cluster.scheduler.worker(*options, key_file=key_file, program=("-c", CONTAINED_WORKER, str(tmp_path)))
    try:
        with cluster.client(data_address=ELSEWHERE) as client:
            tickets = record_tickets(client)
            sent = client.send_object(data)
            assert client.submit(digest, sent).result(TIMEOUT_SECONDS) == digest(data)
            there = client.options(capabilities={"contained": 0}).submit(digest, sent)
            assert there.result(TIMEOUT_SECONDS) == digest(data)
            assert len(tickets) == 1 and not cluster.stored(), "the client and the scheduler send nothing more"
            assert list(tmp_path.glob(f"scaler-*/{object_name(tickets[0].id)}-*"))
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


@pytest.mark.parametrize("options", [{"data_address": "off"}, {"data_address": HERE, "direct_bytes": "1GB"}, {}])
def test_a_client_that_is_not_to_serve_has_the_scheduler_fetch_them(
    cluster: Cluster, data: bytes, options: Any
) -> None:
    with cluster.client(**options) as client:
        sent = client.send_object(data)
        assert client.submit(digest, sent).result(TIMEOUT_SECONDS) == digest(data)
        assert served(client) == 0 and len(cluster.stored()) == 1


def test_a_client_that_workers_cannot_reach_is_relayed(cluster: Cluster, data: bytes) -> None:
    with cluster.client(data_address=HERE) as client:
        client._shell.io.serving._connections._stop_listening()  # type: ignore[union-attr]  # it serves
        sent = client.send_object(data)
        assert client.submit(digest, sent).result(TIMEOUT_SECONDS) == digest(data)
        assert len(cluster.stored()) == 1
        requests: List[Any] = []
        transport: Any = client._shell.io.transport
        send = transport.send

        def record(message: Any, payload: Any = ()) -> None:
            requests.append(message)
            send(message, payload)

        transport.send = record
        more = client.send_object(data + b"more")
        assert client.submit(digest, more).result(TIMEOUT_SECONDS) == digest(data + b"more")
        kinds = [type(message) for message in requests if isinstance(message, (m.ObjectResponse, m.Task))]
        assert kinds[0] is m.ObjectResponse or m.ObjectResponse in kinds
        assert len(cluster.stored()) == 2


def test_a_task_of_another_client_has_the_argument_although_the_first_client_left(
    cluster: Cluster, data: bytes, tmp_path: Path
) -> None:
    with cluster.client() as other:
        until = tmp_path / "until"
        first = cluster.client(data_address=HERE)
        sent = first.send_object(data)
        assert first.info().clients == 2  # so the scheduler knows the object
        future = other.submit(slow_digest, sent, str(until))
        running = other.submit(digest, sent)
        assert running.result(TIMEOUT_SECONDS) == digest(data)  # so the scheduler has the bytes, or a worker
        first.disconnect()
        until.touch()
        assert future.result(TIMEOUT_SECONDS) == digest(data)


def test_a_caller_without_a_ticket_gets_nothing_from_a_client(cluster: Cluster, data: bytes) -> None:
    with cluster.client(data_address=HERE) as client:
        sent = client.send_object(data)
        assert client.submit(digest, sent).result(TIMEOUT_SECONDS) == digest(data)
        (object_id,) = client._shell.core.objects._served
        hello = client._shell.io._hello
        holder = Holder(hello.data_address, hello.data_key)
        assert holder.key, "it uses its key there, too"
        with Caller(holder, load_sodium().new_keys(), request_for(object_id, b"guess" * 6)) as caller:
            answer, payload = caller.ask()
        assert isinstance(answer, m.Refusal) and answer.reason == m.RefusalReason.TICKET_UNKNOWN and not payload
        host, port = holder.address.rpartition("//")[2].rsplit(":", 1)
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as stream:
            greeting = stream.recv(64, socket.MSG_WAITALL)
        assert b"CURVE" in greeting and b"NULL" not in greeting


def test_changing_what_was_submitted_changes_nothing_that_a_task_sees(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.client(data_address=HERE) as client:
        blockers = [client.submit(wait_for_file, str(tmp_path / "until")) for _ in range(2)]
        data = bytearray(SIZE)
        future = client.submit(digest, data)
        data[:] = b"\xff" * SIZE
        (tmp_path / "until").touch()
        assert future.result(TIMEOUT_SECONDS) == digest(bytes(SIZE))
        assert all(each.result(TIMEOUT_SECONDS) for each in blockers)


def test_a_fork_of_the_client_takes_nothing_from_it(cluster: Cluster, data: bytes) -> None:
    with cluster.client(data_address=HERE) as client:
        sent = client.send_object(data)
        assert client.submit(digest, sent).result(TIMEOUT_SECONDS) == digest(data)
        child = os.fork()
        if not child:
            os._exit(0 if client._shell.io.serving._connections is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        again = client.send_object(data + b"again")
        assert client.submit(digest, again).result(TIMEOUT_SECONDS) == digest(data + b"again")
        assert not cluster.stored()


def test_an_event_loop_serves_as_well(cluster: Cluster, data: bytes) -> None:
    async def run() -> None:
        address, key_file = cluster.scheduler.address, cluster.key_file
        async with aio.Client(address, key_file=key_file, data_address=HERE) as client:
            sent = await client.send_object(data)
            found = await asyncio.gather(*(client.submit(digest, sent, number) for number in range(8)))
            assert set(found) == {digest(data)}
            assert not cluster.stored()
            client.clear()

    asyncio.run(run())
