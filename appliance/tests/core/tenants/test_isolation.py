"""To a peer of one tenant, what belongs to another does not exist: the answers are those for ids that are unknown."""

from __future__ import annotations

from array import array
from typing import Any, Callable, List

import pytest
from scheduler_harness import Client, Harness, Peer, task

from scaler_protocol import decode_struct
from scaler_protocol import messages as m

Request = Callable[[Client, int], m.Member]
OTHER_KINDS = ["client", "admin", "owner"]
INLINE, SHARED, REMOTE, *_ = m.ObjectStorage
OF_CLIENTS = (INLINE, SHARED, REMOTE)


def answers(peer: Peer, shown: int, *texts: str) -> List[Any]:
    """All that a peer was sent, with an id, or a text, blanked."""
    found = []
    while peer.inbox:
        message, payload = peer.inbox.popleft()
        if isinstance(message, m.TaskResult) and any(message.statuses):
            payload = repr(decode_struct(m.Failure, payload)).encode()
        text = f"{message!r} {payload!r}"
        for each in (*texts, f"{shown:016x}", str(shown)):
            text = text.replace(each, "ID")
        found.append(text)
    return found


@pytest.fixture
def bob(harness: Harness) -> Client:
    return harness.client("b")


@pytest.fixture
def alice(harness: Harness) -> Client:
    return harness.client("a")


# Objects --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", OF_CLIENTS, ids=lambda storage: storage.name)
def test_a_foreign_object_is_answered_like_an_unknown_one(
    harness: Harness, alice: Client, bob: Client, storage: m.ObjectStorage
) -> None:
    object_id = alice.create(1, b"secret") if storage == INLINE else alice.announce(1, 6, storage)
    alice.inbox.clear()
    unknown = alice.object_id(2)
    said = []
    for each in (object_id, unknown):
        bob.send(m.ObjectRequest(id=each, offset=0, length=6))
        said.append(answers(bob, each))
    assert said[0] == said[1]
    assert len(said[0]) == 1
    alice.send(m.ObjectRequest(id=object_id, offset=0, length=6))
    mine = harness.effects or alice.inbox or storage == REMOTE
    assert mine, "its own tenant gets it"


def test_no_object_of_another_tenant_is_found_by_guessing_the_next_35_ids(
    harness: Harness, alice: Client, bob: Client
) -> None:
    for number in range(1, 6):
        alice.create(number, b"secret %d" % number)
    for session in range(bob.session + 2):
        for number in range(35):
            if session != bob.session:
                bob.send(m.ObjectRequest(id=session << 40 | number, offset=0, length=100))
                response = bob.take(m.ObjectResponse)
                assert (response.status, bob.payload) == (m.ObjectResponseStatus.MISSING, b"")


@pytest.mark.parametrize("tenant", ["b", "default"])
def test_a_worker_reads_objects_of_its_own_tenant_only(harness: Harness, alice: Client, tenant: str) -> None:
    object_id = alice.create(1, b"secret")
    worker, own = harness.worker(tenant=tenant), harness.worker(tenant="a")
    for peer, status in ((worker, m.ObjectResponseStatus.MISSING), (own, m.ObjectResponseStatus.OK)):
        peer.send(m.ObjectRequest(id=object_id, offset=0, length=6))
        assert peer.take(m.ObjectResponse).status == status


def test_the_owner_s_programs_do_not_read_objects_of_tenants_either(harness: Harness, alice: Client) -> None:
    object_id = alice.create(1, b"secret")
    owner = harness.client()
    owner.send(m.ObjectRequest(id=object_id, offset=0, length=6))
    assert owner.take(m.ObjectResponse).status == m.ObjectResponseStatus.MISSING


def test_deleting_a_foreign_object_changes_nothing(harness: Harness, alice: Client, bob: Client) -> None:
    object_id = alice.create(1, b"secret")
    bob.delete(object_id)
    alice.send(m.ObjectRequest(id=object_id, offset=0, length=6))
    assert alice.take(m.ObjectResponse).status == m.ObjectResponseStatus.OK
    harness.nothing_else_was_sent()


def test_an_object_with_a_foreign_session_s_id_is_refused_whether_that_exists_or_not(
    harness: Harness, alice: Client
) -> None:
    said = []
    for object_id in (alice.create(1, b"secret"), alice.object_id(9)):
        bob = harness.client("b")
        columns = {"ids": array("Q", [object_id]), "sizes": array("Q", [1]), "storages": bytes(1)}
        bob.send(m.ObjectInstruction(**columns), b"x")  # type: ignore[arg-type]  # named as the fields are
        said.append(answers(bob, object_id))
    assert said[0] == said[1]


# Tasks that need them -------------------------------------------------------------------------------------------------


def with_dependency(client: Client, object_id: int, task_id: int) -> None:
    client.submit([task_id], [b""], dependency_counts=[1], dependencies=[object_id])


def as_function(client: Client, object_id: int, task_id: int) -> None:
    client.submit([task_id], [b""], function=object_id)


def after_others(client: Client, object_id: int, task_id: int) -> None:
    client.submit([2 * task_id + 100], [b""])
    fields = {"dependency_counts": [1], "dependencies": [object_id]}
    client.send(*task([2 * task_id + 101], [b""], predecessor_counts=[1], predecessors=[2 * task_id + 100], **fields))


def graph_node(client: Client, object_id: int, task_id: int, *, is_function: bool) -> None:
    own = client.create(50 + task_id, b"function")
    message = m.GraphTask(
        ids=array("Q", [task_id]),
        payload_sizes=array("I", [0]),
        functions=array("Q", [object_id if is_function else own]),
        predecessor_offsets=array("I", [0, 0]),
        targets=array("I", [0]),
    )
    if not is_function:
        message.dependency_counts, message.dependencies = array("H", [1]), array("Q", [object_id])
    client.send(message)


def graph_function(client: Client, object_id: int, task_id: int) -> None:
    graph_node(client, object_id, task_id, is_function=True)


def graph_dependency(client: Client, object_id: int, task_id: int) -> None:
    graph_node(client, object_id, task_id, is_function=False)


USES = [with_dependency, as_function, after_others, graph_function, graph_dependency]


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "no room for it"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_a_task_that_needs_a_foreign_object_fails_like_one_that_needs_an_unknown_one(
    harness: Harness, alice: Client, bob: Client, use: Callable[[Client, int, int], None], is_broken: bool
) -> None:
    object_id = alice.announce(1, 6, SHARED)
    if is_broken:
        harness.core.on_object_unreadable(harness.now, object_id, "full", lacks_room=True)
        harness.tick()
    unknown = alice.object_id(2)
    worker = harness.worker(tenant="b")
    said = []
    for task_id, each in enumerate((object_id, unknown)):
        use(bob, each, task_id)
        assert bob.inbox, "it fails at once"
        said.append(answers(bob, each, f"[{task_id}]", f"[{2 * task_id + 101}]"))
    assert said[0] == said[1] and "OBJECT_MISSING" in said[0][0]
    assert not any(isinstance(message, m.ObjectInstruction) for message, _ in worker.inbox)
    harness.effects.clear()
    record = harness.state.objects.find(object_id)
    assert record is not None and not record.references, "a foreign object is not kept"


def test_the_name_of_a_foreign_function_is_not_shown(harness: Harness, alice: Client, bob: Client) -> None:
    function = alice.object_id(1)
    columns = {"ids": array("Q", [function]), "sizes": array("Q", [1]), "storages": bytes(1)}
    alice.send(m.ObjectInstruction(**columns, names=["secret_name"]), b"f")  # type: ignore[arg-type]  # by name
    bob.submit([0], function=function)
    bob.take_losses()
    assert [each.name for each in harness.state.changes.function_counters()] == [f"{function:016x}"]


# Tasks ----------------------------------------------------------------------------------------------------------------


def cancel(client: Client, task_id: int) -> m.Member:
    return m.TaskCancel(ids=array("Q", [task_id]), force=True)


def explain(client: Client, task_id: int) -> m.Member:
    return m.ExplanationRequest(request_id=1, task_id=task_id)


@pytest.mark.parametrize("request_of", [cancel, explain], ids=lambda each: each.__name__)
def test_a_foreign_task_is_answered_like_an_unknown_one(
    harness: Harness, alice: Client, bob: Client, request_of: Request
) -> None:
    worker = harness.worker(tenant="a")
    alice.submit([7, 8])
    held = worker.take_all_tasks()
    said = []
    for task_id in (7, 8, 9):
        bob.send(request_of(bob, task_id))
        said.append(answers(bob, task_id))
    assert said[0] == said[1] == said[2] and len(said[0]) == 1
    harness.nothing_else_was_sent()
    worker.finish(held)
    assert sorted(alice.take_results()) == [7, 8]


def test_results_and_output_of_another_tenant_s_task_end_the_worker_that_forges_them(
    harness: Harness, alice: Client
) -> None:
    worker = harness.worker(tenant="a")
    alice.submit([1])
    (instance,) = worker.take_tasks()
    for forged in (
        worker.result([instance])[0],
        m.TaskLog(id=instance, text="ha"),
        m.BalanceResponse(ids=array("Q", [instance])),
    ):
        rogue = harness.worker(tenant="b")
        rogue.send(forged, b"done" if isinstance(forged, m.TaskResult) else b"")
        assert "was given to another worker" in rogue.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert not alice.inbox
    worker.finish([instance])
    assert alice.take_results() == {1: b"done"}


def test_a_worker_s_result_cannot_name_an_object_of_another_tenant(
    harness: Harness, alice: Client, bob: Client
) -> None:
    object_id = alice.create(1, b"secret")
    rogue = harness.worker(tenant="b")
    bob.submit([1])
    rogue.finish(rogue.take_tasks(), [b""], objects=[object_id])
    assert "must be the worker's own" in rogue.take_refusal(m.RefusalReason.PROTOCOL_VIOLATION)
    assert not bob.inbox


def test_a_large_result_of_a_shared_worker_belongs_to_the_tenant_of_its_task(
    harness: Harness, alice: Client, bob: Client
) -> None:
    worker = harness.worker(tenant="*")
    alice.submit([1])
    held = worker.take_tasks()
    object_id = worker.create(1, b"result")
    for peer in (alice, bob):
        peer.send(m.ObjectRequest(id=object_id, offset=0, length=6))
        assert peer.take(m.ObjectResponse).status == m.ObjectResponseStatus.MISSING, "no task has returned it"
    worker.finish(held, [b""], objects=[object_id])
    alice.take(m.TaskResult)
    for peer, status in ((alice, m.ObjectResponseStatus.OK), (bob, m.ObjectResponseStatus.MISSING)):
        peer.send(m.ObjectRequest(id=object_id, offset=0, length=6))
        assert peer.take(m.ObjectResponse).status == status


# Workers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_draining", [True, False])
def test_an_admin_s_request_about_a_foreign_worker_is_answered_like_one_about_an_unknown_one(
    harness: Harness, is_draining: bool
) -> None:
    worker = harness.worker(tenant="a", name="node1")
    admin = harness.client("b", "admin")
    for known, unknown in (((worker.session, ""), (999, "")), ((0, "node1"), (0, "node2"))):
        said = []
        for session, name in (known, unknown):
            admin.send(m.WorkerShutdown(request_id=1, is_draining=is_draining, session=session, name=name))
            said.append(answers(admin, worker.session, "999", "node1", "node2"))
        assert said[0] == said[1] and "is connected (any more)" in said[0][0]
    harness.nothing_else_was_sent()


def test_an_admin_asks_workers_of_its_tenant_to_leave(harness: Harness) -> None:
    worker, admin = harness.worker(tenant="a", name="node1"), harness.client("a", "admin")
    harness.worker(tenant="b", name="node1")
    admin.send(m.WorkerShutdown(name="node1", is_draining=True))
    assert admin.take(m.WorkerShutdownResponse).accepted, "it is the only one of this name that it can know of"
    worker.take(m.DisconnectRequest)
    harness.nothing_else_was_sent()


@pytest.mark.parametrize(("tenant", "is_accepted"), [("a", False), ("*", True)])
def test_only_an_admin_of_all_tenants_asks_a_shared_worker_to_leave(
    harness: Harness, tenant: str, is_accepted: bool
) -> None:
    worker, admin = harness.worker(tenant="*"), harness.client(tenant, "admin")
    admin.send(m.WorkerShutdown(session=worker.session))
    response = admin.take(m.WorkerShutdownResponse)
    assert response.accepted is is_accepted
    assert is_accepted or "serves all tenants" in response.message


def test_an_admin_of_a_tenant_cannot_stop_the_scheduler(harness: Harness) -> None:
    admin = harness.client("a", "admin")
    admin.send(m.ClientShutdown())
    response = admin.take(m.ClientShutdownResponse)
    assert not response.accepted and "--tenant '*'" in response.message


# Figures --------------------------------------------------------------------------------------------------------------


def test_information_is_about_one_s_own_tenant_and_the_workers_that_serve_it(harness: Harness) -> None:
    workers = {tenant: harness.worker(slots=2, tenant=tenant, name=f"of {tenant}") for tenant in ("a", "b", "*")}
    alice, bob, owner = harness.client("a"), harness.client("b"), harness.client()
    bob.submit(range(7))
    alice.submit(range(2))
    for worker in workers.values():
        worker.inbox.clear()
    told = {}
    for name, peer in (("a", alice), ("b", bob), ("owner", owner)):
        peer.send(m.InfoRequest(maximum_workers=10))
        told[name] = peer.take(m.Info)
    assert [info.clients for info in told.values()] == [1, 1, 3]
    assert [info.slots for info in told.values()] == [4, 4, 6]
    assert [info.tasks_running + info.tasks_waiting for info in told.values()] == [2, 7, 9]
    named = {name: {each.name for each in info.workers} for name, info in told.items()}
    assert named == {"a": {"of a", "of *"}, "b": {"of b", "of *"}, "owner": {"of a", "of b", "of *"}}


def test_a_heartbeat_is_answered_with_figures_of_one_s_own_tenant(harness: Harness, alice: Client, bob: Client) -> None:
    harness.worker(slots=3, tenant="b").inbox.clear()
    for _ in range(2):
        alice.submit([alice.harness.state.clients[alice.session].last_task_id + 1])
    for peer, figures in ((alice, (0, 2)), (bob, (3, 0))):
        peer.send(m.Heartbeat())
        echo = peer.take(m.HeartbeatEcho)
        assert (echo.slots, echo.tasks_waiting) == figures
