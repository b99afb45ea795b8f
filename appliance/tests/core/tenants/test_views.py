"""Monitors of a tenant see its rows and figures, and workers that serve it, without what these run for others."""

from __future__ import annotations

from array import array
from typing import Dict

import pytest
from scheduler_harness import Client, Harness
from status_model import StatusModel, publication, view_of_publication

from scaler_protocol import decode, encode
from scaler_protocol import messages as m

TENANTS = ("a", "b", "*")


class Views:
    """Monitors of two tenants, and one of all."""

    def __init__(self, harness: Harness) -> None:
        self.core = harness.core
        self.models = {tenant: StatusModel() for tenant in TENANTS}
        self.core.watch(True, True)
        self.look(is_snapshot=True)

    def look(self, is_snapshot: bool = False) -> Dict[str, StatusModel]:
        status = publication(self.core, is_snapshot)
        for tenant, model in self.models.items():
            model.apply(status if tenant == "*" else view_of_publication(self.core, tenant))
        for tenant, model in self.models.items():
            model.assert_is_true(self.core, tenant)
        return self.models

    def named(self, table: str) -> Dict[str, set[str]]:
        return {tenant: {each.name for each in model.tables[table].values()} for tenant, model in self.models.items()}


@pytest.fixture
def alice(harness: Harness) -> Client:
    return harness.client("a", name="alice")


@pytest.fixture
def bob(harness: Harness) -> Client:
    return harness.client("b", name="bob")


def made_function(client: Client, name: str) -> int:
    function = client.object_id(40)
    columns = {"ids": array("Q", [function]), "sizes": array("Q", [1]), "storages": bytes(1)}
    client.send(m.ObjectInstruction(**columns, names=[name]), b"f")  # type: ignore[arg-type]  # named as the fields are
    return function


@pytest.mark.parametrize("is_snapshot", [True, False])
def test_each_sees_its_own_clients_workers_and_functions(
    harness: Harness, alice: Client, bob: Client, is_snapshot: bool
) -> None:
    views = Views(harness)
    for tenant in ("a", "b", "*", "default"):
        harness.worker(tenant=tenant, name=f"worker of {tenant}")
    for client in (alice, bob):
        client.submit([0], function=made_function(client, f"secret of {client.name!r}"))
        client.submit([1], function_name="named")
    views.look(is_snapshot)
    assert views.named("client_names") == {"a": {"alice"}, "b": {"bob"}, "*": {"alice", "bob"}}
    served = {"a": {"worker of a", "worker of *"}, "b": {"worker of b", "worker of *"}}
    assert views.named("worker_names") == {**served, "*": {*served["a"], *served["b"], "worker of default"}}
    functions = views.named("function_names")
    assert not functions["a"] & functions["b"] - {"named"} and len(functions["a"]) == 2


def test_figures_are_those_of_the_tenant(harness: Harness, alice: Client, bob: Client) -> None:
    worker = harness.worker(slots=2, tenant="*", queue_size=1)
    harness.worker(tenant="b", gpu=1)
    views = Views(harness)
    bob.submit(range(5))
    alice.submit(range(1))
    alice.create(1, b"12345")
    held = worker.take_all_tasks()
    worker.finish(held)
    worker.finish(worker.take_all_tasks())
    models = views.look()
    tasks = {tenant: model.figures["tasks"] for tenant, model in models.items()}
    assert tasks["a"]["success"] + tasks["b"]["success"] == tasks["*"]["success"] > 0
    assert sum(tasks["a"].values()) == 1 and sum(tasks["b"].values()) == 5
    assert [models[tenant].figures["slots"] for tenant in TENANTS] == [2, 3, 3]
    assert [models[tenant].figures["objects"] for tenant in TENANTS] == [1, 0, 1]
    assert [models[tenant].figures["object_bytes"] for tenant in TENANTS] == [5, 0, 5]
    alice.vanish()
    models = views.look()
    assert models["a"].figures["tasks"] == {**tasks["a"]}, "what has ended counts on after its client"
    assert not models["a"].tables["clients"] and models["b"].tables["clients"]


def test_what_a_shared_worker_runs_for_others_is_not_shown(harness: Harness, alice: Client, bob: Client) -> None:
    worker = harness.worker(slots=2, tenant="*")
    alice.submit([7])
    (first,) = worker.take_tasks()
    bob.submit([8])
    (second,) = worker.take_tasks()
    processors = [
        m.ProcessorStatus(process_id=each, initialized=True, has_task=True, instance=instance)
        for each, instance in ((1, first), (2, second))
    ]
    worker.send(m.Heartbeat(processors=processors))
    models = Views(harness).models
    shown = {tenant: model.tables["processors"][worker.session] for tenant, model in models.items()}
    assert [row[6] for row in shown["a"]] == [alice.session, 0]
    assert [row[6] for row in shown["b"]] == [0, bob.session]
    assert [row[6] for row in shown["*"]] == [alice.session, bob.session]
    assert [row[2] for row in shown["a"]] == [row[2] for row in shown["*"]], "that it is busy is shown"


def test_waiting_reasons_are_those_of_the_tenant(harness: Harness, alice: Client, bob: Client) -> None:
    views = Views(harness)
    alice.submit([0], function_name="f")
    for _ in range(8):
        harness.wait(1)
    models = views.look()
    assert not models["b"].figures["waiting_reasons"]
    assert models["a"].figures["waiting_reasons"] == models["*"].figures["waiting_reasons"] != []


def test_a_large_result_of_a_shared_worker_appears_when_it_is_the_tenant_s(
    harness: Harness, alice: Client, bob: Client
) -> None:
    harness.core.state.changes.objects._large_bytes = 1
    worker = harness.worker(tenant="*")
    views = Views(harness)
    alice.submit([0])
    held = worker.take_tasks()
    object_id = worker.create(1, b"result")
    views.look()
    assert [len(model.tables["large_objects"]) for model in views.models.values()] == [0, 0, 1]
    worker.finish(held, [b""], objects=[object_id])
    views.look()
    assert [list(model.tables["object_names"]) for model in views.models.values()] == [[object_id], [], [object_id]]
    alice.delete(object_id)
    views.look()
    assert not views.models["a"].tables["large_objects"]


def test_runs_are_those_of_the_tenant_s_tasks(harness: Harness, alice: Client, bob: Client) -> None:
    worker = harness.worker(slots=4, tenant="*")
    harness.core.watch(True, True)
    for client in (alice, bob):
        client.submit([0, 1, 2])
        worker.finish(worker.take_all_tasks(), busy_microseconds=30)
    alice.submit([3])
    worker.finish(worker.take_all_tasks(), [b"x"], statuses=[m.TaskStatus.FAILED])
    runs = decode(encode(harness.core.take_runs(harness.now, 0)))
    assert isinstance(runs, m.TaskRuns)
    views = {}
    for tenant in ("a", "b", "c"):
        view = decode(encode(harness.core.take_runs_view(harness.now, tenant)))
        assert isinstance(view, m.TaskRuns)
        views[tenant] = view
    assert [sum(view.counts) for view in (runs, *views.values())] == [7, 4, 3, 0]
    assert set(views["a"].clients) == {alice.session} and set(views["b"].clients) == {bob.session}
    assert [len(view.failures) for view in views.values()] == [1, 0, 0]
    assert {view.sequence for view in views.values()} == {runs.sequence}
