"""Pickles in every text and every bytes field of every message, from every role: only those load them who have to.

Rules:
- Real processes and real sockets; each rogue peer is a process of another user of the host, and has a key that the
  scheduler admits, in its role.
- Processors load the arguments of tasks that are called by pickle, and clients the results of these. All others load
  nothing, and a client or worker that uses neutral codecs alone loads nothing either.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import urllib.request
from array import array
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Callable, Dict, List, Set

import pytest
import zmq
import zmq.utils.z85 as z85
from sdk_tasks import wait_for
from security.attackers.another_user import AnotherUser
from security.attackers.bombing_scheduler import PARTS, BombingScheduler
from security.attackers.pickle_bombs import Bomb, Bombs, fields_with_texts_or_bytes
from security.attackers.rogue_peer import RoguePeer
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler, StartWorker

from scaler_protocol import encode
from scaler_protocol import messages as m
from scaler_protocol.keys.key_file import KeyFile, read_key_file

ECHO = "scaler.conformance/echo"
NAMED = ("--only-named", "--functions", "scaler.conformance/*=scaler.conformance")
NAMED_CLIENT = f"""
import sys
from scaler import Client, NamedFunction
client = Client(sys.argv[1], key_file=sys.argv[2], connect_timeout_seconds=30)
futures = [client.submit(NamedFunction({ECHO!r}, "json"), number) for number in range(5)]
print("submitted", flush=True)
for future in futures:
    try:
        future.exception(60)
    except BaseException as error:
        print(type(error).__name__)
sys.stdin.read()
"""


@pytest.fixture
def bombs(tmp_path: Path) -> Bombs:
    return Bombs(tmp_path / "bombs")


def descendants(process_id: int) -> Dict[int, int]:
    """The processes that a process has started, directly or not, with their parents."""
    parents: Dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found: Dict[int, int] = {}
    generation = {process_id}
    while generation:
        generation = {each for each, parent in parents.items() if parent in generation}
        found.update({each: parents[each] for each in generation})
    return found


@pytest.mark.parametrize("message_class", m.MEMBERS, ids=lambda each: each.__name__)
def test_each_text_and_each_bytes_field_of_the_schema_gets_a_bomb(message_class: Any, bombs: Bombs) -> None:
    messages = [each for each in bombs.messages() if type(each) is message_class]
    assert len(messages) == 1 + len(fields_with_texts_or_bytes(message_class))
    for message in messages if fields_with_texts_or_bytes(message_class) else []:
        frame = bytes(encode(message))
        assert bombs.data in frame or bombs.text.encode() in frame


@pytest.mark.parametrize("protocol", [0, 5])
def test_a_bomb_tells_on_the_process_that_loads_it(bombs: Bombs, protocol: int) -> None:
    assert bombs.loaded() == set()
    pickle.loads(bombs.data if protocol else bombs.text.encode())
    assert bombs.loaded() == {os.getpid()}


def test_a_bomb_in_an_argument_is_loaded_by_the_processor_and_no_other_process(
    scheduler: KeyedScheduler, workers: StartWorker, bombs: Bombs
) -> None:
    worker = workers(key_file=scheduler.admitted_key("worker", "control-worker"))
    with scheduler.client(scheduler.admitted_key("client", "control-client")) as client:
        processor = client.submit(os.getpid).result(TIMEOUT_SECONDS)
        assert client.submit(repr, Bomb(bombs.folder)).result(TIMEOUT_SECONDS) == "None"
    assert bombs.loaded() == {processor} and processor in descendants(worker.pid)


@pytest.mark.parametrize("role", ["client", "worker", "monitor", "admin", "provisioner"])
def test_only_processors_load_what_a_rogue_peer_sends(
    scheduler: KeyedScheduler, workers: StartWorker, another_user: AnotherUser, bombs: Bombs, role: str
) -> None:
    workers(key_file=scheduler.admitted_key("worker", f"beside-{role}"))
    client_key = scheduler.admitted_key("client", f"client-beside-{role}")
    with scheduler.client(client_key) as client:
        processors = {client.submit(os.getpid).result(TIMEOUT_SECONDS)}
    for hello_role in (m.Role.CLIENT, m.Role.WORKER):
        key = read_key_file(str(scheduler.admitted_key(role, f"rogue-{role}-{hello_role.name.lower()}")))
        with another_user.starts(RoguePeer, scheduler.address, key, bombs) as rogue:
            # An administrator's ClientShutdown would rightly end the scheduler.
            sent = rogue.tell(hello_role, but=(m.ClientShutdown,) if role == "admin" else ())
            assert sent >= len(m.MEMBERS) - 1
    with scheduler.client(client_key) as client:
        processors.add(client.submit(os.getpid).result(TIMEOUT_SECONDS))
    assert bombs.loaded() <= processors


def test_what_a_rogue_worker_returns_is_loaded_by_no_client_that_calls_in_json(
    scheduler: KeyedScheduler, another_user: AnotherUser, bombs: Bombs
) -> None:
    key = read_key_file(str(scheduler.admitted_key("worker", "returns-bombs")))
    with another_user.starts(RoguePeer, scheduler.address, key, bombs) as rogue:
        rogue.say_hello(m.Role.WORKER, slots=1000, queue_size=1000, codecs=["json"], functions=[ECHO])
        process = named_client(scheduler.address, scheduler.admitted_key("client", "in-json"))
        try:
            ids: List[int] = []
            while len(ids) < 5:
                ids += [each for task in rogue.receive(m.Task) for each in task.ids]
            rogue.return_bombs(ids)
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(1)]
            process.communicate(timeout=TIMEOUT_SECONDS)
            assert lines == ["submitted\n"] and process.returncode == 0
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
    assert bombs.loaded() == set()


def test_what_a_rogue_worker_returns_is_loaded_by_the_client_that_asked_for_a_pickle(
    scheduler: KeyedScheduler, another_user: AnotherUser, bombs: Bombs
) -> None:
    key = read_key_file(str(scheduler.admitted_key("worker", "returns-a-bomb")))
    with another_user.starts(RoguePeer, scheduler.address, key, bombs) as rogue:
        rogue.say_hello(m.Role.WORKER, slots=1, queue_size=1, codecs=["cloudpickle", "json"])
        with scheduler.client(scheduler.admitted_key("client", "by-pickle")) as client:
            future = client.submit(abs, -1)
            (task,) = rogue.receive(m.Task)
            rogue.send(
                m.TaskResult(
                    ids=task.ids,
                    statuses=bytes(1),
                    payload_sizes=array("I", [len(bombs.data)]),
                    codec="cloudpickle",
                    runs=array("Q"),
                ),
                bombs.data,
            )
            assert future.result(TIMEOUT_SECONDS) is None
    assert bombs.loaded() == {os.getpid()}


def named_client(address: str, key_file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", NAMED_CLIENT, address, str(key_file)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_until_told(
    liar: BombingScheduler, peer: subprocess.Popen[Any], look: Callable[[], object] = lambda: None
) -> None:
    """Wait until the peer has been sent everything and has read it, or has ended.

    Parameters:
        look: called again and again meanwhile.
    """

    def is_told() -> bool:
        look()
        return liar.has_told or (liar.sessions > 0 and peer.poll() is not None)

    wait_for(is_told, f"the peer to have had {PARTS} sessions")


def test_a_client_that_calls_in_json_loads_nothing_of_a_lying_scheduler(
    scheduler: KeyedScheduler, another_user: AnotherUser, bombs: Bombs
) -> None:
    with another_user.starts(BombingScheduler, scheduler.keys.server_key_pairs(), bombs) as liar:
        client = named_client(liar.address, scheduler.new_key("client", "lied-to"))
        try:
            wait_until_told(liar, client)
        finally:
            client.kill()
            client.wait(TIMEOUT_SECONDS)
    assert bombs.loaded() == set()


@pytest.mark.parametrize("options", [(), NAMED], ids=["any function", "named functions only"])
def test_only_processors_load_what_a_lying_scheduler_sends_to_a_worker(
    scheduler: KeyedScheduler, another_user: AnotherUser, bombs: Bombs, options: List[str]
) -> None:
    with another_user.starts(BombingScheduler, scheduler.keys.server_key_pairs(), bombs) as liar:
        key_file = scheduler.new_key("worker", f"lied-to-{len(options)}")
        worker = scheduler.worker("-ds", "30", *options, key_file=key_file, address=liar.address)
        seen: Dict[int, int] = {}
        try:
            wait_until_told(liar, worker, lambda: seen.update(descendants(worker.pid)))
        finally:
            worker.kill()
            worker.wait(TIMEOUT_SECONDS)
    others = {worker.pid, *(each for each, parent in seen.items() if parent == worker.pid)}
    assert bombs.loaded().isdisjoint(others), "the agent and its fork server load nothing"
    if options:
        assert bombs.loaded() == set()


def monitor_socket(scheduler: KeyedScheduler, key: KeyFile) -> zmq.Socket[bytes]:
    """A connection to the address for monitors that has not subscribed to anything."""
    made: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.XSUB)
    made.curve_publickey, made.curve_secretkey = z85.encode(key.keys.public), z85.encode(key.keys.secret)
    made.curve_serverkey = z85.encode(key.server_keys[0])
    made.connect(scheduler.monitor_address)
    return made


def test_a_scheduler_loads_nothing_of_what_a_monitor_sends(tmp_path: Path, bombs: Bombs) -> None:
    scheduler = KeyedScheduler(tmp_path, "-ma", "tcp://127.0.0.2:*")
    key = read_key_file(str(scheduler.admitted_key("monitor")))
    with monitor_socket(scheduler, key) as rogue, monitor_socket(scheduler, key) as honest:
        for prefix in (b"\1", b"\0", b""):
            for bomb in (bombs.data, bombs.text.encode()):
                rogue.send(prefix + bomb)
        for message in bombs.messages():
            rogue.send_multipart([encode(message), bombs.data])
        rogue.send(b"\1status")
        honest.send(b"\1status")
        for each in (rogue, honest):
            if each.poll(int(TIMEOUT_SECONDS * 1000)):
                assert each.recv_multipart()[0] == b"status"
            else:
                assert each is rogue, "the honest monitor is served"
    scheduler.stop()
    assert bombs.loaded() == set()


class _Publisher:
    """Publishes bombs at a Unix socket, as a scheduler does."""

    def __init__(self, address: str, bombs: Bombs) -> None:
        now = int(time.time() * 1e6)
        plausible = {"is_snapshot": True, "unix_microseconds": now, "scheduler_id": bytes(16), "one_worker_of": 1}
        self._messages = [
            each
            for each in bombs.messages(**plausible)
            if isinstance(each, (m.SchedulerStatus, m.TaskRuns)) and encode(each)
        ]
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        self._socket.bind(address)
        self.rounds = 0

    def publish(self) -> bool:
        """Publish all messages once."""
        for number, message in enumerate(self._messages, start=self.rounds * len(self._messages)):
            message.sequence = number
            topic = b"status" if isinstance(message, m.SchedulerStatus) else b"tasks"
            self._socket.send_multipart([topic, encode(message)])
        self.rounds += 1
        return False

    def close(self) -> None:
        self._socket.close(0)


def test_scaler_top_and_scaler_ui_load_nothing_of_a_lying_scheduler(tmp_path: Path, bombs: Bombs) -> None:
    address, link_file = f"ipc://{tmp_path}/monitor", tmp_path / "link"
    publisher = _Publisher(address, bombs)
    module = [sys.executable, "-m"]
    top = subprocess.Popen([*module, "scaler_appliance.top", address, "--json"], stdout=subprocess.PIPE)
    options = ["--port", "0", "--link-file", str(link_file), "--exit-when-stdin-closes"]
    ui = subprocess.Popen([*module, "scaler_appliance.ui", address, *options], stdin=subprocess.PIPE)
    try:
        assert top.stdout is not None
        os.set_blocking(top.stdout.fileno(), False)
        lines: List[bytes] = []
        head = _UiReader(link_file)

        def have_heard() -> bool:
            publisher.publish()
            lines.extend(filter(None, [top.stdout.readline()]))  # type: ignore[union-attr]  # it is a pipe
            return len(lines) >= 3 and head.has_heard()

        wait_for(have_heard, "scaler_top and scaler_ui to hear of the scheduler")
        for page in ("overview", "workers", "tasks", "functions", "clients", "objects", "graphs"):
            head.get(f"api/{page}")
    finally:
        top.kill()
        ui.kill()
        top.communicate(timeout=TIMEOUT_SECONDS)
        ui.communicate(timeout=TIMEOUT_SECONDS)
        publisher.close()
    loaded: Set[int] = bombs.loaded()
    assert loaded == set()


class _UiReader:
    """Reads scaler_ui's JSON."""

    def __init__(self, link_file: Path) -> None:
        self._link_file = link_file
        self._url = ""
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> bytes:
        with self._opener.open(self._url + path, timeout=TIMEOUT_SECONDS) as answer:
            found: bytes = answer.read()
        return found

    def has_heard(self) -> bool:
        """Whether scaler_ui shows a scheduler."""
        if not self._url and self._link_file.exists() and self._link_file.read_text().endswith("\n"):
            link = self._link_file.read_text().strip()
            with self._opener.open(link, timeout=TIMEOUT_SECONDS):
                self._url = link.partition("?")[0]
        return bool(self._url) and b'"scheduler_id":null' not in self.get("api/overview").replace(b" ", b"")
