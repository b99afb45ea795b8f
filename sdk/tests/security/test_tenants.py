"""Tenants through real sockets: what belongs to one does not exist for another, and tasks stay on workers of theirs.

Each cell compares two answers: about an id of another tenant, and about one that has never existed. Who asks is a
process of another user of the host.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from security.attackers.another_user import AnotherUser
from security.keyed_peer import KeyedPeer, tenant_key, tenant_peer
from security.keyed_scheduler import TIMEOUT_SECONDS, KeyedScheduler, StartWorker

from scaler import Client
from scaler.exceptions import AuthenticationError, SchedulerRefusedError
from scaler_protocol import decode_struct
from scaler_protocol import messages as m

SECRET = b"the content of alice's object"
MISSING = m.ObjectResponseStatus.MISSING


@pytest.fixture
def alice(scheduler: KeyedScheduler) -> Iterator[KeyedPeer]:
    with tenant_peer(scheduler, "client", "alice") as peer:
        yield peer


@pytest.fixture(params=["client", "owner", "worker", "default client"])
def outsider(
    scheduler: KeyedScheduler, another_user: AnotherUser, request: pytest.FixtureRequest
) -> Iterator[KeyedPeer]:
    """A peer of another tenant."""
    *default, role = request.param.split()
    key = tenant_key(scheduler, role, "default" if default or role == "owner" else "bob")
    with another_user.starts(KeyedPeer, scheduler.address, key) as peer:
        yield peer


@pytest.fixture
def bob(scheduler: KeyedScheduler, another_user: AnotherUser) -> Iterator[KeyedPeer]:
    with another_user.starts(KeyedPeer, scheduler.address, tenant_key(scheduler, "client", "bob")) as peer:
        yield peer


def made_object(peer: KeyedPeer, content: bytes = SECRET, number: int = 1) -> int:
    """An object that the scheduler has when this returns."""
    object_id = peer.session << 40 | number
    instruction = m.ObjectInstruction(
        ids=array("Q", [object_id]), sizes=array("Q", [len(content)]), storages=bytes([m.ObjectStorage.INLINE])
    )
    peer.send(instruction, content)
    peer.send(m.ObjectRequest(id=object_id, offset=0, length=100))
    assert peer.take(m.ObjectResponse)[1] == content
    return object_id


def blanked(answer: Tuple[object, bytes], *shown: object) -> str:
    message, payload = answer
    if isinstance(message, m.TaskResult) and message.statuses:
        payload = repr(decode_struct(m.Failure, payload)).encode()
    text = f"{message!r} {payload!r}"
    for each in shown:
        text = text.replace(f"{each:016x}" if isinstance(each, int) else str(each), "ID").replace(str(each), "ID")
    return text


def test_a_foreign_object_is_answered_like_an_unknown_one(alice: KeyedPeer, outsider: KeyedPeer) -> None:
    known = made_object(alice)
    said: List[str] = []
    for object_id in (known, known + 7):
        outsider.send(m.ObjectRequest(id=object_id, offset=0, length=100))
        response, payload = outsider.take(m.ObjectResponse)
        assert response.status == MISSING and payload == b""
        said.append(blanked((response, payload), object_id))
    assert said[0] == said[1]


def test_another_tenant_s_objects_are_not_found_by_guessing(alice: KeyedPeer, bob: KeyedPeer) -> None:
    """Session numbers ascend one by one, and so do object numbers of some peers: a few dozen guesses would find all."""
    for number in range(1, 4):
        made_object(alice, SECRET, number)
    guesses = [
        session << 40 | number for session in range(alice.session - 2, bob.session + 1) for number in range(1, 36)
    ]
    for object_id in guesses:
        bob.send(m.ObjectRequest(id=object_id, offset=0, length=100))
    for _ in guesses:
        response, payload = bob.take(m.ObjectResponse)
        assert response.status == MISSING and payload == b""
    assert made_object(bob, b"its own", 9)


LARGE_BYTES, SMALL_BYTES = 200_000, 20_000  # an object of its worker, and what the scheduler makes one of


def wait_in_between(begun: str, end: str, *_: bytes) -> bool:
    """Let a reader of the first pipe go on, and wait for a writer of the second one."""
    open(begun, "w").close()
    open(end).close()
    return True


def test_objects_of_its_own_tenant_are_not_found_by_guessing_either(
    scheduler: KeyedScheduler, workers: StartWorker, alice: KeyedPeer, tmp_path: Path
) -> None:
    """What a client has sent, the large result of a worker, and a result that many nodes of a graph need."""
    begun, end = tmp_path / "begun", tmp_path / "end"
    for pipe in begun, end:
        os.mkfifo(pipe)
    keys = {
        role: scheduler.admitted_key(role, f"alice-{role}-guessed", tenant="alice") for role in ("worker", "client")
    }
    workers(key_file=keys["worker"])
    with scheduler.client(keys["client"]) as client:
        held = client.send_object(SECRET * 100)
        graph = {"large": (bytes, LARGE_BYTES), "small": (bytes, SMALL_BYTES)}
        nodes: Dict[str, Any] = {f"node {number}": (len, "small") for number in range(30)}
        nodes["waits"] = (wait_in_between, str(begun), str(end), "large", "small")
        done = client.get({**graph, **nodes}, list(nodes), block=False)
        open(begun).close()
        newest = client.info().workers[-1].session
        for session, first in itertools.product(range(alice.session, newest + 2), (1, (1 << 39) + 1)):
            for number in range(first, first + 35):
                alice.send(m.ObjectRequest(id=session << 40 | number, offset=0, length=100))
            answers = [alice.take(m.ObjectResponse)[0].status for _ in range(35)]
            assert answers == [MISSING] * 35
        alice.send(m.ObjectRequest(id=held.object_id, offset=0, length=100))
        assert alice.take(m.ObjectResponse)[0].status == m.ObjectResponseStatus.OK, "it has been told"
        open(end, "w").close()
        assert all(each.result(TIMEOUT_SECONDS) for each in done.values())


@pytest.mark.parametrize("use", ["an argument", "the function"])
def test_a_task_that_needs_a_foreign_object_fails_like_one_that_needs_an_unknown_one(
    alice: KeyedPeer, bob: KeyedPeer, use: str
) -> None:
    known = made_object(alice)
    said: List[str] = []
    for task_id, object_id in enumerate((known, known + 7)):
        task = m.Task(ids=array("Q", [task_id]), payload_sizes=array("I", [0]), function_name="f")
        if use == "the function":
            task.function = object_id
        else:
            task.dependency_counts, task.dependencies = array("H", [1]), array("Q", [object_id])
        bob.send(task)
        answer = bob.take(m.TaskResult)
        assert list(answer[0].statuses) == [m.TaskStatus.LOST]
        said.append(blanked(answer, object_id, f"[{task_id}]"))
    assert said[0] == said[1] and "OBJECT_MISSING" in said[0]


def test_a_foreign_task_is_neither_cancelled_nor_explained(
    scheduler: KeyedScheduler, alice: KeyedPeer, bob: KeyedPeer
) -> None:
    with tenant_peer(scheduler, "worker", "alice") as worker:
        alice.send(m.Task(ids=array("Q", [5]), payload_sizes=array("I", [0]), function_name="f"))
        (instance,) = worker.take(m.Task)[0].ids
        said: List[List[str]] = []
        for task_id in (5, 6):
            bob.send(m.TaskCancel(ids=array("Q", [task_id]), force=True))
            bob.send(m.ExplanationRequest(request_id=1, task_id=task_id))
            said.append([blanked(each, f"[{task_id}]") for each in bob.heard()])
        assert said[0] == said[1] and len(said[0]) == 2
        assert "not received the task" in str(said[0])
        worker.send(m.TaskResult(ids=array("Q", [instance]), payload_sizes=array("I", [4])), b"done")
        result, payload = alice.take(m.TaskResult)
        assert list(result.ids) == [5] and payload == b"done"


def test_a_worker_cannot_report_for_another_tenant_s_tasks(
    scheduler: KeyedScheduler, another_user: AnotherUser, alice: KeyedPeer
) -> None:
    key = tenant_key(scheduler, "worker", "bob")
    with (
        tenant_peer(scheduler, "worker", "alice") as worker,
        another_user.starts(KeyedPeer, scheduler.address, key) as rogue,
    ):
        alice.send(m.Task(ids=array("Q", [5]), payload_sizes=array("I", [0]), function_name="f"))
        (instance,) = worker.take(m.Task)[0].ids
        rogue.send(m.TaskResult(ids=array("Q", [instance]), payload_sizes=array("I", [6])), b"forged")
        refusal = rogue.take(m.Refusal)[0]
        assert refusal.reason == m.RefusalReason.PROTOCOL_VIOLATION
        worker.send(m.TaskResult(ids=array("Q", [instance]), payload_sizes=array("I", [4])), b"done")
        assert alice.take(m.TaskResult)[1] == b"done"


def test_a_foreign_actor_is_not_called(scheduler: KeyedScheduler, alice: KeyedPeer, bob: KeyedPeer) -> None:
    actor = made_object(alice, b"class")
    options = m.TaskOptions(actor=True)
    with tenant_peer(scheduler, "worker", "alice", features=["actors"]) as worker:
        alice.send(m.Task(ids=array("Q", [1]), payload_sizes=array("I", [0]), function=actor, options=options))
        assert worker.take(m.Task)[0].function == actor
        said: List[str] = []
        for task_id, function in enumerate((actor, actor + 7)):
            bob.send(
                m.Task(ids=array("Q", [task_id]), payload_sizes=array("I", [0]), function=function, options=options)
            )
            answer = bob.take(m.TaskResult)
            assert list(answer[0].statuses) == [m.TaskStatus.LOST]
            said.append(blanked(answer, function, f"[{task_id}]"))
        assert said[0] == said[1] and "ACTOR_LOST" in said[0]


@pytest.mark.parametrize(
    "request_",
    [
        m.TaskCancel(ids=array("Q", [5]), force=True),
        m.WorkerShutdown(name="alice-node", is_draining=True),
        m.ExplanationRequest(request_id=1, task_id=5),
        m.InfoRequest(request_id=1),
        m.Task(ids=array("Q", [1]), payload_sizes=array("I", [0]), function_name="f"),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("tenant", ["alice", "bob", "*"])
def test_a_worker_asks_for_nothing_that_is_a_client_s(
    scheduler: KeyedScheduler, another_user: AnotherUser, alice: KeyedPeer, tenant: str, request_: Any
) -> None:
    key = tenant_key(scheduler, "worker", tenant)
    with tenant_peer(scheduler, "worker", "alice", name="alice-node") as worker:
        alice.send(m.Task(ids=array("Q", [5]), payload_sizes=array("I", [0]), function_name="f"))
        (instance,) = worker.take(m.Task)[0].ids
        with another_user.starts(KeyedPeer, scheduler.address, key) as rogue:
            rogue.send(request_)
            assert rogue.take(m.Refusal)[0].reason == m.RefusalReason.PROTOCOL_VIOLATION
        worker.send(m.TaskResult(ids=array("Q", [instance]), payload_sizes=array("I", [4])), b"done")
        assert alice.take(m.TaskResult)[1] == b"done"


@pytest.mark.parametrize("is_draining", [True, False])
def test_a_foreign_worker_is_not_asked_to_leave(
    scheduler: KeyedScheduler, another_user: AnotherUser, is_draining: bool
) -> None:
    key = tenant_key(scheduler, "admin", "bob")
    with tenant_peer(scheduler, "worker", "alice", name="alice-node") as worker:
        with (
            another_user.starts(KeyedPeer, scheduler.address, key) as admin,
            tenant_peer(scheduler, "admin", "alice") as own,
        ):
            said: List[str] = []
            for session, name in ((worker.session, ""), (999_999, ""), (0, "alice-node"), (0, "no-node")):
                admin.send(m.WorkerShutdown(session=session, name=name, is_draining=is_draining))
                answer = admin.take(m.WorkerShutdownResponse)
                assert not answer[0].accepted
                said.append(blanked(answer, name or f"session {session}"))
            assert said[0] == said[1] and said[2] == said[3]
            own.send(m.WorkerShutdown(session=worker.session, is_draining=is_draining))
            assert own.take(m.WorkerShutdownResponse)[0].accepted
        worker.take(m.DisconnectRequest)


def test_an_admin_of_a_tenant_cannot_stop_the_scheduler(scheduler: KeyedScheduler, another_user: AnotherUser) -> None:
    with another_user.starts(KeyedPeer, scheduler.address, tenant_key(scheduler, "admin", "bob")) as admin:
        admin.send(m.ClientShutdown())
        response = admin.take(m.ClientShutdownResponse)[0]
        assert not response.accepted and "tenant bob cannot stop the scheduler" in response.message
    with tenant_peer(scheduler, "client", "alice") as alice:
        assert made_object(alice)


def test_what_a_client_asks_about_the_cluster_is_about_its_tenant(
    scheduler: KeyedScheduler, another_user: AnotherUser
) -> None:
    key = tenant_key(scheduler, "client", "dave")
    with (
        tenant_peer(scheduler, "client", "carol") as carol,
        another_user.starts(KeyedPeer, scheduler.address, key) as dave,
    ):
        with tenant_peer(scheduler, "worker", "carol", slots=3, name="carol-node"):
            carol.send(m.Task(ids=array("Q", range(8)), payload_sizes=array("I", [0] * 8), function_name="f"))
            for peer, slots, tasks in ((carol, 3, 8), (dave, 0, 0)):
                peer.send(m.InfoRequest(maximum_workers=10))
                info = peer.take(m.Info)[0]
                assert (info.slots, info.tasks_waiting + info.tasks_running) == (slots, tasks)
                assert (info.clients, info.worker_count, len(info.workers)) == (1, int(slots > 0), int(slots > 0))
                peer.send(m.Heartbeat())
                assert peer.take(m.HeartbeatEcho)[0].slots == slots


def test_tasks_run_on_workers_of_their_tenant_and_on_shared_ones(
    scheduler: KeyedScheduler, workers: StartWorker
) -> None:
    def where() -> str:
        return os.environ["WHOSE"]

    names = {"alice": "alice", "bob": "bob", "*": "shared"}
    keys = {}
    for tenant, name in names.items():
        key = scheduler.new_key("worker", f"{name}-runs", tenant=tenant)
        keys[tenant] = key
    clients = {tenant: scheduler.new_key("client", f"{tenant}-asks", tenant=tenant) for tenant in ("alice", "bob")}
    scheduler.reload()
    workers(key_file=keys["alice"], environment={"WHOSE": "alice"})
    with scheduler.client(clients["alice"]) as alice, scheduler.client(clients["bob"]) as bob:
        assert {each.result(TIMEOUT_SECONDS) for each in [alice.submit(where) for _ in range(20)]} == {"alice"}
        waiting = bob.submit(where)
        assert "no worker of the tenant bob" in bob.explain(waiting)
        workers(key_file=keys["*"], environment={"WHOSE": "shared"})
        assert waiting.result(TIMEOUT_SECONDS) == "shared"
        workers(key_file=keys["bob"], environment={"WHOSE": "bob"})
        found = {
            name: {each.result(TIMEOUT_SECONDS) for each in [client.submit(where) for _ in range(50)]}
            for name, client in (("alice", alice), ("bob", bob))
        }
        assert found["alice"] <= {"alice", "shared"} and found["bob"] <= {"bob", "shared"}


def test_on_the_scheduler_s_host_too_a_program_is_what_its_key_says(tmp_path: Path) -> None:
    with_local_socket = KeyedScheduler(tmp_path, address="tcp://127.0.0.1:0")
    worker = None
    try:
        keys = {role: with_local_socket.new_key(role, f"alice-{role}", tenant="alice") for role in ("client", "worker")}
        with_local_socket.reload()
        with with_local_socket.client(keys["client"]) as alice, Client(address=with_local_socket.address) as owner:
            worker = with_local_socket.worker(key_file=keys["worker"])
            assert alice.submit(abs, -1).result(TIMEOUT_SECONDS) == 1
            assert "no worker of the tenant default" in owner.explain(owner.submit(abs, -1))
        with pytest.raises(SchedulerRefusedError, match="a key with the role worker cannot be used by a client"):
            with_local_socket.client(keys["worker"])
        owner_key = with_local_socket.keys.path + "/owner.key"
        with with_local_socket.client(Path(owner_key)):
            assert "with the key 'owner'" not in with_local_socket.log
    finally:
        with_local_socket.stop()
        if worker is not None:
            worker.wait(TIMEOUT_SECONDS)


def test_a_client_s_key_for_all_tenants_is_refused(scheduler: KeyedScheduler, tmp_path: Path) -> None:
    list_file = Path(scheduler.keys.path, "authorized_keys")
    before = list_file.read_text()
    key_file = scheduler.new_key("client", "greedy", tenant="alice")
    list_file.write_text(list_file.read_text().replace("tenant=alice name=greedy", "tenant=* name=greedy"))
    assert scheduler.process is not None
    scheduler.process.send_signal(1)
    scheduler.wait_for_log("is only for the roles worker, monitor, admin, provisioner")
    with pytest.raises(AuthenticationError):
        scheduler.client(key_file)
    list_file.write_text(before)
    scheduler.reload()


def test_a_monitor_s_key_shows_what_is_its_tenant_s(tmp_path: Path) -> None:
    watched = KeyedScheduler(tmp_path, "--monitor-address", "tcp://127.0.0.2:0")
    try:
        with tenant_peer(watched, "client", "erin", name="erin"), tenant_peer(watched, "client", "frank", name="frank"):
            with (
                tenant_peer(watched, "worker", "frank", name="frank-node"),
                tenant_peer(watched, "worker", "*", name="all"),
            ):
                seen = {tenant: status_for(watched, tenant) for tenant in ("erin", "frank", "grace", "*")}
    finally:
        watched.stop()
    names = {
        tenant: [sorted(each["name"] for each in status[table]) for table in ("clients", "workers")]
        for tenant, status in seen.items()
    }
    assert names == {
        "erin": [["erin"], ["all"]],
        "frank": [["frank"], ["all", "frank-node"]],
        "grace": [[], ["all"]],
        "*": [["erin", "frank"], ["all", "frank-node"]],
    }
    assert not seen["erin"]["received"] and seen["*"]["received"]


def status_for(watched: KeyedScheduler, tenant: str) -> Dict[str, Any]:
    """What a monitor with a key of a tenant prints."""
    key_file = watched.admitted_key("monitor", f"watches-{tenant.replace('*', 'all')}", tenant=tenant)
    command = [sys.executable, "-m", "scaler_appliance.top", watched.monitor_address, "--once", "--json"]
    done = subprocess.run(
        [*command, "--key-file", str(key_file)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
    )
    status: Dict[str, Any] = json.loads(done.stdout)
    return status


def test_quotas_are_told_to_whom_they_stop(tmp_path: Path) -> None:
    limits = "heidi:weight=2,maximum-waiting=3,maximum-objects=100kB"
    limited = KeyedScheduler(tmp_path, "--tenant", limits)
    try:
        keys = {name: limited.admitted_key("client", name, tenant=name) for name in ("heidi", "ivan")}
        with limited.client(keys["heidi"]) as heidi, limited.client(keys["ivan"]) as ivan:
            large = heidi.send_object(bytes(1_000_000))
            with pytest.raises(Exception, match="exceeds what the objects of the tenant heidi may take"):
                heidi.submit(len, large).result(TIMEOUT_SECONDS)
            futures = [heidi.submit(abs, number) for number in range(5)]
            with pytest.raises(Exception, match=r"the tenant heidi has reached its quota of waiting tasks \(3\)"):
                futures[-1].result(TIMEOUT_SECONDS)
            waiting = [ivan.submit(abs, number) for number in range(5)]
            assert "no worker" in ivan.explain(waiting[-1])
    finally:
        limited.stop()
