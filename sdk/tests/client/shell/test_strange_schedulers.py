"""Schedulers that send invalid or unexpected messages."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pwd
import socket
import threading
import warnings
from array import array
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import pytest
from handshake_ends import ENDS, end_connection
from quiet_addresses import quiet_address

from scaler import Client, NamedFunction
from scaler.client.core.client_objects import ClientObjects
from scaler.client.core.effects import Outcome, Send, SendChunk
from scaler.client.core.kept_objects import KeptObject
from scaler.client.core.outbox import Outbox, TaskRun
from scaler.client.shell.client_object_files import ClientObjectFiles
from scaler.exceptions import NotASchedulerError, ObjectStorageFullError, SchedulerUnreachableError
from scaler_protocol import MAXIMUM_HEADER_BYTES, MalformedMessageError, decode, encode
from scaler_protocol import messages as m
from scaler_protocol.host.addresses import local_socket_name, parse_address, why_not_connected
from scaler_protocol.host.connection import Connection
from scaler_protocol.session.ids import object_id_of
from scaler_protocol.wire.zmtp import Zmtp

ECHO = NamedFunction("scaler.conformance/echo")
TIMEOUT_SECONDS = 30.0


class Script:
    """A scheduler that does what a test says, to one client after the other.

    Parameters:
        first: what it does with its first connections, before anything is sent; then it closes them.
    """

    def __init__(self, *parts: Callable[[Script], None], first: Sequence[Callable[[socket.socket], None]] = ()) -> None:
        self._parts = parts
        self._first = first
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Script:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # it may be waiting for another client
        self._listener.close()

    def _clients(self) -> Iterator[socket.socket]:
        """One after the other, until the test has ended."""
        with contextlib.suppress(OSError):
            while True:
                yield self._listener.accept()[0]

    def _run(self) -> None:
        clients = self._clients()
        for handle, stream in zip(self._first, clients):
            with stream:
                handle(stream)
        for part, stream in zip(self._parts, clients):
            with stream:
                self._stream, self._connection = stream, Connection(stream, Zmtp("ROUTER", 1 << 30))
                self._connection.start()
                self._received: List[List[bytes]] = []
                self.expect(m.Hello)
                part(self)

    def send(self, *messages: Any) -> None:
        """Messages that arrive together; bytes are sent as they are."""
        for each in messages:
            message, payload = each if isinstance(each, tuple) else (each, b"")
            self._connection.send([message if isinstance(message, bytes) else encode(message), payload])
        self._connection.flush()

    def expect(self, kind: Any) -> Any:
        """The next message of a kind; others are ignored."""
        while True:
            while not self._received:
                self._stream.setblocking(True)
                self._stream.recv(1, socket.MSG_PEEK)
                self._stream.setblocking(False)
                self._received = self._connection.receive()
            message = decode(self._received.pop(0)[0])
            if isinstance(message, kind):
                return message

    def serve(self) -> None:
        """Answer tasks until the client leaves."""
        while True:
            message = self.expect((m.Task, m.DisconnectRequest))
            if isinstance(message, m.DisconnectRequest):
                self.send(m.DisconnectResponse())
                return
            self.send(result(message.ids))


def result(ids: Any, **columns: Any) -> Any:
    sizes = array("I", [1] * len(ids))
    return m.TaskResult(ids=ids, payload_sizes=sizes, codec="json", **columns), b"7" * len(ids)


def test_what_comes_together_with_the_welcome_is_heard() -> None:
    echoed = threading.Event()

    def part(script: Script) -> None:
        script.send(m.Welcome(session=1), m.Heartbeat(sequence=42))
        assert script.expect(m.HeartbeatEcho).sequence == 42
        echoed.set()
        script.serve()

    with Script(part) as script, Client(script.address, heartbeat_interval_seconds=60.0) as client:
        assert echoed.wait(TIMEOUT_SECONDS)  # before a task comes, which `expect` would ignore
        assert client.submit(ECHO, 1).result(TIMEOUT_SECONDS) == 7


@pytest.mark.parametrize(
    "nonsense",
    [
        b"no message",
        result(array("Q", [900, 901]), statuses=b"\0"),
        result(array("Q", [900]), objects=array("Q", [1, 2])),
        (m.TaskResult(ids=array("Q", [900]), payload_sizes=array("I", [5])), b"four"),
    ],
    ids=["bytes", "statuses", "objects", "payload"],
)
def test_what_cannot_be_read_costs_the_session_and_no_future(nonsense: Any) -> None:
    def first(script: Script) -> None:
        script.send(m.Welcome(session=1))
        task = script.expect(m.Task)
        script.send(nonsense, result(task.ids))  # it might have been the outcome: what follows is not trusted

    def second(script: Script) -> None:
        script.send(m.Welcome(session=2))
        script.serve()

    with Script(first, second) as script, Client(script.address) as client:
        assert client.submit(ECHO, 1).result(TIMEOUT_SECONDS) == 7
        assert client._shell.welcome.session == 2


def test_an_object_that_the_next_scheduler_does_not_take_costs_no_session() -> None:
    def first(script: Script) -> None:
        script.send(m.Welcome(session=1))
        script.expect(m.ObjectInstruction)

    def second(script: Script) -> None:
        script.send(m.Welcome(session=2, limits=m.Limits(maximum_object_bytes=1000)))
        message = script.expect((m.ObjectInstruction, m.Task))
        assert isinstance(message, m.Task)
        script.send(result(message.ids))
        script.serve()

    with Script(first, second) as script, Client(script.address) as client:
        reference = client.send_object(bytes(2000))
        assert client.submit(ECHO, 1).result(TIMEOUT_SECONDS) == 7
        assert client._shell.welcome.session == 2 and reference.size > 1000


def test_profiles_may_lack_columns() -> None:
    def part(script: Script) -> None:
        script.send(m.Welcome(session=1))
        task = script.expect(m.Task)
        script.send(result(task.ids, durations_microseconds=array("Q", [5])))
        script.serve()

    with Script(part) as script, Client(script.address, profiling=True) as client:
        future = client.submit(ECHO, 1)
        assert future.result(TIMEOUT_SECONDS) == 7
        assert future.profiling_info().duration_us == 5


# Connections that end in the handshake --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("where", ENDS)
def test_a_client_whose_connection_ends_in_the_handshake_connects_again(where: str, is_reset: bool) -> None:
    """As when a scheduler is killed just then, or a forwarder does not reach it."""

    def part(script: Script) -> None:
        script.send(m.Welcome(session=1))
        script.serve()

    ends = [lambda stream: end_connection(stream, where, is_reset)] * 2
    with Script(part, first=ends) as script, Client(script.address, connect_timeout_seconds=TIMEOUT_SECONDS) as client:
        assert client.submit(ECHO, 1).result(TIMEOUT_SECONDS) == 7


@pytest.mark.parametrize("where", ENDS)
def test_connections_that_always_end_in_the_handshake_are_an_error_after_the_timeout(where: str) -> None:
    with Script(first=[lambda stream: end_connection(stream, where, True)] * 1000) as script:
        with pytest.raises(SchedulerUnreachableError) as raised:
            Client(script.address, connect_timeout_seconds=2.0)
    assert str(raised.value).startswith(
        f"the program at {script.address} accepted the connection and closed it before it answered: a scheduler that"
    )


# No Welcome -----------------------------------------------------------------------------------------------------------


def connect(address: str) -> str:
    """What a client says of an address that it cannot use, without its advice."""
    with pytest.raises(ConnectionError) as raised:
        Client(address, connect_timeout_seconds=2.0)
    assert type(raised.value) in (SchedulerUnreachableError, NotASchedulerError)
    return str(raised.value)


def test_nothing_listens_at_a_refused_port() -> None:
    address = quiet_address()
    said = connect(address)
    assert said.startswith(f"nothing listens at {address} (Connection refused); start a scheduler there")


def test_a_firewall_that_drops_what_is_sent_gives_no_answer() -> None:
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)  # Linux drops further attempts like a firewall, once the queue is full
        first.connect(listener.getsockname())
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        said = connect(address)
    assert said.startswith(f"no answer from {address} (Connection timed out): a firewall drops")
    assert said.endswith("check the address, and the firewalls in between")


def test_a_scheduler_that_is_busy_took_the_connection_and_did_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        said = connect(address)
        assert said.startswith(
            f"the program at {address} accepted the connection and sent nothing in time: a scheduler"
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as local_socket:
            name = local_socket_name(parse_address(address))
            assert name is not None
            local_socket.bind(name)
            local_socket.listen()
            said = connect(address)
    assert said.startswith(f"the scheduler at {address} accepted the connection and did not answer in time: it is busy")


def test_a_server_of_another_kind_is_called_so() -> None:
    def answer(listener: socket.socket) -> None:
        kept = []
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            kept.append(stream)
            if stream.recv(64).endswith(b"\n"):
                stream.sendall(b"-ERR unknown command\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        said = connect(address)
        listener.shutdown(socket.SHUT_RDWR)
    assert said.startswith(f"the program at {address} is not a Scaler scheduler: its first bytes are b'-ERR unknown")


def test_a_socket_of_another_user_may_not_be_connected_to(tmp_path: Path) -> None:
    path = tmp_path / "scheduler"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        denied = PermissionError(errno.EACCES, "Permission denied")  # which root, as who tests may run, never meets
        said = why_not_connected(parse_address(f"ipc://{path}"), denied)
    owner = pwd.getpwuid(os.getuid()).pw_name
    assert said == f"no permission to connect to ipc://{path} (Permission denied): the socket belongs to {owner}"


def runs_of(outbox: Outbox) -> List[TaskRun]:
    taken = outbox.take()
    runs = [each for each in taken if isinstance(each, TaskRun)]
    assert len(runs) == len(taken)
    return runs


def test_batches_keep_to_the_limit_of_messages() -> None:
    outbox = Outbox(lambda object_id: None)
    outbox.set_limits(m.Limits(maximum_message_bytes=1 << 20))
    for task_id in range(40):
        outbox.add_task(ECHO, task_id, bytes(50_000))

    sizes = [sum(map(len, run.message(int)[1])) for run in runs_of(outbox)]
    assert sum(sizes) == 40 * 50_000
    assert max(sizes) < 1 << 20


def test_batches_keep_to_the_limit_of_headers() -> None:
    outbox = Outbox(lambda object_id: None)
    for task_id in range(200):
        outbox.add_task(ECHO, task_id, b"", [5] * 65_000)

    messages = [run.message(int)[0] for run in runs_of(outbox)]
    headers = [encode(message) for message in messages]
    assert sum(len(message.ids) for message in messages) == 200
    assert max(map(len, headers)) < MAXIMUM_HEADER_BYTES / 8


def object_table(**limits: int) -> Tuple[ClientObjects, List[Any]]:
    """The objects of a client without any, and the effects that it asks for."""
    effects: List[Any] = []
    return ClientObjects(m.Welcome(session=1, limits=m.Limits(**limits)), itertools.count(1), effects.append), effects


def test_a_request_beyond_the_end_of_an_object_finds_nothing() -> None:
    objects, effects = object_table()
    kept = KeptObject(1, object_id_of(1, 1), "", m.ObjectKind.VALUE, 100_000, "", bytes(100_000))
    objects.hold(kept)
    for offset in (99_999, 100_000, 100_001):
        objects.on_request(m.ObjectRequest(id=kept.object_id, offset=offset, length=10))

    assert [type(each) for each in effects] == [SendChunk, SendChunk, Send]
    assert effects[2].message.status == m.ObjectResponseStatus.MISSING


def test_a_chunk_beyond_the_end_of_an_object_is_no_message() -> None:
    objects, _ = fetching()
    with pytest.raises(MalformedMessageError):
        objects.on_response(m.ObjectResponse(id=5, offset=8, size=10), b"12345")


def fetching() -> Tuple[ClientObjects, List[Any]]:
    """Objects of which number 5 is being fetched in chunks of 4 bytes, and what is asked for."""
    objects, effects = object_table(chunk_bytes=4)
    objects.fetch(5, Outcome(None, None))  # type: ignore[arg-type]  # for no future
    return objects, effects


def test_the_rest_of_a_short_answer_is_asked_for() -> None:
    objects, effects = fetching()
    content = b"0123456789"
    fetched = None
    while effects:
        assert fetched is None
        request = effects.pop(0).message
        end = request.offset + max(1, min(request.length, 4) - 1)
        response = m.ObjectResponse(id=5, offset=request.offset, size=10)
        fetched = objects.on_response(response, content[request.offset : end])
    assert fetched is not None and fetched.outcome.payload == content


@pytest.mark.parametrize(
    ("offset", "size", "chunk"),
    [(0, 10, b"0123"), (4, 11, b"4567"), (4, 10, b"45678"), (5, 10, b"5")],
    ids=["twice", "of another size", "too much", "elsewhere"],
)
def test_bytes_that_were_not_asked_for_are_no_part_of_an_object(offset: int, size: int, chunk: bytes) -> None:
    objects, _ = fetching()
    objects.on_response(m.ObjectResponse(id=5, offset=0, size=10), b"0123")
    with pytest.raises(MalformedMessageError):
        objects.on_response(m.ObjectResponse(id=5, offset=offset, size=size), chunk)


def test_a_result_for_which_there_is_no_memory_is_an_error_of_its_task_alone() -> None:
    objects, _ = fetching()
    fetched = objects.on_response(m.ObjectResponse(id=5, size=2**62), b"0123")
    assert fetched is not None and isinstance(fetched.error, ObjectStorageFullError)


def test_a_directory_that_can_be_none_is_not_shared() -> None:
    files = ClientObjectFiles(m.Welcome(session=1, object_directory="/tmp/a\0b", object_directory_token=bytes(16)))
    assert files.open_result(5) is None


def test_an_outcome_that_is_on_its_way_when_the_block_ends_is_not_cancelled() -> None:
    def part(script: Script) -> None:
        script.send(m.Welcome(session=1))
        task = script.expect(m.Task)
        cancel = script.expect(m.TaskCancel)
        script.send(result(task.ids), m.TaskCancelConfirm(ids=cancel.ids, outcomes=bytes([m.CancelOutcome.RUNNING])))
        script.serve()

    with Script(part) as script, warnings.catch_warnings():
        warnings.simplefilter("error")
        with Client(script.address) as client:
            future = client.submit(ECHO, 1)
    assert future.result() == 7
